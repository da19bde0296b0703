"""Subword regularisation: segments the same text differently in each epoch, which teaches a model the parts of words.

Pieces never cross the cuts between words, and a corpus has few different words. `WordTable` stores a corpus as numbers
of words, and `Sampler` segments each word a few times an epoch, at random. The same seed gives the same tokens.
"""

from __future__ import annotations

import json
import math
from array import array
from bisect import bisect
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.errors import SettingsError
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.placeholder_slots import Slotted
from regard.tokens.tokenizer import Tokenizer, refuse_surrogates
from regard.tokens.vocabulary_learning import RESERVED, SPECIALS

BLOCK = 10_000  # texts that are assembled together, to limit memory
UNKNOWN_PENALTY = 10.0  # score of the rarest piece minus that of an unknown character, in tokenizers


class Sampler:
    """Segments words at random; at a rate of 0, as the tokenizer does.

    BPE-dropout (Provilkov et al., 2020) for BPE: `rate` is the probability that a possible merge is skipped.
    Sampling (Kudo, 2018) for unigram: a segmentation has a probability proportional to P(segmentation)^alpha, where
    alpha = 0.2 * sqrt(0.1 / rate). With it, the same rate lengthens texts by about the same factor in both: 1.1 to 1.2
    at 0.05, 1.3 to 1.4 at 0.1, 1.6 to 1.8 at 0.2 (Multi30k in 6,000 pieces).
    """

    def __init__(self, tokenizer: Tokenizer, rate: float) -> None:
        if not 0 <= rate < 1:
            raise SettingsError(f"the rate of subword sampling must be at least 0 and below 1, not {rate}")
        model = _model(tokenizer)
        self.rate = rate
        self._cutter: _Merges | _Lattice = _Merges(model, rate) if model["type"] == "BPE" else _Lattice(model, rate)
        self._slots = {_slot_word(tokenizer, token): token for token in tokenizer.slots}

    def epoch(
        self, table: WordTable, random: np.random.Generator, variants: int = 64
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Segments all texts; returns their tokens end to end, and the start of each text and the end of the last.

        A word is segmented once for each occurrence, but at most `variants` times, and each occurrence takes one of
        these segmentations at random: the cost grows with the number of different words.
        """
        times = np.minimum(table.counts, variants if self.rate else 1)
        times[[number for number, word in enumerate(table.words) if word in self._slots]] = 1
        pieces, ends = array("i"), array("q", [0])
        for word, count in zip(table.words, times.tolist(), strict=True):
            slot = self._slots.get(word)
            for ids in self._cutter.draw(word, count, random) if slot is None else [[slot]]:
                pieces.extend(ids)
                ends.append(len(pieces))
        drawn, bounds = np.array(pieces, np.int32), np.array(ends, np.int64)
        first = np.cumsum(times) - times  # of the segmentations of each word
        tokens, starts = [np.empty(0, np.int32)], [np.zeros(1, np.int64)]
        for start in range(0, len(table), BLOCK):
            edges = table.starts[start : start + BLOCK + 1]
            rows = table.rows[edges[0] : edges[-1]]
            chosen = first[rows] + random.integers(times[rows])
            lengths = bounds[chosen + 1] - bounds[chosen]
            before = np.concatenate([[0], np.cumsum(lengths)])
            tokens.append(drawn[np.repeat(bounds[chosen] - before[:-1], lengths) + np.arange(before[-1])])
            starts.append(starts[-1][-1] + before[edges[1:] - edges[0]])
        return np.concatenate(tokens), np.concatenate(starts)


@dataclass(frozen=True, eq=False)
class WordTable:
    """Texts as sequences of numbers of words; a word includes the space before it."""

    words: list[str]
    counts: NDArray[np.int64]  # occurrences of each word
    rows: NDArray[np.int32]  # the words of all texts end to end
    starts: NDArray[np.int64]  # the start of each text in `rows`, and the end of the last

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def build(cls, texts: Iterable[str | Slotted], tokenizer: Tokenizer) -> WordTable:
        """Cuts texts into words as the tokenizer does; a slot is a word that no text can spell."""
        _model(tokenizer)
        normalize = tokenizer.model.normalizer.normalize_str
        cut = tokenizer.model.pre_tokenizer.pre_tokenize_str
        numbers: dict[str, int] = {}
        rows, starts = array("i"), array("q", [0])
        slots = {number: _slot_word(tokenizer, token) for token, number in tokenizer.slots.items()}
        for text in texts:
            whole = Slotted((text,), ()) if isinstance(text, str) else text
            refuse_surrogates(whole.texts)
            words = [word for word, _ in cut(normalize(whole.texts[0]))]
            for slot, rest in zip(whole.numbers, whole.texts[1:], strict=True):
                words += [slots[slot], *(word for word, _ in cut(rest))]
            rows.extend([numbers.setdefault(word, len(numbers)) for word in words])
            starts.append(len(rows))
        flat = np.array(rows, np.int32)
        counts = np.bincount(flat, minlength=len(numbers)).astype(np.int64)
        return cls(list(numbers), counts, flat, np.array(starts, np.int64))


class _Merges:
    """Byte-pair merges, some of which are skipped.

    In the paper each possible merge is skipped with probability p, and the first of the others is done, until all are
    skipped. The number of skipped merges before it has a geometric distribution: one random number a step is enough.
    """

    def __init__(self, model: Any, rate: float) -> None:
        ids = model["vocab"]
        self.keep = 1 - rate
        self.ids = {piece: [ids[piece]] for piece in ids if len(piece) == 1}
        self.ranks = {(ids[left], ids[right]): rank for rank, (left, right) in enumerate(model["merges"])}
        self.merged = [ids[left + right] for left, right in model["merges"]]
        self.never = len(self.merged)  # the rank of a pair that is not merged

    def draw(self, word: str, times: int, random: np.random.Generator) -> list[list[int]]:
        """Draws segmentations of a word."""
        symbols = _spell(word, self.ids)
        if len(symbols) == 1:
            return [symbols] * times
        ranks = [self.ranks.get(pair, self.never) for pair in pairwise(symbols)]
        usual = self._merge(symbols, ranks, [0] * len(ranks))
        steps = len(symbols) - len(usual)
        skips = random.geometric(self.keep, (times, len(ranks))) - 1
        return [self._merge(symbols, ranks, skip) if any(skip[:steps]) else usual for skip in skips.tolist()]

    def _merge(self, symbols: list[int], ranks: list[int], skips: list[int]) -> list[int]:
        """Merges symbols, where each step skips the given number of possible merges."""
        symbols, ranks = symbols.copy(), ranks.copy()
        rank_of, never = self.ranks.get, self.never
        for skip in skips:
            if skip:
                possible = sorted([(rank, place) for place, rank in enumerate(ranks) if rank != never])
                if skip >= len(possible):
                    break
                rank, place = possible[skip]
            else:
                rank = min(ranks)
                if rank == never:
                    break
                place = ranks.index(rank)
            new = symbols[place] = self.merged[rank]
            del symbols[place + 1], ranks[place]
            if place:
                ranks[place - 1] = rank_of((symbols[place - 1], new), never)
            if place < len(ranks):
                ranks[place] = rank_of((new, symbols[place + 1]), never)
        return symbols


class _Lattice:
    """All segmentations of a word, of which one is drawn from the end to the start."""

    def __init__(self, model: Any, rate: float) -> None:
        self.alpha = 0.2 * math.sqrt(0.1 / rate) if rate else math.inf
        learnt = list(enumerate(model["vocab"]))[len(RESERVED) :]
        self.pieces = {piece: ([token], score) for token, (piece, score) in learnt}
        self.ids = {piece: ids for piece, (ids, _) in self.pieces.items() if len(piece) == 1}
        self.longest = max(map(len, self.pieces), default=1)
        self.unknown = min(score for _, score in model["vocab"]) - UNKNOWN_PENALTY

    def draw(self, word: str, times: int, random: np.random.Generator) -> list[list[int]]:
        """Draws segmentations of a word."""
        nodes = self._nodes(word)
        return [self._walk(nodes, chances) for chances in random.random((times, len(word))).tolist()]

    def _nodes(self, word: str) -> list[_Node]:
        """Returns for each place in a word the pieces that end there, with their probabilities given what precedes."""
        nodes: list[_Node] = [([], [])]
        before = [0.0]  # log-probability of all segmentations up to each place, raised to alpha, then to 1 / alpha
        for end in range(1, len(word) + 1):
            ways: list[tuple[int, list[int]]] = []
            scores: list[float] = []
            for start in range(max(0, end - self.longest), end):
                if piece := self.pieces.get(word[start:end]):
                    ways.append((start, piece[0]))
                    scores.append(before[start] + piece[1])
                elif start == end - 1:
                    ways.append((start, _spell(word[start], self.ids)))
                    scores.append(before[start] + self.unknown)
            best = max(scores)
            if self.alpha == math.inf:  # among equal scores, tokenizers takes the longest piece
                nodes.append(([ways[scores.index(best)]], [1.0]))
                before.append(best)
                continue
            sums = list(accumulate(math.exp(self.alpha * (score - best)) for score in scores))
            nodes.append((ways, sums))
            before.append(best + math.log(sums[-1]) / self.alpha)
        return nodes

    def _walk(self, nodes: list[_Node], chances: list[float]) -> list[int]:
        """Returns the segmentation that these random numbers between 0 and 1 select."""
        place, pieces = len(nodes) - 1, []
        for chance in chances:
            ways, sums = nodes[place]
            place, ids = ways[bisect(sums, chance * sums[-1], 0, len(sums) - 1)]
            pieces.append(ids)
            if not place:
                break
        return [token for ids in reversed(pieces) for token in ids]


_Node = tuple[list[tuple[int, list[int]]], list[float]]
"""The pieces that end at a place, as their start and ids, and the running sum of their weights."""


def _slot_word(tokenizer: Tokenizer, token: int) -> str:
    """Returns a slot as a word of a table."""
    return str(tokenizer.model.id_to_token(token))


def _spell(word: str, ids: dict[str, list[int]]) -> list[int]:
    """Returns the ids of a word's characters; a character without an id is spelt as bytes."""
    spelt: list[int] = []
    for character in word:
        spelt += ids.get(character) or [len(SPECIALS) + byte for byte in character.encode()]
    return spelt


def _model(tokenizer: Tokenizer) -> Any:
    """Returns the JSON of a BPE or unigram model that Regard has learned; refuses any other."""
    if not isinstance(tokenizer, ImportedTokenizer):
        model = json.loads(tokenizer.to_json())["model"]
        reserved = tuple(tokenizer.model.id_to_token(token) for token in range(len(RESERVED)))
        if model["type"] in ("BPE", "Unigram") and reserved == RESERVED:
            return model
    raise SettingsError("subword sampling needs a BPE or unigram vocabulary that Regard learnt, and this is not one")
