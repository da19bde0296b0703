"""Estimates the confidence in a translation from the mean log-probability of its tokens.

A logistic curve (Platt, 1999), fitted on the dev set, converts this mean to the probability that the translation has a
chrF of at least 60 against a human translation. This module never imports torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.errors import ModelError
from regard.model_folder import CONFIDENCE, LIMITS
from regard.model_manifest import write_listed
from regard.untrusted_files import read_limited

GOOD = 60.0
"""Minimum chrF of translations that count as good."""

ROUNDS, RIDGE, LONGEST_STEP = 50, 1e-2, 2.0
"""Options of the fit; the ridge penalty keeps the slope finite if good and bad translations do not overlap."""


@dataclass(frozen=True)
class Confidence:
    """A model's calibration curve, from the mean log-probability per token to a confidence from 0 to 1."""

    slope: float  # never negative, so that confidence rises with probability
    intercept: float
    pairs: int  # number of translations that the curve was fitted to

    def estimate(self, log_probabilities: Sequence[float]) -> float | None:
        """Returns the confidence in a translation, given the log-probabilities of its tokens; None without tokens."""
        if not log_probabilities:
            return None
        return _logistic(self.slope * sum(log_probabilities) / len(log_probabilities) + self.intercept)

    def save(self, folder: Path) -> None:
        text = json.dumps({**asdict(self), "good": f"chrF >= {GOOD:.0f}"}) + "\n"
        write_listed(folder, CONFIDENCE, lambda temporary: temporary.write_bytes(text.encode()))

    @classmethod
    def load(cls, folder: Path) -> Confidence | None:
        """Reads the curve of a model folder; returns None if an older folder has none."""
        path = folder / CONFIDENCE
        if not path.exists():
            return None
        try:
            values = json.loads(read_limited(path, LIMITS[CONFIDENCE], folder))
            curve = cls(float(values["slope"]), float(values["intercept"]), int(values["pairs"]))
        except (ValueError, KeyError, TypeError, RecursionError, OverflowError) as error:
            raise ModelError(f"{path}: damaged ({error}): delete it to translate without confidence scores") from None
        if not (math.isfinite(curve.slope) and math.isfinite(curve.intercept)):
            raise ModelError(
                f"{path}: damaged (a number is not finite): delete it to translate without confidence scores"
            )
        return curve


def fit(means: Sequence[float], qualities: Sequence[float]) -> Confidence:
    """Fits a curve to the mean log-probabilities and chrF scores of translations."""
    import numpy as np

    good = np.array(qualities) >= GOOD
    count, right = len(good), int(good.sum())
    targets = np.where(good, (right + 1) / (right + 2), 1 / (count - right + 2))  # never 0 or 1, as in Platt (1999)
    inputs = np.stack([np.array(means, float), np.ones(count)])  # [2, N]
    weights = np.zeros(2)  # slope and intercept
    for _ in range(ROUNDS):  # Newton's method
        chances = np.array([_logistic(value) for value in weights @ inputs])
        gradient = inputs @ (chances - targets) + [RIDGE * weights[0], 0.0]
        step = np.linalg.solve(inputs * (chances * (1 - chances)) @ inputs.T + RIDGE * np.eye(2), gradient)
        longest = np.abs(step).max()
        weights -= step * LONGEST_STEP / max(longest, LONGEST_STEP)
        if longest < 1e-9:
            break
    slope, intercept = weights.tolist()
    if slope < 0:
        share = float(targets.mean())
        slope, intercept = 0.0, math.log(share / (1 - share))
    return Confidence(slope, intercept, count)


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, value))))
