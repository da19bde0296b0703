"""Derives further tensors from a run: entropies, value-weighted attention, the logit lens, the residual stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.explorer.anatomy import StackShape
from regard.explorer.attribution import attribute
from regard.explorer.recorded_pass import BEST, Pass
from regard.model.transformer import Encoder, EncoderDecoder


@dataclass(frozen=True)
class Derived:
    """A tensor that is computed on request; its axes and shape are known before."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    compute: Callable[[], Tensor]
    source: Callable[..., object]  # the function that computes it, for the link to its source code
    kind: str = "f32"


def derive(run: Pass) -> dict[str, Derived]:
    """Returns everything that can be derived from a run, by name."""
    derived: dict[str, Derived] = {}
    for stack in run.anatomy.stacks.values():
        derived |= derive_attention(run, stack) | derive_stream(run, stack)
    if "decoder" in run.anatomy.stacks:
        derived |= derive_attribution(run, run.anatomy.stacks["decoder"])
    return derived


def derive_attention(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the entropies and the value-weighted attention of each head."""
    derived = {}
    for site in stack.attentions():
        weights, axes = run.seen[f"{site}.weights"]
        shape = tuple(weights.shape)
        derived[f"{site}.entropy"] = Derived(axes[:2], shape[:2], partial(entropy, weights), entropy)
        weighted = partial(value_weighted, run, site)
        derived[f"{site}.value_weighted"] = Derived(axes, shape, weighted, value_weighted)
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
    """Derives the contribution of each head and feed-forward layer to the chosen token's logit."""
    parts = cache(partial(attribute, run, stack))
    position, length = f"position:{stack.text}", len(run.inputs.tokens[stack.text])
    heads = (len(stack.kinds), stack.layers, run.anatomy.shape.heads)
    axes: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
        "heads": (("kind", "layer", "head"), heads),
        "feed_forward": (("layer",), (stack.layers,)),
        "rest": (("part",), (2,)),
        "logit": ((), ()),
    }

    def part(name: str) -> Derived:
        names, sizes = axes[name]
        return Derived((*names, position), (*sizes, length), lambda: getattr(parts(), name), attribute)

    return {f"attribution.{name}": part(name) for name in axes}


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
    """Returns [P, T]: the cosine of each token's vector with the one before it in the stream; 1 at the first point."""
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
    """Reads the residual stream after each point as if it were the last: the logit lens (nostalgebraist, 2020).

    Returns ids and probabilities [P, T, 10] of the best tokens, and the rank [P, T] of the token that was chosen at
    each position, or of the token of the text where none was chosen.
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
    """Returns the token chosen at each position of a stack's text, or the text's own token where none was chosen."""
    tokens = list(run.inputs.tokens[stack.text])
    if stack.text == run.anatomy.written:
        for row, chosen in zip(run.inputs.rows, run.chosen, strict=True):
            tokens[row] = chosen
    return tokens
