"""Which of two languages a text is in, learnt from the corpus itself: naive Bayes over hashed character n-grams."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.files.character_arrays import Characters

LONGEST = 3  # letters of an n-gram
ENOUGH = 5_000  # letters of each side to learn from
RARE = 5  # an n-gram that was seen less often in both languages says nothing
MOST = 3.0  # nats that one n-gram says: a name must not decide
TELLING, FEWEST = 0.5, 30  # nats of an n-gram that says something, and how many such ones a text must have
OVERLAP = 2.0 * LONGEST  # n-grams share their letters, so that their evidence is counted about so often
BITS = 20  # of an n-gram's place in the table


class Identifier:
    """Tells two languages apart by samples of both."""

    def __init__(self, sources: Characters, targets: Characters) -> None:
        left, right = _counts(sources), _counts(targets)
        self.able = min(left.sum(), right.sum()) >= LONGEST * ENOUGH
        ratio = np.log((left + 0.5) / (left.sum() + 0.5)) - np.log((right + 0.5) / (right.sum() + 0.5))
        ratio[left + right < RARE] = 0.0
        self._evidence = np.clip(ratio, -MOST, MOST).astype(np.float32)

    def evidence(self, texts: Characters) -> NDArray[np.float64]:
        """For each text, the logarithm of the odds that it is in the source's language, not in the target's."""
        total, telling = np.zeros(len(texts.starts)), np.zeros(len(texts.starts), np.int64)
        if self.able and len(total):
            letters, starts = texts.letters()
            for grams in _grams(letters, starts):
                evidence = np.take(self._evidence, grams)
                total += np.add.reduceat(evidence, starts)
                telling += np.add.reduceat(np.abs(evidence) > TELLING, starts, dtype=np.int64)
        total[telling < FEWEST] = 0.0
        return total / OVERLAP


def find_foreign(
    texts: Sequence[str], others: Sequence[str], seen: Characters, sign: int, identifier: Identifier, confidence: float
) -> set[int]:
    """Which texts are so surely in the language of their translations, to which the evidence has this sign.

    Those in doubt are looked at again without the names that they share with their translations.
    """
    enough = math.log(confidence / (1 - confidence))
    doubtful = np.flatnonzero(sign * identifier.evidence(seen) > enough).tolist()
    doubtful = [row for row in doubtful if texts[row] != others[row]]
    again = Characters([without_names(texts[row], others[row]) for row in doubtful])
    sure = sign * identifier.evidence(again) > enough
    return {row for row, still in zip(doubtful, sure.tolist(), strict=True) if still}


def without_names(text: str, other: str) -> str:
    """A text without what it shares with its translation and what is no common word: names, identifiers, addresses."""
    for word in sorted(set(other.split()), key=len, reverse=True):
        word = word.strip(PUNCTUATION)
        if len(word) > 1 and not (word.islower() and word.isalpha()):
            text = text.replace(word, " ")
    return text


PUNCTUATION = ".,:;!?…'\"„“”‚‘’«»‹›()[]{}<>。，：；！？「」『』（）"


def _counts(texts: Characters) -> NDArray[np.float64]:
    """How often each n-gram is in some texts."""
    counts = np.zeros(1 << BITS)
    if len(texts.starts):
        for grams in _grams(*texts.letters()):
            counts += np.bincount(grams, minlength=len(counts))
    counts[0] = 0
    return counts


def _grams(letters: NDArray[np.uint32], starts: NDArray[np.int64]) -> Iterator[NDArray[np.uint32]]:
    """For each length, the hashes of the n-grams that begin at each letter; 0 for those that leave the text."""
    ends = np.append(starts[1:], len(letters)) - 1  # of each text, the 0 after its last letter
    total = np.zeros(len(letters), np.uint32)
    for length in range(LONGEST):
        total = total * FACTOR
        total[: len(letters) - length] += letters[length:]
        hashed = (total * SPREAD[length]) >> (32 - BITS)
        for back in range(length):
            hashed[np.maximum(ends - back, 0)] = 0
        yield hashed


FACTOR = np.uint32(0x9E3779B1)
SPREAD = np.array([0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F], np.uint32)
