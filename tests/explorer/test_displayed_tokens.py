"""Tokens know their characters and their words."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.explorer.displayed_tokens import (
    Lexicon,
    encoder_tokens,
    prompt_tokens,
    source_tokens,
    word_tokens,
)
from tests.explorer.toys import TOKENIZER

LEXICON = Lexicon(TOKENIZER)


def test_tokens_point_at_their_characters() -> None:
    line, given_ = source_tokens(LEXICON, "  The  café\tsings. ", 128)
    assert "".join(line[t.start : t.end] for t in given_.tokens if not t.special) == line
    end = given_.tokens[-1]
    assert (end.display, end.special, end.word, end.start, end.end) == ("</s>", True, -1, None, None)


def test_pieces_of_one_word_have_its_number() -> None:
    _, found = source_tokens(LEXICON, "The gardens sing.", 128)
    words: dict[int, str] = {}
    for token in found.tokens[:-1]:
        words[token.word] = words.get(token.word, "") + token.display
    assert list(words.values()) == ["▁The", "▁gardens", "▁sing", "."]
    assert list(words) == [0, 1, 2, 3]


def test_bytes_are_shown_as_such() -> None:
    _, found = source_tokens(LEXICON, "a 你", 128)
    assert [t.display for t in found.tokens][-4:-1] == ["⟨E4⟩", "⟨BD⟩", "⟨A0⟩"]
    assert {(t.start, t.end) for t in found.tokens[-4:-1]} == {(2, 3)}


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=20))
def test_any_prompt_is_covered(text: str) -> None:
    found = prompt_tokens(LEXICON, text, 1000)
    assert found.tokens[0].special
    covered = {i for t in found.tokens[1:] if t.start is not None and t.end is not None for i in range(t.start, t.end)}
    assert covered == set(range(len(text)))
    assert found.ids[1:] == TOKENIZER.encode(text).ids


def test_gaps_are_cut_as_the_filler_cuts_them() -> None:
    text = "The [MASK] sees<mask>, and [MASK]"
    ids, spans = LEXICON.cut_gaps(text)
    shown = [text[span[0] : span[1]] for token, span in zip(ids, spans, strict=True) if token == 4 and span]
    assert shown == [" [MASK]", "<mask>", " [MASK]"]
    assert "".join(text[span[0] : span[1]] for span in spans if span) == text
    assert LEXICON.cut_gaps("[MASK]")[0] == [4]
    assert LEXICON.cut_gaps("no gap")[0] == TOKENIZER.encode("no gap").ids


def test_two_texts_are_read_side_by_side() -> None:
    found = encoder_tokens(LEXICON, "A dog", "It rains", 128, fills=False)
    shown = [token.display for token in found.tokens]
    assert (shown[0], shown.count("</s>")) == ("<s>", 2)
    assert found.segments == [0] * (shown.index("</s>") + 1) + [1] * (len(shown) - shown.index("</s>") - 1)
    second = [t for t, segment in zip(found.tokens, found.segments, strict=True) if segment and not t.special]
    assert "".join("It rains"[t.start : t.end] for t in second) == "It rains"


@pytest.mark.parametrize("most", range(6, 12))
def test_cut_texts_keep_their_characters(most: int) -> None:
    first, second = "The old woman sees", "a cat in the garden"
    found = encoder_tokens(LEXICON, first, second, most, fills=False)
    assert len(found.tokens) == len(found.segments or []) == most
    assert len(found.warnings) == 1
    texts = (first, second)
    for token, segment in zip(found.tokens, found.segments or [], strict=True):
        if not token.special:
            assert texts[segment][token.start : token.end].strip() == token.text.strip()


def test_words_are_cut_one_by_one() -> None:
    text = "The  old woman's dog"
    found = word_tokens(LEXICON, text, 128)
    for number, (word, first) in enumerate(zip(text.split(), found.firsts, strict=True)):
        tokens = [token for token in found.tokens if token.word == number]
        assert tokens[0] is found.tokens[first]
        assert "".join(text[t.start : t.end] for t in tokens) == word
    short = word_tokens(LEXICON, text, 5)
    assert len(short.tokens) == len(short.segments or []) == 5
    assert all(first < 4 for first in short.firsts)
    assert "only the first 5 are shown" in short.warnings[0]


def test_a_new_order_moves_segments_and_first_tokens_too() -> None:
    found = word_tokens(LEXICON, "A dog sings", 128)
    order = [*range(1, len(found.tokens)), 0]
    turned = found.reordered(order)
    assert turned.tokens == [found.tokens[place] for place in order]
    assert [turned.tokens[first] for first in turned.firsts] == [found.tokens[first] for first in found.firsts]


def test_empty_texts_are_refused() -> None:
    for give in (
        lambda: source_tokens(LEXICON, "\n ", 128),
        lambda: encoder_tokens(LEXICON, " ", None, 128, fills=True),
        lambda: word_tokens(LEXICON, "", 128),
    ):
        with pytest.raises(InputError, match="text: must not be empty"):
            give()
