"""Minimum Bayes risk: returns the translation that is closest to all other candidates (Kumar & Byrne, 2004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.decoding.search_interface import Hypothesis
from regard.settings import DecodingSettings

SHARPNESS = 12.0
"""The power of the mean probability of a token by which candidates are weighted, tuned on sentences (docs/log.md)."""
LONGEST = 10
"""Mean characters of a word from which on texts are compared by characters, such as Chinese without spaces."""


def widened(settings: DecodingSettings) -> DecodingSettings:
    """Returns the settings of the search for candidates."""
    count = max(settings.consensus, settings.alternatives + 1)
    return replace(settings, consensus=0, beam=max(settings.beam, count), alternatives=count - 1)


def rank_by_consensus(
    hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str], settings: DecodingSettings
) -> list[Hypothesis]:
    """Returns the candidates with distinct texts, closest to all others first, as many as the settings ask for."""
    candidates, others = hypotheses[: settings.consensus], hypotheses[settings.consensus :]
    means = [each.log_probability / max(len(each.log_probabilities), 1) for each in candidates]
    texts = [decode(each.tokens) for each in candidates]
    distinct: dict[str, Hypothesis] = {}
    for number in ranked(texts, means):
        distinct.setdefault(texts[number], candidates[number])
    return [*distinct.values(), *others][: settings.alternatives + 1]


def ranked(texts: Sequence[str], means: Sequence[float]) -> list[int]:
    """Returns the numbers of the texts, closest to all others first; `means` are log-probabilities of a token."""
    weights = np.exp(SHARPNESS * (np.array(means) - max(means)))
    split = str.split if has_spaces(texts) else list
    similarities = sentence_bleu([split(text) for text in texts]) @ weights
    return sorted(range(len(texts)), key=lambda number: -similarities[number])


def has_spaces(texts: Sequence[str]) -> bool:
    """Reports whether texts are written with spaces between words, unlike Chinese."""
    words = [word for text in texts for word in text.split()]
    return len(words) > len(texts) and sum(map(len, words)) <= LONGEST * len(words)


def sentence_bleu(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """[N] texts -> [N, N], the sentence BLEU of each (row) with each as its reference (column).

    One is added to the matches of n-grams of two words and more (Lin & Och, 2004).
    """
    lengths = np.array([max(len(text), 1) for text in texts], float)
    logarithms = np.minimum(0.0, 1.0 - lengths[None, :] / lengths[:, None])
    for size in range(1, 5):
        smoothing = size > 1
        totals = np.maximum(lengths - size + 1, 0.0) + smoothing
        with np.errstate(divide="ignore"):  # no match: minus infinity
            logarithms = logarithms + np.log((ngram_matches(texts, size) + smoothing) / totals[:, None]) / 4
    return np.exp(logarithms)


def ngram_matches(texts: Sequence[Sequence[str]], size: int) -> NDArray[np.float64]:
    """[N] texts -> [N, N], the numbers of n-grams of this size that two texts have in common."""
    counts = [Counter(tuple(text[i : i + size]) for i in range(len(text) - size + 1)) for text in texts]
    columns = {ngram: number for number, ngram in enumerate(dict.fromkeys(ngram for each in counts for ngram in each))}
    table = np.zeros((len(texts), len(columns)))
    for row, each in zip(table, counts, strict=True):
        row[[columns[ngram] for ngram in each]] = list(each.values())
    return np.array([np.minimum(table, row).sum(axis=1) for row in table])  # row by row, to save memory
