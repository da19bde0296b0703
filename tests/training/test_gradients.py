"""Dropout grows with the epochs, and batches that do not fit into memory are computed in parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from regard.errors import ModelError
from regard.preparation.train_and_resume import train
from regard.training.events import Event, Note, Progress
from regard.training.loop import is_out_of_memory
from regard.training.losses import Loss
from regard.training.tasks import translation as pairs
from tests.training.corpora import SMALL, write_reversals

ERRORS = [
    RuntimeError("[enforce fail at alloc_cpu.cpp:119] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    MemoryError(),
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
]


def run(corpus: list[Path], folder: Path, **more: Any) -> list[Event]:
    given = {**SMALL, "model.dropout": 0.0, "training.steps": 6, "training.accumulate": 2, **more}
    return list(train(corpus, folder, overrides=given))


def with_memory_for(rows: int, error: Exception, monkeypatch: pytest.MonkeyPatch, backward: bool = False) -> None:
    """Makes every larger batch fail while training, in the forward pass or at the end of the backward pass."""
    real = pairs.TranslationTraining.loss

    hooks: list[Any] = []

    def fail() -> None:
        raise error

    def late(_: torch.Tensor) -> None:
        hooks.pop().remove()
        fail()

    def loss(task: pairs.TranslationTraining, model: Any, batch: Any, smoothing: float) -> Loss:
        if model.training and len(batch) > rows:
            if not backward:
                fail()
            first = model.source_embedding.tokens.weight
            hooks.append(first.register_hook(late))
        return real(task, model, batch, smoothing)

    monkeypatch.setattr(pairs.TranslationTraining, "loss", loss)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return write_reversals(tmp_path_factory.mktemp("corpus"), 60)


@pytest.fixture(scope="module")
def undisturbed(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    return run(corpus, tmp_path_factory.mktemp("runs") / "run")


def losses(events: list[Event]) -> list[float]:
    return [event.loss for event in events if isinstance(event, Progress)]


@pytest.mark.parametrize(
    ("error", "backward"), list(zip(ERRORS, [True, False, True], strict=True)), ids=lambda value: type(value).__name__
)
def test_a_batch_is_split_with_one_note(
    error: Exception,
    backward: bool,
    corpus: list[Path],
    undisturbed: list[Event],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with_memory_for(12, error, monkeypatch, backward)
    events = run(corpus, tmp_path / "run")
    assert losses(events) == pytest.approx(losses(undisturbed), abs=1e-5)
    messages = [e.text for e in events if isinstance(e, Note) and "memory" in e.text]
    assert [text.split("in ")[1][:7] for text in messages] in (["2 parts"], ["2 parts", "4 parts"])


def test_one_row_that_is_too_large_ends_the_run(
    corpus: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_memory_for(0, MemoryError(), monkeypatch)
    with pytest.raises(ModelError, match=r"not enough memory for 1 rows .*batch_tokens"):
        run(corpus, tmp_path / "run")


def test_other_errors_are_not_mistaken_for_lack_of_memory(
    corpus: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not is_out_of_memory(RuntimeError("size mismatch"))
    with_memory_for(0, RuntimeError("size mismatch"), monkeypatch)
    with pytest.raises(RuntimeError, match="size mismatch"):
        run(corpus, tmp_path / "run")


def test_dropout_grows_with_the_epochs(corpus: list[Path], tmp_path: Path) -> None:
    """The first update has no dropout; once the rate is full, updates equal those of a run with the full rate."""
    full = {"model.dropout": 0.5, "training.steps": 30, "training.batch_tokens": 60}
    full |= {"training.dropout_warmup": 0.0, "training.learning_rate": 0.0}  # so that losses tell of the masks alone
    still = losses(run(corpus, tmp_path / "still", **full | {"model.dropout": 0.0}))
    always = losses(run(corpus, tmp_path / "always", **full))
    events = run(corpus, tmp_path / "growing", **full | {"training.dropout_warmup": 1.5})
    growing = losses(events)
    epoch = sum(isinstance(event, Progress) and event.epoch == 0 for event in events)  # in updates
    assert 2 <= epoch <= 15
    assert growing[0] == still[0] != always[0]
    assert growing[2 * epoch :] == always[2 * epoch :]
    assert all(each not in others for each, *others in list(zip(growing, still, always, strict=True))[1:epoch])
