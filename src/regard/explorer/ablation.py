"""Ablates every head or sublayer separately, many of them in one batch, and measures the effect of each ablation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError
from regard.explorer.activation_patches import add_edits, replacement
from regard.explorer.model_parts import Anatomy
from regard.explorer.recorded_pass import Pass, forward
from regard.explorer.request_types import LIMITS
from regard.model.observe import Trace, observe

MAX_LOGITS = 2**25
"""Maximum number of logits in one pass; it limits the batch size for long texts and large vocabularies."""


class Lesion(NamedTuple):
    """The part that is ablated in one row of a batch: an attention head or a whole sublayer."""

    site: str
    head: int | None


class ClientGoneError(Exception):
    """Raised when the client has disconnected and no longer needs the answer."""


def ablate(
    run: Pass, what: str, op: str, targets: list[str] | None = None, gone: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Returns the effect of ablating each head or sublayer; `targets` may name the kinds or stacks to ablate.

    Calls `gone` between two batches, and stops if it returns True.
    """
    if run.answers is None:
        problem = "this model predicts neither tokens nor labels"
        raise InputError(f"ablate: {problem}, so ablation has no probability to change")
    if op not in ("zero", "mean"):
        raise InputError(f"op: must be zero or mean, not {op[:40]!r}")
    if what not in ("heads", "sublayers"):
        raise InputError(f"what: must be heads or sublayers, not {what[:40]!r}")
    groups = find_lesions(run.anatomy, what)
    names = list(groups) if targets is None else [name for name in groups if name in targets]
    if targets is not None and (not targets or len(names) < len(set(targets))):
        raise InputError(f"targets: must be null or some of {', '.join(groups)}")
    measured = measure(run, [lesion for name in names for lesion in groups[name]], op, gone)
    effects = {name: [{"site": lesion.site, **next(measured)} for lesion in groups[name]] for name in names}
    if what == "sublayers":
        return {"sublayers": effects}

    def by_layer(field: str) -> dict[str, list[list[Any]]]:
        count = run.anatomy.shape.heads
        values = {name: [effect[field] for effect in effects[name]] for name in names}
        return {name: [each[at : at + count] for at in range(0, len(each), count)] for name, each in values.items()}

    return {"kinds": names, "heads": by_layer("delta"), "top": by_layer("top")}


def find_lesions(anatomy: Anatomy, what: str) -> dict[str, list[Lesion]]:
    """Returns the heads of each kind of attention, layer by layer, or the sublayers of each stack."""
    stacks = anatomy.stacks.values()
    if what == "sublayers":
        return {stack.name: [Lesion(site, None) for site in stack.sublayers()] for stack in stacks}
    return {
        f"{stack.name}.{kind}": [
            Lesion(f"{stack.name}.layers.{layer}.{kind}", head)
            for layer in range(stack.layers)
            for head in range(anatomy.shape.heads)
        ]
        for stack in stacks
        for kind in stack.kinds
    }


def measure(run: Pass, lesions: Sequence[Lesion], op: str, gone: Callable[[], bool]) -> Iterator[dict[str, Any]]:
    """Yields the effect of each lesion at each step; each row of a batch has a different lesion.

    An effect consists of the change in log-probability, `delta`, and the most probable token if it changed, `top`.
    """
    chosen, before = torch.tensor(run.chosen), run.log_probabilities  # [R], [R, V]
    first, intact = before.argmax(-1), before.gather(1, chosen[:, None]).squeeze(1)
    output = run.anatomy.output_layer()
    logits = (0 if output is None else output.out_features) * len(run.inputs.tokens[run.anatomy.written])  # per row
    size = max(1, min(LIMITS.ablation_batch, MAX_LOGITS // max(1, logits)))
    for start in range(0, len(lesions), size):
        if gone():
            raise ClientGoneError
        batch = lesions[start : start + size]
        after = run.scores(run_with_lesions(run, batch, op)).cpu()  # [B, R, V]
        deltas = after.gather(2, chosen.expand(len(batch), -1)[..., None]).squeeze(2) - intact
        for delta, now in zip(deltas, after.argmax(-1), strict=True):
            tops = zip(first.tolist(), now.tolist(), strict=True)
            yield {
                "delta": [0.0 if math.isnan(value) else value for value in delta.tolist()],  # -inf before and after
                "top": [None if old == new else display_answer(run, new) for old, new in tops],
            }


def display_answer(run: Pass, answer: int) -> str:
    """Returns the display form of a token or a label."""
    if run.anatomy.task == "classify":
        return run.anatomy.settings.data.labels[answer]
    return run.anatomy.lexicons[run.anatomy.written].display(answer)


def run_with_lesions(run: Pass, lesions: Sequence[Lesion], op: str) -> Tensor:
    """Returns the logits [B, R, V] of a batch with one lesion per row, in addition to the patches of the run."""
    by_name: dict[str, list[tuple[int, int | None]]] = {}
    for row, (site, head) in enumerate(lesions):
        by_name.setdefault(f"{site}.{'output' if head is None else 'context'}", []).append((row, head))
    edits, stacks = dict(run.edits), run.anatomy.stacks
    for name, places in by_name.items():
        new = replacement(op, stacks[name.partition(".")[0]].causal)
        add_edits(edits, [(name, partial(change_copies, places, new))])
    traces: list[Trace] = []

    def forget(x: Tensor) -> Tensor:
        """Frees the recorded tensors after each layer, to limit memory."""
        traces[0].clear()
        return x

    for stack in stacks.values():
        layers = [f"{stack.name}.layers.{layer}" for layer in range(stack.layers)]
        add_edits(edits, [(f"{layer}.feed_forward_residual.sum", forget) for layer in layers])
    with torch.no_grad(), observe(run.anatomy.model, edits) as trace:
        traces.append(trace)
        answers = forward(run.anatomy, run.inputs, trace, len(lesions))
    assert answers is not None
    return answers


def change_copies(places: Sequence[tuple[int, int | None]], new: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Replaces one head, or the whole output, in each of the given rows of a batch [B, ...]."""
    x = x.clone()
    for row, head in places:
        part = x[row] if head is None else x[row, head]  # a view of x
        part[...] = new(part[None])[0]
    return x
