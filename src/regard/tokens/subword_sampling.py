"""Subword regularization: segments the same text differently in each epoch, which teaches a model the parts of words.

Pieces never cross word boundaries, and a corpus has few different words. `WordTable` stores a corpus as word numbers,
and `Sampler` segments each word at random a few times per epoch. The same seed produces the same tokens.
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
from regard.tokens.tokenizer import Tokenizer, reject_surrogates
from regard.tokens.vocabulary_learning import RESERVED, SPECIALS

BLOCK = 10_000  # number of texts to assemble at a time, which limits memory
UNKNOWN_PENALTY = 10.0  # in tokenizers, an unknown character scores this much less than the rarest piece


class Sampler:
    """Segments words at random; with rate 0, like the tokenizer.

    BPE uses BPE-dropout (Provilkov et al., 2020): each possible merge is skipped with probability `rate`. Unigram
    vocabularies sample segmentations (Kudo, 2018) with a probability proportional to P(segmentation)^alpha, where
    alpha = 0.2 * sqrt(0.1 / rate). With this alpha, a rate lengthens texts by about the same factor for both kinds:
    1.1 to 1.2 at 0.05, 1.3 to 1.4 at 0.1, 1.6 to 1.8 at 0.2 (Multi30k, vocabulary of 6,000 pieces).
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
        """Segments all texts; returns their concatenated tokens, and the start of each text and the end of the last.

        Each word is segmented at most `variants` times, and each of its occurrences uses one of these segmentations
        at random. The cost therefore grows with the number of different words, not with the corpus.
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
        first = np.cumsum(times) - times  # index of the first segmentation of each word
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
    """Texts as sequences of word numbers; a word includes the space before it."""

    words: list[str]
    counts: NDArray[np.int64]  # number of occurrences of each word
    rows: NDArray[np.int32]  # concatenated word numbers of all texts
    starts: NDArray[np.int64]  # start of each text in `rows`, and end of the last one

    def __len__(self) -> int:
        return len(self.starts) - 1

    @classmethod
    def build(cls, texts: Iterable[str | Slotted], tokenizer: Tokenizer) -> WordTable:
        """Splits texts into words as the tokenizer does; a slot becomes a word that no text can contain."""
        _model(tokenizer)
        normalize = tokenizer.model.normalizer.normalize_str
        cut = tokenizer.model.pre_tokenizer.pre_tokenize_str
        numbers: dict[str, int] = {}
        rows, starts = array("i"), array("q", [0])
        slots = {number: _slot_word(tokenizer, token) for token, number in tokenizer.slots.items()}
        for text in texts:
            whole = Slotted((text,), ()) if isinstance(text, str) else text
            reject_surrogates(whole.texts)
            words = [word for word, _ in cut(normalize(whole.texts[0]))]
            for slot, rest in zip(whole.numbers, whole.texts[1:], strict=True):
                words += [slots[slot], *(word for word, _ in cut(rest))]
            rows.extend([numbers.setdefault(word, len(numbers)) for word in words])
            starts.append(len(rows))
        flat = np.array(rows, np.int32)
        counts = np.bincount(flat, minlength=len(numbers)).astype(np.int64)
        return cls(list(numbers), counts, flat, np.array(starts, np.int64))


class _Merges:
    """Applies byte-pair merges, some of which are skipped at random.

    In the paper, each step skips each possible merge with probability p and applies the first of the others, until all
    merges are skipped. The number of skipped merges has a geometric distribution, so one random number per step is
    enough.
    """

    def __init__(self, model: Any, rate: float) -> None:
        ids = model["vocab"]
        self.keep = 1 - rate
        self.ids = {piece: [ids[piece]] for piece in ids if len(piece) == 1}
        self.ranks = {(ids[left], ids[right]): rank for rank, (left, right) in enumerate(model["merges"])}
        self.merged = [ids[left + right] for left, right in model["merges"]]
        self.never = len(self.merged)  # rank of pairs that are never merged

    def draw(self, word: str, times: int, random: np.random.Generator) -> list[list[int]]:
        symbols = _spell(word, self.ids)
        if len(symbols) == 1:
            return [symbols] * times
        ranks = [self.ranks.get(pair, self.never) for pair in pairwise(symbols)]
        usual = self._merge(symbols, ranks, [0] * len(ranks))
        steps = len(symbols) - len(usual)
        skips = random.geometric(self.keep, (times, len(ranks))) - 1
        return [self._merge(symbols, ranks, skip) if any(skip[:steps]) else usual for skip in skips.tolist()]

    def _merge(self, symbols: list[int], ranks: list[int], skips: list[int]) -> list[int]:
        """Merges symbols; step i skips the first `skips[i]` possible merges."""
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
    """Samples from all segmentations of a word, from the end of the word to its start."""

    def __init__(self, model: Any, rate: float) -> None:
        self.alpha = 0.2 * math.sqrt(0.1 / rate) if rate else math.inf
        learnt = list(enumerate(model["vocab"]))[len(RESERVED) :]
        self.pieces = {piece: ([token], score) for token, (piece, score) in learnt}
        self.ids = {piece: ids for piece, (ids, _) in self.pieces.items() if len(piece) == 1}
        self.longest = max(map(len, self.pieces), default=1)
        self.unknown = min(score for _, score in model["vocab"]) - UNKNOWN_PENALTY

    def draw(self, word: str, times: int, random: np.random.Generator) -> list[list[int]]:
        nodes = self._nodes(word)
        return [self._walk(nodes, chances) for chances in random.random((times, len(word))).tolist()]

    def _nodes(self, word: str) -> list[_Node]:
        """Returns the pieces that end at each position of a word, with their conditional probabilities."""
        nodes: list[_Node] = [([], [])]
        before = [0.0]  # log of (sum of P(segmentation)^alpha)^(1 / alpha) over the segmentations up to each position
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
            if self.alpha == math.inf:  # if scores are equal, tokenizers chooses the longest piece
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
"""The start and ids of each piece that ends at a position, and the cumulative sums of their weights."""


def _slot_word(tokenizer: Tokenizer, token: int) -> str:
    return str(tokenizer.model.id_to_token(token))


def _spell(word: str, ids: dict[str, list[int]]) -> list[int]:
    """Returns the ids of a word's characters, or of their bytes for characters without an id."""
    spelt: list[int] = []
    for character in word:
        spelt += ids.get(character) or [len(SPECIALS) + byte for byte in character.encode()]
    return spelt


def _model(tokenizer: Tokenizer) -> Any:
    """Returns the JSON of a BPE or unigram model learned by Regard; raises SettingsError for any other tokenizer."""
    if not isinstance(tokenizer, ImportedTokenizer):
        model = json.loads(tokenizer.to_json())["model"]
        reserved = tuple(tokenizer.model.id_to_token(token) for token in range(len(RESERVED)))
        if model["type"] in ("BPE", "Unigram") and reserved == RESERVED:
            return model
    raise SettingsError(
        "training.subword_sampling needs a BPE or unigram vocabulary learned by Regard: set it to 0 for this model"
    )
