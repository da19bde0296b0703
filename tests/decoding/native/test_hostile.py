"""Extreme sizes, absurd inputs and weights lead to an answer or an error, never to a crash."""

from __future__ import annotations

import math
import random
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import ModelError
from regard.model.transformer import EncoderDecoder
from regard.settings import DecodingSettings
from tests.decoding.native.models import (
    FIRST,
    PRELOADED,
    SETS,
    Model,
    Work,
    assert_same,
    native,
    packed,
    reference,
    searching,
    some_sources,
    toy,
    write,
)

GREEDY = DecodingSettings(beam=1)
BEAM = DecodingSettings(beam=4, alternatives=2)
DRAWN = DecodingSettings(temperature=1.0, alternatives=2)
SEARCHES = (GREEDY, BEAM, DRAWN)
every_search = pytest.mark.parametrize("search", SEARCHES, ids=["greedy", "beam", "drawn"])
both_kinds = pytest.mark.parametrize("decoder_only", [False, True], ids=["encoder-decoder", "decoder"])


def assert_parity(model: Model, work: Work, threads: int = 1, sets: list[str] = SETS[:1]) -> None:
    expected = reference(model).search(*work)
    for kernels in sets:
        assert_same(model, work, native(model, kernels, threads=threads).search(*work), expected)


@every_search
def test_empty_sources_single_tokens_and_the_longest(search: DecodingSettings) -> None:
    model = toy()
    longest = model.settings.max_length
    sources = [[], [FIRST], [FIRST + i for i in range(longest - 1)], []]
    assert_parity(model, Work(sources, [longest, 1, longest, 1], search), sets=SETS)


@every_search
def test_prompts_of_one_token_and_longer_than_the_positions(search: DecodingSettings) -> None:
    model = toy(decoder_only=True, max_length=6)
    sources = [[FIRST + i for i in range(count)] for count in (1, 5, 6, 20)]
    assert_parity(model, Work(sources, [20, 1, 13, 9], search), sets=SETS)


@pytest.mark.parametrize("max_length", [2, 3])
@both_kinds
def test_a_model_of_hardly_any_positions(max_length: int, decoder_only: bool) -> None:
    model = toy(decoder_only=decoder_only, max_length=max_length)
    assert_parity(model, Work([[FIRST], [FIRST + 1]], [9, 9] if decoder_only else [max_length, 1], BEAM))


def test_nothing_to_do() -> None:
    assert native(toy()).search([], [], BEAM) == []


@pytest.mark.parametrize("threads", [1, 3])
@both_kinds
def test_a_thousand_at_once(decoder_only: bool, threads: int) -> None:
    """Sentences join when others leave, and have the same outputs as alone."""
    model = toy(decoder_only=decoder_only, encoder_layers=1, decoder_layers=1, max_length=8)
    sources, dice = some_sources(model, 1000, longest=7), random.Random(1)
    assert_parity(model, Work(sources, [dice.randint(1, 5) for _ in sources], GREEDY), threads)


@pytest.mark.parametrize("patience", [0.0, 1.0])
@both_kinds
def test_a_beam_wider_than_the_vocabulary(patience: float, decoder_only: bool) -> None:
    for vocabulary in (6, 7, 16, 17):
        model = toy(decoder_only=decoder_only, vocabulary=vocabulary)
        work = Work([[FIRST], [FIRST] * 4], [5, 2], DecodingSettings(beam=50, alternatives=49, patience=patience))
        found = native(model).search(*work)
        assert_same(model, work, found, reference(model).search(*work))
        if vocabulary == 6:  # one of them is text: all that can be said of it is found
            assert {h.tokens for h in found[0] if h.finished} == {(FIRST,) * n for n in range(5)}


def test_more_threads_than_rows_columns_and_sentences() -> None:
    model = toy(vocabulary=20, width=6)
    for search in SEARCHES:
        assert_parity(model, Work([[FIRST, FIRST + 1]], [4], search), threads=5)


@every_search
def test_more_outputs_than_rows_at_once(search: DecodingSettings) -> None:
    many = replace(search, alternatives=150, beam=1 if search.beam == 1 else 151)
    assert_parity(toy(), Work([[FIRST + 2], []], [4, 4], many))


