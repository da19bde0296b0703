"""Slots in the place of protected pieces: exact, in vocabularies, and in words that are cut at random."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.settings import TokenizerSettings
from regard.tokens.placeholder_slots import SLOTS, CutText, Slotted, slot_pair, slot_text
from regard.tokens.protected_pieces import find
from regard.tokens.subword_sampling import Sampler, WordTable
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from tests.examples import examples

TEXTS = ["open the file now", "öffne die datei jetzt", "文件 打开", "a: b, c."] * 3
SIGNS = st.sampled_from(["%s", "{0}", "{a}", "<b>", "</b>", "open", " ", " ", "the file", ": ", "文件", "&", "x@y.org"])
LINES = st.lists(SIGNS | st.text(max_size=2), max_size=25).map("".join).filter(str.isprintable)


@pytest.fixture(scope="module", params=["bpe", "unigram"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    return Tokenizer.train(TEXTS, TokenizerSettings(kind=request.param, vocabulary=330, tags=("de", *SLOTS)))


def test_slots_are_spoken_and_tags_are_not(tokenizer: Tokenizer) -> None:
    assert list(tokenizer.tags) == ["de"]
    assert list(tokenizer.slots.values()) == list(range(1, len(SLOTS) + 1))
    assert not set(tokenizer.slots) & set(tokenizer.specials.never_generated)
    assert tokenizer.pieces(list(tokenizer.slots)[:2]) == ["<slot:1>", "<slot:2>"]
    assert tokenizer.decode(tokenizer.slots) == ""
    again = Tokenizer(tokenizer.model)
    assert again.slots == tokenizer.slots
    assert Vocabularies(again, again).to_json() == tokenizer.to_json()


@given(LINES)
@examples(60)
def test_a_text_with_slots_comes_back(text: str) -> None:
    tokenizer = SHARED
    cut = CutText.at(text, find(text))
    assert cut.text == text
    slotted, pieces = slot_text(cut)
    assert len(slotted.numbers) == min(len(cut.pieces), len(SLOTS))
    ids = tokenizer.encode_slotted(slotted)
    assert tokenizer.decode_slotted(ids) == slotted
    assert tokenizer.decode_slotted(ids).fill(pieces) == text


SHARED = Tokenizer.train(TEXTS, TokenizerSettings(vocabulary=330, tags=SLOTS))


def test_a_pair_shares_the_slots_of_what_it_has_in_common() -> None:
    source, target = slot_pair("Copy %s to %s: {x}, <b>", "%s: nach %s <i> kopieren: {x}")
    assert source == Slotted(("Copy ", " to ", ": ", ", <b>"), (1, 2, 3))
    assert target == Slotted(("", ": nach ", " <i> kopieren: ", ""), (1, 2, 3))
    source, target = slot_pair("%d of %s", "%s: %d")
    assert (source.numbers, target.numbers) == ((1, 2), (2, 1))
    many = " ".join(f"{{{number}}}" for number in range(20))
    assert slot_pair(many, many)[0].texts[-1] == " {16} {17} {18} {19}"


def test_mnemonics_are_left_out_of_pairs_that_have_them_on_both_sides() -> None:
    assert slot_pair("E&xit", "&Beenden") == (Slotted(("Exit",), ()), Slotted(("Beenden",), ()))
    assert slot_pair("E&xit", "Beenden") == (Slotted(("E&xit",), ()), Slotted(("Beenden",), ()))


def test_dice_use_all_slots_and_the_same_dice_the_same() -> None:
    def numbers(seed: int) -> list[tuple[int, ...]]:
        dice = Random(seed)
        drawn = [slot_pair("%s {0}", "{0} %s", dice) for _ in range(200)]
        assert all(source.numbers == target.numbers[::-1] for source, target in drawn)
        return [source.numbers for source, _ in drawn]

    assert numbers(1) == numbers(1) != numbers(2)
    assert {number for each in numbers(1) for number in each} == set(range(1, len(SLOTS) + 1))
    assert numbers(1).count((1, 2)) > 100


def test_words_with_slots_are_cut_anew(tokenizer: Tokenizer) -> None:
    texts = [
        slot_text(CutText.at(text, find(text)))[0] for text in ("open %s the file {0}", "%s", "the file", "", "{a} b")
    ]
    table = WordTable.build(texts, tokenizer)
    for rate in (0.0, 0.5):
        tokens, starts = Sampler(tokenizer, rate).epoch(table, np.random.default_rng(1))
        rows = [tokens[start:end].tolist() for start, end in pairwise(starts)]
        assert [tokenizer.decode_slotted(row) for row in rows] == texts
        if not rate:
            assert rows == [tokenizer.encode_slotted(text) for text in texts]
