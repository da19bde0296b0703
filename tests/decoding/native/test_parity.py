"""The native engine gives the results of PyTorch for random models, batches and settings, on every instruction set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import takewhile

import pytest
import torch
from hypothesis import given, note, strategies as st

from regard.settings import DecodingSettings, ModelSettings
from tests.decoding.native.models import (
    SETS,
    SPECIALS,
    Model,
    Work,
    assert_same,
    beams,
    build,
    drawn,
    greedy,
    models,
    native,
    reference,
    shapes,
    some_sources,
    works,
)
from tests.examples import examples

SEARCHES = {"greedy": greedy, "beam": beams, "drawn": drawn}


@pytest.mark.parametrize("search", SEARCHES)
@given(data=st.data(), model=models(), threads=st.sampled_from([1, 1, 2, 3]), fixed=st.booleans())
@examples(16)
def test_the_same_outputs(search: str, data: st.DataObject, model: Model, threads: int, fixed: bool) -> None:
    work = data.draw(works(model, SEARCHES[search]))
    expected = reference(model).search(*work)
    for kernels in SETS:
        note(kernels)
        assert_same(model, work, native(model, kernels, threads=threads, fixed=fixed).search(*work), expected)


@given(data=st.data(), search=greedy | beams, shape=shapes(), threads=st.integers(1, 2), seed=st.integers(0, 99))
@examples(8)
def test_the_best_of_many_tokens_that_are_nearly_equal(
    data: st.DataObject, search: DecodingSettings, shape: ModelSettings, threads: int, seed: int
) -> None:
    """Every token has others with almost the same score, which screening in int8 could put in another order."""
    model = build(shape, 1200, seed=seed)
    with torch.no_grad():
        table = model.logits.weight
        table[400:800] = table[:400] * 1.002
        table[800:] = table[:400] + 1e-3 * torch.randn(400, table.shape[1])
    screened = replace(search, repetition_penalty=1.0, penalty="power", length_penalty=1.0)
    work = data.draw(works(model, st.just(screened)))
    expected = reference(model).search(*work)
    found = native(model, threads=threads).search(*work)
    assert_same(model, work, found, expected)
    if threads == 1:
        assert found == [
            native(model).search([source], [limit], work.settings)[0] for source, limit in zip(*work[:2], strict=True)
        ]


@given(data=st.data(), model=models(), search=greedy | drawn, threads=st.integers(1, 2))
@examples(8)
def test_the_same_where_outputs_are_told_to_end(
    data: st.DataObject, model: Model, search: DecodingSettings, threads: int
) -> None:
    """The tokens so far decide, as with stop strings."""
    sources, limits, _ = data.draw(works(model, st.just(search)))
    work = Work(sources[:6], limits[:6], search)

    def enough(number: int, tokens: Sequence[int]) -> bool:
        return len(tokens) > number and sum(tokens) % 3 == 0

    expected = reference(model).search(*work, enough)
    assert_same(model, work, native(model, threads=threads).search(*work, enough), expected)


@given(data=st.data(), model=models(), search=greedy | drawn, threads=st.integers(1, 2))
@examples(8)
def test_the_same_token_by_token(data: st.DataObject, model: Model, search: DecodingSettings, threads: int) -> None:
    longest = model.settings.max_length
    source = some_sources(model, 1, longest=longest - 1, seed=data.draw(st.integers(0, 99)))[0]
    alone = replace(search, max_tokens=longest)
    told = (token for token, _ in zip(reference(model).tokens(source, alone), range(longest), strict=False))
    expected = list(takewhile(lambda token: token != SPECIALS.end, told))
    assert list(native(model, threads=threads).tokens(source, alone)) == expected
