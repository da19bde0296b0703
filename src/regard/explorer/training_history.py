"""Loads the saved weights of earlier training steps, and the evaluations in the training log."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from regard.explorer.model_parts import Anatomy
from regard.explorer.request_types import MissingError
from regard.model_folder import HISTORY, LARGEST_LOG, LOG, TRAINING
from regard.untrusted_files import read_limited
from regard.weights import Contents, assign, build_model, read_tensors

STEP = re.compile(r"step-(\d{8,})\.safetensors")
MODELS = 4
"""Maximum number of models of earlier steps that are kept in memory."""
SHOWN = ("source", "text", "prompt")
"""Labels of input texts in the training log."""
EXAMPLES = {
    "translate": "The animal didn't cross the street because it was too tired.",
    "write": "Once upon a time",
    "fill": "Paris is the [MASK] of France.",
    "classify": "A moving film.",
    "embed": "A dog runs in the garden.",
}
"""Example texts for models without a training log."""


class TrainingHistory:
    """The saved training steps of a model folder; models are loaded on request."""

    def __init__(self, contents: Contents, folder: Path | None) -> None:
        self.contents, self.folder = contents, folder
        self.model = lru_cache(MODELS)(self.load_model)

    def files(self) -> dict[str, Path]:
        """Returns the files of saved steps by name, oldest first."""
        places = () if self.folder is None else (self.folder / TRAINING, self.folder / HISTORY)
        paths = [path for place in places for path in place.glob("step-*.safetensors") if STEP.fullmatch(path.name)]
        return {path.stem: path for path in sorted(paths, key=lambda path: step_of(path.stem))}

    def describe(self) -> list[dict[str, Any]]:
        """Returns the saved steps, with their scores if the log contains them."""
        scores = {event.get("step"): event["scores"] for event in self.evaluations()}
        return [{"id": name, "step": step_of(name), "scores": scores.get(step_of(name), {})} for name in self.files()]

    def evaluations(self) -> Iterator[dict[str, Any]]:
        """Yields the evaluations in the training log; skips damaged lines."""
        path = None if self.folder is None else self.folder / LOG
        text = read_limited(path, LARGEST_LOG).decode("utf-8", errors="replace") if path and path.is_file() else ""
        for line in text.splitlines():
            with contextlib.suppress(ValueError, RecursionError):
                event = json.loads(line)
                is_evaluation = isinstance(event, dict) and event.get("event") == "Evaluation"
                if is_evaluation and isinstance(event.get("scores"), dict):
                    yield event

    def examples(self, most: int = 6, direction: str = "") -> list[str]:
        """Returns example texts from the evaluations in `direction`, or else an example for the task."""
        samples = [event.get("sample") or [] for event in self.evaluations()]
        rows = [row for sample in samples if not direction or ["direction", direction] in sample for row in sample]
        labelled = [row for row in rows if isinstance(row, list) and len(row) == 2 and row[0] in SHOWN]
        texts = [text.replace("[…]", " [MASK]").strip() for _, text in labelled if isinstance(text, str)]
        short = [text for text in dict.fromkeys(texts) if 0 < len(text) <= 200]
        return short[-most:] or [EXAMPLES[self.contents.settings.task]]

    def load_model(self, name: str) -> Anatomy:
        """Loads the model with the weights of an earlier step."""
        path = self.files().get(name)
        if path is None:
            raise MissingError(f"checkpoint: unknown checkpoint {name[:40]!r}; /api/model lists all checkpoints")
        settings, vocabularies = self.contents.settings, self.contents.vocabularies
        state = torch.get_rng_state()
        model = build_model(settings, vocabularies)
        torch.set_rng_state(state)
        tensors, _ = read_tensors(path)
        assign(model, tensors, path)
        device = next(self.contents.model.parameters()).device
        return Anatomy(Contents(settings, vocabularies, model.to(device).eval()))


def step_of(name: str) -> int:
    return int(name.removeprefix("step-"))
