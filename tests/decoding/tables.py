"""Scorers without a model: log-probabilities that depend on the sentence and on every token before."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from itertools import product

import torch
from torch import Tensor

from regard.decoding.search_interface import Penalty

END = 0
Prefix = tuple[int, ...]


class Table:
    """A random distribution over the next token for every prefix of a sentence; `banned` tokens have none of it.

    As a `Step` it also checks what a model relies on: rows stand together by sentence, as many for each.
    """

    def __init__(
        self,
        sentences: Sequence[int],
        vocabulary: int,
        *,
        banned: Sequence[int] = (),
        spread: float = 2.0,
        end: float = 0.0,
    ) -> None:
        self.vocabulary, self.banned, self.spread, self.end = vocabulary, list(banned), spread, end
        self.alive = list(sentences)
        self.rows: list[tuple[int, Prefix]] = []
        self.history: list[list[int]] = []  # the sentences alive at each call

    def scores(self, sentence: int, prefix: Prefix) -> Tensor:
        """[V]"""
        generator = torch.Generator().manual_seed(zlib.crc32(repr((sentence, prefix)).encode()))
        logits = self.spread * torch.randn(self.vocabulary, generator=generator)
        logits[END] += self.end
        scores = logits.log_softmax(-1)
        scores[self.banned] = -torch.inf
        return scores

    def start(self) -> Tensor:
        self.rows = [(sentence, ()) for sentence in self.alive]
        return self._scores()

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
        if sentences is not None:
            assert 0 < len(sentences) < len(self.alive)
            self.alive = [self.alive[i] for i in sentences.tolist()]
        parents = [self.rows[row] for row in rows.tolist()]
        together = zip(parents, tokens.tolist(), strict=True)
        self.rows = [(sentence, (*prefix, token)) for (sentence, prefix), token in together]
        each = len(self.rows) // len(self.alive)
        assert [sentence for sentence, _ in self.rows] == [sentence for sentence in self.alive for _ in range(each)]
        return self._scores()

    def _scores(self) -> Tensor:
        self.history.append(list(self.alive))
        return torch.stack([self.scores(*row) for row in self.rows])

    def gains(self, sentence: int, tokens: Sequence[int]) -> list[float]:
        """The log-probability of each token, given those before it."""
        return [float(self.scores(sentence, tuple(tokens[:i]))[token]) for i, token in enumerate(tokens)]


def every_output(table: Table, sentence: int, limit: int, penalty: Penalty) -> list[tuple[Prefix, float, bool]]:
    """All that a sentence can become, best first: the tokens, their score, and whether they end."""
    words = [token for token in range(table.vocabulary) if token != END and token not in table.banned]
    endings = [(prefix, True) for length in range(limit) for prefix in product(words, repeat=length)]
    cut = [(prefix, False) for prefix in product(words, repeat=limit)]
    outputs = []
    for prefix, finished in endings + cut:
        gains = table.gains(sentence, [*prefix, END] if finished else prefix)
        outputs.append((prefix, sum(gains) / penalty(len(gains)), finished))
    return sorted(outputs, key=lambda output: -output[1])


def patient_beam(
    table: Table, sentence: int, limit: int, width: int, penalty: Penalty
) -> list[tuple[Prefix, float, bool]]:
    """A beam search of one sentence that never stops early, best first."""
    alive: list[tuple[Prefix, float]] = [((), 0.0)]
    found = []
    for length in range(1, limit + 1):
        continuations = [
            (total + gain, prefix, token)
            for prefix, total in alive
            for token, gain in enumerate(table.scores(sentence, prefix).tolist())
        ]
        best = sorted(continuations, key=lambda c: -c[0])[: 2 * width]
        found += [(prefix, total / penalty(length), True) for total, prefix, token in best[:width] if token == END]
        alive = [((*prefix, token), total) for total, prefix, token in best if token != END][:width]
    found += [(prefix, total / penalty(limit), False) for prefix, total in alive]
    return sorted(found, key=lambda output: -output[1])
