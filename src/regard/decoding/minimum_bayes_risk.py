"""Of several translations the one that is most like all the others: minimum Bayes risk (Kumar & Byrne, 2004)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.decoding.hypotheses import Hypothesis
from regard.settings import DecodingSettings

SHARPNESS = 12.0
"""Probabilities count by the mean over their tokens to this power: what suits texts of a dozen (docs/log.md)."""
LONGEST = 10
"""Texts whose words have more characters than this on average are not written in words."""


def widened(settings: DecodingSettings) -> DecodingSettings:
    """The search that finds what is to be chosen from."""
    several = max(settings.consensus, settings.alternatives + 1)
    return replace(settings, consensus=0, beam=max(settings.beam, several), alternatives=several - 1)


def agreed(
    found: Sequence[Hypothesis], spell: Callable[[Sequence[int]], str], settings: DecodingSettings
) -> list[Hypothesis]:
    """As many texts as are asked for of what a wide search found, those first that are most like all."""
    among, rest = found[: settings.consensus], found[settings.consensus :]
    means = [each.log_probability / max(len(each.log_probabilities), 1) for each in among]
    texts = [spell(each.tokens) for each in among]
    distinct: dict[str, Hypothesis] = {}
    for number in ranked(texts, means):
        distinct.setdefault(texts[number], among[number])
    return [*distinct.values(), *rest][: settings.alternatives + 1]


def ranked(texts: Sequence[str], means: Sequence[float]) -> list[int]:
    """The numbers of the texts, the one most like all of them first; `means` are log-probabilities of a token."""
    weights = np.exp(SHARPNESS * (np.array(means) - max(means)))
    found = likeness([text.split() for text in texts] if spaced(texts) else [list(text) for text in texts]) @ weights
    return sorted(range(len(texts)), key=lambda number: -found[number])


def spaced(texts: Sequence[str]) -> bool:
    """Whether texts are compared word by word, and not, as Chinese, character by character."""
    words = [word for text in texts for word in text.split()]
    return len(words) > len(texts) and sum(map(len, words)) <= LONGEST * len(words)


def likeness(texts: Sequence[Sequence[str]], references: Sequence[Sequence[str]] | None = None) -> NDArray[np.float64]:
    """BLEU of each text (row) as a translation of which each reference (column), or each text, is the reference.

    That of sentences, with one added to the matches of two words and more (Lin & Och, 2004).
    """
    others = texts if references is None else references
    lengths, theirs = (np.array([max(len(text), 1) for text in each], float) for each in (texts, others))
    logarithms = np.minimum(0.0, 1.0 - theirs[None, :] / lengths[:, None])
    for size in range(1, 5):
        more = size > 1
        totals = np.maximum(lengths - size + 1, 0.0) + more
        with np.errstate(divide="ignore"):  # nothing in common: minus infinity, and no likeness
            logarithms = logarithms + np.log((matches(texts, others, size) + more) / totals[:, None]) / 4
    return np.exp(logarithms)


def matches(texts: Sequence[Sequence[str]], others: Sequence[Sequence[str]], size: int) -> NDArray[np.float64]:
    """How many runs of so many words two texts have in common, each as often as it is in both."""
    mine = [runs(text, size) for text in texts]
    theirs = mine if others is texts else [runs(text, size) for text in others]
    columns = {
        run: number for number, run in enumerate(dict.fromkeys(run for each in (*mine, *theirs) for run in each))
    }
    table = tabulate(theirs, columns)
    rows = table if theirs is mine else tabulate(mine, columns)
    return np.array([np.minimum(table, row).sum(axis=1) for row in rows])  # one by one: all at once take much memory


def runs(text: Sequence[str], size: int) -> Counter[tuple[str, ...]]:
    """How often each run of so many words is in a text."""
    return Counter(tuple(text[i : i + size]) for i in range(len(text) - size + 1))


def tabulate(counts: Sequence[Counter[tuple[str, ...]]], columns: Mapping[tuple[str, ...], int]) -> NDArray[np.float64]:
    """Counts side by side, a row for each text."""
    table = np.zeros((len(counts), len(columns)))
    for row, each in zip(table, counts, strict=True):
        row[[columns[run] for run in each]] = list(each.values())
    return table
