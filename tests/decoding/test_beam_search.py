"""Search against enumeration, and drawing against arithmetic; no model takes part."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

import pytest
import torch
from hypothesis import assume, given, strategies as st
from torch import Tensor

from regard.decoding.beam_search import beam_search, follow, generate, most_probable, sample_tokens
from regard.decoding.search_interface import Hypothesis, Penalty, length_penalty
from tests.decoding.tables import END, Table, every_output, patient_beam
from tests.examples import examples

NONE = length_penalty("google", 0.0)
penalties = st.builds(
    length_penalty,
    st.sampled_from(["google", "power"]),
    st.sampled_from([0.0, 0.6, 1.0, 2.0]),
)
names = st.integers(0, 1000)  # of sentences: each has its own table
batches = st.lists(st.tuples(names, st.integers(1, 6)), min_size=1, max_size=4, unique_by=lambda pair: pair[0])


def search(batch: list[tuple[int, int]], vocabulary: int, **options: Any) -> list[list[Hypothesis]]:
    table = Table([sentence for sentence, _ in batch], vocabulary)
    return beam_search(table, [limit for _, limit in batch], end=END, **options)


def assert_alike(found: list[Hypothesis], expected: list[tuple[tuple[int, ...], float, bool]]) -> None:
    assert [(h.tokens, h.finished) for h in found] == [(tokens, finished) for tokens, _, finished in expected]
    assert [h.score for h in found] == pytest.approx([score for _, score, _ in expected], abs=1e-5)


# Beam search


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
@pytest.mark.parametrize("form", ["google", "power"])
def test_the_widest_beam_is_an_enumeration(form: str, alpha: float) -> None:
    batch, vocabulary = [(1, 4), (2, 1), (3, 3), (4, 2)], 4
    width = vocabulary**4
    found = search(batch, vocabulary, width=width, penalty=length_penalty(form, alpha), best=width)
    for (sentence, limit), hypotheses in zip(batch, found, strict=True):
        assert_alike(hypotheses, every_output(Table([], vocabulary), sentence, limit, length_penalty(form, alpha)))


def test_the_widest_beam_never_takes_what_is_banned() -> None:
    table = Table([5, 6], 5, banned=[1, 3])
    found = beam_search(table, [3, 2], end=END, width=200, penalty=NONE, best=200)
    for sentence, limit, hypotheses in zip((5, 6), (3, 2), found, strict=True):
        assert_alike(hypotheses, every_output(Table([], 5, banned=[1, 3]), sentence, limit, NONE))


@given(batches, st.integers(1, 6), penalties)
def test_no_beam_scores_higher_than_the_best_output(batch: list[tuple[int, int]], width: int, penalty: Penalty) -> None:
    batch = [(sentence, min(limit, 4)) for sentence, limit in batch]
    for (sentence, limit), (best, *_) in zip(batch, search(batch, 3, width=width, penalty=penalty), strict=True):
        optimum = every_output(Table([], 3), sentence, limit, penalty)[0]
        assert best.score <= optimum[1] + 1e-5
        if width >= 3**limit:
            assert best.tokens == optimum[0]


@given(batches, st.integers(1, 5), penalties, st.sampled_from([-2.0, 0.0, 4.0]))
def test_stopping_early_loses_nothing(batch: list[tuple[int, int]], width: int, penalty: Penalty, end: float) -> None:
    batch = [(sentence, 2 * limit) for sentence, limit in batch]
    table = Table([sentence for sentence, _ in batch], 7, end=end)
    found = beam_search(table, [limit for _, limit in batch], end=END, width=width, penalty=penalty, best=width)
    for (sentence, limit), hypotheses in zip(batch, found, strict=True):
        assert_alike(hypotheses, patient_beam(Table([], 7, end=end), sentence, limit, width, penalty)[:width])


@pytest.mark.parametrize(
    ("patience", "best", "enough"), [(0.5, 1, 2), (1.0, 1, 4), (1.5, 1, 6), (0.5, 4, 4), (1.0, 6, 6)]
)
def test_patience_ends_a_search_when_enough_is_found(patience: float, best: int, enough: int) -> None:
    """Several can be found in the last step, but not so many in those before it."""
    for sentence in range(20):
        counts: list[int] = []

        def watch(_: int, candidates: object, fates: Sequence[str], counts: list[int] = counts) -> None:
            counts.append(fates.count("found"))

        table = Table([sentence], 6, end=1.0)
        (found,) = beam_search(
            table,
            [50],
            end=END,
            width=4,
            penalty=length_penalty("power", 3.0),
            patience=patience,
            best=best,
            watch=watch,
        )
        assert sum(counts[:-1]) < enough <= sum(counts)
        assert len(found) == best


def test_search_stops_when_nothing_can_get_better() -> None:
    table = Table([1, 2], 6, end=8.0)
    beam_search(table, [100, 100], end=END, width=2, penalty=length_penalty("google", 0.6))
    assert len(table.history) < 10


@given(batches, st.integers(1, 5), penalties)
def test_a_score_is_what_the_tokens_give(batch: list[tuple[int, int]], width: int, penalty: Penalty) -> None:
    found = search(batch, 6, width=width, penalty=penalty, best=3 * width)
    for (sentence, limit), hypotheses in zip(batch, found, strict=True):
        for h in hypotheses:
            gains = Table([], 6).gains(sentence, [*h.tokens, END] if h.finished else h.tokens)
            assert h.log_probabilities == pytest.approx(gains)
            assert h.log_probability == pytest.approx(sum(gains))
            assert h.score == pytest.approx(sum(gains) / penalty(len(gains)))
            assert len(gains) <= limit
            assert h.finished or len(h.tokens) == limit
            assert END not in h.tokens


@given(batches, st.integers(1, 5), penalties)
def test_the_best_are_different_and_in_order(batch: list[tuple[int, int]], width: int, penalty: Penalty) -> None:
    for hypotheses in search(batch, 6, width=width, penalty=penalty, best=3):
        outputs = [(h.tokens, h.finished) for h in hypotheses]
        assert len(set(outputs)) == len(outputs) <= 3
        assert len(hypotheses) >= min(3, width)  # six tokens leave enough to choose from
        scores = [h.score for h in hypotheses]
        assert scores == sorted(scores, reverse=True)


@given(batches, st.integers(1, 5), penalties)
def test_a_batch_finds_what_each_sentence_finds_alone(
    batch: list[tuple[int, int]], width: int, penalty: Penalty
) -> None:
    together = search(batch, 6, width=width, penalty=penalty, best=2)
    alone = [search([one], 6, width=width, penalty=penalty, best=2)[0] for one in batch]
    for ours, theirs in zip(together, alone, strict=True):
        assert_alike(ours, [(h.tokens, h.score, h.finished) for h in theirs])


def test_finished_sentences_leave_the_batch() -> None:
    table = Table([7, 8, 9], 5, end=-9.0)  # nothing ends by itself
    beam_search(table, [1, 4, 2], end=END, width=3, penalty=NONE)
    assert table.history == [[7, 8, 9], [8, 9], [8], [8]]


def test_hypotheses_follow_their_parents() -> None:
    """The rows that a step is asked for are those whose tokens the results show, in any number of steps."""
    table = Table([1, 2], 5, end=-9.0)
    found = beam_search(table, [6, 6], end=END, width=4, penalty=NONE, best=4)
    last = {(sentence, prefix) for sentence, prefix in table.rows}
    ends = {(sentence, h.tokens[:-1]) for sentence, best in zip((1, 2), found, strict=True) for h in best}
    assert ends <= last
    assert len(table.rows) == 8


@pytest.mark.parametrize(("form", "expected"), [("google", 15 / 6), ("power", 10)])
def test_penalties(form: str, expected: float) -> None:
    assert length_penalty(form, 0.0)(10) == 1
    assert length_penalty(form, 1.0)(10) == pytest.approx(expected)
    assert length_penalty(form, 0.6)(10) == pytest.approx(expected**0.6)
    assert length_penalty(form, 0.6)(1) == 1


# Greedy


@given(batches)
def test_greedy_takes_the_most_probable_until_the_end(batch: list[tuple[int, int]]) -> None:
    table = Table([sentence for sentence, _ in batch], 6)
    penalty = length_penalty("power", 0.6)
    found = follow(table, [limit for _, limit in batch], end=END, penalty=penalty, choose=most_probable)
    for (sentence, limit), [h] in zip(batch, found, strict=True):
        tokens: list[int] = []
        while len(tokens) < limit and END not in tokens:
            tokens.append(int(table.scores(sentence, tuple(tokens)).argmax()))
        gains = table.gains(sentence, tokens)
        assert [*h.tokens, *[END] * h.finished] == tokens
        assert h.log_probabilities == pytest.approx(gains)
        assert h.score == pytest.approx(sum(gains) / penalty(len(gains)))


@given(batches)
def test_a_beam_of_one_is_greedy_until_the_first_end(batch: list[tuple[int, int]]) -> None:
    """It may go on behind an end, but what it finds first is what greedy finds."""
    beam = search(batch, 6, width=1, penalty=NONE)
    table = Table([sentence for sentence, _ in batch], 6)
    greedy = follow(table, [limit for _, limit in batch], end=END, penalty=NONE, choose=most_probable)
    for [ours], [theirs] in zip(beam, greedy, strict=True):
        assert ours.score >= theirs.score - 1e-5
        if theirs.finished:  # what lives on has lost to the end, and without a penalty only loses more
            assert ours.tokens == theirs.tokens


def test_generation_goes_on_as_long_as_it_is_asked() -> None:
    table = Table([1, 2], 5, end=9.0)
    steps = generate(table, 3, most_probable)
    tokens, gains = next(steps)
    assert tokens == [END] * 6
    assert gains == pytest.approx([value for s in (1, 2) for value in [float(table.scores(s, ())[END])] * 3])
    for length in range(1, 5):
        next(steps)
        assert [len(prefix) for _, prefix in table.rows] == [length] * 6


def test_several_rows_of_a_sentence_are_sorted_and_stay_with_it() -> None:
    table = Table([3, 4], 6)
    dice = random.Random(0)

    def choose(scores: Tensor) -> Tensor:
        return sample_tokens(scores, torch.tensor([dice.random() for _ in scores]), temperature=1.5)

    found = follow(table, [5, 3], end=END, penalty=NONE, choose=choose, rows=4)
    assert [len(hypotheses) for hypotheses in found] == [4, 4]
    for sentence, limit, hypotheses in zip((3, 4), (5, 3), found, strict=True):
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)
        for h in hypotheses:
            gains = table.gains(sentence, [*h.tokens, END] if h.finished else h.tokens)
            assert h.log_probabilities == pytest.approx(gains)
            assert len(gains) <= limit
    assert len({h.tokens for hypotheses in found for h in hypotheses}) > 2


# Drawing

weights = st.lists(st.integers(1, 30), min_size=2, max_size=7, unique=True)  # probabilities, but for their sum
lucks = st.floats(0, 1, exclude_max=True)


def logs(given_weights: list[int]) -> Tensor:
    """[1, V] log-probabilities in proportion to the weights."""
    return (torch.tensor([given_weights], dtype=torch.float64) / sum(given_weights)).log()


def drawn(scores: Tensor, luck: list[float], **options: Any) -> list[int]:
    """The token of each luck."""
    tokens: list[int] = sample_tokens(
        scores.expand(len(luck), -1), torch.tensor(luck, dtype=torch.float64), **{"temperature": 1.0, **options}
    ).tolist()
    return tokens


def even(count: int) -> list[float]:
    """The middles of so many equal parts of [0, 1)."""
    return [(i + 0.5) / count for i in range(count)]


@given(weights, lucks, st.sampled_from([{"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}, {"temperature": 1e-40}]))
def test_drawing_from_one_token_is_taking_the_most_probable(
    values: list[int], luck: float, options: dict[str, float]
) -> None:
    assert drawn(logs(values).float(), [luck], **options) == [values.index(max(values))]


@given(weights, st.sampled_from([0.3, 1.0, 2.5]))
def test_even_luck_gives_each_token_its_probability(values: list[int], temperature: float) -> None:
    count = 2000
    probabilities = (logs(values)[0] / temperature).softmax(-1).tolist()
    found = Counter(drawn(logs(values), even(count), temperature=temperature))
    for token, probability in enumerate(probabilities):
        assert found[token] / count == pytest.approx(probability, abs=1.5 / count)


def test_random_luck_gives_each_token_its_probability() -> None:
    """Pearson's statistic of 20,000 draws stays below its 99.9 % quantile for 5 degrees of freedom."""
    scores = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0, -2.0]]).log_softmax(-1)
    dice, count, temperature = random.Random(1), 20_000, 1.3
    found = Counter(drawn(scores, [dice.random() for _ in range(count)], temperature=temperature))
    expected = [count * p for p in (scores[0] / temperature).softmax(-1).tolist()]
    assert sum((found[token] - e) ** 2 / e for token, e in enumerate(expected)) < 20.5


