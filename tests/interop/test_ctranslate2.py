"""CTranslate2 says the same as Regard, token by token and score by score, given the same model."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
import pytest
import torch

from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.errors import ModelError
from regard.interop.ctranslate2 import export_model, source_vocabulary
from regard.model.transformer import Decoder, Encoder
from regard.settings import EmbeddingSettings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import read_folder
from tests.interop.toys import SHAPES, SOURCES, run_snippet, settings_of, talkative, write_foreign, write_model

PLAIN: dict[str, Any] = {"device": "cpu", "compute_type": "float32", "inter_threads": 1, "intra_threads": 1}
ENOUGH = 100  # patience: Regard goes on until no output can be better, CTranslate2 until it has found so many
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def cut(tokenizer: Tokenizer, texts: list[str]) -> list[list[str]]:
    return [tokenizer.model.encode(text, add_special_tokens=False).tokens for text in texts]


def shown(tokenizer: Tokenizer, tokens: list[str]) -> tuple[str, ...]:
    return tuple(tokenizer.pieces([tokenizer.model.token_to_id(token) or 0 for token in tokens]))


# Translation


@every_shape
def test_greedy_and_beam_search_find_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", settings_of("translate", **shape))
    export_model(folder, tmp_path / "out")
    ours, theirs = translator_of(talkative(folder)), ctranslate2.Translator(str(tmp_path / "out"), **PLAIN)
    for beam, alpha in ((1, 1.0), (4, 0.0), (4, 0.6), (5, 1.0)):
        options: dict[str, Any] = {
            "beam": beam,
            "penalty": "power",
            "length_penalty": alpha,
            "max_ratio": 0.0,
            "patience": 0.0,
        }
        found = theirs.translate_batch(
            cut(ours.source, SOURCES),
            beam_size=beam,
            length_penalty=alpha,
            min_decoding_length=0,
            max_decoding_length=20,
            patience=ENOUGH,
            return_scores=True,
        )
        for expected, result in zip(ours.translate(SOURCES, **options), found, strict=True):
            assert shown(ours.target, result.hypotheses[0]) == expected.tokens
            assert result.scores[0] == pytest.approx(expected.score, abs=1e-4, rel=1e-5)


@every_shape
def test_tokens_that_regard_never_generates_can_be_suppressed(shape: dict[str, Any], tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", settings_of("translate", **shape))
    export_model(folder, tmp_path / "out")
    ours, theirs = translator_of(read_folder(folder)), ctranslate2.Translator(str(tmp_path / "out"), **PLAIN)
    never = [[ours.target.model.id_to_token(token)] for token in ours.target.specials.never_generated]
    sources = cut(ours.source, SOURCES)
    options = {"min_decoding_length": 0, "max_decoding_length": 20, "suppress_sequences": never}
    found = theirs.translate_batch(sources, beam_size=1, **options)
    expected = ours.translate(SOURCES, beam=1, max_ratio=0.0)
    assert [shown(ours.target, result.hypotheses[0]) for result in found] == [each.tokens for each in expected]
    scored = theirs.score_batch(sources, [result.hypotheses[0] for result in found])
    for each, scores in zip(expected, scores_of(scored), strict=True):
        length = len(each.token_log_probabilities)  # they score the end also where the limit cut it off
        assert scores[:length] == pytest.approx(each.token_log_probabilities, abs=1e-4)


def scores_of(results: list[Any]) -> list[list[float]]:
    return [result.log_probs for result in results]


def test_two_vocabularies(tmp_path: Path) -> None:
    settings = settings_of("translate", joint=False, tie="output", output_bias=True)
    folder = write_model(tmp_path / "model", settings)
    export_model(folder, tmp_path / "out")
    ours, theirs = translator_of(talkative(folder)), ctranslate2.Translator(str(tmp_path / "out"), **PLAIN)
    found = theirs.translate_batch(
        cut(ours.source, SOURCES), beam_size=1, min_decoding_length=0, max_decoding_length=20
    )
    expected = ours.translate(SOURCES, beam=1, max_ratio=0.0)
    assert [shown(ours.target, result.hypotheses[0]) for result in found] == [each.tokens for each in expected]
    assert ours.source.size != ours.target.size


def test_the_compared_models_write_varied_outputs(tmp_path: Path) -> None:
    """Their outputs differ from source to source and in length; some end, some are cut; a beam finds others."""
    outputs, wide = [], []
    for name, shape in SHAPES.items():
        ours = translator_of(talkative(write_model(tmp_path / name, settings_of("translate", **shape))))
        outputs += ours.translate(SOURCES, beam=1, max_ratio=0.0)
        wide += ours.translate(SOURCES, beam=4, max_ratio=0.0)
    assert len({output.tokens for output in outputs}) > len(outputs) // 2
    assert {output.finished for output in outputs} == {True, False}
    assert len({len(output.tokens) for output in outputs}) > 3
    assert sum(one.tokens != many.tokens for one, many in zip(outputs, wide, strict=True)) > 5


def test_languages_that_end_differently_are_refused() -> None:
    texts = settings_of("translate").tokenizer
    source, target = Tokenizer.train(SOURCES, texts), Tokenizer.train(SOURCES, texts)
    assert source_vocabulary(Vocabularies(source, target), "</s>")[:3] == ["<pad>", "<s>", "</s>"]
    with pytest.raises(ModelError, match="the end of a text is </s> in the source and <end> in the target"):
        source_vocabulary(Vocabularies(source, target), "<end>")


# Writing


@every_shape
def test_a_writer_writes_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", settings_of("write", **{**shape, "tie": "output"}))
    assert_writes_the_same(folder, tmp_path / "out")


def test_a_vocabulary_from_elsewhere(tmp_path: Path) -> None:
    folder = write_foreign(tmp_path / "model")
    assert_writes_the_same(folder, tmp_path / "out")
    assert '"<unused ' in (tmp_path / "out" / "vocabulary.json").read_text(encoding="utf-8")


def assert_writes_the_same(folder: Path, output: Path) -> None:
    export_model(folder, output)
    contents = read_folder(folder)
    ours, theirs = writer_of(contents), ctranslate2.Generator(str(output), **PLAIN)
    assert isinstance(contents.model, Decoder)
    prompts = [ours.prompt(text) for text in SOURCES]
    logits = np.array(theirs.forward_batch(prompts))
    for row, found in zip(prompts, logits, strict=True):
        expected = contents.model(torch.tensor([row]))[0].detach().numpy()
        np.testing.assert_allclose(found[: len(row)], expected, atol=1e-4)
    pieces = [[theirs_token(ours.vocabulary, token) for token in row] for row in prompts]
    never = [[theirs_token(ours.vocabulary, token)] for token in ours.vocabulary.specials.never_generated]
    expected_texts = ours.write(SOURCES, beam=1, max_tokens=12)
    for start, expected_text in zip(pieces, expected_texts, strict=True):
        options = {"max_length": 12, "min_length": 0, "include_prompt_in_result": False, "suppress_sequences": never}
        (result,) = theirs.generate_batch([start], **options)
        assert tuple(ours.vocabulary.pieces(result.sequences_ids[0])) == expected_text.tokens


def theirs_token(tokenizer: Tokenizer, token: int) -> str:
    return str(tokenizer.model.id_to_token(token))


# Reading


@pytest.mark.parametrize(
    ("name", "pooler"),
    [("paper", "relu"), ("pre-norm", "none"), ("modern", "tanh"), ("segments", "tanh"), ("wide values", "none")],
)
def test_an_encoder_reads_the_same(name: str, pooler: str, tmp_path: Path) -> None:
    shape = {**SHAPES[name], "tie": "output", "pooler": pooler, "embedding_norm": True}
    folder = write_model(tmp_path / "model", settings_of("classify", **shape))
    notes = export_model(folder, tmp_path / "out")
    assert notes == ["CTranslate2 runs the encoder alone: without the label head (ONNX has it)"]
    contents = read_folder(folder)
    model = contents.model
    assert isinstance(model, Encoder)
    specials = contents.vocabularies.source.specials
    pairs = [specials.join([7, 300, 12], [9, 9]), specials.join([15, 16, 270, 290, 80, 5])]
    theirs = ctranslate2.Encoder(str(tmp_path / "out"), **PLAIN)
    segments = {"token_type_ids": [row for _, row in pairs]} if model.embedding.segments else {}
    output = theirs.forward_batch([row for row, _ in pairs], **segments)
    for number, (row, kinds) in enumerate(pairs):
        states = model(torch.tensor([row]), None, torch.tensor([kinds]))
        found = np.array(output.last_hidden_state)[number, : len(row)]
        np.testing.assert_allclose(found, states[0].detach().numpy(), atol=1e-5)
        if pooler != "none":
            found = np.array(output.pooler_output)[number]
            np.testing.assert_allclose(found, model.pool(states, None)[0].detach().numpy(), atol=1e-5)


# What is written


def test_the_page_of_a_translator_runs(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", settings_of("translate", joint=False, tie="none"))
    notes = export_model(folder, tmp_path / "out")
    assert [note.split(":")[0] for note in notes] == [
        "CTranslate2 would also generate special tokens",
        "CTranslate2's length penalty is length ^ alpha (decoding.penalty = power), not google's",
    ]
    run_snippet(tmp_path / "out")


@pytest.mark.parametrize("foreign", [False, True])
def test_the_page_of_a_writer_runs(foreign: bool, tmp_path: Path) -> None:
    path = tmp_path / "model"
    folder = write_foreign(path) if foreign else write_model(path, settings_of("write"))
    export_model(folder, tmp_path / "out")
    assert run_snippet(tmp_path / "out").startswith("Once upon a time")


@pytest.mark.parametrize("normalize", [True, False])
def test_the_page_of_an_encoder_runs(normalize: bool, tmp_path: Path) -> None:
    embedding = EmbeddingSettings(pooling="mean" if normalize else "first", normalize=normalize)
    folder = write_model(tmp_path / "model", settings_of("embed", embedding=embedding))
    assert export_model(folder, tmp_path / "out") == []
    assert run_snippet(tmp_path / "out").startswith("[[")


def test_the_code_in_the_documentation_runs(tmp_path: Path) -> None:
    for name, task in {"en-de": "translate", "stories": "write", "bert": "fill"}.items():
        write_model(tmp_path / "runs" / name, settings_of(task))
        for to, suffix in (("ctranslate2", "ct2"), ("onnx", "onnx")):  # as `regard export` does
            module = import_module(f"regard.interop.{to}")
            module.export_model(tmp_path / "runs" / name, tmp_path / "engines" / f"{name}.{suffix}")
    page = Path(__file__).parents[2] / "docs" / "engines.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 4
    command = [sys.executable, "-W", "error", "-c", "".join(blocks)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
