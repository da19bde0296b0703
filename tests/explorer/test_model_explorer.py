"""A run has every number of the model's own run, whatever the model is for."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

import regard
from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.errors import InputError
from regard.explorer.model_explorer import Explorer, contents_of, look
from regard.explorer.request_types import LIMITS, MissingError
from regard.model.observe import observe
from regard.model.transformer import Decoder, EncoderDecoder
from tests.explorer.toys import GREEDY, SHAPES, TASKS, TEXT, close, contents, explorer, look_at

every_shape = pytest.mark.parametrize("shape", SHAPES)


# One pass over the finished output is what decoding saw, step by step


@every_shape
def test_translation_pass_equals_cached_decoding(shape: str) -> None:
    run = look_at("translate", shape=shape)
    model = run.anatomy.model
    assert isinstance(model, EncoderDecoder)
    source, target = (torch.tensor([run.passed.inputs.tokens[side]]) for side in ("source", "target"))
    cache = model.new_cache()
    with torch.no_grad():
        memory = model.encode(source, None)
        states = [model.decode(target[:, t : t + 1], memory, None, cache)[0, 0] for t in range(target.shape[1])]
        assert close(run["logits"], model.logits(torch.stack(states)))


@every_shape
def test_writing_pass_equals_cached_decoding(shape: str) -> None:
    run = look_at("write", shape=shape)
    model = run.anatomy.model
    assert isinstance(model, Decoder)
    text = torch.tensor([run.passed.inputs.tokens["text"]])
    cache = model.new_cache()
    with torch.no_grad():
        rows = [model(text[:, t : t + 1], cache)[0, 0] for t in range(text.shape[1])]
    assert close(run["logits"], torch.stack(rows))


@every_shape
@pytest.mark.parametrize("task", TASKS)
def test_recorded_tensors_are_those_that_the_model_computes(task: str, shape: str) -> None:
    run = look_at(task, shape=shape)
    model, tokens = run.anatomy.model, {side: torch.tensor([ids]) for side, ids in run.passed.inputs.tokens.items()}
    with torch.no_grad(), observe(model) as trace:
        if task == "translate":
            model(tokens["source"], tokens["target"], None)
        elif task == "write":
            model(tokens["text"])
        else:
            model(tokens["text"], None)
    for name, (tensor, axes) in trace.items():
        found, names = run.tensor(name)
        assert torch.equal(found, tensor[0] if axes[0] == "batch" else tensor), name
        assert names == (axes[1:] if axes[0] == "batch" else axes)


@every_shape
@pytest.mark.parametrize("task", TASKS)
def test_every_tensor_has_the_shape_axes_and_type_in_the_answer(task: str, shape: str) -> None:
    run = look_at(task, shape=shape)
    lengths = {text: len(tokens) for text, tokens in run.answer["tokens"].items()}
    for name, about in run.answer["tensors"].items():
        tensor, axes = run.tensor(name)
        assert (list(tensor.shape), list(axes)) == (about["shape"], about["axes"]), name
        assert about["dtype"] == ("i32" if tensor.dtype == torch.int32 else "f32")
        assert tensor.dtype in (torch.int32, torch.float32)
        for axis, size in zip(axes, tensor.shape, strict=True):
            assert ":" not in axis or size == lengths[axis.partition(":")[2]], (name, axis)
        assert not tensor.isnan().any(), name
        assert name.endswith(".masked") or tensor.isfinite().all(), name


# What is told of each step


@pytest.mark.parametrize("decode", [GREEDY, {"beam": 3}, {"temperature": 0.8, "top_k": 9, "seed": 4}])
def test_translations_are_those_of_the_translator(decode: dict[str, Any]) -> None:
    made = contents("translate", norm="pre")
    run = Explorer(made, "toy").run({"text": TEXT, "decode": {**decode, "max_tokens": 128}})
    (found,) = translator_of(made).translate([TEXT], **{k: v for k, v in decode.items() if k != "max_tokens"})
    steps = run.answer["steps"]
    assert run.answer["text"] == found.text
    assert run.answer["score"] == pytest.approx(found.score, abs=1e-6)
    assert run.answer["finished"] == found.finished
    assert [step["log_probability"] for step in steps] == pytest.approx(found.token_log_probabilities, abs=1e-4)
    assert sum(step["log_probability"] for step in steps) == pytest.approx(run.answer["log_probability"], abs=1e-4)


@pytest.mark.parametrize("decode", [GREEDY, {"beam": 3}, {"temperature": 0.9, "top_p": 0.9, "seed": 2}])
def test_continuations_are_those_of_the_writer(decode: dict[str, Any]) -> None:
    made, decode = contents("write"), {**decode, "max_tokens": 6}
    run = Explorer(made, "toy").run({"text": "The cat", "decode": decode})
    (found,) = writer_of(made).write(["The cat"], **decode)
    assert run.answer["text"] == found.text
    told = [step["log_probability"] for step in run.answer["steps"] if not step["given"]]
    assert told == pytest.approx(found.token_log_probabilities, abs=1e-4)


def test_a_repetition_penalty_is_part_of_the_probabilities() -> None:
    made = contents("write")
    decode: dict[str, Any] = {"beam": 1, "repetition_penalty": 1.5, "max_tokens": 6}
    run = Explorer(made, "toy").run({"text": "The cat", "decode": decode})
    (found,) = writer_of(made).write(["The cat"], **decode)
    told = [step["log_probability"] for step in run.answer["steps"] if not step["given"]]
    assert told == pytest.approx(found.token_log_probabilities, abs=1e-4)


@pytest.mark.parametrize("task", ["translate", "write", "fill"])
def test_steps_add_up(task: str) -> None:
    run = look_at(task)
    steps, logits = run.answer["steps"], run.passed.answers
    assert logits is not None
    for step, row in zip(steps, logits, strict=True):
        probabilities = row.softmax(-1)
        assert sum(each["probability"] for each in step["top"]) + step["rest"] == pytest.approx(1)
        assert step["entropy"] == pytest.approx(float(-(probabilities * probabilities.log()).sum()), abs=1e-4)
        assert [each["logit"] for each in step["top"]] == sorted((each["logit"] for each in step["top"]), reverse=True)
        assert len(step["top"]) == 10
        assert all(float(row[each["id"]]) == each["logit"] for each in step["top"])
        assert all(math.exp(each["log_probability"]) == pytest.approx(each["probability"]) for each in step["top"])


def test_rows_predict_the_token_after_them() -> None:
    run = look_at("translate")
    tokens, steps = run.answer["tokens"]["target"], run.answer["steps"]
    assert [token["display"] for token in tokens[:1]] == ["<s>"]
    assert [step["chosen"]["id"] for step in steps[:-1]] == [token["id"] for token in tokens[1:]]
    assert [step["position"] for step in steps] == list(range(len(tokens)))
    assert run.answer["tokens"]["source"][-1]["display"] == "</s>"


def test_a_writer_shows_its_prompt_and_what_it_wrote() -> None:
    run = look_at("write", "The cat")
    tokens, steps = run.answer["tokens"]["text"], run.answer["steps"]
    prompt = [token for token in tokens if token["start"] is not None or token["special"]]
    assert "".join(token["display"] for token in prompt) == "<s>▁The▁cat" or len(prompt) > 2
    assert [step["given"] for step in steps] == [True] * (len(prompt) - 1) + [False] * (len(steps) - len(prompt) + 1)
    assert len(steps) == len(tokens)


# The other tasks


def test_gaps_are_filled_as_by_the_filler() -> None:
    made, text = contents("fill"), "The [MASK] sees a [MASK]."
    run = Explorer(made, "toy").run({"text": text})
    fillings = Filler(made).fill(text, 3)
    steps = run.answer["steps"]
    assert [step["top"][0]["probability"] for step in steps] == pytest.approx([f[0].probability for f in fillings])
    assert run.answer["text"] == Filler(made)(text)
    gaps = [i for i, token in enumerate(run.answer["tokens"]["text"]) if token["display"] == "<mask>"]
    assert [step["position"] for step in steps] == gaps
    assert not any(step["given"] for step in steps)


def test_a_text_without_gaps_is_measured_token_by_token() -> None:
    run = look_at("fill")
    tokens = run.answer["tokens"]["text"]
    assert [step["chosen"]["id"] for step in run.answer["steps"]] == [t["id"] for t in tokens if not t["special"]]
    assert all(step["given"] for step in run.answer["steps"])
    assert run.answer["text"] == TEXT


@pytest.mark.parametrize("pooler", ["none", "tanh", "mean"])
def test_texts_are_labelled_as_by_the_classifier(pooler: str) -> None:
    made = contents("classify", pooler=pooler, segments=2)
    for pair in (None, "It rains."):
        run = Explorer(made, "toy").run({"text": TEXT, "pair": pair})
        (found,) = Classifier(made).classify([TEXT if pair is None else (TEXT, pair)])
        assert run.answer["labels"] == [{"position": None, "probabilities": pytest.approx(found.probabilities)}]
        assert run.answer["text"] == found.label
        assert run.answer["steps"] == []
        assert close(run["label.logits"].softmax(-1), torch.tensor(list(found.probabilities.values())))


def test_words_are_labelled_as_by_the_classifier() -> None:
    made = contents("classify", data={"carrier": "word"})
    run = Explorer(made, "toy").run({"text": TEXT})
    (found,) = Classifier(made).label_words([TEXT.split()])
    labels = run.answer["labels"]
    assert [label["probabilities"] for label in labels] == [pytest.approx(each.probabilities) for each in found]
    tokens = run.answer["tokens"]["text"]
    assert [tokens[label["position"]]["word"] for label in labels] == [0, 1, 2, 3]
    assert run["label.logits"].shape == (len(tokens), 3)


def test_texts_become_the_vectors_of_the_embedder() -> None:
    made = contents("embed")
    run = Explorer(made, "toy").run({"text": TEXT})
    assert close(run["vector"], torch.from_numpy(Embedder(made).embed([TEXT])[0]))
    assert run.answer["steps"] == run.answer["labels"] == []
    assert run.answer["log_probability"] is None


# Limits


def test_a_text_that_is_too_long_is_cut_with_a_warning() -> None:
    text = "dog " * 30
    for task in TASKS:
        run = look_at(task, text)
        assert any("only" in told and "are shown" in told for told in run.answer["warnings"]), task
        assert all(len(tokens) <= 24 for tokens in run.answer["tokens"].values())
    long = explorer("embed", max_length=400).run({"text": "dog " * 200})
    assert len(long.answer["tokens"]["text"]) == LIMITS.tokens == 128
    shown = look_at("translate", text).answer["warnings"]
    assert shown[0].startswith("the text has ")
    assert shown[0].endswith(" tokens: only the first 24 are shown")


def test_a_target_that_is_too_long_is_cut_with_a_warning() -> None:
    run = look_at("translate", target="Hund " * 30)
    assert run.answer["warnings"][0].endswith("only the first 24 are shown")
    assert len(run.answer["tokens"]["target"]) == 24
    assert not run.answer["finished"]


def test_several_lines_are_joined_with_a_warning() -> None:
    run = look_at("translate", "A dog reads.\nShe sings.")
    assert run.answer["request"]["text"] == "A dog reads. She sings."
    assert run.answer["warnings"] == ["the text has 2 lines; they are joined into one"]


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        ({}, "text: is missing"),
        ({"text": 3}, "text: must be text"),
        ({"text": " "}, "text: must not be empty"),
        ({"text": "x" * 20_001}, "text: must be text of length <= 20000"),
        ({"text": "a\ud800"}, "surrogate"),
        ({"text": "a", "txt": 1}, "txt: unknown field"),
        ({"text": "a", "decode": {"beam": 17}}, "decode.beam: must be at most 16"),
        ({"text": "a", "decode": {"beam": 0}}, "decode.beam must be at least 1"),
        ({"text": "a", "decode": {"max_tokens": 129}}, "decode.max_tokens: must be at most 128"),
        ({"text": "a", "decode": {"temperature": math.nan}}, "decode.temperature must be a finite"),
        ({"text": "a", "decode": {"bema": 1}}, "decode.bema: unknown setting"),
        ({"text": "a", "decode": 3}, "decode: must be an object"),
        ({"text": "a", "order": [0, 0]}, "order: must contain each"),
        ({"text": "a", "order": [0]}, "order: there are 1 numbers, but the text has 2 tokens"),
        ({"text": "a", "order": "x"}, "order: must be a list"),
        ({"text": "a", "prefix": [400]}, "prefix: 400 is not"),
        ({"text": "a", "prefix": [-1]}, "prefix: -1 is not"),
        ({"text": "a", "prefix": [2]}, "prefix: 2 is not"),
        ({"text": "a", "prefix": [300] * 25}, "prefix: there are 25 tokens, but at most"),
        ({"text": "a", "prefix": [300], "target": "b"}, "target and prefix"),
        ({"text": "a", "pair": "b"}, "pair: only encoder models"),
        ({"text": "a", "checkpoint": "../x"}, "checkpoint: unknown checkpoint"),
        ({"text": "a", "patch": 3}, "patch: must be a list"),
    ],
)
def test_wrong_requests_are_refused_by_name(request_: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        explorer("translate").run(request_)


@pytest.mark.parametrize("task", ["fill", "classify", "embed"])
def test_an_encoder_writes_nothing(task: str) -> None:
    for wrong in ({"target": "a"}, {"prefix": [300]}):
        with pytest.raises(InputError, match="an encoder generates no text"):
            look_at(task, **wrong)


# Runs


def test_the_most_recent_runs_are_kept() -> None:
    made = explorer("embed")
    runs = [made.run({"text": f"dog {i}"}) for i in range(LIMITS.runs + 1)]
    assert list(made.runs) == [run.name for run in runs[1:]]
    assert made.run({"text": "dog 5"}) is made.find(runs[5].name) is runs[5]
    with pytest.raises(MissingError, match="no longer stored"):
        made.find(runs[0].name)


def test_look_takes_engines_and_refuses_other_things() -> None:
    translator = translator_of(contents("translate"))
    run = regard.look(translator, TEXT, decode=GREEDY)
    assert run.answer["text"] == translator(TEXT, beam=1)[: len(run.answer["text"])] or not run.answer["finished"]
    for task, make in (("write", writer_of), ("fill", Filler), ("classify", Classifier)):
        made = contents(task)
        engine = make(made)
        assert look(engine, TEXT).names()
        assert contents_of(engine).model is made.model
    with pytest.raises(InputError, match="look takes a model folder"):
        look(3, TEXT)  # type: ignore[arg-type]
    translator.searcher = object()  # type: ignore[assignment]
    with pytest.raises(InputError, match="look needs a PyTorch model"):
        look(translator, TEXT)
    with pytest.raises(KeyError, match="no tensor with that name"):
        run["nothing"]


def test_runs_are_saved_by_suffix(tmp_path: Path) -> None:
    run = look_at("translate")
    run.save(tmp_path / "run.json")
    run.save(tmp_path / "run.safetensors")
    assert set(load((tmp_path / "run.safetensors").read_bytes())) == set(run.names())
    assert f'"run": "{run.name}"' in (tmp_path / "run.json").read_text()
    with pytest.raises(InputError, match="cannot save a run as"):
        run.save(tmp_path / "run.txt")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.json", "run.safetensors"]
