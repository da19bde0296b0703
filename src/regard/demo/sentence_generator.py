"""Generates the English-French sentence pairs of the demo, split into training, dev and test set.

The sentences test the word "it": in "The animal didn't cross the street because it was too tired", it is the animal
(il), and in "... because it was too wide", it is the street (elle). The test sentences contain combinations of nouns
and adjectives that do not occur in training, so that a translator must have learned what the words mean together.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from regard.demo.bilingual_phrases import Sentence
from regard.demo.bilingual_words import ADJECTIVES, NOUNS
from regard.demo.grammar_files import GRAMMAR, load_entries
from regard.demo.pronoun_sentences import WEIGHT, draw_pronoun_sentence
from regard.demo.sentence_patterns import PATTERNS
from regard.errors import SettingsError


@dataclass(frozen=True)
class SentenceSplits:
    """The sentences of the training, dev and test set."""

    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]


def generate_splits(train: int = 40_000, dev: int = 500, test: int = 1_000, seed: int = 0) -> SentenceSplits:
    """Generates distinct sentences; only test sentences contain held-out pairs of a noun and an adjective.

    The test set begins with EXAMPLES. Half of it has pronouns that stand for one of two nouns, with a fixed share of
    each pronoun and of each noun.
    """
    splits = SentenceSplits([], [], _EXAMPLES[:test])
    seen, room, rng = set(EXAMPLES), _cell_sizes(test), Random(seed)
    room.subtract(map(_cell, splits.test))
    for _ in range(100_000 + 20 * (train + dev + test)):
        if len(splits.train) >= train and len(splits.dev) >= dev and len(splits.test) >= test:
            return splits
        sentence = _draw_sentence(rng)
        if sentence.source in seen:
            continue
        held, cell = [pair in HELD_OUT for pair in sentence.pairs], _cell(sentence)
        if any(held) and room[cell] > 0 and len(splits.test) < test and (held[-1] or not sentence.pronoun):
            room[cell] -= 1
            splits.test.append(sentence)
        elif not any(held) and len(splits.dev) < dev:
            splits.dev.append(sentence)
        elif not any(held) and len(splits.train) < train:
            splits.train.append(sentence)
        seen.add(sentence.source)
    raise SettingsError(f"the grammar has too few sentences for {train} + {dev} + {test}: ask for fewer")


_DRAWS = [draw_pronoun_sentence, *(pattern.draw_sentence for pattern in PATTERNS)]
_WEIGHTS = [WEIGHT, *(pattern.weight for pattern in PATTERNS)]


def _draw_sentence(rng: Random) -> Sentence:
    return rng.choices(_DRAWS, _WEIGHTS)[0](rng)


def _cell(sentence: Sentence) -> tuple[str | None, bool]:
    """Returns the category of a test sentence: the pronoun, and whether it stands for the actor."""
    return sentence.pronoun, sentence.about_actor


def _cell_sizes(test: int) -> Counter[tuple[str | None, bool]]:
    shares = {"il": 0.0875, "elle": 0.0875, "ils": 0.0375, "elles": 0.0375}
    room: Counter[tuple[str | None, bool]]
    room = Counter({(word, about): int(share * test) for word, share in shares.items() for about in (True, False)})
    room[None, False] = test - room.total()
    return room


def write_pairs(path: Path, sentences: Sequence[Sentence]) -> Path:
    """Writes sentences as a .tsv file of pairs."""
    path.write_text("".join(f"{s.source}\t{s.target}\n" for s in sentences), encoding="utf-8", newline="\n")
    return path


_CLAUSE = re.compile(r"(?:\bparce qu['’]|\bs['’]|\b(?:mais|si|quand|et) )(ils?|elles?)\b", re.IGNORECASE)


def pronoun_accuracy(hypotheses: Sequence[str], sentences: Sequence[Sentence]) -> float:
    """Returns the share of sentences with a pronoun whose translation has the correct one in its last clause."""
    judged = [
        sentence.pronoun == str((_CLAUSE.findall(hypothesis) or [""])[-1]).lower()
        for hypothesis, sentence in zip(hypotheses, sentences, strict=True)
        if sentence.pronoun
    ]
    if not judged:
        raise ValueError("none of the sentences has a pronoun to judge")
    return sum(judged) / len(judged)


def _hold_out() -> frozenset[tuple[str, str]]:
    """Chooses about one in seven of the pairs of a noun and an adjective, by a hash that never changes.

    They are chosen separately for each adjective and gender, so that each form of an adjective occurs in training with
    other nouns.
    """
    forced = {pair for example in _EXAMPLES for pair in example.pairs}
    held = set(forced)
    for adjective in ADJECTIVES.values():
        for feminine in (False, True):
            names = sorted(name for name in adjective.fits if NOUNS[name].feminine == feminine)
            pairs = [(name, adjective.english) for name in names]
            pairs.sort(key=lambda pair: (pair not in forced, hashlib.blake2b(" ".join(pair).encode()).digest()))
            held.update(pairs[: round(len(pairs) / 7)])
    return frozenset(held)


_EXAMPLES = load_entries(GRAMMAR / "examples.toml", "example", Sentence)
EXAMPLES = tuple(example.source for example in _EXAMPLES)
HELD_OUT = _hold_out()  # (noun, adjective) in English; only test sentences contain these pairs
