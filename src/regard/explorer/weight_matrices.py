"""Returns parameters of a model, or slices of them, and the QK and OV circuits of its heads."""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import Tensor

from regard.errors import InputError
from regard.explorer.model_parts import Anatomy
from regard.explorer.request_types import LIMITS, MissingError, TooBigError
from regard.weights import parameters

CIRCUIT = re.compile(r"(?P<site>.+)\.(?P<head>\d+)\.(?P<kind>qk|ov)")
BARS, SINGULAR = 40, 64
"""Number of bars in a histogram, and of singular values that are shown."""


def weight(anatomy: Anatomy, name: str) -> Tensor:
    """Returns a parameter, or a circuit such as `decoder.layers.0.cross_attention.1.qk`."""
    known = parameters(anatomy.model)
    if name in known:
        return known[name].float().cpu()
    if found := CIRCUIT.fullmatch(name):
        sites = [site for stack in anatomy.stacks.values() for site in stack.attentions()]
        if found["site"] in sites and int(found["head"]) < anatomy.shape.heads:
            return circuit(anatomy, found["site"], int(found["head"]), found["kind"])
    raise MissingError(f"name: this model has no weight {name[:100]!r}; /api/model lists all weights")


def circuit(anatomy: Anatomy, site: str, head: int, kind: str) -> Tensor:
    """Returns a circuit [D, D] of one head (Elhage et al., 2021), without biases and rotary positions.

    QK: the unscaled score of a query token (rows) and a key token (columns).
    OV: what the head reads from the attended token (rows) and writes to the residual stream (columns).
    """
    attention, shape = anatomy.attention(site), anatomy.shape
    group = head // (attention.heads // attention.groups)

    def part(matrix: Tensor, number: int, width: int) -> Tensor:
        return matrix.detach().float().cpu()[number * width : (number + 1) * width]

    if kind == "qk":
        query = part(attention.query.weight, head, shape.head_width)
        key = part(attention.key.weight, group, shape.head_width)
        return query.mT @ key
    value = part(attention.value.weight, group, shape.head_value_width)
    output = part(attention.output.weight.mT, head, shape.head_value_width)
    return value.mT @ output


def weight_slice(anatomy: Anatomy, name: str, rows: str | None, columns: str | None) -> Tensor:
    """Returns a slice of a weight; `rows` and `columns` have the form `a:b`, and None stands for all."""
    tensor = weight(anatomy, name)
    if columns is not None and tensor.dim() < 2:
        raise InputError(f"columns: {name} has only one axis; leave columns out")
    tensor = tensor[read_slice(rows or ":", tensor.shape[0], "rows")]
    if columns is not None:
        tensor = tensor[:, read_slice(columns, tensor.shape[1], "columns")]
    if tensor.numel() > LIMITS.weights:
        problem = f"{name} has {tensor.numel():,} numbers, more than {LIMITS.weights:,}"
        raise TooBigError(f"{problem}: request some of its rows and columns, as in rows=0:100")
    return tensor.contiguous()


def read_slice(text: str, size: int, field: str) -> slice:
    """Parses a slice `a:b` of an axis; `a` and `b` are optional."""
    bounds = re.fullmatch(r"(\d{0,12}):(\d{0,12})", text)
    if bounds is None:
        raise InputError(f"{field}: must be two numbers with a colon between them, such as 0:{size}")
    start, end = int(bounds[1] or 0), int(bounds[2] or size)
    if not start <= end <= size:
        raise InputError(f"{field}: {text} is outside the range 0:{size}")
    return slice(start, end)


def summarize(anatomy: Anatomy, name: str) -> dict[str, Any]:
    """Summarizes a weight: its shape, mean, spread and histogram, and the largest singular values of a matrix."""
    tensor = weight(anatomy, name)
    low, high = float(tensor.min()), float(tensor.max())
    reach = (low, high) if high > low else (low - 0.5, high + 0.5)
    counts = torch.histc(tensor, BARS, *reach).long()
    singular: list[float] | None = None
    if tensor.dim() == 2:
        narrow = (tensor if tensor.shape[0] >= tensor.shape[1] else tensor.mT).double()
        squares = torch.linalg.eigvalsh(narrow.mT @ narrow)
        singular = squares.flip(0)[:SINGULAR].clamp(min=0).sqrt().tolist()
    return {
        "shape": list(tensor.shape),
        "mean": float(tensor.mean()),
        "std": float(tensor.std(correction=0)),
        "min": low,
        "max": high,
        "histogram": {"edges": torch.linspace(*reach, BARS + 1).tolist(), "counts": counts.tolist()},
        "singular": singular,
    }