@pytest.mark.parametrize(
    ("sources", "limits", "message"),
    [
        ([[FIRST] * 30], [5], "longer than the model's positions"),
        ([[FIRST], [-1]], [5, 5], "not in the vocabulary"),
        ([[63]], [5], "not in the vocabulary"),
        ([[FIRST], [2**31]], [5, 5], "not in the vocabulary"),
        ([[-(2**40)]], [5], "not in the vocabulary"),
        ([[FIRST]], [31], "limit"),
        ([[FIRST]], [0], "limit"),
        ([[FIRST]], [-(2**31)], "limit"),
        ([[FIRST]], [2**40], "limit"),
    ],
)
def test_what_the_model_cannot_read_is_refused(sources: list[list[int]], limits: list[int], message: str) -> None:
    engine = native(toy(), threads=2)
    for search in SEARCHES:
        with pytest.raises(ModelError, match=message):
            engine.search(sources, limits, search)
    assert engine.search([[FIRST]], [3], GREEDY)[0]  # and goes on


@pytest.mark.parametrize("source", [[], [60], [-1]])
def test_what_a_decoder_cannot_read_is_refused(source: list[int]) -> None:
    engine = native(toy(decoder_only=True))
    for ask in (lambda: engine.search([source], [5], GREEDY), lambda: list(engine.tokens(source, GREEDY))):
        with pytest.raises(ModelError, match="not in the vocabulary" if source else "empty"):
            ask()


@pytest.mark.parametrize("options", [{"beam": 10_000}, {"top_k": 2**32 + 1, "temperature": 0.9}], ids=str)
def test_numbers_larger_than_the_vocabulary(options: dict[str, Any]) -> None:
    """Such numbers mean the whole vocabulary."""
    assert_parity(toy(vocabulary=9), Work([[FIRST], [FIRST + 2]], [3, 2], DecodingSettings(**options)))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 3e38], ids=str)
@pytest.mark.parametrize("where", ["logits.bias", "target_embedding.tokens", "encoder.layers.0", "norm", "weight"])
@pytest.mark.parametrize("fixed", [False, True])
def test_weights_that_are_no_numbers(where: str, value: float, fixed: bool) -> None:
    """Outputs are meaningless, but keep to the limits."""
    model = toy(encoder_layers=1, decoder_layers=1)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if where in name:
                parameter.view(-1)[:: 1 if where == "logits.bias" else 7] = value
    for kernels in SETS:
        engine = native(model, kernels, fixed=fixed)
        for search in SEARCHES:
            found = engine.search([[FIRST, FIRST + 1], [FIRST]], [6, 4], search)
            assert all(len(h.tokens) <= limit for hs, limit in zip(found, (6, 4), strict=True) for h in hs)


def test_a_token_that_is_no_number_spoils_its_own_sentence_only() -> None:
    """This holds for padded rows, and for the next sentence in its place."""
    model = toy(width=10, key_width=5, value_width=5, max_length=12)
    assert isinstance(model, EncoderDecoder)
    good = some_sources(model, 40, longest=8)
    expected = native(model).search(good, [8] * 40, GREEDY)
    with torch.no_grad():
        model.source_embedding.tokens.weight[62] = math.nan
    mixed = [ids for source in good for ids in ([62], source)]
    assert native(model).search(mixed, [8] * 80, GREEDY)[1::2] == expected


def test_more_threads_than_there_may_be_are_refused() -> None:
    model = toy()
    for threads in (-1, 5000, 2**31 - 1):
        with pytest.raises(ModelError, match=r"threads|negative"):
            native(model, threads=threads).search([[FIRST]], [3], GREEDY)


@pytest.mark.skipif(PRELOADED, reason="a sanitizer needs all the room there is")
def test_threads_that_cannot_be_started_are_an_error(tmp_path: Path) -> None:
    """Threads that have started must not wait for the missing ones."""
    write(toy(), tmp_path / "packed")
    program = f"""
import resource
from pathlib import Path
from regard.decoding.native import native_search as search
from regard.decoding.native.compiled_library import PackedModel
from regard.errors import ModelError
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials

search.WORTH_SHARING = 0  # a toy is shared too
engine = search.NativeSearch(PackedModel(Path({str(tmp_path / "packed")!r})), Specials(), longest=30, threads=1000)
room = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize() + 2**29
resource.setrlimit(resource.RLIMIT_AS, (room, room))
try:
    engine.search([[5, 6]], [5], DecodingSettings())
except ModelError as error:
    print(error)
engine.threads = 1
print(len(engine.search([[5, 6]], [5], DecodingSettings(beam=1))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=True)
    assert done.stdout.splitlines() == ["the native engine stopped: could not start the threads", "1"]


def test_the_model_outlives_its_file(tmp_path: Path) -> None:
    model = toy()
    engine = searching(packed(model), model)  # whose file is gone already
    write(model, tmp_path / "packed")
    assert engine.search([[FIRST]], [4], BEAM) == native(model).search([[FIRST]], [4], BEAM)
