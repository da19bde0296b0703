"""A finished run keeps a few examples with its final weights."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.model_folder import CANARY
from regard.training.events import Evaluation, Finished
from tests.training.corpora import SMALL, write_reversals
from tests.training.toys import TINY, write_labels, write_text, write_words


def examples(folder: Path) -> dict[str, str]:
    canary = json.loads((folder / CANARY).read_text(encoding="utf-8"))
    assert canary["version"] == 1
    assert 0 < len(canary["examples"]) <= 5
    return {each["source"]: each["output"] for each in canary["examples"]}


def outputs(task: str, folder: Path, sources: list[str]) -> list[str]:
    """Returns the outputs of the model in a folder, loaded as a server loads it."""
    match task:
        case "translate":
            return [each.text for each in regard.load_as(regard.Translator, folder).translate(sources, beam=1)]
        case "write":
            writer = regard.load_as(regard.Writer, folder)
            return [writer(source, max_tokens=16, temperature=0, beam=1) for source in sources]
        case "fill":
            return [regard.load_as(regard.Filler, folder)(source) for source in sources]
        case _:
            return [each.label for each in regard.load_as(regard.Classifier, folder).classify(sources)]


@pytest.mark.parametrize("task", ["translate", "write", "fill", "classify"])
def test_a_finished_model_has_a_few_of_its_own_outputs(task: str, tmp_path: Path) -> None:
    corpora: dict[str, Any] = {"translate": write_reversals, "classify": write_labels}
    files = write_reversals(tmp_path, 60) if task == "translate" else corpora.get(task, write_text)(tmp_path)
    given = {**(SMALL if task == "translate" else TINY), "task": task, "training.learning_rate": 0.03}
    list(regard.train(files, tmp_path / "run", overrides=given))
    found = examples(tmp_path / "run")
    assert outputs(task, tmp_path / "run", list(found)) == list(found.values())


def test_models_that_label_words_have_no_canary(tmp_path: Path) -> None:
    given = {**TINY, "task": "classify", "data.carrier": "word", "training.steps": 1}
    list(regard.train(write_words(tmp_path), tmp_path / "run", overrides=given))
    assert not (tmp_path / "run" / CANARY).exists()


def test_examples_of_earlier_weights_are_deleted_with_them(tmp_path: Path) -> None:
    stop = threading.Event()
    folder, given = tmp_path / "run", {**TINY, "task": "classify", "training.metric": "loss", "training.steps": 3}
    list(regard.train(write_labels(tmp_path), folder, overrides=given))
    assert examples(folder)
    for event in regard.resume(folder, overrides={"training.steps": 9}, stop=stop):
        if isinstance(event, Evaluation):
            assert event.best
            stop.set()
    assert isinstance(event, Finished)
    assert not event.complete
    assert not (folder / CANARY).exists()
    list(regard.resume(folder))
    assert examples(folder)
