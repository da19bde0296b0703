"""The engine in WebAssembly gives the outputs of the native engine, and errors instead of crashes."""

from __future__ import annotations

import base64
import importlib.util
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from regard.browser import compile_engine
from regard.settings import DecodingSettings, ModelSettings
from tests.browser.node import run
from tests.decoding.native.models import build, native, write

SMALL = ModelSettings(width=24, heads=2, hidden=40, encoder_layers=2, decoder_layers=2, max_length=40)
MODERN = replace(SMALL, norm="pre", norm_kind="rms", positions="rotary", activation="swiglu", key_value_heads=1)
SHAPES = {
    "the paper's": SMALL,
    "modern": MODERN,
    "learned positions": replace(SMALL, positions="learned", activation="gelu", tie="none", embedding_norm=True),
    "wide": replace(SMALL, width=130, hidden=70, heads=5, key_width=18, value_width=34, positions="none"),
}
VOCABULARY = 700
START = """
import { Engine } from "./engine.js";
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const module = await WebAssembly.compile(readFileSync(data.wasm));
const message = (work) => {
  try {
    return work(), "";
  } catch (error) {
    return error.message;
  }
};
"""
SEARCH = "result = new Engine(module, bytes(data.model)).search(data.sources, data.options);"


def packed(model: Any, folder: Path, *, int8: bool = True) -> dict[str, Any]:
    write(model, folder / "packed", int8=int8)
    content = base64.b64encode((folder / "packed").read_bytes()).decode()
    return {"wasm": str(compile_engine.ENGINE), "model": content}


def sources(count: int = 40) -> list[list[int]]:
    dice = random.Random(1)
    return [[dice.randrange(5, VOCABULARY) for _ in range(dice.randrange(1, 20))] for _ in range(count)]


def options(limits: list[int], settings: DecodingSettings) -> dict[str, Any]:
    return {
        "limits": limits,
        "beam": settings.beam,
        "lengthPenalty": settings.length_penalty,
        "powerPenalty": settings.penalty == "power",
        "patience": settings.patience,
        "repetitionPenalty": settings.repetition_penalty,
        "neverGenerated": [0, 1, 3, 4],
    }


@pytest.mark.parametrize(
    "settings",
    [
        DecodingSettings(beam=1),
        DecodingSettings(),
        DecodingSettings(beam=3, penalty="power", length_penalty=1.0, patience=0.0),
        DecodingSettings(beam=2, repetition_penalty=1.5),
    ],
    ids=["greedy", "beam", "power", "repetition"],
)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_an_int8_model_gives_the_same_bits(shape: ModelSettings, settings: DecodingSettings, tmp_path: Path) -> None:
    model = build(shape, VOCABULARY, seed=3)
    rows = sources()
    limits = [min(40, 2 * len(row) + 5) for row in rows]
    expected = native(model, "portable", int8=True).search(rows, limits, settings)
    given = {"sources": [[*row, 2] for row in rows], "options": options(limits, settings)}
    found = run(START + SEARCH, packed(model, tmp_path) | given, tmp_path)
    assert [each["tokens"] for each in found] == [list(best[0].tokens) for best in expected]
    assert [each["finished"] for each in found] == [best[0].finished for best in expected]
    assert [each["score"] for each in found] == pytest.approx([best[0].score for best in expected], abs=1e-6)
    for each, best in zip(found, expected, strict=True):
        assert each["logProbabilities"] == pytest.approx(list(best[0].log_probabilities), abs=1e-6)


def test_a_float32_model_gives_the_same_tokens(tmp_path: Path) -> None:
    model, rows, settings = build(MODERN, VOCABULARY, seed=4), sources(), DecodingSettings()
    limits = [40] * len(rows)
    expected = native(model, "portable").search(rows, limits, settings)
    given = {"sources": [[*row, 2] for row in rows], "options": options(limits, settings)}
    found = run(START + SEARCH, packed(model, tmp_path, int8=False) | given, tmp_path)
    assert [each["tokens"] for each in found] == [list(best[0].tokens) for best in expected]


