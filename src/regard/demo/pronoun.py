"""Which head finds what "it" stands for: each is silenced in turn, and what becomes of the pronoun is measured.

"The animal didn't cross the street because it was too tired" is about the animal (il), "... too wide" about the
street (elle). A head that matters is one without which the model says the other pronoun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from regard.decoding.translator import Translator
from regard.folder import Contents
from regard.model.attention import Attention
from regard.model.observe import Edit, Trace, observe
from regard.model.transformer import EncoderDecoder


class Example(NamedTuple):
    """A sentence, its translation up to the pronoun, and what could follow."""

    source: str
    asks: tuple[str, ...]  # pieces that could look for the noun
    prefix: str
    right: str
    wrong: str


_ENGLISH, _FRENCH = (
    "The animal didn't cross the street because it was too",
    "L'animal n'a pas traversé la rue parce qu'",
)
TIRED = Example(f"{_ENGLISH} tired.", ("▁it", "▁tired"), _FRENCH, "il", "elle")
WIDE = Example(f"{_ENGLISH} wide.", ("▁it", "▁wide"), _FRENCH, "elle", "il")


@dataclass(frozen=True)
class HeadEffect:
    """What one head does for the pronoun of one sentence."""

    example: Example
    site: str  # "decoder.layers.1.cross_attention"
    head: int
    attention: dict[str, dict[str, float]]
    """What it looks at: in the encoder from "it" and from the adjective, in the decoder where the pronoun is due."""
    odds: float  # log p(right pronoun) - log p(wrong pronoun)
    odds_without: float  # the same without this head
    translation: str  # without this head, greedy

    @property
    def flips(self) -> bool:
        """Whether without this head the translation has the wrong pronoun, and the sentence up to it as before."""
        return self.translation.startswith(f"{self.example.prefix}{self.example.wrong} ")


def find_pronoun_heads(contents: Contents, examples: Sequence[Example] = (TIRED, WIDE)) -> list[HeadEffect]:
    """The effect of every head on the pronoun of each example, the strongest first."""
    found = [effect for example in examples for effect in _Silencing(contents, example).effects()]
    return sorted(found, key=lambda effect: effect.odds_without - effect.odds)


class _Silencing:
    """One example, run with and without each head."""

    def __init__(self, contents: Contents, example: Example) -> None:
        assert isinstance(contents.model, EncoderDecoder)
        self.model, self.example, self.translator = contents.model, example, Translator(contents)
        source, target = contents.vocabularies.source, contents.vocabularies.target
        right, wrong = (target.encode(example.prefix + word).ids for word in (example.right, example.wrong))
        same = next(i for i, (one, other) in enumerate(zip(right, wrong, strict=False)) if one != other)
        self.right, self.wrong = right[same], wrong[same]
        sides = [*source.encode(example.source).ids, source.specials.end], [target.specials.begin, *right[:same]]
        self.tokens = [torch.tensor([ids], device=self.translator.device) for ids in sides]
        self.pieces = {"source": source.pieces(sides[0]), "target": target.pieces(sides[1])}

    def effects(self) -> list[HeadEffect]:
        odds, trace = self.run({})
        found = []
        for site, module in self.model.named_modules():
            for head in range(module.heads) if isinstance(module, Attention) else ():
                edits = {f"{site}.context": silence(head)}
                with observe(self.model, edits):
                    translation = self.translator(self.example.source, beam=1)
                seen = self.attention(trace, site, head)
                found.append(HeadEffect(self.example, site, head, seen, odds, self.run(edits)[0], translation))
        return found

    @torch.inference_mode()
    def run(self, edits: Mapping[str, Edit]) -> tuple[float, Trace]:
        """The log-odds of the right pronoun where it is due, after the right words, and the trace of the run."""
        with observe(self.model, edits) as trace:
            scores = self.model(*self.tokens, None)[0, -1]
        return float(scores[self.right] - scores[self.wrong]), trace

    def attention(self, trace: Trace, site: str, head: int) -> dict[str, dict[str, float]]:
        """The share of each piece that this head looks at, by the piece that asks."""
        weights, axes = trace[f"{site}.weights"]
        asking, keys = (self.pieces[axis.partition(":")[2]] for axis in axes[2:])
        rows = [asking.index(piece) for piece in self.example.asks] if site.startswith("encoder") else [-1]
        return {asking[row]: _shares(keys, weights[0, head, row].tolist()) for row in rows}


def _shares(pieces: Sequence[str], weights: Sequence[float]) -> dict[str, float]:
    """The weight of each piece, the largest first; of one that is there twice, the sum."""
    shares = dict.fromkeys(pieces, 0.0)
    for piece, weight in zip(pieces, weights, strict=True):
        shares[piece] += weight
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def silence(head: int) -> Edit:
    """An edit of an attention's `context` after which this head says nothing."""

    def edit(context: Tensor) -> Tensor:
        changed = context.clone()
        changed[:, head] = 0.0
        return changed

    return edit
