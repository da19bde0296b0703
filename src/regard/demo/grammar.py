"""Sentence pairs, English to French, drawn from a small grammar and split for training and testing.

The point of the language is the word "it": "The animal didn't cross the street because it was too
tired" is about the animal (il), "... because it was too wide" is about the street (elle). The test
sentences hold a combination of noun and adjective that training never shows, so that a translator
must have learnt what the words mean together, not the sentences.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from regard.demo.coreference import CANT_BECAUSE, DIDNT_BECAUSE, build_sentence, coreference
from regard.demo.lexicon import ADJECTIVES, NOUNS, VERBS
from regard.demo.patterns import (
    action,
    description,
    journey,
    likes,
    opinion,
    place,
    possession,
    question,
    there_is,
    wish,
)
from regard.demo.phrases import PRONOUNS, Clause, Draft, Phrase, finish, noun_phrase, verb_phrase
from regard.errors import SettingsError


@dataclass(frozen=True)
class Sentence:
    source: str  # English
    target: str  # French
    kind: str  # name of the sentence pattern: "coreference", "likes"
    pronoun: str | None  # of a coreference: il, elle, ils or elles, whichever is right


@dataclass(frozen=True)
class Splits:
    train: list[Sentence]
    dev: list[Sentence]
    test: list[Sentence]


def splits(train: int = 40_000, dev: int = 500, test: int = 1_000, seed: int = 0) -> Splits:
    """Distinct sentences; each of test holds a held-out pair of noun and adjective, the others none.

    Test opens with the EXAMPLES. Half of it is coreference, balanced over the pronouns and over
    which of the two nouns the pronoun stands for.
    """
    made = Splits([], [], [sentence_of(draft) for draft in _EXAMPLES[:test]])
    seen = {draft.source for draft in _EXAMPLES}
    room = _room(test)
    room.subtract(map(_cell, _EXAMPLES[:test]))
    rng = Random(seed)
    for _ in range(100_000 + 20 * (train + dev + test)):
        if len(made.train) >= train and len(made.dev) >= dev and len(made.test) >= test:
            return made
        draft = _draw(rng)
        if draft.source in seen:
            continue
        held = [pair in HELD_OUT for pair in draft.pairs]
        cell = _cell(draft)
        if any(held) and room[cell] > 0 and len(made.test) < test and (held[-1] or not draft.pronoun):
            room[cell] -= 1
            made.test.append(sentence_of(draft))
        elif not any(held) and len(made.dev) < dev:
            made.dev.append(sentence_of(draft))
        elif not any(held) and len(made.train) < train:
            made.train.append(sentence_of(draft))
        seen.add(draft.source)
    raise SettingsError(f"the grammar has too few sentences for {train} + {dev} + {test}: ask for fewer")


def write_pairs(path: Path, sentences: Sequence[Sentence]) -> Path:
    """Writes a .tsv as training reads it."""
    path.write_text("".join(f"{s.source}\t{s.target}\n" for s in sentences), encoding="utf-8", newline="\n")
    return path


_CLAUSE = re.compile(r"(?:\bparce qu['’]|\bs['’]|\b(?:mais|si|quand|et) )(ils?|elles?)\b", re.IGNORECASE)


def pronoun_accuracy(hypotheses: Sequence[str], sentences: Sequence[Sentence]) -> float:
    """Share of the sentences with a pronoun whose translation opens its last clause with the right one."""
    judged = [
        sentence.pronoun == _clause_pronoun(hypothesis)
        for hypothesis, sentence in zip(hypotheses, sentences, strict=True)
        if sentence.pronoun
    ]
    if not judged:
        raise ValueError("none of the sentences has a pronoun to judge")
    return sum(judged) / len(judged)


def _clause_pronoun(french: str) -> str | None:
    """The subject of the last clause, if it is a pronoun: what follows "parce qu'", "mais", "si" ..."""
    found = _CLAUSE.findall(french)
    return found[-1].lower() if found else None


_PATTERNS = {
    coreference: 36,
    likes: 10,
    action: 16,
    journey: 5,
    question: 6,
    there_is: 7,
    place: 4,
    possession: 6,
    description: 5,
    opinion: 3,
    wish: 2,
}
_CHOICES, _WEIGHTS = tuple(_PATTERNS), tuple(_PATTERNS.values())


def _draw(rng: Random) -> Draft:
    return rng.choices(_CHOICES, _WEIGHTS)[0](rng)


def sentence_of(draft: Draft) -> Sentence:
    """A draft without what only the grammar needs to know of it."""
    return Sentence(draft.source, draft.target, draft.kind, draft.pronoun)


def _cell(draft: Draft) -> tuple[str | None, bool]:
    """What the test set is balanced over."""
    return draft.pronoun, draft.about_subject


def _room(test: int) -> Counter[tuple[str | None, bool]]:
    """How many sentences of each cell the test set takes."""
    shares = {"il": 0.0875, "elle": 0.0875, "ils": 0.0375, "elles": 0.0375}
    room: Counter[tuple[str | None, bool]] = Counter()
    for word, share in shares.items():
        room[word, True] = room[word, False] = int(share * test)
    room[None, False] = test - room.total()
    return room


_FORCED = frozenset(
    {
        ("garden", "beautiful"),
        ("animal", "tired"),
        ("street", "wide"),
        ("suitcase", "heavy"),
        ("hotel", "old"),
        ("car", "red"),
    }
)


def _held_out() -> frozenset[tuple[str, str]]:
    """About one in seven of the pairs of noun and adjective, by a hash that never changes.

    They are chosen adjective by adjective and gender by gender, so that each form of each adjective
    stays in training with other nouns.
    """
    held: set[tuple[str, str]] = set(_FORCED)
    for adjective in ADJECTIVES.values():
        for feminine in (False, True):
            names = sorted(name for name in adjective.fits if NOUNS[name].feminine == feminine)
            pairs = sorted(((name, adjective.english) for name in names), key=_rank)
            held.update(pairs[: round(len(pairs) / 7)])
    return frozenset(held)


def _rank(pair: tuple[str, str]) -> tuple[bool, bytes]:
    return pair not in _FORCED, hashlib.blake2b(" ".join(pair).encode()).digest()


HELD_OUT = _held_out()  # (noun, adjective), by their English names; test sentences alone hold them


def _the(name: str, plural: bool = False) -> Phrase:
    return noun_phrase("the", NOUNS[name], plural)


_TIRED, _WIDE, _HEAVY = (ADJECTIVES[name] for name in ("tired", "wide", "heavy"))
_SISTER = noun_phrase("my", NOUNS["sister"], False)
_EXAMPLES = (
    build_sentence(VERBS["cross"], DIDNT_BECAUSE, _the("animal"), _the("street"), True, _TIRED, "too "),
    build_sentence(VERBS["cross"], DIDNT_BECAUSE, _the("animal"), _the("street"), False, _WIDE, "too "),
    finish(
        "likes",
        PRONOUNS[0],
        verb_phrase(PRONOUNS[0], VERBS["love"]),
        noun_phrase("the", NOUNS["garden"], False, (ADJECTIVES["beautiful"],)),
    ),
    build_sentence(VERBS["carry"], CANT_BECAUSE, _the("boy", True), _the("suitcase", True), False, _HEAVY, "too "),
    finish(
        "there is",
        Clause("there is", "il y a"),
        noun_phrase("a", NOUNS["hotel"], False, (ADJECTIVES["old"],)),
        Clause("near", "près de"),
        _the("river"),
    ),
    finish(
        "action",
        _SISTER,
        verb_phrase(_SISTER, VERBS["buy"], "past", "not"),
        noun_phrase("the", NOUNS["car"], False, (ADJECTIVES["small"], ADJECTIVES["red"])),
    ),
)
EXAMPLES: tuple[str, ...] = tuple(draft.source for draft in _EXAMPLES)
