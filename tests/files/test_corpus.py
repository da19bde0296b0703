"""Splitting: the same pairs give the same dev set, and no source stands on both sides."""

from __future__ import annotations

import random
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus import DevSplit, read_pairs, split
from regard.files.corpus_report import Report
from regard.settings import DataSettings


def corpus(*sources: str) -> list[str]:
    return list(sources)


def numbered(total: int) -> list[str]:
    return corpus(*map(str, range(total)))


def halves(sources: list[str], dev_pairs: int | None = None) -> tuple[DevSplit, list[str], list[str]]:
    chosen = split(sources, dev_pairs, len(sources))
    train = [source for source in sources if not chosen.holds(source)]
    dev = [source for source in sources if chosen.holds(source)]
    assert chosen.pairs == len(dev)
    return chosen, train, dev


@pytest.mark.parametrize(
    ("total", "held"),
    [(2, 1), (3, 1), (10, 1), (19, 1), (100, 10), (499, 49), (500, 50), (2500, 50), (5000, 100), (60_000, 1000)],
)
def test_the_dev_set_suits_the_corpus(total: int, held: int) -> None:
    _, train, dev = halves(numbered(total))
    assert (len(train), len(dev)) == (total - held, held)


@pytest.mark.parametrize(("asked", "held"), [(1, 1), (7, 7), (99, 99), (100, 99), (5000, 99)])
def test_the_asked_size_is_given_but_train_is_never_empty(asked: int, held: int) -> None:
    _, train, dev = halves(numbered(100), asked)
    assert (len(train), len(dev)) == (100 - held, held)


@given(sources=st.lists(st.sampled_from("abcdefghij"), min_size=2).filter(lambda s: len(set(s)) > 1))
def test_equal_sources_fall_on_one_side_and_neither_is_empty(sources: list[str]) -> None:
    for asked in (None, 1, 3):
        _, train, dev = halves(corpus(*sources), asked)
        assert train
        assert dev
        assert not set(train) & set(dev)


@given(sources=st.lists(st.text(), min_size=2, unique=True), seed=st.integers())
def test_the_order_of_the_corpus_does_not_matter(sources: list[str], seed: int) -> None:
    shuffled = random.Random(seed).sample(sources, len(sources))
    assert halves(corpus(*sources))[0] == halves(corpus(*shuffled))[0]


def test_a_frequent_source_does_not_swell_the_dev_set() -> None:
    for n in range(40):
        _, _, dev = halves(corpus(*[f"often {n}"] * 500, *map(str, range(500))))
        assert len(dev) == 50


def test_where_all_sources_are_frequent_the_rarest_is_held_out() -> None:
    for first, second in ("ab", "ba", "cd", "dc"):
        _, train, dev = halves(corpus(first, first, second, second, second))
        assert (train, dev) == ([second] * 3, [first] * 2)


def test_one_source_cannot_be_split() -> None:
    for pairs in ([], corpus("a"), corpus("a", "a", "a")):
        with pytest.raises(DataError, match="fewer than two different sources"):
            split(pairs, None, len(pairs))


def test_adding_pairs_moves_few_others() -> None:
    _, _, before = halves(numbered(5000))
    _, _, after = halves(numbered(5100))
    assert len(set(before) - set(after)) < 10


def test_another_process_splits_the_same() -> None:
    code = "from test_corpus import halves, numbered; print(sorted(halves(numbered(300))[2]))"
    where = __file__.rpartition("/")[0]
    done = subprocess.run([sys.executable, "-c", code], cwd=where, capture_output=True, text=True)
    assert done.stdout.strip() == str(sorted(halves(numbered(300))[2])), done.stderr


def test_memory_does_not_grow_with_the_corpus() -> None:
    def stream() -> Iterator[str]:
        return (str(n) for n in range(50_000))

    tracemalloc.start()
    assert split(stream(), 100, 50_000).pairs == 100
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000


def test_texts_of_several_lines_give_pairs_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(
        'msgid "One.\\n\\nTwo.\\n"\nmsgstr "Eins.\\nZwei.\\n"\n\n'
        'msgid "Three,\\nfour"\nmsgstr "Drei, vier"\n\n'
        'msgid "%d file"\nmsgid_plural "%d files"\nmsgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n'
    )
    data, report = DataSettings(source="en", target="de"), Report()
    pairs = [(pair.source, pair.target, pair.where.line) for pair in read_pairs([path], data, report)]
    assert pairs == [
        ("One.", "Eins.", 1),
        ("Two.", "Zwei.", 1),
        ("Three, four", "Drei, vier", 4),
        ("%d file", "%d Datei", 7),
        ("%d files", "%d Dateien", 7),
    ]
    assert (report.read, report.further, report.pairs) == (3, 2, 5)  # messages, and what they make beside
    whole = [pair.source for pair in read_pairs([path], data, Report(), whole=True)]
    assert whole[:2] == ["One.\n\nTwo.\n", "Three,\nfour"]
