"""Describes the most probable tokens or labels at each position, and the choice that was made."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from regard.explorer.traced_pass import Pass

BEST = 10
"""Number of most probable tokens that are shown for each step."""


def describe_steps(run: Pass, given: Mapping[int, bool], how: Mapping[int, tuple[float, int]]) -> list[dict[str, Any]]:
    """Returns an entry for each row that is read: its chosen token and the most probable tokens.

    The probabilities are those of decoding: `NextToken` excludes tokens that are never generated, so `rest` includes
    their share. Logits are raw, and the entropy is that of the whole distribution. `given` marks rows with a forced
    token; `how` has the random number of a sampled row and the number of candidates.
    """
    if run.answers is None or run.anatomy.task == "classify":
        return []
    lexicon = run.anatomy.lexicons[run.anatomy.written]
    scores = run.scores(run.answers[None])[0]
    entropies = entropy(run.answers.float().log_softmax(-1))
    values, ids = scores.topk(min(BEST, scores.shape[-1]))
    steps = []
    for row, (position, chosen) in enumerate(zip(run.inputs.rows, run.chosen, strict=True)):
        top = [
            {
                **lexicon.show(token),
                "logit": float(run.answers[row, token]),
                "probability": math.exp(value),
                "log_probability": value,
            }
            for token, value in zip(ids[row].tolist(), values[row].tolist(), strict=True)
            if value > -math.inf
        ]
        drawn, kept = how.get(row, (None, None))
        steps.append(
            {
                "position": position,
                "chosen": lexicon.show(chosen),
                "given": given.get(row, False),
                "log_probability": finite(float(scores[row, chosen])),
                "entropy": float(entropies[row]),
                "top": top,
                "rest": max(0.0, 1.0 - sum(each["probability"] for each in top)),
                "drawn": drawn,
                "kept": kept,
            }
        )
    return steps


def describe_labels(run: Pass) -> list[dict[str, Any]]:
    """Returns the probability of each label, for the text or for each word."""
    if run.answers is None or run.anatomy.task != "classify":
        return []
    names = run.anatomy.settings.data.labels
    rows: list[int | None] = list(run.inputs.rows) if run.anatomy.settings.data.carrier == "word" else [None]
    probabilities = run.scores(run.answers[None])[0].exp().tolist()
    return [
        {"position": row, "probabilities": dict(zip(names, values, strict=True))}
        for row, values in zip(rows, probabilities, strict=True)
    ]


def choose_rows(run: Pass, given: list[int] | None = None) -> None:
    """Sets the choice at each row of an encoder: the given token, or the most probable one."""
    if run.answers is not None:
        run.chosen = given if given is not None else run.scores(run.answers[None])[0].argmax(-1).tolist()


def entropy(log_probabilities: Tensor) -> Tensor:
    """[..., V] log-probabilities -> [...] entropies in nats."""
    probabilities = log_probabilities.exp()
    return -(probabilities * torch.where(probabilities > 0, log_probabilities, 0.0)).sum(-1)


def finite(value: float) -> float | None:
    """Returns a number, or None for infinity, which JSON does not have."""
    return value if math.isfinite(value) else None
