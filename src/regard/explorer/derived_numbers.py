"""What can be computed from what was seen: entropies, value-weighted attention, the lens, the residual stream."""

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
    """A tensor that is computed when it is asked for, and what is known of it before."""

    axes: tuple[str, ...]
    shape: tuple[int, ...]
    compute: Callable[[], Tensor]
    source: Callable[..., object]  # the function that computes it, for those who want to read it
    kind: str = "f32"


def derive(run: Pass) -> dict[str, Derived]:
    """Everything that can be derived from a run, by name."""
    found: dict[str, Derived] = {}
    for stack in run.anatomy.stacks.values():
        found |= derive_attention(run, stack)
        found |= derive_residual(run, stack)
        if sees(run, stack):
            found |= derive_lens(run, stack)
    if "decoder" in run.anatomy.stacks:
        found |= derive_attribution(run, run.anatomy.stacks["decoder"])
    return found


def derive_attention(run: Pass, stack: StackShape) -> dict[str, Derived]:
    found = {}
    for site in stack.attentions():
        weights, axes = run.seen[f"{site}.weights"]
        shape = tuple(weights.shape)
        found[f"{site}.entropy"] = Derived(axes[:2], shape[:2], partial(entropy, weights), entropy)
        compute = partial(value_weighted, run, site)
        found[f"{site}.value_weighted"] = Derived(axes, shape, compute, value_weighted)
    return found


def entropy(weights: Tensor) -> Tensor:
    """Weights [H, T, S] -> [H, T], in nats: 0 where all is on one key, log S where it is spread evenly."""
    return -(weights * torch.where(weights > 0, weights.log(), 0.0)).sum(-1)


def value_weighted(run: Pass, site: str) -> Tensor:
    """[H, T, S]: each weight times the length of what it lets through, |value W_output| (Kobayashi et al., 2020)."""
    attention = run.anatomy.attention(site)
    value = run.seen[f"{site}.value"].tensor.repeat_interleave(attention.heads // attention.groups, 0)
    with torch.no_grad():
        given = attention.contributions(value[None].to(attention.output.weight.device))[0].cpu()  # [H, S, D]
    lengths: Tensor = given.norm(dim=-1)  # [H, S]
    return run.seen[f"{site}.weights"].tensor * lengths[:, None, :]


def derive_residual(run: Pass, stack: StackShape) -> dict[str, Derived]:
    shape = (len(run.anatomy.points(stack.name)), len(run.inputs.tokens[stack.text]))
    axes = ("point", f"position:{stack.text}")
    norms, cosines = partial(stream_norms, run, stack.name), partial(stream_cosines, run, stack.name)
    return {
        f"{stack.name}.residual.norms": Derived(axes, shape, norms, stream_norms),
        f"{stack.name}.residual.cosines": Derived(axes, shape, cosines, stream_cosines),
    }


def stream(run: Pass, stack: str) -> Tensor:
    """[P, T, D]: the residual stream after each point."""
    return torch.stack([run.seen[name].tensor for name in run.anatomy.points(stack).values()])


def stream_norms(run: Pass, stack: str) -> Tensor:
    """[P, T]: how long the vector of each token is after each point."""
    norms: Tensor = stream(run, stack).norm(dim=-1)
    return norms


def stream_cosines(run: Pass, stack: str) -> Tensor:
    """[P, T]: how much the vector of each token still points where it did one point before; at the first, 1."""
    x = stream(run, stack)
    first = torch.ones(1, x.shape[1])
    return torch.cat([first, F.cosine_similarity(x[1:], x[:-1], dim=-1)])


def sees(run: Pass, stack: StackShape) -> bool:
    """Whether the states of a stack can be read as tokens: by an output layer of its own, or one with its table."""
    model = run.anatomy.model
    if isinstance(model, EncoderDecoder):
        return stack.causal or model.logits.weight is model.source_embedding.tokens.weight
    return not isinstance(model, Encoder) or model.fill is not None


def derive_lens(run: Pass, stack: StackShape) -> dict[str, Derived]:
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
    """What the model would say if the stream ended at each point (nostalgebraist, 2020).

    Ids and probabilities [P, T, 10] of the best tokens, by the same measure as the steps, and the rank [P, T] of
    the token that was chosen at a position in the end; where nothing was chosen, of the one that stands there.
    """
    model, norm = run.anatomy.model, run.anatomy.stack(stack.name).norm
    head = model.fill if isinstance(model, Encoder) else model.logits
    assert head is not None
    device = next(model.parameters()).device
    wanted = torch.tensor(chosen_at(run, stack), device=device)[:, None]
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


def chosen_at(run: Pass, stack: StackShape) -> list[int]:
    """The token chosen at each position of a stack's text, or else the one that stands there."""
    tokens = list(run.inputs.tokens[stack.text])
    if stack.text == run.anatomy.written:
        for row, chosen in zip(run.inputs.rows, run.chosen, strict=True):
            tokens[row] = chosen
    return tokens


def derive_attribution(run: Pass, stack: StackShape) -> dict[str, Derived]:
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