def test_damaged_models_are_refused(tmp_path: Path) -> None:
    script = """
const whole = bytes(data.model), messages = [];
const attempt = (model) => messages.push(message(() => new Engine(module, model)));
for (const length of [0, 7, 100, 200, whole.length - 8, whole.length - 1]) attempt(whole.slice(0, length));
for (let i = 0; i < 200; i++) {
  const model = whole.slice();
  model[(i * 7919) % model.length] ^= 1 << i % 8;
  attempt(model);
}
const sum = (model) => { // of a model whose header was changed, and which is whole otherwise
  const words = new BigUint64Array(model.buffer, 0, model.length / 8), end = words.length - 2;
  let one = 0n, two = 0n;
  for (let i = 0; i < end; i++) two = BigInt.asUintN(64, two + (one = BigInt.asUintN(64, one + words[i])));
  (words[end] = one), (words[end + 1] = two);
  return model;
};
for (let field = 0; field < 19; field++)
  for (const value of [-1, 0, 3, 1000, 1 << 20, 1 << 24, 2 ** 31 - 1]) {
    const model = whole.slice();
    new DataView(model.buffer).setInt32(16 + 4 * field, value, true);
    attempt(sum(model));
  }
result = { messages, intact: message(() => new Engine(module, sum(whole.slice()))) };
"""
    found = run(START + script, packed(build(SMALL, VOCABULARY), tmp_path), tmp_path)
    assert found["intact"] == ""
    damaged = found["messages"][:206]
    assert all(each.startswith("this model cannot be used: ") for each in damaged)
    assert {each.partition(": ")[2] for each in damaged} <= {
        "is cut short",
        "is damaged",
        "is not packed for this version",
    }
    assert not [each for each in found["messages"] if "the engine stopped" in each]


def test_wrong_tokens_are_an_error_and_the_engine_goes_on(tmp_path: Path) -> None:
    script = """
const engine = new Engine(module, bytes(data.model)), other = new Engine(module, bytes(data.model));
const search = (engine, ids, limit) => engine.search([ids], { limits: [limit] });
const wrong = [[[9999], 5], [[-1], 5], [[], 5], [[7], 0], [Array(41).fill(7), 5]];
result = {
  messages: wrong.map(([ids, limit]) => message(() => search(engine, ids, limit))),
  same: JSON.stringify(search(engine, [7, 8, 2], 9)) === JSON.stringify(search(other, [7, 8, 2], 9)),
  none: engine.search([], { limits: [] }),
};
"""
    found = run(START + script, packed(build(SMALL, VOCABULARY), tmp_path), tmp_path)
    assert found["messages"][:2] == ["a token is not in the vocabulary"] * 2
    assert "empty or longer" in found["messages"][2]
    assert "limit" in found["messages"][3]
    assert "empty or longer" in found["messages"][4]
    assert found["same"]
    assert found["none"] == []


def test_memory_grows_with_the_work_and_then_stays(tmp_path: Path) -> None:
    script = """
const engine = new Engine(module, bytes(data.model)), size = () => engine.run.memory.buffer.byteLength;
const sizes = [size()], limits = data.sources.map(() => 30);
for (let i = 0; i < 4; i++) engine.search(data.sources, { limits, beam: 10 }), sizes.push(size());
result = sizes;
"""
    given = {"sources": [[*row, 2] for row in sources(60)]}
    found = run(START + script, packed(build(SMALL, VOCABULARY), tmp_path) | given, tmp_path)
    assert found[1] > found[0]
    assert found[2] == found[-1]


def test_the_engine_is_compiled_from_these_sources() -> None:
    known = json.loads(compile_engine.RECORD.read_text())
    assert known == compile_engine.record(), "the C++ sources or engine.wasm have changed: run `make wasm`"


@pytest.mark.slow
def test_compiling_the_sources_again_gives_the_same_bytes(tmp_path: Path) -> None:
    if importlib.util.find_spec("ziglang") is None:
        pytest.skip("no compiler for WebAssembly here: pip install ziglang==0.17.0, then this test runs")
    compile_engine.compile_engine(tmp_path / "engine.wasm")
    assert (tmp_path / "engine.wasm").read_bytes() == compile_engine.ENGINE.read_bytes()