@examples(100)
@given(weights, st.integers(0, 7), st.floats(0, 1), st.floats(0, 1))
def test_exactly_the_tokens_that_are_allowed_are_drawn(
    values: list[int], top_k: int, top_p: float, min_p: float
) -> None:
    allowed, start = set(), Fraction(0)
    ranked = sorted(values, reverse=True)
    for rank, value in enumerate(ranked):
        assume(abs(float(start) - top_p) > 1e-6)
        assume(abs(value - min_p * ranked[0]) > 1e-6)
        inside = float(start) < top_p and value >= min_p * ranked[0] and (rank < top_k or not top_k)
        if inside or rank == 0:
            allowed.add(values.index(value))
        start += Fraction(value, sum(values))
    found = drawn(logs(values), even(1000), top_k=top_k, top_p=top_p, min_p=min_p)  # the rarest has 1 / 196
    assert set(found) == allowed
    total = sum(values[token] for token in allowed)
    for token, count in Counter(found).items():
        assert count / 1000 == pytest.approx(values[token] / total, abs=0.002)


def test_a_token_that_begins_where_top_p_ends_is_not_drawn_and_one_as_probable_as_min_p_is() -> None:
    scores = logs([4, 2, 1, 1])  # halves of each other, which arithmetic keeps
    assert set(drawn(scores, even(100), top_p=0.5)) == {0}
    assert set(drawn(scores, even(100), top_p=0.75)) == {0, 1}
    assert set(drawn(scores, even(100), min_p=0.5)) == {0, 1}
    assert set(drawn(scores, even(100), min_p=0.25)) == {0, 1, 2, 3}


