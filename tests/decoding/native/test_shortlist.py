"""Both engines leave out the same tokens with a shortlist, for any model, search and batch."""

from __future__ import annotations

import random
from array import array
from dataclasses import replace

import pytest
from hypothesis import given, note, strategies as st

from regard.decoding.native.native_search import NativeSearch
from regard.decoding.token_shortlist import Shortlist
from regard.errors import ModelError
from regard.model.transformer import EncoderDecoder
from regard.settings import DecodingSettings
from tests.decoding.native.models import (
    SETS,
    SPECIALS,
    Model,
    assert_same,
    beams,
    build,
    drawn,
    greedy,
    native,
    reference,
    shapes,
    some_sources,
    toy,
    works,
)
from tests.decoding.native.test_continuous_search import Room
from tests.examples import examples

BEAM = DecodingSettings(beam=4, alternatives=1)
ALWAYS = sorted({SPECIALS.end, *SPECIALS.never_generated})


def lists(rows: list[list[int]], common: list[int]) -> Shortlist:
    starts = [sum(map(len, rows[:i])) for i in range(len(rows) + 1)]
    return Shortlist(array("i", common), array("q", starts), array("i", [i for row in rows for i in row]))


def some_lists(model: Model, seed: int = 0, *, longest: int = 6, common: int = 2) -> Shortlist:
    """Returns random lists, some of them empty."""
    assert isinstance(model, EncoderDecoder)
    dice, vocabulary = random.Random(seed), model.logits.out_features
    sources = model.source_embedding.tokens.num_embeddings
    rows = [[dice.randrange(vocabulary) for _ in range(dice.randint(0, longest))] for _ in range(sources)]
    return lists(rows, ALWAYS + [dice.randrange(vocabulary) for _ in range(common)])


def shortened(
    model: Model, shortlist: Shortlist, kernels: str = "", *, threads: int = 1, int8: bool = False
) -> NativeSearch:
    made = native(model, kernels, threads=threads, int8=int8)
    made.packed.shorten(shortlist)
    return made


@st.composite
def translators(draw: st.DrawFn) -> Model:
    return build(draw(shapes()), draw(st.sampled_from([7, 40, 600])), seed=draw(st.integers(0, 99)))


@given(
    data=st.data(),
    model=translators(),
    search=st.sampled_from([greedy, beams, drawn]),
    threads=st.sampled_from([1, 2]),
    seed=st.integers(0, 99),
)
@examples(14)
def test_the_same_outputs(
    data: st.DataObject, model: Model, search: st.SearchStrategy[DecodingSettings], threads: int, seed: int
) -> None:
    work, shortlist = data.draw(works(model, search)), some_lists(model, seed)
    expected = reference(model, shortlist).search(*work)
    for source, outputs in zip(work.sources, expected, strict=True):
        allowed = shortlist.allowed_tokens([*source, SPECIALS.end])
        assert all(allowed.issuperset(each.tokens) for each in outputs)
    for kernels in SETS:
        note(kernels)
        found = shortened(model, shortlist, kernels, threads=threads).search(*work)
        assert_same(model, work, found, expected, shortlist)


@given(data=st.data(), model=translators(), search=greedy | beams | drawn)
@examples(6)
def test_a_list_of_all_tokens_changes_nothing(data: st.DataObject, model: Model, search: DecodingSettings) -> None:
    assert isinstance(model, EncoderDecoder)
    work = data.draw(works(model, st.just(search)))
    everything = list(range(model.logits.out_features))
    whole = lists([[]] * model.source_embedding.tokens.num_embeddings, everything)
    assert_same(model, work, shortened(model, whole).search(*work), reference(model).search(*work))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("options", [DecodingSettings(beam=1), BEAM, DecodingSettings(temperature=1.0, alternatives=2)])
def test_the_same_alone_and_in_any_company(options: DecodingSettings, int8: bool) -> None:
    """The bits are equal in a batch, joined to a search that runs, and if threads share a sentence."""
    model = toy(vocabulary=600)
    sources, shortlist = some_sources(model, 24), some_lists(model, longest=40)
    engine = shortened(model, shortlist, int8=int8)
    alone = [engine.search([source], [9], options)[0] for source in sources]
    assert engine.search(sources, [9] * 24, options) == alone
    engine.threads = 2
    assert [engine.search([source], [9], options)[0] for source in sources[:5]] == alone[:5]
    with Room(engine, options) as room:
        for i, source in enumerate(sources):
            room.submit(i, source, 9)
        found = room.take(24)
    assert [found[i] for i in range(24)] == alone


@pytest.mark.parametrize("kernels", SETS)
def test_int8_has_nearly_the_same_numbers_as_without_a_list(kernels: str) -> None:
    """Without a list, improbable tokens count in the sum with their int8 logits."""
    model = toy(vocabulary=600, width=72)
    assert isinstance(model, EncoderDecoder)
    sources, whole = some_sources(model, 12), lists([[]] * 603, list(range(600)))
    ours = shortened(model, whole, kernels, int8=True).search(sources, [12] * 12, BEAM)
    theirs = native(model, kernels, int8=True).search(sources, [12] * 12, BEAM)
    for found, expected in zip(ours, theirs, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=0.02)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda s: replace(s, starts=s.starts[:-1]),
        lambda s: replace(s, starts=array("q", [*s.starts, s.starts[-1]])),
        lambda s: replace(s, starts=array("q", [1, *s.starts[1:]])),
        lambda s: replace(s, starts=array("q", [s.starts[0], s.starts[-1] + 1, *s.starts[2:]])),
        lambda s: replace(s, tokens=s.tokens[:-1]),
        lambda s: replace(s, tokens=array("i", [60, *s.tokens[1:]])),
        lambda s: replace(s, common=array("i", [-1])),
    ],
)
def test_lists_that_do_not_fit_are_refused(wrong: object) -> None:
    assert callable(wrong)
    model = toy()
    assert isinstance(model, EncoderDecoder)
    shortlist = wrong(some_lists(model))
    with pytest.raises(ModelError, match="fit the vocabulary"):
        native(model).packed.shorten(shortlist)
    with pytest.raises(ModelError, match="fit the vocabulary"):
        shortlist.check(model.source_embedding.tokens.num_embeddings, model.logits.out_features)


def test_a_model_that_writes_has_none() -> None:
    empty = Shortlist(array("i"), array("q", [0]), array("i"))
    with pytest.raises(ModelError, match="no model that translates"):
        native(toy(decoder_only=True)).packed.shorten(empty)
