"""Validates the patches of a run, and converts them to edits of the tensors that `observe` records.

Patches apply while the output is generated and in the recorded pass over the finished text. In causal stacks, means are
taken over the positions so far, so that both have the same values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from regard.errors import InputError
from regard.explorer.model_parts import Anatomy
from regard.explorer.request_types import Patch
from regard.model.observe import Edit
from regard.model.positions import RotaryPositions

OF_HEAD = ("zero", "mean", "uniform", "force")
NEEDED = {"force": ("head", "query", "key"), "hide": ("position",)}


def check_patches(patches: Sequence[Patch], anatomy: Anatomy) -> None:
    """Raises InputError for a patch that does not fit this model."""
    for number, patch in enumerate(patches, 1):
        field, ops = f"patch {number}", possible_ops(patch.site, anatomy)
        if not ops:
            raise InputError(f"{field}: this model has no site {patch.site[:80]!r}")
        if patch.op not in ops:
            raise InputError(f"{field}: {patch.site} cannot be changed by op {patch.op[:40]!r}: use {', '.join(ops)}")
        of_head = patch.site.endswith("_attention") and patch.op in OF_HEAD
        needed = NEEDED.get(patch.op, ("head",) if of_head else ())
        for name in ("head", "query", "key", "position"):
            value = getattr(patch, name)
            if value is not None and name not in needed:
                raise InputError(f"{field}: {patch.op} at {patch.site} takes no {name}")
            if value is None and name in needed:
                raise InputError(f"{field}: {name}: must be a whole number")
        require_below(anatomy.shape.heads, patch.head, f"{field}: head")


def check_places(patches: Sequence[Patch], anatomy: Anatomy, lengths: Mapping[str, int]) -> None:
    """Raises InputError if a patch refers to a position beyond the end of a text; `lengths` are the text lengths."""
    for number, patch in enumerate(patches, 1):
        field = f"patch {number}"
        if patch.op == "hide":
            require_below(lengths[patch.site], patch.position, f"{field}: position")
        elif patch.op == "force":
            stack = anatomy.stacks[patch.site.partition(".")[0]]
            cross = patch.site.endswith("cross_attention")
            require_below(lengths[stack.text], patch.query, f"{field}: query")
            visible = (
                (patch.query or 0) + 1 if stack.causal and not cross else lengths["source" if cross else stack.text]
            )
            require_below(visible, patch.key, f"{field}: key")
    hidden = hidden_places(patches)
    if hidden and len(hidden) >= lengths[anatomy.read]:
        raise InputError("patch: all tokens are hidden; leave at least one visible")


def require_below(limit: int, number: int | None, field: str) -> None:
    """Raises InputError if a number is not below the limit."""
    if number is not None and number >= limit:
        raise InputError(f"{field}: must be from 0 to {limit - 1}, not {number}")


def hidden_places(patches: Sequence[Patch]) -> list[int]:
    """Returns the positions of hidden tokens."""
    return sorted({patch.position for patch in patches if patch.op == "hide" and patch.position is not None})


def possible_ops(site: str, anatomy: Anatomy) -> tuple[str, ...]:
    """Returns the operations that are possible at a site; empty if the model does not have the site."""
    if site == anatomy.read:
        return ("hide",)
    added = anatomy.shape.positions not in ("rotary", "none")
    if added and site in [f"{name}.positions" for name in anatomy.embeddings.values()]:
        return ("zero",)
    stack = anatomy.stacks.get(site.partition(".")[0])
    if stack is None:
        return ()
    if site in stack.attentions():
        return (*OF_HEAD, "drop")
    if site in stack.sublayers():
        return ("drop",)
    return ("zero",) if site == f"{stack.name}.rotary" and anatomy.shape.positions == "rotary" else ()


def make_edits(patches: Sequence[Patch], anatomy: Anatomy) -> dict[str, Edit]:
    """Converts patches to edits, keyed by the names of the tensors that they change."""
    edits: dict[str, Edit] = {}
    for patch in patches:
        add_edits(edits, edits_of(patch, anatomy))
    return edits


def add_edits(edits: dict[str, Edit], more: Iterable[tuple[str, Edit]]) -> None:
    """Adds edits to `edits`; several edits of the same tensor apply one after the other."""
    for name, edit in more:
        first = edits.get(name)
        edits[name] = edit if first is None else lambda x, first=first, edit=edit: edit(first(x))  # type: ignore[misc]


def edits_of(patch: Patch, anatomy: Anatomy) -> Iterator[tuple[str, Edit]]:
    """Yields the tensor edits for one patch."""
    stack = anatomy.stacks.get(patch.site.partition(".")[0])
    match patch.op:
        case "hide":
            if anatomy.task == "write":  # for other tasks a mask hides the token
                for site in anatomy.stacks["decoder"].attentions():
                    yield f"{site}.masked", partial(hide, patch.position or 0)
        case "drop":
            yield f"{patch.site}.output", torch.zeros_like
        case "zero" if stack is None:
            yield patch.site, torch.zeros_like
        case "zero" if patch.head is None and stack is not None:
            for site in stack.attentions():
                rotary = anatomy.attention(site).rotary
                if isinstance(rotary, RotaryPositions):
                    yield f"{site}.query", partial(turn_back, rotary)
                    yield f"{site}.key", partial(turn_back, rotary)
        case "zero" | "mean":
            assert stack is not None
            yield f"{patch.site}.context", partial(change_head, patch.head or 0, replacement(patch.op, stack.causal))
        case "uniform":
            yield f"{patch.site}.masked", partial(change_head, patch.head or 0, level)
        case "force":
            yield f"{patch.site}.weights", partial(force, patch)


def change_head(head: int, new: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """Applies `new` to the part [B, T, ...] of one head in [B, H, T, ...]."""
    x = x.clone()
    x[:, head] = new(x[:, head])
    return x


def replacement(op: str, causal: bool) -> Callable[[Tensor], Tensor]:
    """Returns a function that replaces rows of [B, T, K] by zeros, or by the mean of all rows or of those so far."""
    if op == "zero":
        return torch.zeros_like
    return mean_so_far if causal else lambda x: x.mean(1, keepdim=True).expand_as(x)


def mean_so_far(x: Tensor) -> Tensor:
    """Replaces each row of [B, T, K] by the mean of the rows so far."""
    counts = torch.arange(1, x.shape[1] + 1, device=x.device, dtype=x.dtype)
    return x.cumsum(1) / counts[:, None]


def level(masked: Tensor) -> Tensor:
    """Sets all unmasked attention scores to zero, so that the attention weights become uniform."""
    return torch.zeros_like(masked).masked_fill(masked == -torch.inf, -torch.inf)


def force(patch: Patch, weights: Tensor) -> Tensor:
    """Puts all attention of one query in [B, H, T, S] on one key; does nothing while the query does not exist yet."""
    if patch.query is None or patch.query >= weights.shape[2]:
        return weights
    weights = weights.clone()
    weights[:, patch.head, patch.query] = 0.0
    weights[:, patch.head, patch.query, patch.key] = 1.0
    return weights


def hide(position: int, masked: Tensor) -> Tensor:
    """Masks a position in scores [B, H, T, T] for all other tokens."""
    if position >= masked.shape[3]:
        return masked
    others = torch.arange(masked.shape[2], device=masked.device) != position
    masked = masked.clone()
    masked[:, :, others, position] = -torch.inf
    return masked


def turn_back(rotary: RotaryPositions, x: Tensor) -> Tensor:
    """Undoes the rotation of queries or keys [B, H, T, K] by swapping their halves, rotating and swapping back."""
    half = x.shape[-1] // 2
    turned: Tensor = rotary(x.roll(half, -1), 0)
    return turned.roll(half, -1)