@given(weights, st.lists(lucks, min_size=2, max_size=30), st.sampled_from([0.5, 1.0, 2.0]))
def test_luck_is_a_point_on_the_line_of_probabilities(values: list[int], luck: list[float], temperature: float) -> None:
    luck = sorted(luck)
    probabilities = (logs(values)[0] / temperature).softmax(-1).tolist()
    ranked = sorted(range(len(values)), key=lambda token: -probabilities[token])
    ranks = [ranked.index(token) for token in drawn(logs(values), luck, temperature=temperature)]
    assert ranks == sorted(ranks)
    for point, rank in zip(luck, ranks, strict=True):
        before = sum(probabilities[token] for token in ranked[:rank])
        assert before - 1e-9 <= point <= before + probabilities[ranked[rank]] + 1e-9


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.0, 0.5, 1 - 2**-53, 1.0]), st.floats(0.1, 3))
def test_what_is_impossible_is_never_drawn(seed: int, luck: float, temperature: float) -> None:
    """Not even by luck so close to 1 that rounding makes it 1."""
    scores = torch.randn(50, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)
    scores[[0, 1, 3, 49]] = -torch.inf
    (token,) = drawn(scores[None], [luck], temperature=temperature)
    assert scores[token] > -math.inf


def test_each_row_has_its_own_luck_and_its_own_scores() -> None:
    scores = torch.stack([logs([1, 2, 3])[0], logs([3, 2, 1])[0], logs([1, 2, 3])[0]])
    luck = torch.tensor([0.1, 0.1, 0.9])
    assert sample_tokens(scores, luck, temperature=1.0).tolist() == [2, 0, 0]
    assert (
        sample_tokens(scores, luck, temperature=1.0).tolist()
        == sample_tokens(scores, luck.double(), temperature=1.0).tolist()
    )


def test_of_equally_probable_tokens_the_first_comes_first() -> None:
    scores = torch.zeros(1, 4).log_softmax(-1)
    assert drawn(scores, [0.1, 0.3, 0.6, 0.9]) == [0, 1, 2, 3]
    assert drawn(scores, [0.0, 0.25, 0.5, 0.75]) == [0, 1, 2, 3]  # its start belongs to a token, its end does not
    assert drawn(scores, [0.1, 0.3, 0.6, 0.9], top_k=2) == [0, 0, 1, 1]
