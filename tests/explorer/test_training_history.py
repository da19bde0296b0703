"""Earlier steps of training."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from regard.atomic_files import write_text
from regard.explorer.model_explorer import Explorer
from regard.explorer.request_types import MissingError
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS
from regard.settings.option_fields import dump
from regard.weights import parameters, write_tensors
from tests.explorer.toys import TASKS, TEXT, close, contents, explorer


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = contents("translate")
    write_text(tmp_path / SETTINGS, dump(made.settings))
    write_text(tmp_path / TOKENIZER, made.vocabularies.to_json())
    write_tensors(tmp_path / WEIGHTS, parameters(made.model))
    early, late = (parameters(contents("translate", seed=seed).model) for seed in (5, 6))
    half = {name: tensor.half() for name, tensor in early.items()}
    write_tensors(tmp_path / "history" / "step-00000100.safetensors", half)
    write_tensors(tmp_path / "training" / "step-00000200.safetensors", late)
    write_tensors(tmp_path / "training" / "state.safetensors", late)
    sample = [["source", "A dog sings."], ["model", "Hund"]]
    events = [
        {"event": "Progress", "step": 100},
        {"event": "Evaluation", "step": 100, "scores": {"bleu": 12.5}, "sample": sample},
    ]
    write_text(tmp_path / "log.jsonl", "\n".join([*map(json.dumps, events), '{"event": "Eval']))
    return tmp_path


def test_earlier_training_steps_can_be_explored(folder: Path) -> None:
    made = Explorer.open(folder, "cpu")
    about = made.describe()
    assert about["checkpoints"] == [
        {"id": "step-00000100", "step": 100, "scores": {"bleu": 12.5}},
        {"id": "step-00000200", "step": 200, "scores": {}},
    ]
    assert about["examples"] == ["A dog sings."]
    assert about["path"] == str(folder)
    last = Explorer(contents("translate", seed=6), "late")
    request = {"text": TEXT, "target": "Ein Hund"}
    run = made.run({**request, "checkpoint": "step-00000200"})
    assert close(run["logits"], last.run(request)["logits"])
    assert not close(run["logits"], made.run(request)["logits"], 1e-2)
    early = made.run({**request, "checkpoint": "step-00000100"})
    assert early["logits"].dtype == torch.float32
    assert run.answer["request"]["checkpoint"] == "step-00000200"
    for wrong in ("step-00000300", "state", "../training/step-00000200"):
        with pytest.raises(MissingError, match="checkpoint: unknown checkpoint"):
            made.run({**request, "checkpoint": wrong})


@pytest.mark.parametrize("task", TASKS)
def test_every_model_has_an_example_text(task: str) -> None:
    made = explorer(task)
    (example,) = made.describe()["examples"]
    assert made.run({"text": example}).answer["tokens"]


def test_gaps_in_the_log_are_gaps_in_the_example(tmp_path: Path) -> None:
    event = {"event": "Evaluation", "step": 1, "scores": {}, "sample": [["text", "A[…] sees a cat."], ["model", "x"]]}
    write_text(tmp_path / "log.jsonl", json.dumps(event))
    made = Explorer(contents("fill"), "toy", tmp_path)
    assert made.describe()["examples"] == ["A [MASK] sees a cat."]
    assert len(made.run({"text": "A [MASK] sees a cat."}).answer["steps"]) == 1
