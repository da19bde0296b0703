"""Compares a Transformer with LSTM and GRU, with attention and without: speed of training, and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from statistics import median

import torch

from benchmarks.experiments.claim_records import Figures
from benchmarks.experiments.toy_training import KINDS, Batches, accuracy, build, copying, learn
from regard.model.recurrent import SequenceToSequence
from regard.training.batches import PairBatch
from regard.training.losses import translation_loss

LENGTHS = (8, 16, 32, 64, 128, 256, 512)
BATCH = 1024  # target tokens
DISTANCES = (1, 2, 4, 8, 16, 32, 64, 128)
LONGEST = 64  # that is trained on, of the distances; the last one was never seen
HELD, UPDATES = 4, 600
COPIED = (1, 2, 4, 8, 16, 32)


def measure_speed(seed: int) -> Figures:
    """Measures tokens a second of training, source and target, by the length of both."""
    found: Figures = {"batch": BATCH, "lengths": list(LENGTHS), "models": {}}
    for name, changes in KINDS.items():
        model = build(seed, **{**changes, "width": 128, "hidden": 512})
        found["models"][name] = {
            "parameters": sum(p.numel() for p in model.parameters()),
            "one": [tokens_per_second(model, 1, length, seed) for length in LENGTHS],
            "batch": [tokens_per_second(model, BATCH // length, length, seed) for length in LENGTHS],
        }
    return found


def tokens_per_second(model: SequenceToSequence, rows: int, length: int, seed: int) -> float:
    """Returns the median over some forward and backward passes, in the time of this process alone."""
    batch, took = copying(rows, length, torch.Generator().manual_seed(seed)), list[float]()
    while len(took) < 4 or (sum(took) < 0.1 and len(took) < 20):
        began = time.process_time()
        loss = translation_loss(model, batch, 0.0)
        loss.total.backward()
        took.append(time.process_time() - began)
    model.zero_grad()
    return round(batch.seen / median(took[1:]))


def measure_recall(seed: int) -> Figures:
    """Measures how many of a few symbols are copied after blanks, by the number of blanks."""

    def draw(dice: torch.Generator) -> PairBatch:
        return copying(32, HELD, dice, DISTANCES[draw_below(len(DISTANCES) - 1, dice)])

    found: Figures = {"updates": UPDATES, "symbols": HELD, "distances": list(DISTANCES), "longest": LONGEST}
    return found | {"models": by_kind(seed, draw, lambda d, dice: copying(250, HELD, dice, d), DISTANCES)}


def measure_copying(seed: int) -> Figures:
    """Measures how many symbols of a text are copied, by its length: all of them have to be remembered."""

    def draw(dice: torch.Generator) -> PairBatch:
        length = COPIED[draw_below(len(COPIED), dice)]
        return copying(512 // length, length, dice)

    found: Figures = {"updates": UPDATES, "lengths": list(COPIED)}
    return found | {"models": by_kind(seed, draw, lambda n, dice: copying(2000 // n, n, dice), COPIED)}


def by_kind(
    seed: int, draw: Batches, test: Callable[[int, torch.Generator], PairBatch], sizes: Sequence[int]
) -> Figures:
    """Trains each kind of model and tests it on fresh texts of each size."""
    found: Figures = {}
    for name, changes in KINDS.items():
        model = build(seed, **changes)
        began = time.process_time()
        learn(model, draw, seed, steps=UPDATES, learning_rate=3e-3)
        took, fresh = time.process_time() - began, torch.Generator().manual_seed(seed + 1)
        right = [round(accuracy(model, test(size, fresh)), 4) for size in sizes]
        found[name] = {"accuracy": right, "seconds": round(took, 1)}
    return found


def draw_below(count: int, dice: torch.Generator) -> int:
    """Draws a number below `count`."""
    return int(torch.randint(count, (1,), generator=dice))
