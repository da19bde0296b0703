"""SentencePiece models cut and join as SentencePiece does."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import sentencepiece
import tokenizers
from hypothesis import strategies as st

from regard.errors import ModelError
from regard.interop.sentencepiece import as_tokenizer, fields, read_sentencepiece
from tests.examples import examples
from tests.interop.published import FOREIGN, LINES, train_pieces

CHINESE = ["今天天气很好。", "我喜欢这个美丽的花园。", "两个男人坐在长椅上，读一本书。"]
HOSTILE = [
    "",
    " ",
    "   ",
    " hello",
    "hello ",
    "a  b",
    "a\tb\nc",
    "Ｈｅｌｌｏ　ｗｏｒｌｄ",
    "①②ﬁ ﷺ",
    "café cafe\u0301",
    "▁a ▁ b▁",
    "漢字かな交じり",
    "😀👩‍👩‍👧",
    "\u200b zero \ufeff",
    "x" * 500,
    "it's... 12,345.67 !!",
    "\u00a0nbsp\u00a0",
    "Привет мир",
    "a\u0000b",
    "\u0301",
]
KINDS: list[dict[str, Any]] = [
    {"model_type": kind, "byte_fallback": fallback, "normalization_rule_name": rule, **spaces}
    for kind in ("unigram", "bpe")
    for fallback in (False, True)
    for rule in ("nmt_nfkc", "identity")
    for spaces in ({}, {"remove_extra_whitespaces": False}, {"add_dummy_prefix": False})
]


def both(path: Path, **options: Any) -> tuple[Any, tokenizers.Tokenizer]:
    size = 260 if options.get("byte_fallback") else 0
    train_pieces(path, [*LINES, *FOREIGN, *CHINESE], 160 + size, character_coverage=0.98, **options)
    theirs = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return theirs, as_tokenizer(read_sentencepiece(path))


@pytest.mark.parametrize("options", KINDS, ids=lambda options: "-".join(str(value) for value in options.values()))
def test_text_is_cut_and_joined_as_sentencepiece_does(tmp_path: Path, options: dict[str, Any]) -> None:
    theirs, ours = both(tmp_path / "x.model", **options)
    for text in [*LINES, *FOREIGN, *CHINESE, *HOSTILE]:
        ids = theirs.encode(text)
        assert ours.encode(text).ids == ids, text
        if theirs.unk_id() not in ids:
            assert ours.decode(ids) == theirs.decode(ids), text


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
def test_any_text_is_cut_as_sentencepiece_does(tmp_path_factory: pytest.TempPathFactory, kind: str) -> None:
    path = tmp_path_factory.mktemp("pieces") / "x.model"
    theirs, ours = both(path, model_type=kind, byte_fallback=True, normalization_rule_name="identity")

    @hypothesis.given(st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<▁\x00"), max_size=20))
    @examples(300)
    def check(text: str) -> None:
        assert ours.encode(text).ids == theirs.encode(text)

    check()


def test_pieces_of_the_user_are_never_cut(tmp_path: Path) -> None:
    for kind in ("unigram", "bpe"):
        train_pieces(tmp_path / "x.model", LINES, 150, model_type=kind, user_defined_symbols=["@@", "of"])
        theirs = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "x.model"))
        ours = as_tokenizer(read_sentencepiece(tmp_path / "x.model"))
        pieces = ours.encode("a@@b").tokens
        assert "@@" in pieces
        if kind == "unigram":
            assert pieces == theirs.encode("a@@b", out_type=str)
            assert ours.encode("capital of often").tokens == theirs.encode("capital of often", out_type=str)


def test_other_kinds_of_models_are_refused(tmp_path: Path) -> None:
    train_pieces(tmp_path / "x.model", LINES, 60, model_type="word")
    with pytest.raises(ModelError, match="neither unigram nor BPE"):
        read_sentencepiece(tmp_path / "x.model")
    with pytest.raises(ModelError, match="cannot be read"):
        read_sentencepiece(tmp_path / "gone.model")


@hypothesis.given(st.binary(max_size=60))
def test_reading_any_bytes_ends(content: bytes) -> None:
    with contextlib.suppress(ValueError, IndexError):
        list(fields(content))


@hypothesis.given(cut=st.integers(0, 10_000), flip=st.integers(0, 255))
def test_a_damaged_model_is_refused_or_read(tmp_path_factory: pytest.TempPathFactory, cut: int, flip: int) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.model"
    if not path.exists():
        train_pieces(path.with_name("whole.model"), LINES, 150, model_type="unigram")
    whole = bytearray(path.with_name("whole.model").read_bytes())
    whole[cut % len(whole)] = flip
    path.write_bytes(whole)
    with contextlib.suppress(ModelError):
        read_sentencepiece(path)
