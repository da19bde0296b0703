"""Checks the patches of a run and turns them into edits of the tensors that `observe` records.

Patches apply while the output is written and in the run that is shown. In causal stacks, the mean over positions
covers the positions so far, so that both have the same numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.explorer.anatomy import Anatomy
from regard.explorer.request_checks import whole_number
from regard.model.observe import Edit
from regard.model.positions import RotaryPositions

OF_HEAD = ("zero", "mean", "uniform", "force")


@dataclass(frozen=True)
class Patch:
    """A change of a run: its site, its operation, and the head, row, column or token that it changes."""

    site: str
    op: str
    head: int | None = None
    query: int | None = None
    key: int | None = None
    position: int | None = None

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}


def read_patches(values: Sequence[Mapping[str, Any]], anatomy: Anatomy) -> tuple[Patch, ...]:
    """Reads the patches of a request; raises InputError for a patch that does not fit this model."""
    return tuple(_read(value, f"patch {number}", anatomy) for number, value in enumerate(values, 1))


def check_places(patches: Sequence[Patch], anatomy: Anatomy, lengths: Mapping[str, int]) -> None:
    """Raises InputError for a patch of a token beyond its text; `lengths` are the lengths of the texts."""
    for number, patch in enumerate(patches, 1):
        field = f"patch {number}"
        if patch.op == "hide":
            whole_number(patch.position, f"{field}: position", 0, lengths[patch.site] - 1)
        elif patch.op == "force":
            stack = anatomy.stacks[patch.site.partition(".")[0]]
            cross = patch.site.endswith("cross_attention")
            query = whole_number(patch.query, f"{field}: query", 0, lengths[stack.text] - 1)
            last = query if stack.causal and not cross else lengths["source" if cross else stack.text] - 1
            whole_number(patch.key, f"{field}: key", 0, last)
    hidden = {patch.position for patch in patches if patch.op == "hide"}
    if hidden and len(hidden) >= lengths[anatomy.read]:
        raise InputError("patch: hides every token; leave at least one visible")


def hidden_places(patches: Sequence[Patch]) -> list[int]:
    """Returns the positions of hidden tokens."""
    return sorted({patch.position for patch in patches if patch.op == "hide" and patch.position is not None})


def make_edits(patches: Sequence[Patch], anatomy: Anatomy) -> dict[str, Edit]:
    """Returns the patches as edits, by the names of the tensors that they change."""
    edits: dict[str, Edit] = {}
    for patch in patches:
        add_edits(edits, _edits(patch, anatomy))
    return edits


def add_edits(edits: dict[str, Edit], more: Iterator[tuple[str, Edit]]) -> None:
    """Adds further edits to `edits`; several edits of one tensor apply one after the other."""
    for name, edit in more:
        edits[name] = partial(_after, edits[name], edit) if name in edits else edit


def _after(first: Edit, second: Edit, x: Tensor) -> Tensor:
    return second(first(x))


def _read(value: Mapping[str, Any], field: str, anatomy: Anatomy) -> Patch:
    site, op = value.get("site"), value.get("op")
    if not isinstance(site, str) or not isinstance(op, str):
        raise InputError(f"{field}: must have a site and an op, both strings")
    ops = possible_ops(site, anatomy)
    if not ops:
        raise InputError(f"{field}: this model has no site {site[:80]!r}")
    of_head = site.endswith("_attention") and op in OF_HEAD
    if op not in ops:
        raise InputError(f"{field}: {site} cannot be changed by op {op[:40]!r}: use {', '.join(ops)}")
    wanted = (["head"] if of_head else []) + {"force": ["query", "key"], "hide": ["position"]}.get(op, [])
    for name in value:
        if name not in ("site", "op", *wanted) and value[name] is not None:
            raise InputError(f"{field}: {op} at {site} takes no {str(name)[:40]}")
    most = {"head": anatomy.shape.heads - 1}
    numbers = {name: whole_number(value.get(name), f"{field}: {name}", 0, most.get(name)) for name in wanted}
    return Patch(site, op, **numbers)


def possible_ops(site: str, anatomy: Anatomy) -> tuple[str, ...]:
    """Returns the operations that are possible at a site; none if the model does not have the site."""
    if site == anatomy.read:
        return ("hide",)
    stack = anatomy.stacks.get(site.partition(".")[0])
    if stack is not None and site in stack.attentions():
        return (*OF_HEAD, "drop")
    if stack is not None and site in stack.sublayers():
        return ("drop",)
    rotary = anatomy.shape.positions == "rotary"
    if stack is not None and site == f"{stack.name}.rotary" and rotary:
        return ("zero",)
    added = anatomy.shape.positions not in ("rotary", "none")
    return ("zero",) if added and site in {f"{name}.positions" for name in anatomy.embeddings.values()} else ()


def _edits(patch: Patch, anatomy: Anatomy) -> Iterator[tuple[str, Edit]]:
    stack = anatomy.stacks.get(patch.site.partition(".")[0])
    match patch.op:
        case "hide":
            if anatomy.task == "write":  # for other tasks a mask hides the token
                for site in anatomy.stacks["decoder"].attentions():
                    yield f"{site}.masked", partial(hide, patch.position or 0)
        case "drop":
            yield f"{patch.site}.output", torch.zeros_like
        case "zero" if patch.head is None and patch.site.endswith(".positions"):
            yield patch.site, torch.zeros_like
        case "zero" if patch.head is None and stack is not None:
            for site in stack.attentions():
                rotary = anatomy.attention(site).rotary
                if isinstance(rotary, RotaryPositions):
                    yield f"{site}.query", partial(turn_back, rotary)
                    yield f"{site}.key", partial(turn_back, rotary)
        case "zero" | "mean":
            assert stack is not None
            new = torch.zeros_like if patch.op == "zero" else mean_over_positions(stack.causal)
            yield f"{patch.site}.context", partial(change_head, patch.head or 0, new)
        case "uniform":
            yield f"{patch.site}.masked", partial(change_head, patch.head or 0, level)
        case "force":
            yield f"{patch.site}.weights", partial(force, patch)


def change_head(head: int, new: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Replaces one head's part [B, T, ...] of [B, H, T, ...] by `new` of it."""
    x = x.clone()
    x[:, head] = new(x[:, head])
    return x


