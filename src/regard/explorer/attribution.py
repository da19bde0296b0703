"""Attributes the logit of a token to the parts of the model: heads, feed-forward layers and the rest.

The residual stream is a sum, and the logit is linear in it except for the norms. With each norm's mean and deviation
fixed at their values in this run, the norms are linear too, and the logit is exactly the sum of its parts.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.explorer.anatomy import StackShape
from regard.explorer.recorded_pass import Pass


class Attribution(NamedTuple):
    """The contributions to the logit of the chosen token at each of T positions; their sum is `logit`."""

    heads: Tensor  # [kind, layer, head, T]
    feed_forward: Tensor  # [layer, T]
    rest: Tensor  # [2, T]: the embedding; all biases, including those of the norms and the output layer
    logit: Tensor  # [T]


def attribute(run: Pass, stack: StackShape) -> Attribution:
    """Follows each part of a decoder's residual stream to the logits, in the order in which the parts are added."""
    anatomy, kinds, layers, heads = run.anatomy, len(stack.kinds), stack.layers, run.anatomy.shape.heads
    pre = anatomy.shape.norm == "pre"
    start = next(iter(anatomy.points(stack.name).values()))
    embedding = run.seen[start].tensor.double()  # [T, D]
    empty = torch.zeros_like(embedding)
    parts = [embedding, empty]  # what each has added to the stream; the second collects the biases
    places: list[tuple[int, int]] = []  # of each further group of parts: its kind, or -1, and its layer
    for layer in range(layers):
        for kind, name in enumerate((*stack.kinds, "feed_forward")):
            site = f"{stack.name}.layers.{layer}.{name}"
            own, bias = sublayer_parts(run, site, attends=kind < kinds)
            parts[1] = parts[1] + bias
            parts += own
            places.append((kind if kind < kinds else -1, layer))
            residual = f"{stack.name}.layers.{layer}.{name.removesuffix('_attention')}_residual"
            if not pre:
                norm = anatomy.model.get_submodule(f"{residual}.norm")
                parts = through_norm(norm, run.seen[f"{residual}.sum"].tensor.double(), parts)
    if pre:
        last = list(anatomy.points(stack.name).values())[-1]
        parts = through_norm(anatomy.stack(stack.name).norm, run.seen[last].tensor.double(), parts)
    return collect(run, parts, places, (kinds, layers, heads))


def sublayer_parts(run: Pass, site: str, *, attends: bool) -> tuple[list[Tensor], Tensor]:
    """Returns what a sublayer adds [T, D]: each head's part and the bias, or the whole output and no bias."""
    output = run.seen[f"{site}.output"].tensor.double()
    if not attends:
        return [output], torch.zeros_like(output)
    heads = run.seen[f"{site}.contributions"].tensor.double()
    if f"{site}.output" in run.edits:  # dropped: nothing of the heads is added
        heads = torch.zeros_like(heads)
    return list(heads), output - heads.sum(0)


def through_norm(norm: nn.Module, x: Tensor, parts: list[Tensor]) -> list[Tensor]:
    """Returns the parts of x [T, D] after a norm with the statistics of x; the norm's bias is added to the second."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    weight = norm.weight.detach().double().cpu()
    centred = isinstance(norm, nn.LayerNorm)
    middle = x - x.mean(-1, keepdim=True) if centred else x
    scale = (middle.square().mean(-1, keepdim=True) + (norm.eps or 0.0)).rsqrt() * weight
    parts = [(part - part.mean(-1, keepdim=True) if centred else part) * scale for part in parts]
    if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        parts[1] = parts[1] + norm.bias.detach().double().cpu()
    return parts


def collect(run: Pass, parts: list[Tensor], places: list[tuple[int, int]], sizes: tuple[int, int, int]) -> Attribution:
    """Returns the products of all parts [T, D] with the output weights of the chosen tokens."""
    output = run.anatomy.output_layer()
    assert output is not None
    assert run.answers is not None
    chosen = torch.tensor(run.chosen)
    weights = output.weight.detach()[chosen.to(output.weight.device)].double().cpu()  # [T, D]
    shares = iter(torch.stack([(part * weights).sum(-1) for part in parts]))
    rest = torch.stack([next(shares), next(shares)])
    if output.bias is not None:
        rest[1] += output.bias.detach()[chosen.to(output.bias.device)].double().cpu()
    kinds, layers, count = sizes
    heads = torch.zeros(kinds, layers, count, len(chosen), dtype=torch.float64)
    feed_forward = torch.zeros(layers, len(chosen), dtype=torch.float64)
    for kind, layer in places:
        if kind < 0:
            feed_forward[layer] = next(shares)
        else:
            heads[kind, layer] = torch.stack([next(shares) for _ in range(count)])
    logit = run.answers[torch.arange(len(chosen)), chosen]
    return Attribution(heads.float(), feed_forward.float(), rest.float(), logit.float())
