"""Runs one pass of a model over finished texts, and records its inputs, tensors and most probable outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.decoder_step import NextToken
from regard.explorer.model_parts import Anatomy
from regard.model.observe import Edit, Seen, Trace, observe
from regard.model.transformer import Decoder, Encoder, mean_state

BEST = 10
"""Number of most probable tokens that are shown for each step."""


@dataclass(frozen=True)
class Inputs:
    """The inputs of a pass: the token ids of its texts, and the positions whose outputs are used."""

    tokens: Mapping[str, list[int]]  # ids of each text
    rows: list[int]  # positions whose outputs are used: all in a decoder, gaps, or the first tokens of words
    keep: list[bool] | None = None  # False for tokens that are hidden from all positions
    segments: list[int] | None = None


@dataclass
class Pass:
    """A finished pass of a model: its inputs, tensors and logits."""

    anatomy: Anatomy
    inputs: Inputs
    edits: Mapping[str, Edit]
    seen: dict[str, Seen]  # tensors without the batch axis
    lines: dict[str, tuple[str, int]]  # file and line of the code that computed each tensor
    answers: Tensor | None  # [R, V] logits at `inputs.rows`
    repetition_penalty: float = 1.0
    chosen: list[int] = field(default_factory=list)  # token id or label index chosen in each row

    @cached_property
    def log_probabilities(self) -> Tensor:
        """[R, V] log-probabilities of the answers."""
        assert self.answers is not None
        return self.scores(self.answers[None])[0]

    def scores(self, answers: Tensor) -> Tensor:
        """[B, R, V] logits -> the log-probabilities that decoding uses for this task.

        Writers and translators use `NextToken`, which sets the probability of tokens that are never generated to zero
        and leaves the others unchanged. Models that fill gaps normalize the remaining probabilities.
        """
        answers = answers.float()
        specials = self.anatomy.lexicons[self.anatomy.written].tokenizer.specials
        if self.anatomy.task == "classify":
            return answers.log_softmax(-1)
        if self.anatomy.task == "fill":
            never = torch.tensor([*specials.never_generated, specials.end], device=answers.device)
            return answers.index_fill(-1, never, -torch.inf).log_softmax(-1)
        penalty = self.repetition_penalty
        if penalty == 1.0:
            return NextToken(specials)(answers.flatten(0, 1), torch.empty(0)).view_as(answers)
        written = torch.tensor(self.inputs.tokens[self.anatomy.written], device=answers.device)
        rows = [
            NextToken(specials, penalty)(answers[:, row], written[: row + 1].expand(len(answers), -1))
            for row in range(answers.shape[1])
        ]
        return torch.stack(rows, 1)


def run_pass(anatomy: Anatomy, inputs: Inputs, edits: Mapping[str, Edit], repetition_penalty: float = 1.0) -> Pass:
    """Runs the model once over the texts and keeps every tensor."""
    with torch.no_grad(), observe(anatomy.model, edits) as trace:
        answers = forward(anatomy, inputs, trace)
    seen = {
        name: Seen(tensor[0].cpu(), axes[1:]) if axes[0] == "batch" else Seen(tensor.cpu(), axes)
        for name, (tensor, axes) in trace.items()
    }
    answers = None if answers is None else answers[0].cpu()
    return Pass(anatomy, inputs, edits, seen, trace.lines, answers, repetition_penalty)


def forward(anatomy: Anatomy, inputs: Inputs, trace: Trace, copies: int = 1) -> Tensor | None:
    """Returns the logits [B, R, V] at `inputs.rows` for `copies` of the texts, or None if the model has no logits."""
    model = anatomy.model
    device = next(model.parameters()).device

    def batch(values: list[int] | list[bool] | None) -> Tensor | None:
        return None if values is None else torch.tensor(values, device=device).expand(copies, -1)

    tokens, keep = batch(inputs.tokens[anatomy.read]), batch(inputs.keep)
    if not isinstance(model, Encoder):
        texts = (tokens,) if isinstance(model, Decoder) else (tokens, batch(inputs.tokens["target"]), keep)
        logits: Tensor = model(*texts)
        return logits
    states: Tensor = model(tokens, keep, batch(inputs.segments))
    if model.fill is not None:
        return model.fill(states)[:, inputs.rows]  # type: ignore[no-any-return]
    if model.label is None:
        own = anatomy.settings.embedding
        vector = mean_state(states, keep) if own.pooling == "mean" else states[:, 0]
        trace.record("vector", F.normalize(vector.float(), dim=-1) if own.normalize else vector, ("batch", "width"))
        return None
    words = anatomy.settings.data.carrier == "word"
    logits = model.label(states if words else model.pool(states, keep))
    trace.record("label.logits", logits, ("batch", *(["position:text"] if words else []), "label"))
    return logits[:, inputs.rows] if words else logits[:, None]


def describe_steps(run: Pass, given: Mapping[int, bool], how: Mapping[int, tuple[float, int]]) -> list[dict[str, Any]]:
    """Describes the output of each row: the chosen token and the most probable tokens.

    The probabilities are those used in decoding: `NextToken` excludes tokens that are never generated, so `rest`
    includes their share. Logits are raw, and the entropy is that of the whole distribution. `given` marks rows with a
    forced token; `how` contains the random number and the number of candidates of each sampled row.
    """
    if run.answers is None or run.anatomy.task == "classify":
        return []
    lexicon, scores = run.anatomy.lexicons[run.anatomy.written], run.log_probabilities
    logs = run.answers.float().log_softmax(-1)
    entropies = -(logs.exp() * torch.where(logs.exp() > 0, logs, 0.0)).sum(-1)
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
        log_probability = float(scores[row, chosen])
        steps.append(
            {
                "position": position,
                "chosen": lexicon.show(chosen),
                "given": given.get(row, False),
                "log_probability": log_probability if math.isfinite(log_probability) else None,
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
    data = run.anatomy.settings.data
    rows = run.inputs.rows if data.carrier == "word" else [None]
    return [
        {"position": row, "probabilities": dict(zip(data.labels, values, strict=True))}
        for row, values in zip(rows, run.log_probabilities.exp().tolist(), strict=True)
    ]
