"""Tells two languages apart by naive Bayes over hashed character n-grams, learned from the corpus itself."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.files.character_arrays import Characters

LONGEST = 3  # letters of an n-gram
ENOUGH = 5_000  # letters of each side to learn from
RARE = 5  # an n-gram that is less frequent in both languages has no weight
MOST = 3.0  # nats of one n-gram, since a name must not decide
TELLING, FEWEST = 0.5, 30  # nats of an n-gram that counts as evidence, and how many of them a text needs
OVERLAP = 2.0 * LONGEST  # n-grams share letters, so their evidence is counted about this many times
BITS = 20  # of the hash of an n-gram
FACTOR = np.uint32(0x9E3779B1)
SPREAD = np.array([0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F], np.uint32)
PUNCTUATION = ".,:;!?…'\"„“”‚‘’«»‹›()[]{}<>。，：；！？「」『』（）"


class Identifier:
    """Tells two languages apart by samples of both."""

    def __init__(self, sources: Characters, targets: Characters) -> None:
        left, right = _count_ngrams(sources), _count_ngrams(targets)
        self.is_able = min(left.sum(), right.sum()) >= LONGEST * ENOUGH
        ratio = np.log((left + 0.5) / (left.sum() + 0.5)) - np.log((right + 0.5) / (right.sum() + 0.5))
        ratio[left + right < RARE] = 0.0
        self._evidence = np.clip(ratio, -MOST, MOST).astype(np.float32)

    def evidence(self, texts: Characters) -> NDArray[np.float64]:
        """Returns for each text the log odds that it is in the source language and not in the target language."""
        total, telling = np.zeros(len(texts.starts)), np.zeros(len(texts.starts), np.int64)
        if self.is_able and len(total):
            letters, starts = texts.letters()
            for ngrams in _hash_ngrams(letters, starts):
                evidence = np.take(self._evidence, ngrams)
                total += np.add.reduceat(evidence, starts)
                telling += np.add.reduceat(np.abs(evidence) > TELLING, starts, dtype=np.int64)
        total[telling < FEWEST] = 0.0
        return total / OVERLAP


def find_foreign(
    texts: Sequence[str],
    others: Sequence[str],
    characters: Characters,
    sign: int,
    identifier: Identifier,
    confidence: float,
) -> set[int]:
    """Returns the rows of texts in the language of their translations (`others`), to which evidence has this sign.

    Doubtful texts are checked again without the names that they share with their translations.
    """
    threshold = math.log(confidence / (1 - confidence))
    doubtful = np.flatnonzero(sign * identifier.evidence(characters) > threshold).tolist()
    doubtful = [row for row in doubtful if texts[row] != others[row]]
    without = Characters([without_names(texts[row], others[row]) for row in doubtful])
    is_foreign = sign * identifier.evidence(without) > threshold
    return {row for row, still in zip(doubtful, is_foreign.tolist(), strict=True) if still}


def without_names(text: str, other: str) -> str:
    """Returns a text without the names, identifiers and addresses that it shares with its translation."""
    for word in sorted(set(other.split()), key=len, reverse=True):
        word = word.strip(PUNCTUATION)
        if len(word) > 1 and not (word.islower() and word.isalpha()):
            text = text.replace(word, " ")
    return text


def _count_ngrams(texts: Characters) -> NDArray[np.float64]:
    counts = np.zeros(1 << BITS)
    if len(texts.starts):
        for ngrams in _hash_ngrams(*texts.letters()):
            counts += np.bincount(ngrams, minlength=len(counts))
    counts[0] = 0
    return counts


def _hash_ngrams(letters: NDArray[np.uint32], starts: NDArray[np.int64]) -> Iterator[NDArray[np.uint32]]:
    """Yields for each length the hashes of the n-grams that begin at each letter; 0 where one leaves its text."""
    ends = np.append(starts[1:], len(letters)) - 1  # of each text, the 0 after its last letter
    total = np.zeros(len(letters), np.uint32)
    for length in range(LONGEST):
        total = total * FACTOR
        total[: len(letters) - length] += letters[length:]
        hashed = (total * SPREAD[length]) >> (32 - BITS)
        for back in range(length):
            hashed[np.maximum(ends - back, 0)] = 0
        yield hashed
