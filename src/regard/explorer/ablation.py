"""Ablates every head or every sublayer in turn, with many copies in one pass, and measures the effect of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from regard.errors import InputError
from regard.explorer.anatomy import StackShape
from regard.explorer.request_checks import LIMITS
from regard.explorer.traced_pass import Pass, forward
from regard.explorer.what_if import add_edits, mean_over_positions
from regard.model.observe import Edit, Trace, observe

MOST_LOGITS = 2**25
"""Maximum number of logits of one pass: fewer copies run together if texts are long or vocabularies large."""


class Lesion(NamedTuple):
    """A part that one copy lacks: a head of an attention, or a whole sublayer."""

    site: str
    head: int | None


class Effect(NamedTuple):
    """The effect of a lesion at each step: the change in log-probability, and the most probable token if it changed."""

    delta: list[float]
    top: list[str | None]


class GoneError(Exception):
    """Raised when the client has left and no longer needs the answer."""


def ablate(
    run: Pass, what: Any, op: Any, targets: Any = None, gone: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """Returns the effect of ablating each head or sublayer; `targets` may name the kinds or stacks to ablate.

    Between two batches it asks whether everybody has `gone`, and stops.
    """
    if run.answers is None:
        raise InputError(
            "ablate: this model predicts neither tokens nor labels, so ablation has no probability to change"
        )
    if op not in ("zero", "mean"):
        raise InputError(f"op: must be zero or mean, not {str(op)[:40]!r}")
    if what == "heads":
        return ablate_heads(run, op, targets, gone)
    if what == "sublayers":
        return ablate_sublayers(run, op, targets, gone)
    raise InputError(f"what: must be heads or sublayers, not {str(what)[:40]!r}")


def ablate_heads(run: Pass, op: str, targets: Any, gone: Callable[[], bool]) -> dict[str, Any]:
    """Ablates every head of every attention; returns the effects by kind, layer and head."""
    anatomy = run.anatomy
    kinds = [(stack, kind) for stack in anatomy.stacks.values() for kind in stack.kinds]
    names = choose_targets(targets, [f"{stack.name}.{kind}" for stack, kind in kinds])
    kinds = [(stack, kind) for stack, kind in kinds if f"{stack.name}.{kind}" in names]
    lesions = [
        Lesion(f"{stack.name}.layers.{layer}.{kind}", head)
        for stack, kind in kinds
        for layer in range(stack.layers)
        for head in range(anatomy.shape.heads)
    ]
    effects = iter(measure(run, lesions, op, gone))
    heads: dict[str, Any] = {}
    top: dict[str, Any] = {}
    for stack, kind in kinds:
        rows = [[next(effects) for _ in range(anatomy.shape.heads)] for _ in range(stack.layers)]
        heads[f"{stack.name}.{kind}"] = [[effect.delta for effect in row] for row in rows]
        top[f"{stack.name}.{kind}"] = [[effect.top for effect in row] for row in rows]
    return {"kinds": names, "heads": heads, "top": top}


def ablate_sublayers(run: Pass, op: str, targets: Any, gone: Callable[[], bool]) -> dict[str, Any]:
    """Ablates every attention and every feed-forward layer; returns the effects by stack."""
    stacks = run.anatomy.stacks
    names = choose_targets(targets, list(stacks))
    lesions = [Lesion(site, None) for name in names for site in stacks[name].sublayers()]
    effects = iter(measure(run, lesions, op, gone))
    return {
        "sublayers": {
            name: [{"site": site, **next(effects)._asdict()} for site in stacks[name].sublayers()] for name in names
        }
    }


def choose_targets(targets: Any, names: list[str]) -> list[str]:
    """Returns the requested names, or all names without `targets`."""
    if targets is None:
        return names
    if not isinstance(targets, list) or not targets or not all(target in names for target in targets):
        raise InputError(f"targets: must be null or some of {', '.join(names)}")
    return [name for name in names if name in targets]


def measure(run: Pass, lesions: Sequence[Lesion], op: str, gone: Callable[[], bool]) -> Iterator[Effect]:
    """Yields the effect of each lesion; each copy in a batch has another lesion."""
    assert run.answers is not None
    chosen = torch.tensor(run.chosen)
    before = run.scores(run.answers[None])[0]  # [R, V]
    first, intact = before.argmax(-1), before.gather(1, chosen[:, None]).squeeze(1)
    size = max(1, min(LIMITS.ablation_batch, MOST_LOGITS // max(1, count_logits(run))))
    for start in range(0, len(lesions), size):
        if gone():
            raise GoneError
        batch = lesions[start : start + size]
        after = run.scores(run_with_lesions(run, batch, op)).cpu()  # [B, R, V]
        deltas = after.gather(2, chosen.expand(len(batch), -1)[..., None]).squeeze(2) - intact
        for delta, now in zip(deltas, after.argmax(-1), strict=True):
            yield Effect(
                [0.0 if math.isnan(value) else value for value in delta.tolist()],  # -inf before and after: no change
                [None if a == b else display_answer(run, b) for a, b in zip(first.tolist(), now.tolist(), strict=True)],
            )


def count_logits(run: Pass) -> int:
    """Counts the logits of one copy of the texts."""
    output = run.anatomy.output_layer()
    return (0 if output is None else output.out_features) * len(run.inputs.tokens[run.anatomy.written])


def display_answer(run: Pass, answer: int) -> str:
    """Returns a token or a label as text."""
    if run.anatomy.task == "classify":
        return run.anatomy.settings.data.labels[answer]
    return run.anatomy.lexicons[run.anatomy.written].display(answer)


def run_with_lesions(run: Pass, lesions: Sequence[Lesion], op: str) -> Tensor:
    """Returns the logits [B, R, V] of copies with one lesion each, in addition to the run's patches."""
    by_name: dict[str, list[tuple[int, int | None]]] = {}
    for row, (site, head) in enumerate(lesions):
        by_name.setdefault(f"{site}.{'output' if head is None else 'context'}", []).append((row, head))
    edits = dict(run.edits)
    for name, places in by_name.items():
        stack = run.anatomy.stacks[name.partition(".")[0]]
        add_edits(edits, iter([(name, partial(change_copies, places, replacement(op, stack)))]))
    seen: list[Trace] = []
    add_edits(edits, free_after_layers(run.anatomy.stacks, seen))
    with torch.no_grad(), observe(run.anatomy.model, edits) as trace:
        seen.append(trace)
        answers = forward(run.anatomy, run.inputs, trace, len(lesions))
    assert answers is not None
    return answers


def replacement(op: str, stack: StackShape) -> Callable[[Tensor], Tensor]:
    """Returns the function that computes what replaces an ablated part."""
    return torch.zeros_like if op == "zero" else mean_over_positions(stack.causal)


def change_copies(places: Sequence[tuple[int, int | None]], new: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Replaces one head, or the whole output, of each of these copies in a batch [B, ...]."""
    x = x.clone()
    for row, head in places:
        if head is None:
            x[row] = new(x[row][None])[0]
        else:
            x[row, head] = new(x[row, head][None])[0]
    return x


def free_after_layers(stacks: Mapping[str, StackShape], seen: list[Trace]) -> Iterator[tuple[str, Edit]]:
    """Yields edits that change nothing but free the recorded tensors after each layer, which would fill the memory."""

    def forget(x: Tensor) -> Tensor:
        seen[0].clear()
        return x

    for stack in stacks.values():
        for layer in range(stack.layers):
            yield f"{stack.name}.layers.{layer}.feed_forward_residual.sum", forget
