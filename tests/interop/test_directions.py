"""A model of several directions elsewhere: the user puts its tag before each text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import tokenizers

from regard.decoding.pytorch_engine import translator_of
from regard.interop import ctranslate2, huggingface, onnx
from regard.weights import Contents, read_folder
from tests.interop.toys import run_snippet, settings_of, write_model

NOTE = "put the language to translate into before each text, as <tag:de> or <tag:fr>"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    settings = settings_of("translate")
    data = replace(settings.data, directions=("en-de", "en-fr"))
    tokenizer = replace(settings.tokenizer, tags=("de", "fr"))
    return write_model(tmp_path / "model", replace(settings, data=data, tokenizer=tokenizer))


def greedy(contents: Contents, target: str) -> str:
    """What Regard makes of the texts in the README, as the tokenizer of others spells it."""
    ours = translator_of(contents)
    sources = [[ours.source.tags[target], *ids] for ids in ours.source.encode_batch(["Hello!", "How are you?"])]
    found = ours.search(sources, ours.decoding({"beam": 1, "max_ratio": 100.0}))
    return "".join(ours.target.model.decode(list(best.tokens)) + "\n" for (best,) in found)


def test_hugging_face_reads_the_tag_in_the_text(folder: Path, tmp_path: Path) -> None:
    assert NOTE in huggingface.export_model(folder, tmp_path / "out")
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "out" / "tokenizer.json"))
    ours = read_folder(folder).vocabularies.source
    for tag in ("de", "fr"):
        expected = [ours.tags[tag], *ours.encode("A dog reads.").ids, ours.specials.end]
        assert (
            theirs.encode(f"<tag:{tag}> A dog reads.").ids == theirs.encode(f"<tag:{tag}>A dog reads.").ids == expected
        )
    assert theirs.get_vocab_size() == ours.size
    generation = json.loads((tmp_path / "out" / "generation_config.json").read_text())
    assert set(ours.tags.values()) <= set(generation["suppress_tokens"])
    assert "source_lang" not in json.loads((tmp_path / "out" / "tokenizer_config.json").read_text())


def test_the_page_of_onnx_translates_as_regard(folder: Path, tmp_path: Path) -> None:
    assert onnx.export_model(folder, tmp_path / "out") == [NOTE]
    assert (tmp_path / "out" / "README.md").read_text(encoding="utf-8").startswith("# en → de, en → fr, for ONNX")
    contents = read_folder(folder)
    assert run_snippet(tmp_path / "out") == greedy(contents, "de") != greedy(contents, "fr")


def test_the_page_of_ctranslate2_puts_the_tag_first(folder: Path, tmp_path: Path) -> None:
    assert NOTE in ctranslate2.export_model(folder, tmp_path / "out")
    assert '[["<tag:de>", *source.encode(' in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")
