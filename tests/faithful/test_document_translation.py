"""Untranslated units are filled, finished ones stay, and translations of the memory are reused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from regard.decoding.translation_results import MemoryMatch
from regard.faithful.document_translation import TOGETHER, FilledUnit, fill, recall, wanted
from regard.faithful.faithful_translation import FaithfulResult
from regard.faithful.translation_memory import TranslationMemory
from regard.files.formats import Unit
from regard.tokens.text_pairs import Location


class Sheet:
    """Returns a document of lines."""

    source_language, target_language = "en", "de"

    def __init__(self, *units: Unit) -> None:
        self.units = units
        self.notes: list[str] = []

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        lines = [targets.get(number, unit.target) for number, unit in enumerate(self.units)]
        return "\n".join([language, *lines]).encode()


def unit(source: str, target: str = "", state: str = "empty", line: int = 1, marks: tuple[str, ...] = ()) -> Unit:
    return Unit(source, target, Location("a.po", line), state, marks)  # type: ignore[arg-type]


SHEET = Sheet(
    unit("one"),
    unit("two", "zwei", "done"),
    unit("three", "drai", "draft"),
    unit("  ", ""),
    unit("one"),
)


class Shouting:
    """A translator that records its requests."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def __call__(self, units: Sequence[Unit]) -> list[FaithfulResult]:
        self.asked.append([each.source for each in units])
        return [FaithfulResult(each.source.upper(), confidence=len(each.source) / 10) for each in units]


def test_only_what_is_not_finished_is_filled() -> None:
    assert wanted(SHEET) == [0, 2, 4]
    assert wanted(SHEET, everything=True) == [0, 1, 2, 4]


def test_equal_texts_are_translated_once_and_all_are_filled() -> None:
    translate = Shouting()
    found = list(fill(SHEET, translate))
    assert translate.asked == [["one", "three"]]
    assert [(each.number, each.made.text, each.made.confidence) for each in found] == [
        (0, "ONE", 0.3),
        (2, "THREE", 0.5),
        (4, "ONE", 0.3),
    ]
    assert found[1].unit is SHEET.units[2]


def test_equal_texts_with_other_marks_are_not_equal() -> None:
    translate = Shouting()
    list(fill(Sheet(unit("<g>"), unit("<g>", marks=("<g>",))), translate))
    assert translate.asked == [["<g>", "<g>"]]


def test_a_large_document_is_filled_in_steps() -> None:
    translate = Shouting()
    sheet = Sheet(*(unit(f"text {n % (TOGETHER + 5)}") for n in range(2 * TOGETHER)))
    found = fill(sheet, translate)
    next(found)
    assert [len(texts) for texts in translate.asked] == [TOGETHER]
    assert [each.number for each in found] == list(range(1, 2 * TOGETHER))
    assert [len(texts) for texts in translate.asked] == [TOGETHER, 5]


def test_nothing_to_do_asks_nothing() -> None:
    translate = Shouting()
    assert list(fill(Sheet(unit("a", "b", "done")), translate)) == []
    assert translate.asked == []


def test_what_the_memory_has_is_used_and_the_rest_offered() -> None:
    translate = Shouting()
    memory = TranslationMemory(
        [("one", "eins"), ("open the file", "die Datei öffnen"), ("page 3 of 4", "Seite 3 von 4")]
    )
    sheet = Sheet(unit(" one\n"), unit("open the files"), unit("page 5 of 9"))
    found = list(fill(sheet, translate, memory=memory))
    assert translate.asked == [["open the files"]]
    assert [(each.made.text, each.made.how) for each in found] == [
        (" eins\n", "memory"),
        ("OPEN THE FILES", "model"),
        ("Seite 5 von 9", "memory"),
    ]
    assert [[match.score for match in each.matches] for each in found] == [[100], [92], [99]]


@pytest.mark.parametrize(
    ("source", "target", "marks", "used"),
    [
        ("a %s", "ein %s", (), True),
        ("a %s", "ein", (), False),
        ("a %s", "ein %s %s", (), False),
        ('<g id="1">a', 'ein <g id="1">', ('<g id="1">',), True),
        ("[1]a", "ein", ("[1]",), False),
    ],
)
def test_a_memory_that_loses_a_placeholder_is_not_used(
    source: str, target: str, marks: tuple[str, ...], used: bool
) -> None:
    assert (recall(source, marks, [MemoryMatch(100, source, target)]) is not None) == used


def test_what_could_not_be_translated_is_not_filled() -> None:
    outcomes = [FilledUnit(0, unit("x"), FaithfulResult("x", how)) for how in ("model", "repaired", "memory", "safe")]
    assert [each.is_filled for each in outcomes] == [True, True, True, False]


def test_the_most_doubtful_come_first() -> None:
    made = [
        FaithfulResult("a", confidence=0.9),
        FaithfulResult("b", "memory"),
        FaithfulResult("c", confidence=0.2),
        FaithfulResult("d", confidence=0.8, flags=("a number",)),
        FaithfulResult("e"),
    ]
    outcomes = [FilledUnit(number, unit("x"), each) for number, each in enumerate(made)]
    assert [each.made.text for each in sorted(outcomes, key=lambda outcome: outcome.doubt)] == ["d", "c", "e", "a", "b"]
