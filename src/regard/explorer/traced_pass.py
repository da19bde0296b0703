"""Runs one pass of a model over finished texts and keeps its inputs, all of its tensors and its outputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.decoder_step import NextToken
from regard.explorer.anatomy import Anatomy
from regard.model.observe import Edit, Seen, Trace, observe
from regard.model.output_heads import mean_state
from regard.model.transformer import Decoder, Encoder


@dataclass(frozen=True)
class Inputs:
    """The inputs of a pass: the ids of its texts, and the positions whose outputs are read."""

    tokens: Mapping[str, list[int]]  # by text
    rows: list[int]  # positions whose outputs are read: all of a decoder, the gaps, the first tokens of words
    keep: list[bool] | None = None  # False for tokens that are hidden from all positions
    segments: list[int] | None = None


@dataclass
class Pass:
    """A finished pass of a model: its inputs, its tensors and its logits."""

    anatomy: Anatomy
    inputs: Inputs
    edits: Mapping[str, Edit]
    seen: dict[str, Seen]  # without the batch
    lines: dict[str, tuple[str, int]]  # the file and line of code that made each of them
    answers: Tensor | None  # [R, V] logits of the rows that are read
    chosen: list[int] = field(default_factory=list)  # the id, or the number of the label, chosen at each row
    repetition_penalty: float = 1.0

    def scores(self, answers: Tensor) -> Tensor:
        """[B, R, V] logits -> the log-probabilities that decoding uses for this task.

        A writer and a translator use `NextToken`, which sets tokens that are never generated to zero probability and
        leaves the others unchanged. A filler normalizes the probabilities of the remaining tokens.
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


def run_pass(anatomy: Anatomy, inputs: Inputs, edits: Mapping[str, Edit]) -> Pass:
    """Runs the model once over the texts and keeps every tensor."""
    with torch.no_grad(), observe(anatomy.model, edits) as trace:
        answers = forward(anatomy, inputs, trace)
    seen = {
        name: Seen(tensor[0].cpu(), axes[1:]) if axes[0] == "batch" else Seen(tensor.cpu(), axes)
        for name, (tensor, axes) in trace.items()
    }
    return Pass(anatomy, inputs, edits, seen, trace.lines, None if answers is None else answers[0].cpu())


def forward(anatomy: Anatomy, inputs: Inputs, trace: Trace, copies: int = 1) -> Tensor | None:
    """Returns the logits [B, R, V] of the rows that are read, for `copies` of the texts; None if there are none."""
    model = anatomy.model
    device = next(model.parameters()).device

    def batch(values: list[int] | list[bool] | None) -> Tensor | None:
        return None if values is None else torch.tensor(values, device=device).expand(copies, -1)

    tokens, keep = batch(inputs.tokens[anatomy.read]), batch(inputs.keep)
    assert tokens is not None
    if isinstance(model, Encoder):
        states: Tensor = model(tokens, keep, batch(inputs.segments))
        return apply_head(anatomy, model, states, keep, inputs.rows, trace)
    texts = (tokens,) if isinstance(model, Decoder) else (tokens, batch(inputs.tokens["target"]), keep)
    logits: Tensor = model(*texts)
    return logits


def apply_head(
    anatomy: Anatomy, model: Encoder, states: Tensor, keep: Tensor | None, rows: list[int], trace: Trace
) -> Tensor | None:
    """Applies the head of an encoder: states [B, T, D] -> logits [B, R, V]; records the head's own tensors."""
    if model.fill is not None:
        logits: Tensor = model.fill(states)
        return logits[:, rows]
    if model.label is not None and anatomy.settings.data.carrier == "word":
        logits = model.label(states)
        trace.record("label.logits", logits, ("batch", "position:text", "label"))
        return logits[:, rows]
    if model.label is not None:
        logits = model.label(model.judge(states, keep))
        trace.record("label.logits", logits, ("batch", "label"))
        return logits[:, None]
    own = anatomy.settings.embedding
    vector = mean_state(states, keep) if own.pooling == "mean" else states[:, 0]
    trace.record("vector", F.normalize(vector.float(), dim=-1) if own.normalize else vector, ("batch", "width"))
    return None
