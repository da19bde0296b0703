"""Text in parts, in words, and with gaps: the same ids as the whole, and which of them go on with a word."""

from __future__ import annotations

import json
import re
from itertools import chain
from pathlib import Path
from typing import get_args

import pytest
import tokenizers
from hypothesis import given, strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers

from regard.files.corpus_report import Report
from regard.files.formats import running_text as running
from regard.settings import DataSettings, TokenizerSettings
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials, Tokenizer
from regard.tokens.vocabulary_learning import BOS, EOS, MASK, PAD, RESERVED, UNK
from tests.tokens.test_tokenizer import CHINESE, NAMES, NASTY, THINGS, TOKENIZERS, VERBS, Kind

kinds = pytest.mark.parametrize("kind", get_args(Kind))
lines = st.lists(
    st.one_of(st.sampled_from([*NAMES, *VERBS, *THINGS, *CHINESE, *NASTY]), st.text(max_size=5)), min_size=1, max_size=8
)
SPACED = [name for name in NAMES if name.isascii()]


# Parts


@kinds
@given(rows=lines, size=st.integers(1, 40))
def test_a_document_in_parts_has_the_ids_of_the_whole(kind: Kind, rows: list[str], size: int) -> None:
    text, tokenizer = "\n".join(rows), TOKENIZERS[kind]
    parts = cut(text, size)
    found = [
        tokenizer.encode_continuation(part) if number else tokenizer.encode(part).ids
        for number, part in enumerate(parts)
    ]
    assert "".join(parts) == text
    assert list(chain(*found)) == tokenizer.encode(text).ids


def cut(text: str, size: int) -> list[str]:
    """As `parts` of the tokenizer cuts, but more often."""
    found, start = [], 0
    for place in re.finditer(r"(?<=\S)\n", text):
        if place.start() - start >= size:
            found.append(text[start : place.start()])
            start = place.start()
    return [*found, text[start:]]


def in_parts(tokenizer: Tokenizer, text: str, folder: Path) -> list[list[int]]:
    """The ids of a document as training reads it: from a file, in parts."""
    (folder / "text.txt").write_text(text)
    parts = running.read([folder / "text.txt"], DataSettings(), Report())
    return [tokenizer.encode_batch([p.text])[0] if p.begins else tokenizer.encode_continuation(p.text) for p in parts]


@kinds
def test_a_long_document_is_encoded_in_parts(kind: Kind, tmp_path: Path) -> None:
    tokenizer = TOKENIZERS[kind]
    text = "".join(f"{NAMES[i % 12]} {VERBS[i % 8]} {THINGS[i % 7]}.{' ' * (i % 3)}\n" for i in range(9000))
    found = in_parts(tokenizer, text, tmp_path)
    assert len(found) == 3
    assert list(chain(*found)) == tokenizer.encode(text.strip()).ids


@kinds
def test_a_document_is_not_cut_within_a_token(kind: Kind, tmp_path: Path) -> None:
    """Of a vocabulary that has pieces for spaces before a line end."""
    tokenizer = Tokenizer.train(["  a dog  \n  runs  \n" * 50], TokenizerSettings(kind=kind, vocabulary=300))
    text = "".join(f"  a dog runs{'' if i % 40 == 7 else '  '}\n" for i in range(15_000))
    assert "▁▁\n▁" in tokenizer.encode(text[:20]).pieces
    found = in_parts(tokenizer, text, tmp_path)
    assert len(found) == 3
    assert list(chain(*found)) == tokenizer.encode(text.strip()).ids


