"""Accuracy, F1, confusions and spans against counts made the long way."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from regard.evaluation.classification_scores import Quality, compare_labels, precision_recall_f1, spans

NAMES = ("a", "b", "c", "never")
texts = st.lists(st.lists(st.tuples(st.sampled_from(NAMES[:3]), st.sampled_from(NAMES)), max_size=4), min_size=1)


def judged(rows: list[list[tuple[str, str]]], names: tuple[str, ...] = NAMES) -> Quality:
    return compare_labels(
        [[right for right, _ in row] for row in rows], [[found for _, found in row] for row in rows], names
    )


@given(texts)
def test_all_figures_equal_plain_counts(rows: list[list[tuple[str, str]]]) -> None:
    pairs = [pair for row in rows for pair in row]
    quality = judged(rows)
    assert quality.count == len(pairs)
    assert quality.accuracy == pytest.approx(100 * sum(r == f for r, f in pairs) / max(1, len(pairs)))
    mean = 0.0
    for name in NAMES:
        hits = sum(r == f == name for r, f in pairs)
        found, right = sum(f == name for _, f in pairs), sum(r == name for r, _ in pairs)
        precision, recall = (hits / n if n else 0.0 for n in (found, right))
        f1 = 2 * precision * recall / (precision + recall) if hits else 0.0
        assert quality.label_scores(name) == pytest.approx((100 * precision, 100 * recall, 100 * f1, right))
        mean += 100 * f1 / len(NAMES)
        for other in NAMES:
            assert quality.confusions.get((name, other), 0) == pairs.count((name, other))
    assert quality.f1 == pytest.approx(mean)


def test_labels_without_outside_are_not_spans() -> None:
    rows = [[("B-x", "I-x")]]
    assert judged(rows, ("B-x", "I-x")).entities is None
    assert judged(rows, ("B-x", "I-x", "O")).entities is not None
    assert judged(rows, ("B-x", "I-x", "O", "x")).entities is None
    assert judged([[("O", "O")]], ("O",)).entities is None


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("", []),
        ("O O", []),
        ("B-x", [("x", 0, 1)]),
        ("B-x I-x O", [("x", 0, 2)]),
        ("B-x B-x", [("x", 0, 1), ("x", 1, 2)]),
        ("B-x I-y", [("x", 0, 1), ("y", 1, 2)]),
        ("O I-x I-x O", [("x", 1, 3)]),
        ("I-x B-x I-x", [("x", 0, 1), ("x", 1, 3)]),
        ("B-x O I-x", [("x", 0, 1), ("x", 2, 3)]),
        ("B-new-york I-new-york", [("new-york", 0, 2)]),
    ],
)
def test_spans(labels: str, expected: list[tuple[str, int, int]]) -> None:
    assert list(spans(labels.split())) == expected


marks = st.sampled_from(["O", "B-x", "I-x", "B-y", "I-y"])


@given(st.lists(marks))
def test_spans_cover_every_mark_once(labels: list[str]) -> None:
    found = list(spans(labels))
    covered = [place for _, begin, end in found for place in range(begin, end)]
    assert covered == [place for place, label in enumerate(labels) if label != "O"]
    for kind, begin, end in found:
        assert {label[2:] for label in labels[begin:end]} == {kind}
        assert not any(label.startswith("B-") for label in labels[begin + 1 : end])


@given(st.lists(st.lists(st.tuples(marks, marks), max_size=6), min_size=1))
def test_the_f1_of_spans_counts_those_that_are_right_from_begin_to_end(rows: list[list[tuple[str, str]]]) -> None:
    quality = judged(rows, ("O", "B-x", "I-x", "B-y", "I-y"))
    wanted = [(i, span) for i, row in enumerate(rows) for span in spans([right for right, _ in row])]
    given_ = [(i, span) for i, row in enumerate(rows) for span in spans([found for _, found in row])]
    hits = sum(span in wanted for span in given_)
    assert quality.entities == pytest.approx(precision_recall_f1(hits, len(given_), len(wanted)))
    assert quality.entities is not None
    assert quality.f1 == quality.entities[2]


def test_a_span_by_hand() -> None:
    right = [["B-per", "I-per", "O", "B-org"], ["B-per", "O"]]
    found = [["B-per", "I-per", "O", "B-per"], ["B-per", "I-per"]]
    quality = compare_labels(right, found, ("O", "B-per", "I-per", "B-org", "I-org"))
    assert quality.entities == pytest.approx((100 / 3, 100 / 3, 100 / 3))
    assert quality.accuracy == pytest.approx(100 * 4 / 6)


def test_labels_of_different_number_are_a_bug() -> None:
    with pytest.raises(ValueError, match="zip"):
        compare_labels([["a", "b"]], [["a"]], NAMES)
    with pytest.raises(ValueError, match="zip"):
        compare_labels([["a"]], [], NAMES)


def test_the_table_shows_figures_and_confusions() -> None:
    quality = judged([[("a", "a"), ("a", "b"), ("b", "b")]], ("a", "b"))
    assert quality.lines() == ["accuracy 66.67 % (3 labels)", "macro F1 66.67 %"]
    assert [line.split() for line in quality.table()] == [
        ["label", "precision", "recall", "F1", "count", "a", "b"],
        ["a", "100.00", "50.00", "66.67", "2", "1", "1"],
        ["b", "50.00", "100.00", "66.67", "1", "0", "1"],
    ]


def test_the_table_of_many_labels_has_no_confusions() -> None:
    names = tuple(f"count{i}" for i in range(30))
    table = judged([[(name, name) for name in names]], names).table()
    assert len(table) == 31
    assert all(len(line.split()) == 5 for line in table)


def test_the_f1_of_spans_is_named() -> None:
    assert judged([[("O", "O")]], ("O", "B-x")).lines()[1] == "F1 of spans 0.00 %"
