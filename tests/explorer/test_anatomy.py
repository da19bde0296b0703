"""What is told of a model."""

from __future__ import annotations

import json

import pytest

from regard.explorer.model_explorer import Explorer
from regard.explorer.model_parts import Anatomy
from regard.weights import parameters
from tests.explorer.toys import TASKS, contents


@pytest.mark.parametrize("task", TASKS)
def test_a_model_is_described(task: str) -> None:
    made = contents(task)
    about = Explorer(made, "toy").describe()
    json.dumps(about, allow_nan=False)
    assert about["task"] == task
    assert about["parameters"] == sum(tensor.numel() for tensor in parameters(made.model).values())
    assert about["weights"] == {name: list(tensor.shape) for name, tensor in parameters(made.model).items()}
    assert (about["output"] is None) == (task == "embed")
    assert about["output"] is None or about["output"]["weight"] in about["weights"]
    assert about["model"]["head_width"] == 4
    texts = {"source", "target"} if task == "translate" else {"text"}
    assert set(about["embeddings"]) == set(about["vocabulary"]) == set(about["specials"]) == texts
    assert about["limits"]["tokens"] == 128


def test_tied_weights_are_reported() -> None:
    about = Anatomy(contents("translate", tie="all")).describe()
    assert about["tied"] == {"inputs": True, "output": True}
    assert about["output"]["weight"] == "source_embedding.tokens.weight"
    about = Anatomy(contents("translate", tie="output", output_bias=True)).describe()
    assert about["tied"] == {"inputs": False, "output": True}
    assert about["output"] == {"weight": "target_embedding.tokens.weight", "bias": "logits.bias"}
    assert Anatomy(contents("write")).describe()["tied"] == {"inputs": False, "output": False}