@kinds
def test_a_rest_is_not_given_a_space(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode([*tokenizer.encode("Anna").ids, *tokenizer.encode_continuation("bella")]) == "Annabella"
    assert tokenizer.decode([*tokenizer.encode("Anna").ids, *tokenizer.encode_continuation(" sees")]) == "Anna sees"
    assert tokenizer.encode_continuation("") == []
    assert tokenizer.encode(" sees").ids != tokenizer.encode_continuation(" sees") == tokenizer.encode("sees").ids


@kinds
@given(text=st.one_of(st.text(), st.sampled_from(NASTY)))
def test_a_rest_spells_its_text(kind: Kind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode([tokenizer.encode("Anna").ids[0], *tokenizer.encode_continuation(text)]).endswith(text)


# Words


@kinds
@given(words=st.lists(st.sampled_from([*SPACED, "river", "riverdogs", "sneer"]), min_size=1))
def test_the_ids_of_words_are_those_of_the_text(kind: Kind, words: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    assert list(chain(*tokenizer.encode_words(words))) == tokenizer.encode(" ".join(words)).ids


@kinds
@given(words=st.lists(st.sampled_from([*SPACED, "river", "riverdogs", "sneer"]), min_size=1))
def test_a_word_begins_where_no_token_goes_on(kind: Kind, words: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    inner = tokenizer.continues()
    found = [inner[token] for token in tokenizer.encode(" ".join(words)).ids]
    expected = [place > 0 for word in tokenizer.encode_words(words) for place in range(len(word))]
    assert found == expected


@kinds
def test_no_word_goes_on_after_a_bracket_or_a_line_end(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    open_ended = tokenizer.can_continue()
    assert len(open_ended) == tokenizer.size
    for text, expected in ((" dog", True), ("(", False), ("\n", False), (".", False), ("7", False)):
        assert open_ended[tokenizer.encode_continuation(text)[-1]] is expected, text


@kinds
def test_what_goes_on_with_a_word(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    inner = tokenizer.continues()
    assert len(inner) == tokenizer.size
    assert not any(inner[:5])
    spelt = tokenizer.encode_continuation("\U0001f98a").copy()  # four bytes
    assert [inner[token] for token in spelt] == [False, True, True, True]
    for token in range(len(RESERVED), tokenizer.size):
        piece = tokenizer.pieces([token])[0]
        if piece.isascii() and piece.isalpha():
            assert inner[token], piece
        if piece[0] in "▁今天.,0123456789":
            assert not inner[token], piece


# Specials


@given(
    first=st.lists(st.integers(5, 99), max_size=5),
    second=st.lists(st.integers(5, 99), max_size=5),
    between=st.integers(1, 2),
)
def test_two_texts_are_joined(first: list[int], second: list[int], between: int) -> None:
    ids, segments = Specials(between=between).join(first, second)
    tail = [*[EOS] * (between - 1), *second, EOS] if second else []
    assert ids == [BOS, *first, EOS, *tail]
    assert len(segments) == len(ids)
    assert sum(segments) == (len(second) + 1 if second else 0)
    assert sorted(segments) == segments


def test_what_is_never_written() -> None:
    assert Specials().never_generated == [PAD, BOS, UNK, MASK]
    assert Specials(pad=7, begin=7, end=7, unknown=None, mask=None).never_generated == []  # GPT-2: one token is all


# Vocabularies from elsewhere


def word_pieces() -> ImportedTokenizer:
    pieces = ["[PAD]", "[CLS]", "[SEP]", "[UNK]", "[MASK]", "the", "riv", "##er", "##s", "."]
    model = tokenizers.Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))  # noqa: S106
    model.normalizer = normalizers.BertNormalizer()
    model.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    model.decoder = decoders.WordPiece()
    return ImportedTokenizer(model, Specials(), len(pieces))


def byte_level() -> ImportedTokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("t", "h"), ("th", "e"), ("Ġ", "the")]
    pieces = [*alphabet, "th", "the", "Ġthe", "<|endoftext|>"]
    model = tokenizers.Tokenizer(models.BPE({p: i for i, p in enumerate(pieces)}, merges))
    model.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoders.ByteLevel()
    end = len(pieces) - 1
    specials = Specials(pad=end, begin=end, end=end, unknown=None, mask=None, prompt=False)
    return ImportedTokenizer(model, specials, len(pieces))


def test_word_pieces_say_which_go_on() -> None:
    tokenizer = word_pieces()
    assert tokenizer.encode_words(["The", "rivers", "."]) == [[5], [6, 7, 8], [9]]
    assert [tokenizer.continues()[token] for token in (1, 5, 6, 7, 8, 9)] == [False, False, False, True, True, False]
    assert tokenizer.decode([1, 5, 6, 7, 8, 9, 2]) == "the rivers."


def test_byte_level_words_have_their_space() -> None:
    tokenizer = byte_level()
    (the,) = tokenizer.encode_words(["the"])[0]
    assert tokenizer.pieces([the]) == ["▁the"]
    inner = tokenizer.continues()
    assert not inner[the]
    assert [inner[token] for token in tokenizer.encode_batch(["thee"])[0]] == [True, True]
    assert tokenizer.pieces(tokenizer.encode_batch(["é"])[0]) == ["⟨C3⟩", "⟨A9⟩"]


@given(st.text(st.characters(codec="utf-8")))
def test_byte_level_loses_nothing(text: str) -> None:
    tokenizer = byte_level()
    assert tokenizer.decode([*tokenizer.encode_batch([text])[0], tokenizer.specials.end]) == text


def test_an_imported_vocabulary_survives_its_file() -> None:
    for tokenizer in (word_pieces(), byte_level()):
        again = ImportedTokenizer.restore(json.loads(tokenizer.to_json()), Path("tokenizer.json"))
        assert (again.specials, again.size) == (tokenizer.specials, tokenizer.size)
        assert again.encode_batch(["the river."]) == tokenizer.encode_batch(["the river."])


def test_an_id_that_the_model_does_not_know_is_unknown() -> None:
    tokenizer = word_pieces()
    tokenizer.size = 9
    assert tokenizer.encode_batch(["the ."]) == [[5, UNK]]


def test_a_tokenizer_is_not_changed_by_its_rest() -> None:
    """The tokenizer for rests is another one: `encode` still puts a space before a text."""
    tokenizer = Tokenizer(TOKENIZERS["bpe"].model)
    before = tokenizer.encode("Anna").ids
    tokenizer.encode_continuation("Anna")
    assert tokenizer.encode("Anna").ids == before
