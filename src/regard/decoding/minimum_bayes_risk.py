"""Minimum Bayes risk decoding: returns the candidate that is closest to all others (Kumar & Byrne, 2004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.decoding.search_interface import Hypothesis
from regard.settings import DecodingSettings

SHARPNESS = 12.0
"""Candidates are weighted by this power of their mean token probability; tuned on sentences (docs/log.md)."""
LONGEST = 10
"""Maximum mean length of words, in characters; texts with longer ones, such as Chinese, are compared by characters."""


def candidate_settings(settings: DecodingSettings) -> DecodingSettings:
    """Returns the settings for the search that generates the candidates."""
    count = max(settings.consensus, settings.alternatives + 1)
    return replace(settings, consensus=0, beam=max(settings.beam, count), alternatives=count - 1)


def rank_by_consensus(
    hypotheses: Sequence[Hypothesis], decode: Callable[[Sequence[int]], str], settings: DecodingSettings
) -> list[Hypothesis]:
    """Ranks the candidates, closest to all others first, drops duplicate texts, and returns as many as requested."""
    candidates, others = hypotheses[: settings.consensus], hypotheses[settings.consensus :]
    means = [each.log_probability / max(len(each.log_probabilities), 1) for each in candidates]
    texts = [decode(each.tokens) for each in candidates]
    distinct: dict[str, Hypothesis] = {}
    for number in ranked(texts, means):
        distinct.setdefault(texts[number], candidates[number])
    return [*distinct.values(), *others][: settings.alternatives + 1]


def ranked(texts: Sequence[str], means: Sequence[float]) -> list[int]:
    """Returns the numbers of the texts, closest to all others first; `means` are mean token log-probabilities."""
    weights = np.exp(SHARPNESS * (np.array(means) - max(means)))
    split = str.split if has_spaces(texts) else list
    similarities = sentence_bleu([split(text) for text in texts]) @ weights
    return sorted(range(len(texts)), key=lambda number: -similarities[number])


def has_spaces(texts: Sequence[str]) -> bool:
    words = [word for text in texts for word in text.split()]
    return len(words) > len(texts) and sum(map(len, words)) <= LONGEST * len(words)


def sentence_bleu(texts: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """[N] texts -> [N, N], the sentence BLEU of each text (row) against each as the reference (column).

    For n-grams of two or more words, adds one to the matches (Lin & Och, 2004).
    """
    lengths = np.array([max(len(text), 1) for text in texts], float)
    logarithms = np.minimum(0.0, 1.0 - lengths[None, :] / lengths[:, None])
    for size in range(1, 5):
        smoothing = size > 1
        totals = np.maximum(lengths - size + 1, 0.0) + smoothing
        with np.errstate(divide="ignore"):  # the logarithm is minus infinity if there are no matches
            logarithms = logarithms + np.log((ngram_matches(texts, size) + smoothing) / totals[:, None]) / 4
    return np.exp(logarithms)


def ngram_matches(texts: Sequence[Sequence[str]], size: int) -> NDArray[np.float64]:
    """[N] texts -> [N, N], the number of n-grams of this size that each two texts share."""
    counts = [Counter(tuple(text[i : i + size]) for i in range(len(text) - size + 1)) for text in texts]
    columns = {ngram: number for number, ngram in enumerate(dict.fromkeys(ngram for each in counts for ngram in each))}
    table = np.zeros((len(texts), len(columns)))
    for row, each in zip(table, counts, strict=True):
        row[[columns[ngram] for ngram in each]] = list(each.values())
    return np.array([np.minimum(table, row).sum(axis=1) for row in table])  # row by row, to save memory
