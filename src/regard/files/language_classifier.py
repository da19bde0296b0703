"""A naive Bayes classifier over hashed character n-grams that learns the two languages of a corpus from the corpus."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.files.character_arrays import Characters

LONGEST = 3  # maximum length of an n-gram in letters
ENOUGH = 5_000  # minimum number of letters of each side to learn from
RARE = 5  # n-grams that occur less often than this are ignored
MOST = 3.0  # maximum evidence of one n-gram in nats, so that a single name does not decide
TELLING, FEWEST = 0.5, 30  # minimum evidence of an n-gram in nats, and how many such n-grams a text needs
OVERLAP = 2.0 * LONGEST  # overlapping n-grams count the same evidence about this many times
BITS = 20  # number of bits in the hash of an n-gram
FACTOR = np.uint32(0x9E3779B1)
SPREAD = np.array([0x85EBCA6B, 0xC2B2AE35, 0x27D4EB2F], np.uint32)
PUNCTUATION = ".,:;!?…'\"„“”‚‘’«»‹›()[]{}<>。，：；！？「」『』（）"


class Identifier:
    """Distinguishes two languages, which it learns from samples of both."""

    def __init__(self, sources: Characters, targets: Characters) -> None:
        left, right = _count_ngrams(sources), _count_ngrams(targets)
        self.is_able = min(left.sum(), right.sum()) >= LONGEST * ENOUGH
        ratio = np.log((left + 0.5) / (left.sum() + 0.5)) - np.log((right + 0.5) / (right.sum() + 0.5))
        ratio[left + right < RARE] = 0.0
        self._evidence = np.clip(ratio, -MOST, MOST).astype(np.float32)

    def evidence(self, texts: Characters) -> NDArray[np.float64]:
        """Returns for each text the log odds that it is in the source language rather than the target language."""
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
    """Returns the rows of the texts that are in the language of their translations, `others`.

    `sign` is the sign of the evidence for that language: 1 for the source language, -1 for the target language.
    Suspicious texts are checked again without the names that they share with their translations.
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
    """Yields for each length the hashes of the n-grams that begin at each letter; 0 where a text is too short."""
    ends = np.append(starts[1:], len(letters)) - 1  # position of the 0 after the last letter of each text
    total = np.zeros(len(letters), np.uint32)
    for length in range(LONGEST):
        total = total * FACTOR
        total[: len(letters) - length] += letters[length:]
        hashed = (total * SPREAD[length]) >> (32 - BITS)
        for back in range(length):
            hashed[np.maximum(ends - back, 0)] = 0
        yield hashed
