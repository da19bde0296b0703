"""Finds the heads that decide what "it" stands for: each is silenced, then made to mistake one noun for the other.

"The animal didn't cross the street because it was too tired" is about the animal (il), "... too wide" about the
street (elle). A head that matters is one whose silence or mistake makes the model say the other pronoun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.pytorch_engine import translator_of
from regard.model.attention import Attention
from regard.model.observe import Edit, Seen, Trace, observe
from regard.model.transformer import EncoderDecoder
from regard.weights import Contents


class PronounExample(NamedTuple):
    """A sentence, its translation up to the pronoun, and what could follow."""

    source: str
    prefix: str
    right: str
    wrong: str
    asks: tuple[str, str]  # the pieces that could look for the noun: the pronoun and the adjective


_ENGLISH, _FRENCH = (
    "The animal didn't cross the street because it was too",
    "L'animal n'a pas traversé la rue parce qu'",
)
TIRED = PronounExample(f"{_ENGLISH} tired.", _FRENCH, "il", "elle", ("▁it", "▁tired"))
WIDE = PronounExample(f"{_ENGLISH} wide.", _FRENCH, "elle", "il", ("▁it", "▁wide"))
NOUNS = {"source": ("▁animal", "▁street"), "target": ("animal", "▁rue")}


class PronounOutcome(NamedTuple):
    """The pronoun that a model chooses in a sentence."""

    odds: float  # log p(right pronoun) - log p(wrong pronoun) after the right words
    translation: str | None  # greedy; none where the right pronoun is the more probable one
    flipped: bool  # whether the translation has the wrong pronoun, after the right words


@dataclass(frozen=True)
class HeadEffect:
    """The effect of one head on the pronoun of one sentence."""

    example: PronounExample
    site: str  # "encoder.layers.1.self_attention"
    head: int
    attention: dict[str, dict[str, float]]
    """Its shares: in the encoder from "it" and from the adjective, in the decoder where the pronoun is due."""
    whole: PronounOutcome
    silenced: PronounOutcome  # its context is zero
    swapped: PronounOutcome
    """The head attends to the other noun; in the encoder, only "it" and the adjective do."""

    @property
    def strength(self) -> float:
        """The log-odds that the right pronoun loses, in nats."""
        return self.whole.odds - min(self.silenced.odds, self.swapped.odds)


def find_pronoun_heads(contents: Contents) -> list[HeadEffect]:
    """Returns the effect of every head on the pronoun of the two sentences, the strongest first."""
    found = [effect for example in (TIRED, WIDE) for effect in _Experiment(contents, example).effects()]
    return sorted(found, key=lambda effect: -effect.strength)


def silence(head: int) -> Edit:
    """Returns an edit of an attention's `context` that sets this head to zero."""

    def edit(context: Tensor) -> Tensor:
        changed = context.clone()
        changed[:, head] = 0.0
        return changed

    return edit


def swap(head: int, one: int, other: int, rows: Sequence[int] | None = None) -> Edit:
    """Returns an edit of an attention's `weights` that exchanges two keys for this head, in some rows or all."""

    def edit(weights: Tensor) -> Tensor:
        if max(one, other) >= weights.shape[-1]:  # while decoding, before both keys exist
            return weights
        order = list(range(weights.shape[-1]))
        order[one], order[other] = other, one
        changed, asking = weights.clone(), slice(None) if rows is None else rows
        changed[:, head, asking] = weights[:, head, asking][..., order]
        return changed

    return edit


class _Experiment:
    """One example, run as it is and with each head changed."""

    def __init__(self, contents: Contents, example: PronounExample) -> None:
        assert isinstance(contents.model, EncoderDecoder)
        self.model, self.example, self.translator = contents.model, example, translator_of(contents)
        source, target = contents.vocabularies.source, contents.vocabularies.target
        right, wrong = (target.encode(example.prefix + word).ids for word in (example.right, example.wrong))
        same = next(i for i, (one, other) in enumerate(zip(right, wrong, strict=False)) if one != other)
        self.right, self.wrong = right[same], wrong[same]
        sides = [*source.encode(example.source).ids, source.specials.end], [target.specials.begin, *right[:same]]
        device = next(self.model.parameters()).device
        self.tokens = [torch.tensor([ids], device=device) for ids in sides]
        self.pieces = {"source": source.pieces(sides[0]), "target": target.pieces(sides[1])}

    def effects(self) -> list[HeadEffect]:
        whole, trace = self.run({})
        found = []
        for site, module in self.model.named_modules():
            for head in range(module.heads) if isinstance(module, Attention) else ():
                silenced, _ = self.run({f"{site}.context": silence(head)})
                swapped, _ = self.run({f"{site}.weights": self.mistake(site, head)})
                seen = self.attention(trace[f"{site}.weights"], head)
                found.append(HeadEffect(self.example, site, head, seen, whole, silenced, swapped))
        return found

    def mistake(self, site: str, head: int) -> Edit:
        """Exchanges the nouns for this head: in the encoder for the queries "it" and adjective, else for all."""
        own = site.endswith("self_attention")
        text = "target" if own and site.startswith("decoder") else "source"
        one, other = (self.pieces[text].index(noun) for noun in NOUNS[text])
        asks = [self.pieces["source"].index(piece) for piece in self.example.asks]
        return swap(head, one, other, asks if site.startswith("encoder") else None)

    @torch.inference_mode()
    def run(self, edits: Mapping[str, Edit]) -> tuple[PronounOutcome, Trace]:
        """Returns the outcome under these edits, and the trace of the run up to the pronoun."""
        with observe(self.model, edits) as trace:
            logits = self.model(*self.tokens, None)[0, -1]
        odds = float(logits[self.right] - logits[self.wrong])
        if odds > 0:
            return PronounOutcome(odds, None, False), trace
        with observe(self.model, edits):
            translation = self.translator(self.example.source, beam=1)
        wrong = f"{self.example.prefix}{self.example.wrong} "
        return PronounOutcome(odds, translation, translation.startswith(wrong)), trace

    def attention(self, seen: Seen, head: int) -> dict[str, dict[str, float]]:
        """Returns the share of attention that this head gives to each piece, by the piece that asks."""
        asking, keys = (self.pieces[axis.partition(":")[2]] for axis in seen.axes[2:])
        rows = [asking.index(piece) for piece in self.example.asks if piece in asking] or [-1]
        return {asking[row]: _shares(keys, seen.tensor[0, head, row].tolist()) for row in rows}


def _shares(pieces: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    """Returns the weight of each piece, the largest first; the weights of a repeated piece are added."""
    shares = dict.fromkeys(pieces, 0.0)
    for piece, weight in zip(pieces, weights, strict=True):
        shares[piece] += weight
    return dict(sorted(shares.items(), key=lambda item: -item[1]))
