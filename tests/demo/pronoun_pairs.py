"""Pairs of sentences that differ in the last word and in what "it" is, and what one head does about it.

"The animal didn't cross the street because it was too tired" (il) and "... too wide" (elle). Training has neither noun
together with its adjective.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from random import Random

import torch

from regard.demo.bilingual_phrases import noun_phrase
from regard.demo.possible_actions import ACTIONS
from regard.demo.pronoun_sentences import FRAMES
from regard.demo.sentence_generator import HELD_OUT
from regard.model.observe import observe
from regard.model.transformer import EncoderDecoder
from regard.weights import Contents
from tests.explorer.pronoun_heads import silence


@dataclass(frozen=True)
class PronounSentence:
    """A sentence, its translation, the right pronoun, and the noun that "it" stands for beside the other one."""

    source: str
    target: str
    pronoun: str
    noun: str
    other: str


@dataclass(frozen=True)
class HeadInSentence:
    """What a head does in a sentence."""

    noun: float  # attention of "it" to the noun that it stands for
    other: float
    whole: float  # probability of the right pronoun after "parce qu'"
    silenced: float  # the same without the head

    @property
    def looks(self) -> bool:
        """Whether most of the attention of "it" goes to the right noun."""
        return self.noun > 0.5

    @property
    def matters(self) -> bool:
        """Whether the right pronoun is less probable without the head."""
        return self.silenced < self.whole


def held_out_pairs() -> list[tuple[PronounSentence, PronounSentence]]:
    """Generates all pairs, in a random order that is always the same."""
    pairs = list(_combine())
    Random(1).shuffle(pairs)
    return pairs


def _combine() -> Iterator[tuple[PronounSentence, PronounSentence]]:
    for name, action in product(("didn't because", "can't because"), ACTIONS["reasoned"]):
        frame = FRAMES[name]
        for actor, thing in product(action.actors, action.objects):
            if actor.feminine == thing.feminine or "person" in actor.tags or "mass" in thing.tags:
                continue
            nouns, phrases = (actor, thing), [noun_phrase("the", noun, False) for noun in (actor, thing)]
            held = [
                [
                    reason
                    for reason in frame.possible_reasons(action, actor, thing, about_actor)
                    if (noun.name, reason.english) in HELD_OUT
                ]
                for noun, about_actor in zip(nouns, (True, False), strict=True)
            ]
            for reasons in product(*held):
                pair = []
                for number, reason in enumerate(reasons):
                    degree = frame.possible_degrees(reason)[0]
                    made = frame.build(action, phrases[0], phrases[1], number == 0, reason, degree)
                    one, other = nouns[number].name, nouns[1 - number].name
                    pair.append(PronounSentence(made.source, made.target, made.pronoun or "", one, other))
                yield pair[0], pair[1]


@torch.inference_mode()
def head_in_sentence(contents: Contents, sentence: PronounSentence, layer: int, head: int) -> HeadInSentence:
    """Measures the attention of "it" in a head of the encoder, and the effect of the head on the pronoun."""
    assert isinstance(contents.model, EncoderDecoder)
    source, target = contents.vocabularies.source, contents.vocabularies.target
    known = sentence.target[: sentence.target.index("parce qu'") + len("parce qu'")]
    prefix = target.encode(known).ids
    right = target.encode(known + sentence.pronoun).ids[len(prefix)]
    encoding = source.encode(sentence.source)
    tokens = [
        torch.tensor([[*encoding.ids, source.specials.end]]),
        torch.tensor([[target.specials.begin, *prefix]]),
    ]
    site = f"encoder.layers.{layer}.self_attention"

    def pieces(word: str) -> list[int]:
        """Returns the positions of the pieces of a word."""
        start = sentence.source.index(f" {word} ") + 1
        end = start + len(word)
        return [i for i, (first, last) in enumerate(encoding.offsets) if last > start and first < end]

    with observe(contents.model) as trace:
        whole = contents.model(*tokens, None)[0, -1].softmax(-1)[right]
    with observe(contents.model, {f"{site}.context": silence(head)}):
        silenced = contents.model(*tokens, None)[0, -1].softmax(-1)[right]
    row = trace[f"{site}.weights"].tensor[0, head, pieces("it")[0]]
    nouns = [float(row[pieces(word)].sum()) for word in (sentence.noun, sentence.other)]
    return HeadInSentence(nouns[0], nouns[1], float(whole), float(silenced))
