"""Vocabulary files give the ids that their own libraries give."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import BertTokenizer

from regard.interop.huggingface import import_model
from regard.interop.tokenizer_layouts import byte_level, read_tokenizer, word_pieces
from regard.weights import read_folder
from tests.interop.published import LINES, TEXTS, save_bert, save_gpt2, save_roberta, their_tokenizer

BERT = {"cls_token": "[CLS]", "sep_token": "[SEP]", "unk_token": "[UNK]", "pad_token": "[PAD]", "mask_token": "[MASK]"}
HOSTILE = [*TEXTS, "", " ", "\tA\n", "Ärger [MASK] [SEP]x", "naïve café", "中文dog", "\u200bx\u0000y", "a" * 300]


@pytest.mark.parametrize(
    "options",
    [{}, {"do_lower_case": False}, {"strip_accents": False}, {"tokenize_chinese_chars": False}],
)
def test_word_pieces(tmp_path: Path, options: dict[str, Any]) -> None:
    save_bert(tmp_path)
    ours = word_pieces([tmp_path / "vocab.txt"], options, BERT)
    theirs = BertTokenizer(str(tmp_path / "vocab.txt"), **options)
    for text in HOSTILE:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.encode(text, "dog").type_ids == theirs(text, "dog")["token_type_ids"]


def test_case_is_kept_where_the_vocabulary_has_capitals(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nDog\ndog\n")
    assert word_pieces([tmp_path / "vocab.txt"], {}, BERT).encode("Dog dog", add_special_tokens=False).ids == [5, 6]
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\ndog\n")
    assert word_pieces([tmp_path / "vocab.txt"], {}, BERT).encode("Dog dog", add_special_tokens=False).ids == [5, 5]


@pytest.mark.parametrize("space", [True, False])
def test_byte_level(tmp_path: Path, space: bool) -> None:
    save_gpt2(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"add_prefix_space": space}))
    names = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    ours = byte_level([tmp_path / "vocab.json", tmp_path / "merges.txt"], {"add_prefix_space": space}, names)
    theirs = their_tokenizer(tmp_path, "GPT2Tokenizer")
    for text in [*HOSTILE, "x<|endoftext|>y", "  two\n\nlines "]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.decode(ours.encode(text).ids, skip_special_tokens=True) == theirs.decode(
            theirs(text)["input_ids"], skip_special_tokens=True
        )


def test_roberta(tmp_path: Path) -> None:
    save_roberta(tmp_path / "theirs", "RobertaForMaskedLM")
    import_model(tmp_path / "theirs", tmp_path / "ours")
    vocabulary = read_folder(tmp_path / "ours").vocabularies.source
    theirs = their_tokenizer(tmp_path / "theirs", "RobertaTokenizer")
    assert (vocabulary.specials.begin, vocabulary.specials.end, vocabulary.specials.between) == (0, 2, 2)
    for text in [*HOSTILE, "a <mask> b"]:
        assert vocabulary.encode_batch([text])[0] == theirs(text)["input_ids"][1:-1], text
    first, second = vocabulary.encode_batch(["A dog", "a cat"])
    assert vocabulary.specials.join(first, second)[0] == theirs("A dog", "a cat")["input_ids"]


def test_truncation_and_padding_are_switched_off(tmp_path: Path) -> None:
    """As the tokenizer.json of sentence-transformers prescribe it."""
    source = save_bert(tmp_path / "theirs")
    tokenizer = read_tokenizer(source, "bert").tokenizer
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=8)
    tokenizer.save(str(source / "tokenizer.json"))
    import_model(source, tmp_path / "ours")
    vocabulary = read_folder(tmp_path / "ours").vocabularies.source
    assert len(vocabulary.encode_batch(["dog"])[0]) == 1
    assert len(vocabulary.encode_batch([" ".join(LINES)])[0]) > 100


def test_tokens_that_were_added_to_a_vocabulary(tmp_path: Path) -> None:
    """One that the model knows is found; one beyond its table, and a padding token there, are not used."""
    source = save_gpt2(tmp_path / "theirs")
    size = json.loads((source / "config.json").read_text())["vocab_size"]
    (source / "added_tokens.json").write_text(json.dumps({"<new>": size, "[PAD]": size + 1}))
    (source / "special_tokens_map.json").write_text(
        json.dumps({"pad_token": {"content": "[PAD]"}, "unk_token": "<|endoftext|>"})
    )
    import_model(source, tmp_path / "ours")
    vocabulary = read_folder(tmp_path / "ours").vocabularies.target
    assert (vocabulary.specials.pad, vocabulary.specials.end) == (0, 0)
    assert vocabulary.encode_batch(["<new>"])[0] == [0]
