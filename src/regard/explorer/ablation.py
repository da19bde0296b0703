"""What the model would lose: every head, or every sublayer, switched off in turn, many copies in one pass."""

from __future__ import annotations

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
"""Logits that are computed at once: fewer copies run together where texts are long and vocabularies large."""


class Lesion(NamedTuple):
    """What one copy does without: a head of an attention, or all of a sublayer."""

    site: str
    head: int | None


class Effect(NamedTuple):
    """What that changes at each step: the log-probability of what was chosen, and what would now be first."""

    delta: list[float]
    top: list[str | None]


class GoneError(Exception):
    """Nobody waits for the answer any more."""


def ablate(
    run: Pass, what: Any, op: Any, targets: Any = None, gone: Callable[[], bool] = lambda: False
) -> dict[str, Any]:
    """The effect of each head or sublayer; `targets` may name the kinds or stacks to look at.

    Between two batches it asks whether everybody has `gone`, and stops.
    """
    if run.answers is None:
        raise InputError("ablate: this model says nothing whose probability could change")
    if op not in ("zero", "mean"):
        raise InputError(f"op: must be zero or mean, not {str(op)[:40]!r}")
    if what == "heads":
        return ablate_heads(run, op, targets, gone)
    if what == "sublayers":
        return ablate_sublayers(run, op, targets, gone)
    raise InputError(f"what: must be heads or sublayers, not {str(what)[:40]!r}")


def ablate_heads(run: Pass, op: str, targets: Any, gone: Callable[[], bool]) -> dict[str, Any]:
    """Every head of every attention, by kind, layer and head."""
    anatomy = run.anatomy
    kinds = [(stack, kind) for stack in anatomy.stacks.values() for kind in stack.kinds]
    names = chosen_targets(targets, [f"{stack.name}.{kind}" for stack, kind in kinds])
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
    """Every attention and every feed-forward layer, by stack."""
    stacks = run.anatomy.stacks
    names = chosen_targets(targets, list(stacks))
    lesions = [Lesion(site, None) for name in names for site in stacks[name].sublayers()]
    effects = iter(measure(run, lesions, op, gone))
    return {
        "sublayers": {
            name: [{"site": site, **next(effects)._asdict()} for site in stacks[name].sublayers()] for name in names
        }
    }


def chosen_targets(targets: Any, names: list[str]) -> list[str]:
    """Those of the names that are wanted, all if nobody says."""
    if targets is None:
        return names
    if not isinstance(targets, list) or not targets or not all(target in names for target in targets):
        raise InputError(f"targets: must be null or some of {', '.join(names)}")
    return [name for name in names if name in targets]


def measure(run: Pass, lesions: Sequence[Lesion], op: str, gone: Callable[[], bool]) -> Iterator[Effect]:
    """The effect of each lesion, measured in batches of copies that each lack something else."""
    assert run.answers is not None
    chosen = torch.tensor(run.chosen)
    before = run.scores(run.answers[None])[0]  # [R, V]
    first, usual = before.argmax(-1), before.gather(1, chosen[:, None]).squeeze(1)
    size = max(1, min(LIMITS.ablation_batch, MOST_LOGITS // max(1, logits_of(run))))
    for start in range(0, len(lesions), size):
        if gone():
            raise GoneError
        batch = lesions[start : start + size]
        after = run.scores(lesioned(run, batch, op)).cpu()  # [B, R, V]
        deltas = after.gather(2, chosen.expand(len(batch), -1)[..., None]).squeeze(2) - usual
        for delta, now in zip(deltas, after.argmax(-1), strict=True):
            yield Effect(
                [
                    0.0 if value != value else value for value in delta.tolist()
                ],  # impossible before and after: no change
                [None if a == b else shown(run, b) for a, b in zip(first.tolist(), now.tolist(), strict=True)],
            )


def logits_of(run: Pass) -> int:
    """How many logits one copy of the texts has."""
    output = run.anatomy.output_layer()
    return (0 if output is None else output.out_features) * len(run.inputs.tokens[run.anatomy.written])


def shown(run: Pass, answer: int) -> str:
    """A token, or a label, for people."""
    if run.anatomy.task == "classify":
        return run.anatomy.settings.data.labels[answer]
    return run.anatomy.lexicons[run.anatomy.written].display(answer)


def lesioned(run: Pass, lesions: Sequence[Lesion], op: str) -> Tensor:
    """[B, R, V] logits of copies that each lack one thing, on top of the patches of the run."""
    by_name: dict[str, list[tuple[int, int | None]]] = {}
    for row, (site, head) in enumerate(lesions):
        by_name.setdefault(f"{site}.{'output' if head is None else 'context'}", []).append((row, head))
    edits = dict(run.edits)
    for name, places in by_name.items():
        stack = run.anatomy.stacks[name.partition(".")[0]]
        add_edits(edits, iter([(name, partial(change_copies, places, replacement(op, stack)))]))
    seen: list[Trace] = []
    add_edits(edits, forgetting(run.anatomy.stacks, seen))
    with torch.no_grad(), observe(run.anatomy.model, edits) as trace:
        seen.append(trace)
        answers = forward(run.anatomy, run.inputs, trace, len(lesions))
    assert answers is not None
    return answers


def replacement(op: str, stack: StackShape) -> Callable[[Tensor], Tensor]:
    """What takes the place of what is switched off."""
    return torch.zeros_like if op == "zero" else mean_over_positions(stack.causal)


def change_copies(places: Sequence[tuple[int, int | None]], new: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """A batch [B, ...] in which each of these copies has one head, or everything, replaced."""
    x = x.clone()
    for row, head in places:
        if head is None:
            x[row] = new(x[row][None])[0]
        else:
            x[row, head] = new(x[row, head][None])[0]
    return x


def forgetting(stacks: Mapping[str, StackShape], seen: list[Trace]) -> Iterator[tuple[str, Edit]]:
    """Edits that change nothing, but let go of what was seen after each layer: copies would fill the memory."""

    def forget(x: Tensor) -> Tensor:
        seen[0].clear()
        return x

    for stack in stacks.values():
        for layer in range(stack.layers):
            yield f"{stack.name}.layers.{layer}.feed_forward_residual.sum", forget
