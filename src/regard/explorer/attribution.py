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
    anatomy, pre = run.anatomy, run.anatomy.shape.norm == "pre"
    points = list(anatomy.points(stack.name).values())
    embedding = run.seen[points[0]].tensor.double()  # [T, D]
    parts = torch.stack([embedding, torch.zeros_like(embedding)])  # [P, T, D]; the second collects the biases
    for layer in range(stack.layers):
        for name in (*stack.kinds, "feed_forward"):
            site = f"{stack.name}.layers.{layer}.{name}"
            own, bias = sublayer_parts(run, site)
            parts[1] += bias
            parts = torch.cat([parts, own])
            residual = f"{site.removesuffix('_attention')}_residual"
            if not pre:
                norm = anatomy.model.get_submodule(f"{residual}.norm")
                parts = through_norm(norm, run.seen[f"{residual}.sum"].tensor.double(), parts)
    if pre:
        parts = through_norm(anatomy.stack(stack.name).norm, run.seen[points[-1]].tensor.double(), parts)
    output = anatomy.output_layer()
    assert output is not None
    assert run.answers is not None
    chosen = torch.tensor(run.chosen)
    shares = (parts * output.weight.detach().cpu()[chosen].double()).sum(-1)  # [P, T]
    if output.bias is not None:
        shares[1] += output.bias.detach().cpu()[chosen].double()
    count = anatomy.shape.heads
    layers = shares[2:].float().view(stack.layers, len(stack.kinds) * count + 1, -1)
    heads = layers[:, :-1].reshape(stack.layers, len(stack.kinds), count, -1).transpose(0, 1)
    logit = run.answers[torch.arange(len(chosen)), chosen].float()
    return Attribution(heads.contiguous(), layers[:, -1].contiguous(), shares[:2].float(), logit)


def sublayer_parts(run: Pass, site: str) -> tuple[Tensor, Tensor]:
    """Returns what a sublayer adds [P, T, D]: each head's part and the bias, or the whole output and no bias."""
    output = run.seen[f"{site}.output"].tensor.double()
    if site.endswith("feed_forward"):
        return output[None], torch.zeros_like(output)
    heads = run.seen[f"{site}.contributions"].tensor.double()
    if f"{site}.output" in run.edits:  # dropped: nothing of the heads is added
        heads = torch.zeros_like(heads)
    return heads, output - heads.sum(0)


def through_norm(norm: nn.Module, x: Tensor, parts: Tensor) -> Tensor:
    """Returns the parts [P, T, D] of x after a norm with the statistics of x; its bias is added to the second."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    if isinstance(norm, nn.LayerNorm):
        x, parts = (each - each.mean(-1, keepdim=True) for each in (x, parts))
    scale = (x.square().mean(-1, keepdim=True) + (norm.eps or 0.0)).rsqrt()
    parts = parts * scale * norm.weight.detach().double().cpu()
    if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        parts[1] += norm.bias.detach().double().cpu()
    return parts
