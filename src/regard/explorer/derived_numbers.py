"""Derives further tensors from a run: entropies, value-weighted attention, the logit lens, the residual stream."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
from torch import Tensor
from torch.nn import functional as F

from regard.explorer.anatomy import StackShape
from regard.explorer.attribution import Attribution, attribute
from regard.explorer.expected_tokens import BEST
from regard.explorer.traced_pass import Pass
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
    found: dict[str, Derived] = {}
    for stack in run.anatomy.stacks.values():
        found |= derive_attention(run, stack)
        found |= derive_residual(run, stack)
        if has_lens(run, stack):
            found |= derive_lens(run, stack)
    if "decoder" in run.anatomy.stacks:
        found |= derive_attribution(run, run.anatomy.stacks["decoder"])
    return found


def derive_attention(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the entropies and the value-weighted attention of each head."""
    found = {}
    for site in stack.attentions():
        weights, axes = run.seen[f"{site}.weights"]
        shape = tuple(weights.shape)
        found[f"{site}.entropy"] = Derived(axes[:2], shape[:2], partial(entropy, weights), entropy)
        compute = partial(value_weighted, run, site)
        found[f"{site}.value_weighted"] = Derived(axes, shape, compute, value_weighted)
    return found


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


def derive_residual(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the norms and cosines of the residual stream."""
    shape = (len(run.anatomy.points(stack.name)), len(run.inputs.tokens[stack.text]))
    axes = ("point", f"position:{stack.text}")
    norms, cosines = partial(stream_norms, run, stack.name), partial(stream_cosines, run, stack.name)
    return {
        f"{stack.name}.residual.norms": Derived(axes, shape, norms, stream_norms),
        f"{stack.name}.residual.cosines": Derived(axes, shape, cosines, stream_cosines),
    }


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


def derive_lens(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the tokens of the logit lens, their probabilities, and the rank of the chosen token."""
    points, length = len(run.anatomy.points(stack.name)), len(run.inputs.tokens[stack.text])
    count = min(BEST, run.anatomy.lexicons[run.anatomy.written].tokenizer.size)
    axes = ("point", f"position:{stack.text}")
    read = cache(partial(lens, run, stack))
    return {
        f"{stack.name}.lens.ids": Derived((*axes, "rank"), (points, length, count), lambda: read()[0], lens, "i32"),
        f"{stack.name}.lens.probabilities": Derived((*axes, "rank"), (points, length, count), lambda: read()[1], lens),
        f"{stack.name}.lens.rank": Derived(axes, (points, length), lambda: read()[2], lens, "i32"),
    }


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


def derive_attribution(run: Pass, stack: StackShape) -> dict[str, Derived]:
    """Derives the contribution of each head and feed-forward layer to the chosen token's logit."""
    shape, length = run.anatomy.shape, len(run.inputs.tokens[stack.text])
    position = f"position:{stack.text}"
    computed = cache(partial(attribute, run, stack))

    def part(pick: Callable[[Attribution], Tensor], axes: tuple[str, ...], sizes: tuple[int, ...]) -> Derived:
        return Derived((*axes, position), (*sizes, length), lambda: pick(computed()), attribute)

    kinds, layers = len(stack.kinds), stack.layers
    return {
        "attribution.heads": part(lambda a: a.heads, ("kind", "layer", "head"), (kinds, layers, shape.heads)),
        "attribution.feed_forward": part(lambda a: a.feed_forward, ("layer",), (layers,)),
        "attribution.rest": part(lambda a: a.rest, ("part",), (2,)),
        "attribution.logit": part(lambda a: a.logit, (), ()),
    }
