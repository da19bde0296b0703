"""Random pieces: the text stays the same, the chances are those of the papers, and a seed gives the same again."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
import tokenizers
from hypothesis import given, strategies as st
from tokenizers import models, pre_tokenizers

from regard.errors import InputError, SettingsError
from regard.settings import TokenizerSettings
from regard.tokens import subword_sampling as sampling
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.subword_sampling import Sampler, WordTable
from regard.tokens.tokenizer import Specials, Tokenizer
from tests.examples import examples
from tests.tokens.test_tokenizer import NASTY, TOKENIZERS, Kind, anything, both, sentences

Cutting = tuple[int, ...]
Chances = dict[Cutting, float]


def generator(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def rows(cut: tuple[Any, Any]) -> list[list[int]]:
    """The ids of each text of an epoch."""
    tokens, starts = cut
    assert starts[0] == 0
    assert starts[-1] == len(tokens)
    return [row.tolist() for row in np.split(tokens, starts[1:-1])][: len(starts) - 1]


# What the tokenizer itself does


@both
@examples(300)
@given(texts=st.lists(anything, max_size=4))
def test_a_rate_of_zero_is_the_tokenizer(kind: Kind, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    table = WordTable.build(texts, tokenizer)
    assert rows(Sampler(tokenizer, 0).epoch(table, generator())) == tokenizer.encode_batch(texts)


@both
def test_a_rate_of_zero_is_the_tokenizer_on_text_that_it_learnt_from_and_on_nasty_text(kind: Kind) -> None:
    texts = [*sentences(), *NASTY, "今天天气很好我们今天去公园" * 9, "surprisesremembersGüntherteaches"]
    for tokenizer in (TOKENIZERS[kind], tagged(kind), Tokenizer.train(["aaabaaaab"], TokenizerSettings(kind=kind))):
        table = WordTable.build(texts, tokenizer)
        assert rows(Sampler(tokenizer, 0).epoch(table, generator())) == tokenizer.encode_batch(texts)


def tagged(kind: Kind) -> Tokenizer:
    return Tokenizer.train(sentences(), TokenizerSettings(kind=kind, vocabulary=400, tags=("de", "made")))


@both
@pytest.mark.parametrize("rate", [1e-300, 1e-6])
def test_a_tiny_rate_is_nearly_the_tokenizer(kind: Kind, rate: float) -> None:
    texts = sentences()
    table = WordTable.build(texts, TOKENIZERS[kind])
    assert rows(Sampler(TOKENIZERS[kind], rate).epoch(table, generator())) == TOKENIZERS[kind].encode_batch(texts)


# What stays the same


@both
@examples(200)
@given(texts=st.lists(anything, max_size=4), rate=st.floats(0, 1, exclude_max=True), seed=st.integers(0, 2**32))
def test_any_sample_is_still_the_text(kind: Kind, texts: list[str], rate: float, seed: int) -> None:
    tokenizer = TOKENIZERS[kind]
    table = WordTable.build(texts, tokenizer)
    tokens, starts = Sampler(tokenizer, rate).epoch(table, generator(seed), variants=3)
    assert tokens.dtype == np.int32
    assert starts.dtype == np.int64
    assert list(map(tokenizer.decode, rows((tokens, starts)))) == texts
    assert not set(tokens.tolist()) & set(tokenizer.specials.never_generated)


@both
def test_no_texts_give_no_tokens(kind: Kind) -> None:
    table = WordTable.build([], TOKENIZERS[kind])
    tokens, starts = Sampler(TOKENIZERS[kind], 0.5).epoch(table, generator())
    assert (len(table), len(tokens), starts.tolist()) == (0, 0, [0])


@both
def test_the_seed_decides(kind: Kind) -> None:
    table = WordTable.build(sentences(), TOKENIZERS[kind])
    sampler = Sampler(TOKENIZERS[kind], 0.3)
    one, same, other = (sampler.epoch(table, generator(seed)) for seed in (1, 1, 2))
    assert rows(one) == rows(same)
    assert rows(one) != rows(other)
    first = generator(1)
    assert rows(sampler.epoch(table, first)) == rows(one)
    assert rows(sampler.epoch(table, first)) != rows(one)  # the next epoch


@both
def test_texts_are_the_same_in_blocks(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "BLOCK", 7)
    texts = [*sentences(), *NASTY]
    table = WordTable.build(texts, TOKENIZERS[kind])
    assert list(map(TOKENIZERS[kind].decode, rows(Sampler(TOKENIZERS[kind], 0.3).epoch(table, generator())))) == texts


# What chance does


def small(kind: Kind) -> Tokenizer:
    """Few and short pieces, which overlap: words of them can be cut in many ways."""
    parts = ["na", "an", "ana", "nan", "ba", "nab", "ban", "b", "a", "n", "nana"]
    texts = ["banana bandana nab", " ".join(parts), *(f"1{part}" for part in parts)]  # with a space before, and without
    return Tokenizer.train(texts * 3, TokenizerSettings(kind=kind, vocabulary=300))


def dropout_chances(tokenizer: Tokenizer, word: str, rate: float) -> Chances:
    """Algorithm 1 of Provilkov et al.: each possible merge is removed with probability p, the best of the rest done."""
    model = sampling._model(tokenizer)
    priority = {tuple(merge): -rank for rank, merge in enumerate(model["merges"])}

    @cache
    def follow(split: tuple[str, ...]) -> dict[tuple[str, ...], float]:
        places = [place for place in range(len(split) - 1) if split[place : place + 2] in priority]
        result: dict[tuple[str, ...], float] = defaultdict(float)
        for kept in product([True, False], repeat=len(places)):
            chance = math.prod(1 - rate if keep else rate for keep in kept)
            merges = [place for place, keep in zip(places, kept, strict=True) if keep]
            if not merges:
                result[split] += chance
                continue
            best = max(merges, key=lambda place: (priority[split[place], split[place + 1]], -place))
            merged = (*split[:best], split[best] + split[best + 1], *split[best + 2 :])
            for end, later in follow(merged).items():
                result[end] += chance * later
        return dict(result)

    return {tuple(model["vocab"][piece] for piece in split): p for split, p in follow(tuple(word)).items()}


def unigram_chances(tokenizer: Tokenizer, word: str, rate: float) -> Chances:
    """Each cutting of the word with the power of its probability, all of them listed."""
    pieces = {piece: (token, score) for token, (piece, score) in enumerate(sampling._model(tokenizer)["vocab"])}
    alpha = 0.2 * math.sqrt(0.1 / rate)
    weights = {}
    for cuts in product([True, False], repeat=len(word) - 1):
        ends = [place for place, cut in enumerate(cuts, 1) if cut]
        parts = [word[start:end] for start, end in zip([0, *ends], [*ends, len(word)], strict=True)]
        if all(part in pieces for part in parts):
            weights[tuple(pieces[part][0] for part in parts)] = math.prod(
                math.exp(pieces[part][1]) ** alpha for part in parts
            )
    return {cutting: weight / sum(weights.values()) for cutting, weight in weights.items()}


REFERENCE: dict[str, Callable[[Tokenizer, str, float], Chances]] = {"bpe": dropout_chances, "unigram": unigram_chances}


def surprise(seen: Counter[Cutting], chances: Chances) -> float:
    """How far the counts are from the chances: chi-square, in standard deviations from what it is on average."""
    assert set(seen) <= set(chances)
    total = seen.total()
    likely = [cutting for cutting in chances if total * chances[cutting] >= 5]
    cells = [(seen[cutting], total * chances[cutting]) for cutting in likely]
    rest = total - sum(expected for _, expected in cells)
    if rest >= 5:
        cells.append((total - sum(found for found, _ in cells), rest))
    statistic = sum((found - expected) ** 2 / expected for found, expected in cells)
    freedom = len(cells) - 1
    assert freedom >= 1
    return float((statistic - freedom) / math.sqrt(2 * freedom))


@both
@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("word", [" banana", "nanaban", " nab"])
def test_cuttings_come_as_often_as_in_the_paper(kind: Kind, rate: float, word: str) -> None:
    tokenizer, random = small(kind), generator(5)
    sampler = Sampler(tokenizer, rate)
    chances = REFERENCE[kind](tokenizer, word, rate)
    assert math.isclose(sum(chances.values()), 1)
    assert len(chances) > 3
    seen = Counter(tuple(sampler._cutter.draw(word, 1, random)[0]) for _ in range(8000))
    assert surprise(seen, chances) < 4
    assert surprise(seen, REFERENCE[kind](tokenizer, word, rate * 1.8)) > 8  # a wrong rate would be noticed


@both
def test_many_cuttings_at_once_come_as_often_as_one_by_one(kind: Kind) -> None:
    tokenizer, word = small(kind), " bandana"
    drawn = Sampler(tokenizer, 0.3)._cutter.draw(word, 8000, generator(6))
    assert surprise(Counter(map(tuple, drawn)), REFERENCE[kind](tokenizer, word, 0.3)) < 4


@both
def test_occurrences_share_at_most_the_variants_and_use_them_evenly(kind: Kind) -> None:
    tokenizer = small(kind)
    sampler = Sampler(tokenizer, 0.5)
    table = WordTable.build(["banana"] * 4000, tokenizer)
    kinds = []
    for seed in range(5):
        seen = Counter(map(tuple, rows(sampler.epoch(table, generator(seed), variants=3))))
        thirds = [3 * count / 4000 for count in seen.values()]  # more than one where two cuttings are alike
        assert all(abs(share - round(share)) < 0.15 for share in thirds)
        kinds.append(len(seen))
    assert max(kinds) == 3
    many = Counter(map(tuple, rows(sampler.epoch(table, generator(3), variants=4000))))
    chances = REFERENCE[kind](tokenizer, " banana", 0.5)
    assert set(many) <= set(chances)
    assert all(abs(many[cutting] / 4000 - chance) < 0.04 for cutting, chance in chances.items())


@both
def test_a_higher_rate_gives_more_tokens(kind: Kind) -> None:
    table = WordTable.build(sentences(), TOKENIZERS[kind])
    lengths = [len(Sampler(TOKENIZERS[kind], r).epoch(table, generator(), 99)[0]) for r in (0, 0.05, 0.1, 0.3, 0.6)]
    assert lengths == sorted(set(lengths))


# The table of words


@both
def test_a_table_holds_each_word_once_and_the_texts_as_their_numbers(kind: Kind) -> None:
    table = WordTable.build(["the river, the river", "", "see 12 今天天气"], TOKENIZERS[kind])
    assert len(table) == 3
    assert table.words == [" the", " river", ",", " see", " 1", "2", " ", "今天天气"]
    assert table.counts.tolist() == [2, 2, 1, 1, 1, 1, 1, 1]
    assert table.rows.tolist() == [0, 1, 2, 0, 1, 3, 4, 5, 6, 7]
    assert table.starts.tolist() == [0, 5, 5, 10]


# What is refused


@pytest.mark.parametrize("rate", [-0.1, 1, 1.5, math.nan, math.inf])
def test_an_impossible_rate_is_refused(rate: float) -> None:
    with pytest.raises(SettingsError, match="at least 0 and below 1, not"):
        Sampler(TOKENIZERS["bpe"], rate)


def test_a_vocabulary_from_elsewhere_is_refused() -> None:
    foreign = tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]"))  # noqa: S106
    foreign.pre_tokenizer = pre_tokenizers.Whitespace()
    bytelevel = tokenizers.Tokenizer(models.BPE({"a": 0, "b": 1, "ab": 2}, [("a", "b")]))
    own = TOKENIZERS["bpe"]
    imported = [ImportedTokenizer(model, Specials(), 3) for model in (foreign, bytelevel, own.model)]
    for tokenizer in (*imported, Tokenizer(bytelevel)):
        with pytest.raises(SettingsError, match="needs a BPE or unigram vocabulary learned by Regard"):
            Sampler(tokenizer, 0.1)
        with pytest.raises(SettingsError, match="needs a BPE or unigram vocabulary learned by Regard"):
            WordTable.build(["a"], tokenizer)


@both
def test_a_lone_surrogate_is_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match=r"character 2 is a lone surrogate \(U\+D800\)"):
        WordTable.build(["fine", "a\ud800"], TOKENIZERS[kind])
