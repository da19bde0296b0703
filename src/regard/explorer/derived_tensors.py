"""Computes tensors from those of a run: entropies, value-weighted attention, the logit lens, and logit attributions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.explorer.model_parts import StackShape
from regard.explorer.recorded_pass import BEST, Pass
from regard.model.transformer import Encoder, EncoderDecoder


@dataclass(frozen=True)
class Derived:
    """A tensor that is computed on request, with its axes and shape, which are known in advance."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    compute: Callable[[], Tensor]
    source: Callable[..., object]  # the function that computes it, for the link to its source code
    kind: str = "f32"


def derive(run: Pass) -> dict[str, Derived]:
    """Returns all tensors that can be derived from a run, keyed by name."""
    derived: dict[str, Derived] = {}
    for stack in run.anatomy.stacks.values():
        for site in stack.attentions():
            weights, axes = run.seen[f"{site}.weights"]
            shape = tuple(weights.shape)
            derived[f"{site}.entropy"] = Derived(axes[:2], shape[:2], partial(entropy, weights), entropy)
            weighted = partial(value_weighted, run, site)
            derived[f"{site}.value_weighted"] = Derived(axes, shape, weighted, value_weighted)
        derived |= derive_stream(run, stack)
    if "decoder" in run.anatomy.stacks:
        derived |= derive_attribution(run, run.anatomy.stacks["decoder"])
    return derived


