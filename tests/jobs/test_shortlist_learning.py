"""Lexical probabilities: those of model 1 as it is written down, in bounded memory, from a folder or from files."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.jobs import shortlist_learning as module
from regard.jobs.shortlist_learning import _gather, learn_lexicon
from tests.examples import examples

Text = list[int]
texts = st.lists(st.integers(0, 6), max_size=5)
corpora = st.lists(st.tuples(texts, texts), min_size=1, max_size=12).filter(lambda c: any(t for _, t in c))


def model_1(corpus: list[tuple[Text, Text]], rounds: int) -> dict[tuple[int, int], float]:
    """Word by word, as Brown et al. have it; 7 is no token at all, from which anything may come."""
    table: dict[tuple[int, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        counts: dict[tuple[int, int], float] = defaultdict(float)
        totals: dict[int, float] = defaultdict(float)
        for source, target in corpus:
            for word in target:
                total = sum(table[other, word] for other in [*source, 7])
                for other in [*source, 7]:
                    counts[other, word] += table[other, word] / total
                    totals[other] += table[other, word] / total
        table = defaultdict(float, {key: count / totals[key[0]] for key, count in counts.items()})
    return table


@given(corpus=corpora, block=st.integers(1, 5))
@examples(50)
def test_the_probabilities_are_those_of_model_1(corpus: list[tuple[Text, Text]], block: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK", block)
        keys, found = learn_lexicon(_gather(corpus), 7, 7, lambda _done, _all: None)
    expected = {key: p for key, p in model_1(corpus, module.ROUNDS).items() if key[0] != 7}
    assert sorted(expected) == [(key // 7, key % 7) for key in keys.tolist()]
    assert found.tolist() == pytest.approx([expected[key] for key in sorted(expected)], abs=1e-9)


def test_what_is_translated_by_one_word_is_found() -> None:
    """Though every sentence has several, and one word is in all of them."""
    dice = np.random.default_rng(0)
    sources = [dice.choice(20, 5, replace=False).tolist() for _ in range(300)]
    keys, found = learn_lexicon(
        _gather((source, [i + 20 for i in source] + [40]) for source in sources), 20, 41, print_nothing
    )
    for word in range(20):
        mine = keys // 41 == word
        assert keys[mine][found[mine].argmax()] % 41 == word + 20


def test_the_rarest_are_forgotten_where_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_ENTRIES", 8)
    monkeypatch.setattr(module, "BLOCK", 3)
    often, rare = [([1, 2], [3, 4])] * 9, [([i], [i]) for i in range(20, 32)]
    reports: list[tuple[int, int]] = []
    keys, found = learn_lexicon(_gather([*often, *rare]), 32, 32, lambda done, total: reports.append((done, total)))
    assert len(keys) <= 8
    assert {1 * 32 + 3, 1 * 32 + 4, 2 * 32 + 3, 2 * 32 + 4} <= set(keys.tolist())
    assert np.isfinite(found).all()
    assert reports[-1][0] == reports[-1][1] == 7 * (module.ROUNDS + 1)


def print_nothing(_done: int, _all: int) -> None:
    pass