def mean_over_positions(causal: bool) -> Callable[[Tensor], Tensor]:
    """Returns a function that replaces each row of [B, T, K] by the mean of all rows, or of those so far if causal."""
    return _mean_so_far if causal else lambda x: x.mean(1, keepdim=True).expand_as(x)


def _mean_so_far(x: Tensor) -> Tensor:
    counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    return x.cumsum(1) / counts[:, None]


def level(masked: Tensor) -> Tensor:
    """Replaces scores by zero, except masked ones, so that the weights become uniform."""
    return torch.zeros_like(masked).masked_fill(masked == -torch.inf, -torch.inf)


def force(patch: Patch, weights: Tensor) -> Tensor:
    """Puts all the weight of one row of [B, H, T, S] on one key; does nothing while the row does not exist yet."""
    if patch.query is None or patch.query >= weights.shape[2]:
        return weights
    weights = weights.clone()
    weights[:, patch.head, patch.query] = 0.0
    weights[:, patch.head, patch.query, patch.key] = 1.0
    return weights


def hide(position: int, masked: Tensor) -> Tensor:
    """Masks a position in scores [B, H, T, T] for all tokens but itself."""
    if position >= masked.shape[3]:
        return masked
    others = torch.arange(masked.shape[2], device=masked.device) != position
    masked = masked.clone()
    masked[:, :, others, position] = -torch.inf
    return masked


def turn_back(rotary: RotaryPositions, x: Tensor) -> Tensor:
    """Undoes the rotation of queries or keys [B, H, T, K], by rotating them by the negative angles."""
    turned: Tensor = rotary(_swap(x), 0)
    return _swap(turned)


def _swap(x: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([right, left], -1)
