"""onnxruntime computes the same as Regard, at once and step by step, given the same model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from numpy.typing import NDArray

from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.interop import onnx_graph as graph
from regard.interop.onnx import export_model
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import EmbeddingSettings, ModelSettings
from regard.weights import Contents, read_folder
from tests.interop.toys import SHAPES, run_snippet, settings_of, write_foreign, write_model

Array = NDArray[Any]
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
STEPS = ((0, 1), (1, 2), (2, 6), (6, 11))  # how 11 tokens are given to a decoder, some at a time


def export(folder: Path, tmp_path: Path) -> tuple[Contents, dict[str, Any]]:
    """The model, and the sessions of its graphs by name."""
    assert export_model(folder, tmp_path / "out") == []
    sessions = {path.stem: onnxruntime.InferenceSession(str(path)) for path in (tmp_path / "out").glob("*.onnx")}
    return read_folder(folder), sessions


def no_past(settings: ModelSettings, batch: int) -> dict[str, Array]:
    axes = (settings.decoder_layers, batch, settings.query_groups, 0)
    keys, values = np.zeros((*axes, settings.head_width)), np.zeros((*axes, settings.head_value_width))
    return {"past_keys": keys.astype(np.float32), "past_values": values.astype(np.float32)}


def decode(session: Any, tokens: Array, past: dict[str, Array], **given: Array) -> Array:
    """The logits [B, T, V] of tokens that are given to a decoder in steps."""
    found = []
    for start, end in STEPS:
        logits, keys, values = session.run(None, {"tokens": tokens[:, start:end], **past, **given})
        past = {"past_keys": keys, "past_values": values}
        found.append(logits)
    return np.concatenate(found, 1)


def batch_of(lengths: list[int], seed: int = 0) -> tuple[Array, Array]:
    """Random tokens [B, T], and which of them are no padding."""
    dice = np.random.default_rng(seed)
    keep = np.arange(max(lengths)) < np.array(lengths)[:, None]
    return np.where(keep, dice.integers(5, 280, keep.shape), 0), keep


# Translation


@every_shape
def test_an_encoder_decoder_computes_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    contents, sessions = export(write_model(tmp_path / "model", settings_of("translate", **shape)), tmp_path)
    model, settings = contents.model, contents.settings.model
    assert isinstance(model, EncoderDecoder)
    source, keep = batch_of([9, 4, 1])
    target, _ = batch_of([11] * 3, seed=1)
    with torch.inference_mode():
        memory = model.encode(torch.tensor(source), torch.tensor(keep)).numpy()
        logits = model(torch.tensor(source), torch.tensor(target), torch.tensor(keep)).numpy()
    found, cross_keys, cross_values = sessions["encoder"].run(None, {"tokens": source, "keep": keep})
    np.testing.assert_allclose(found[keep], memory[keep], atol=1e-4)
    given = {"keep": keep, "cross_keys": cross_keys, "cross_values": cross_values}
    past = no_past(settings, 3)
    at_once, *_ = sessions["decoder"].run(None, {"tokens": target, **past, **given})
    in_steps = decode(sessions["decoder"], target, past, **given)
    np.testing.assert_allclose(at_once, logits, atol=1e-4)
    np.testing.assert_allclose(in_steps, logits, atol=1e-4)
    for row, length in enumerate([9, 4, 1]):  # alone and without padding
        one = slice(row, row + 1)
        inputs = {"tokens": source[one, :length], "keep": keep[one, :length]}
        _, cross_keys, cross_values = sessions["encoder"].run(None, inputs)
        alone = {"keep": inputs["keep"], "cross_keys": cross_keys, "cross_values": cross_values}
        found = decode(sessions["decoder"], target[one], no_past(settings, 1), **alone)
        np.testing.assert_allclose(found[0], logits[row], atol=1e-4)


@pytest.mark.parametrize("name", ["paper", "modern", "marian"])
def test_the_page_of_a_translator_translates_as_regard(name: str, tmp_path: Path) -> None:
    settings = settings_of("translate", joint=name != "modern", **SHAPES[name])
    contents, _ = export(write_model(tmp_path / "model", settings), tmp_path)
    ours = translator_of(contents)
    sources = ours.source.encode_batch(["Hello!", "How are you?"])
    found = ours.search(sources, ours.decoding({"beam": 1, "max_ratio": 100.0}))
    expected = [ours.target.model.decode(list(best.tokens)) for (best,) in found]
    assert run_snippet(tmp_path / "out") == "".join(f"{text}\n" for text in expected)


# Writing


@every_shape
def test_a_decoder_computes_the_same(shape: dict[str, Any], tmp_path: Path) -> None:
    folder = write_model(tmp_path / "model", settings_of("write", **{**shape, "tie": "output"}))
    contents, sessions = export(folder, tmp_path)
    assert isinstance(contents.model, Decoder)
    assert list(sessions) == ["decoder"]
    tokens, _ = batch_of([11, 11])
    with torch.inference_mode():
        logits = contents.model(torch.tensor(tokens)).numpy()
    past = no_past(contents.settings.model, 2)
    at_once, *_ = sessions["decoder"].run(None, {"tokens": tokens, **past})
    np.testing.assert_allclose(at_once, logits, atol=1e-4)
    np.testing.assert_allclose(decode(sessions["decoder"], tokens, past), logits, atol=1e-4)


@pytest.mark.parametrize("foreign", [False, True])
def test_the_page_of_a_writer_writes_as_regard(foreign: bool, tmp_path: Path) -> None:
    path = tmp_path / "model"
    contents, _ = export(write_foreign(path) if foreign else write_model(path, settings_of("write")), tmp_path)
    ours = writer_of(contents)
    prompt = "Once upon a time"
    room = contents.settings.model.max_length - len(ours.prompt(prompt))
    (found,) = ours.write([prompt], beam=1, max_tokens=min(50, room))
    assert run_snippet(tmp_path / "out") == f"{prompt}{found.text}\n"


# Reading


@pytest.mark.parametrize("name", ["paper", "pre-norm", "modern", "segments", "wide values"])
@pytest.mark.parametrize(("task", "carrier"), [("fill", "text"), ("classify", "text"), ("classify", "word")])
def test_an_encoder_and_its_heads_compute_the_same(name: str, task: str, carrier: str, tmp_path: Path) -> None:
    heads = {"pooler": "tanh" if carrier == "text" else "none", "next_sentence": task == "fill"}
    shape = {**SHAPES[name], **heads, "tie": "output", "embedding_norm": True, "carrier": carrier}
    contents, sessions = export(write_model(tmp_path / "model", settings_of(task, **shape)), tmp_path)
    model = contents.model
    assert isinstance(model, Encoder)
    tokens, keep = batch_of([9, 4, 2])
    segments = (np.arange(9) > 3) & keep
    inputs = {"tokens": tokens, "keep": keep}
    if model.embedding.segments:
        inputs["segments"] = segments.astype(np.int64)
    names = [output.name for output in sessions["encoder"].get_outputs()]
    found = dict(zip(names, sessions["encoder"].run(None, inputs), strict=True))
    with torch.inference_mode():
        states = model(torch.tensor(tokens), torch.tensor(keep), torch.tensor(segments).long())
        expected = {"states": states}
        if model.fill:
            expected["fill_logits"] = model.fill(states)
        if model.label:
            expected["label_logits"] = model.label(states if carrier == "word" else model.pool(states, None))
        if model.follows:
            expected["follows_logits"] = model.follows(model.pool(states, None))
    assert found.keys() == {*expected, "embedding"}
    for key, value in expected.items():
        here = keep if value.shape[:2] == keep.shape else slice(None)
        np.testing.assert_allclose(found[key][here], value.numpy()[here], atol=1e-4)


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("normalize", [True, False])
def test_the_vector_of_a_text_is_regards(pooling: str, normalize: bool, tmp_path: Path) -> None:
    embedding = EmbeddingSettings(pooling=pooling, normalize=normalize)  # type: ignore[arg-type]
    settings = settings_of("embed", embedding=embedding, segments=2, pooler="relu")
    contents, sessions = export(write_model(tmp_path / "model", settings), tmp_path)
    embedder = Embedder(contents)
    texts = ["a dog", "the old cat sleeps"]
    rows = [row.ids for row in embedder.rows(texts)]
    longest = max(map(len, rows))
    keep = np.array([[place < len(row) for place in range(longest)] for row in rows])
    tokens = np.array([row + [0] * (longest - len(row)) for row in rows])
    inputs = {"tokens": tokens, "keep": keep, "segments": np.zeros_like(tokens)}
    (found,) = sessions["encoder"].run(["embedding"], inputs)
    np.testing.assert_allclose(found, embedder.embed(texts), atol=1e-5)
    assert "embedding (2, 24)" in run_snippet(tmp_path / "out")


# What is written


def test_a_shared_table_is_written_once(tmp_path: Path) -> None:
    sizes = []
    for tie in ("all", "none"):
        folder = write_model(tmp_path / tie / "model", settings_of("write", tie=tie))
        export_model(folder, tmp_path / tie / "out")
        sizes.append((tmp_path / tie / "out" / "decoder.onnx").stat().st_size)
    vocabulary = read_folder(tmp_path / "all" / "model").vocabularies.target.size
    assert sizes[1] - sizes[0] == pytest.approx(vocabulary * 24 * 4, abs=200)


def test_weights_too_large_for_one_file_go_beside_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph, "LARGEST", 10)
    contents, sessions = export(write_model(tmp_path / "model", settings_of("write")), tmp_path)
    assert (tmp_path / "out" / "decoder.onnx.data").stat().st_size > 10_000
    onnx.checker.check_model(str(tmp_path / "out" / "decoder.onnx"))
    tokens, _ = batch_of([11])
    found = decode(sessions["decoder"], tokens, no_past(contents.settings.model, 1))
    assert isinstance(contents.model, Decoder)
    np.testing.assert_allclose(found, contents.model(torch.tensor(tokens)).detach().numpy(), atol=1e-4)
    export_model(tmp_path / "model", tmp_path / "out", overwrite=True)
