"""How far a translation can be trusted: the model's own log-probability of it, calibrated on the dev set.

A model that is sure of every token is right more often than one that is not, but a mean log-probability of -0.4 says
nothing to a reader. A logistic curve (Platt, 1999) makes a probability of it: that the translation is close to what a
person wrote, where close is a chrF of at least 60. Never imports torch.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from regard.atomic_files import write_text
from regard.errors import ModelError
from regard.model_folder import CONFIDENCE

GOOD = 60.0
"""The chrF of a translation that is close to its reference."""

ROUNDS = 50


@dataclass(frozen=True)
class Confidence:
    """The curve of one model, from the mean log-probability of a translation's tokens to a number from 0 to 1."""

    slope: float  # never negative: what the model finds more probable is never trusted less
    intercept: float
    pairs: int  # that it was fitted to

    def of(self, log_probabilities: Sequence[float]) -> float | None:
        """How far a translation with these tokens can be trusted; nothing is known of one without any."""
        if not log_probabilities:
            return None
        return _logistic(self.slope * sum(log_probabilities) / len(log_probabilities) + self.intercept)

    def save(self, folder: Path) -> None:
        write_text(folder / CONFIDENCE, json.dumps({**asdict(self), "good": f"chrF >= {GOOD:.0f}"}) + "\n")

    @classmethod
    def load(cls, folder: Path) -> Confidence | None:
        """What a model folder has; none if it was made before there was such a file."""
        path = folder / CONFIDENCE
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
            made = cls(float(found["slope"]), float(found["intercept"]), int(found["pairs"]))
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{path}: damaged ({error}): delete it to go without") from None
        if not (math.isfinite(made.slope) and math.isfinite(made.intercept)):
            raise ModelError(f"{path}: damaged (numbers that are not finite): delete it to go without")
        return made


def fit(means: Sequence[float], qualities: Sequence[float]) -> Confidence:
    """The curve that fits translations of these mean log-probabilities, whose chrF came out as told."""
    good = [quality >= GOOD for quality in qualities]
    count, right = len(good), sum(good)
    above, below = (right + 1) / (right + 2), 1 / (count - right + 2)  # never quite sure, as Platt has it
    aims = [above if each else below for each in good]
    slope, intercept = _newton(means, aims)
    if slope < 0:
        share = sum(aims) / count
        slope, intercept = 0.0, math.log(share / (1 - share))
    return Confidence(slope, intercept, count)


def _newton(values: Sequence[float], aims: Sequence[float]) -> tuple[float, float]:
    """Logistic regression of one variable; a little is taken off the slope, so that it stays finite."""
    slope = intercept = 0.0
    for _ in range(ROUNDS):
        made = [_logistic(slope * value + intercept) for value in values]
        errors = [p - aim for p, aim in zip(made, aims, strict=True)]
        weights = [p * (1 - p) for p in made]
        first = sum(e * v for e, v in zip(errors, values, strict=True)) + RIDGE * slope, sum(errors)
        both = sum(w * v for w, v in zip(weights, values, strict=True))
        squares = sum(w * v * v for w, v in zip(weights, values, strict=True)) + RIDGE
        total = sum(weights) + RIDGE
        determinant = squares * total - both * both
        steps = (total * first[0] - both * first[1]) / determinant, (squares * first[1] - both * first[0]) / determinant
        longest = max(map(abs, steps))
        scale = min(1.0, LONGEST / longest) if longest else 0.0
        slope, intercept = slope - scale * steps[0], intercept - scale * steps[1]
        if longest < 1e-9:
            break
    return slope, intercept


RIDGE, LONGEST = 1e-2, 2.0


def _logistic(value: float) -> float:
    return 1 / (1 + math.exp(-max(-700.0, min(700.0, value))))
