"""A memory finds earlier translations of similar texts, with a score."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from rapidfuzz.distance import Levenshtein

from regard.decoding.translation_results import MemoryMatch
from regard.errors import DataError
from regard.faithful import translation_memory
from regard.faithful.translation_memory import (
    ALIKE,
    EXCHANGED,
    SAME,
    TranslationMemory,
    read,
    substitute_variables,
    write,
)
from regard.tokens.language_directions import Direction
from regard.tokens.text_pairs import Location, Pair
from tests.examples import examples

PAIRS = [
    ("Open file", "Datei öffnen"),
    ("Open the file %s now.", "Öffnen Sie jetzt die Datei %s."),
    ("Page 12 of 20", "Seite 12 von 20"),
    ("Save", "Sichern"),
    ("Save", "Speichern"),
    ("Save", "Speichern"),
    ("  Quit\t", "Beenden"),
    ("Nothing", ""),
    ("é", "ist e mit Akut"),
]


@pytest.fixture(scope="module")
def memory() -> TranslationMemory:
    return TranslationMemory(PAIRS)


def test_the_same_text_is_found(memory: TranslationMemory) -> None:
    assert memory.exact("Open file") == MemoryMatch(SAME, "Open file", "Datei öffnen")
    assert memory.find("  Open file\n") == [MemoryMatch(SAME, "Open file", "Datei öffnen")]
    assert memory.exact("Quit") == MemoryMatch(SAME, "Quit", "Beenden")
    assert memory.exact("e\u0301") == MemoryMatch(SAME, "é", "ist e mit Akut")  # decomposed
    assert memory.exact("open file") is None
    assert memory.exact("Nothing") is None


def test_the_most_frequent_translation_counts_then_the_first(memory: TranslationMemory) -> None:
    found = memory.exact("Save")
    assert found is not None
    assert found.target == "Speichern"
    assert TranslationMemory([("a", "b"), ("a", "c")]).targets == {"a": "b"}


def test_nearly_the_same_text_is_offered(memory: TranslationMemory) -> None:
    (match,) = memory.find("Open files")
    assert match == MemoryMatch(90, "Open file", "Datei öffnen")
    assert memory.find("Open files", threshold=91) == []
    assert memory.find("something else entirely") == []
    assert memory.find("") == []
    assert TranslationMemory([]).find("Open") == []


def test_scores_are_what_the_page_of_translating_says(memory: TranslationMemory) -> None:
    assert (SAME, EXCHANGED, ALIKE) == (100, 99, 75)


def test_a_difference_in_case_alone_is_no_exact_match(memory: TranslationMemory) -> None:
    (match,) = memory.find("open file")
    assert match.score < EXCHANGED


def test_numbers_and_placeholders_are_exchanged(memory: TranslationMemory) -> None:
    assert memory.find("Page 7 of 1,024")[0] == MemoryMatch(EXCHANGED, "Page 12 of 20", "Seite 7 von 1,024")
    assert memory.find("Open the file %(name)s now.")[0].target == "Öffnen Sie jetzt die Datei %(name)s."


@pytest.mark.parametrize(
    ("source", "target", "asked", "made"),
    [
        ("%s of %d", "%d von %s", "%1$s of {n}", "{n} von %1$s"),
        ("a 1 b 1", "1 x 1", "a 2 b 2", "2 x 2"),
        ("a 1 b 1", "1 x 1", "a 2 b 3", None),  # which of them is the 2?
        ("a 1", "eins", "a 2", None),  # written otherwise
        ("a 1,000", "1.000", "a 2,000", None),
        ("a 1", "1 1", "a 2", None),
        ("a %s", "%s b", "a 5", None),  # a number is no placeholder
        ("a 1", "b 1", "c 2", None),
        ("a", "b", "a", None),
        ("<b>a</b>", "<b>x</b>", "<i>a</i>", "<i>x</i>"),
    ],
)
def test_an_exchange_is_made_where_it_is_safe(source: str, target: str, asked: str, made: str | None) -> None:
    assert substitute_variables(source, target, asked) == made


def test_the_best_come_first_and_no_more_than_wanted() -> None:
    memory = TranslationMemory(
        [(f"The quick brown fox jumps over {word}.", word) for word in ("it", "its", "items", "him")]
    )
    found = memory.find("The quick brown fox jumps over item.", most=2)
    assert [match.target for match in found] == ["items", "its"] or [m.target for m in found] == ["items", "it"]
    assert found[0].score >= found[1].score >= ALIKE


def test_one_that_differs_a_little_is_found_among_many() -> None:
    memory = TranslationMemory(
        [(f"entry {n:05d} says {n * 7919 % 100_003} things about it", str(n)) for n in range(5000)]
    )
    assert memory.find("entry abc says some things about it", threshold=60)
    found = memory.find("entry 01234 says that 17842 things about it")
    assert found[0].score >= ALIKE


@examples(60)
@given(
    st.lists(st.text("abc 12%s", min_size=1, max_size=12), min_size=1, max_size=20), st.text("abc 12%sé", max_size=12)
)
def test_scores_are_similarities(texts: list[str], asked: str) -> None:
    memory = TranslationMemory([(text, text) for text in texts])
    for match in memory.find(asked, threshold=60):
        if match.score == SAME:
            assert match.source == asked.strip()
        elif match.score < EXCHANGED:
            share = Levenshtein.normalized_similarity(match.source, asked.strip())
            assert match.score == min(EXCHANGED - 1, int(100 * share))
            assert match.target == match.source


@examples(60)
@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=20))
def test_every_text_is_found_by_itself(texts: list[str]) -> None:
    memory = TranslationMemory([(text, "x") for text in texts])
    for text in texts:
        assert [match.score for match in memory.find(text)] == ([SAME] if memory.exact(text) else [])
        if memory.exact(text):
            assert memory.sources.index(memory.find(text)[0].source) in memory.index.candidates(
                memory.find(text)[0].source
            )


def test_a_memory_is_written_and_read(tmp_path: Path) -> None:
    path, where = tmp_path / "memory.jsonl.gz", Location("a", 1)
    write(path, [Pair("Open\nfile", "Öffnen", where), Pair("Save", "Speichern", where)])
    assert list(read(path)) == [("Open\nfile", "Öffnen"), ("Save", "Speichern")]
    assert list(read(path, Direction("en", "de"))) == list(read(path))
    first = path.read_bytes()
    write(path, [Pair("Open\nfile", "Öffnen", where), Pair("Save", "Speichern", where)])
    assert path.read_bytes() == first


def test_a_memory_of_several_directions_gives_those_of_one(tmp_path: Path) -> None:
    path, where = tmp_path / "memory.jsonl.gz", Location("a", 1)
    write(path, [Pair("a", "b", where, direction="en-de"), Pair("c", "d", where, direction="de-en")])
    assert list(read(path, Direction("en", "de"))) == [("a", "b")]
    assert list(read(path, Direction("", "en"))) == [("c", "d")]  # whatever the source is


def test_a_damaged_memory_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "memory.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"source": "a", "target": "b"}\n{"source": 1}\n'))
    with pytest.raises(DataError, match=r"memory.jsonl.gz:2: source and target must be texts"):
        list(read(path))


def test_a_memory_is_written_within_the_limits_of_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, where = tmp_path / "memory.jsonl.gz", Location("a", 1)
    pairs = [Pair(f"{number:04d}" * 10, "x" * 30, where) for number in range(1000)]
    assert write(path, pairs) == 0
    assert len(list(read(path))) == 1000
    line = len(json.dumps({"source": pairs[0].source, "target": pairs[0].target})) + 1
    limits = {"LARGEST": (100 * line, 100), "MOST_ENTRIES": (200, 200), "LONGEST_LINE": (line, 1000)}
    for name, (limit, kept) in limits.items():
        with monkeypatch.context() as patch:
            patch.setattr(translation_memory, name, limit)
            assert write(path, pairs) == 1000 - kept
            assert len(list(read(path))) == kept
            if name == "LONGEST_LINE":  # it is read in chunks: lines that are a little longer pass
                continue
            patch.setattr(translation_memory, name, limit - 1)
            with pytest.raises(DataError, match=f"more than {limit - 1:,} "):
                list(read(path))