def derive_stream(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the norms and cosines of the residual stream, and the tokens and ranks of the logit lens."""
    shape = (len(run.anatomy.points(stack.name)), len(run.inputs.tokens[stack.text]))
    axes = ("point", f"position:{stack.text}")
    norms, cosines = partial(stream_norms, run, stack.name), partial(stream_cosines, run, stack.name)
    derived = {
        "residual.norms": Derived(axes, shape, norms, stream_norms),
        "residual.cosines": Derived(axes, shape, cosines, stream_cosines),
    }
    if has_lens(run, stack):
        best = (*shape, min(BEST, run.anatomy.lexicons[run.anatomy.written].tokenizer.size))
        read = cache(partial(lens, run, stack))
        derived |= {
            "lens.ids": Derived((*axes, "rank"), best, lambda: read()[0], lens, "i32"),
            "lens.probabilities": Derived((*axes, "rank"), best, lambda: read()[1], lens),
            "lens.rank": Derived(axes, shape, lambda: read()[2], lens, "i32"),
        }
    return {f"{stack.name}.{name}": tensor for name, tensor in derived.items()}


def derive_attribution(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the contribution of each head and feed-forward layer to the logit of the chosen token."""
    parts = cache(partial(attribute, run, stack))
    position, length = f"position:{stack.text}", len(run.inputs.tokens[stack.text])
    sizes: dict[str, dict[str, int]] = {
        "heads": {"kind": len(stack.kinds), "layer": stack.layers, "head": run.anatomy.shape.heads},
        "feed_forward": {"layer": stack.layers},
        "rest": {"part": 2},
        "logit": {},
    }

    def part(name: str) -> Tensor:
        return parts()[name]

    return {
        f"attribution.{name}": Derived((*axes, position), (*axes.values(), length), partial(part, name), attribute)
        for name, axes in sizes.items()
    }


def entropy(weights: Tensor) -> Tensor:
    """Weights [H, T, S] -> [H, T] entropies in nats: 0 for a single key, log S for equal weights."""
    return -(weights * torch.where(weights > 0, weights.log(), 0.0)).sum(-1)


def value_weighted(run: Pass, site: str) -> Tensor:
    """Returns [H, T, S]: each weight times the norm of its value, |value W_output| (Kobayashi et al., 2020)."""
    attention = run.anatomy.attention(site)
    value = run.seen[f"{site}.value"].tensor.repeat_interleave(attention.heads // attention.groups, 0)
    with torch.no_grad():
        given = attention.contributions(value[None].to(attention.output.weight.device))[0].cpu()  # [H, S, D]
    lengths: Tensor = given.norm(dim=-1)  # [H, S]
    return run.seen[f"{site}.weights"].tensor * lengths[:, None, :]


def stream(run: Pass, stack: str) -> Tensor:
    """Returns the residual stream [P, T, D] after each point."""
    return torch.stack([run.seen[name].tensor for name in run.anatomy.points(stack).values()])


def stream_norms(run: Pass, stack: str) -> Tensor:
    """Returns [P, T]: the norm of each token's vector after each point."""
    norms: Tensor = stream(run, stack).norm(dim=-1)
    return norms


def stream_cosines(run: Pass, stack: str) -> Tensor:
    """Returns [P, T]: the cosine between each token's vectors at a point and at the previous point; 1 at the first."""
    x = stream(run, stack)
    first = torch.ones(1, x.shape[1])
    return torch.cat([first, F.cosine_similarity(x[1:], x[:-1], dim=-1)])


def has_lens(run: Pass, stack: StackShape) -> bool:
    """Returns whether the output layer can read the states of a stack as tokens."""
    model = run.anatomy.model
    if isinstance(model, EncoderDecoder):
        return stack.causal or model.logits.weight is model.source_embedding.tokens.weight
    return not isinstance(model, Encoder) or model.fill is not None


def lens(run: Pass, stack: StackShape) -> tuple[Tensor, Tensor, Tensor]:
    """Computes the logit lens (nostalgebraist, 2020), which decodes the residual stream at each point like the last.

    Returns the ids and probabilities [P, T, 10] of the best tokens, and the rank [P, T] of the token that was chosen at
    each position or, where none was chosen, of the token of the text.
    """
    model, norm = run.anatomy.model, run.anatomy.stack(stack.name).norm
    head = model.fill if isinstance(model, Encoder) else model.logits
    assert head is not None
    device = next(model.parameters()).device
    wanted = torch.tensor(chosen_tokens(run, stack), device=device)[:, None]
    ids, probabilities, ranks = [], [], []
    for name in run.anatomy.points(stack.name).values():
        with torch.no_grad():
            logits: Tensor = head(norm(run.seen[name].tensor.to(device)))
            scores = run.scores(logits[None])[0]
        values, best = scores.topk(min(BEST, scores.shape[-1]))
        ids.append(best.int())
        probabilities.append(values.exp())
        ranks.append((scores > scores.gather(1, wanted)).sum(-1).int())
    return torch.stack(ids).cpu(), torch.stack(probabilities).cpu(), torch.stack(ranks).cpu()


def chosen_tokens(run: Pass, stack: StackShape) -> list[int]:
    """Returns the token chosen at each position of a text or, where none was chosen, the token of the text."""
    tokens = list(run.inputs.tokens[stack.text])
    if stack.text == run.anatomy.written:
        for row, chosen in zip(run.inputs.rows, run.chosen, strict=True):
            tokens[row] = chosen
    return tokens


def attribute(run: Pass, stack: StackShape) -> dict[str, Tensor]:
    """Returns the contribution of each part of a decoder to the logit of the chosen token at each of T positions.

    The residual stream is a sum, and the logit is linear in it except for the norms. With the mean and deviation of
    each norm fixed at their values in this run, norms are linear too, and the logit is exactly the sum of its parts.
    """
    anatomy, pre = run.anatomy, run.anatomy.shape.norm == "pre"
    points = list(anatomy.points(stack.name).values())
    embedding = run.seen[points[0]].tensor.double()  # [T, D]
    parts = torch.stack([embedding, torch.zeros_like(embedding)])  # [P, T, D]; the second part sums up the biases
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
    return {
        "heads": heads.contiguous(),  # [kind, layer, head, T]
        "feed_forward": layers[:, -1].contiguous(),  # [layer, T]
        "rest": shares[:2].float(),  # [2, T]: the embedding; all biases, including those of norms and the output layer
        "logit": logit,  # [T]
    }


def sublayer_parts(run: Pass, site: str) -> tuple[Tensor, Tensor]:
    """Returns the parts [P, T, D] that a sublayer adds and its bias: one part per head, or the whole feed-forward."""
    output = run.seen[f"{site}.output"].tensor.double()
    if site.endswith("feed_forward"):
        return output[None], torch.zeros_like(output)
    heads = run.seen[f"{site}.contributions"].tensor.double()
    if f"{site}.output" in run.edits:  # the sublayer was dropped by a patch
        heads = torch.zeros_like(heads)
    return heads, output - heads.sum(0)


def through_norm(norm: nn.Module, x: Tensor, parts: Tensor) -> Tensor:
    """Normalizes the parts [P, T, D] of x with the statistics of x; adds the bias of the norm to the second part."""
    assert isinstance(norm, nn.LayerNorm | nn.RMSNorm)
    if isinstance(norm, nn.LayerNorm):
        x, parts = (each - each.mean(-1, keepdim=True) for each in (x, parts))
    scale = (x.square().mean(-1, keepdim=True) + (norm.eps or 0.0)).rsqrt()
    parts = parts * scale * norm.weight.detach().double().cpu()
    if isinstance(norm, nn.LayerNorm) and norm.bias is not None:
        parts[1] += norm.bias.detach().double().cpu()
    return parts
