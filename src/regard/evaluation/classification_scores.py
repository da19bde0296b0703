"""Scores a classifier's labels by accuracy and F1, with a confusion matrix."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Quality:
    """The agreement between predicted and correct labels."""

    labels: tuple[str, ...]
    confusions: dict[tuple[str, str], int]  # (correct label, predicted label) -> count
    entities: tuple[float, float, float] | None = None  # precision, recall and F1 of labelled spans (B-, I-)

    @property
    def count(self) -> int:
        return sum(self.confusions.values())

    @property
    def accuracy(self) -> float:
        return 100 * sum(n for (right, given), n in self.confusions.items() if right == given) / max(1, self.count)

    @property
    def f1(self) -> float:
        """The F1 of spans if the labels mark spans, otherwise the mean F1 of the labels, in percent."""
        if self.entities is not None:
            return self.entities[2]
        return sum(self.label_scores(label)[2] for label in self.labels) / max(1, len(self.labels))

    def label_scores(self, label: str) -> tuple[float, float, float, int]:
        """Returns precision, recall and F1 of one label in percent, and its number of occurrences."""
        both = self.confusions.get((label, label), 0)
        predicted = sum(n for (_, each), n in self.confusions.items() if each == label)
        right = sum(n for (each, _), n in self.confusions.items() if each == label)
        return (*precision_recall_f1(both, predicted, right), right)

    def lines(self) -> list[str]:
        kind = "F1 of spans" if self.entities is not None else "macro F1"
        return [f"accuracy {self.accuracy:.2f} % ({self.count:,} labels)", f"{kind} {self.f1:.2f} %"]

    def table(self, most: int = 12) -> list[str]:
        """Formats the scores of each label as a table; with at most `most` labels, adds the confusion matrix."""
        shown = self.labels[:most]
        width = max([5, *map(len, shown)])
        head = f"{'label':<{width}}  precision  recall      F1    count" + "".join(
            f"  {name:>{width}}" for name in shown
        )
        rows = [head if len(self.labels) <= most else head[: head.index("count") + 5]]
        for label in self.labels:
            precision, recall, f1, right = self.label_scores(label)
            row = f"{label:<{width}}  {precision:9.2f}  {recall:6.2f}  {f1:6.2f}  {right:7,}"
            if len(self.labels) <= most:
                row += "".join(f"  {self.confusions.get((label, found), 0):>{width},}" for found in shown)
            rows.append(row)
        return rows


def compare_labels(right: Sequence[Sequence[str]], found: Sequence[Sequence[str]], labels: Sequence[str]) -> Quality:
    """Compares the predicted labels of texts, `found`, with the correct ones; a text has one label, or one per word."""
    pairs = Counter(
        pair for rights, founds in zip(right, found, strict=True) for pair in zip(rights, founds, strict=True)
    )
    marks = [label for label in labels if label != "O"]
    if not (marks and "O" in labels and all(label[:2] in ("B-", "I-") for label in marks)):
        return Quality(tuple(labels), dict(pairs))
    wanted = {(i, span) for i, row in enumerate(right) for span in spans(row)}
    given = {(i, span) for i, row in enumerate(found) for span in spans(row)}
    return Quality(tuple(labels), dict(pairs), precision_recall_f1(len(wanted & given), len(given), len(wanted)))


def precision_recall_f1(both: int, found: int, right: int) -> tuple[float, float, float]:
    """Computes precision, recall and F1 in percent from the numbers of correct predictions, predictions and labels."""
    return 100 * both / max(1, found), 100 * both / max(1, right), 200 * both / max(1, found + right)


def spans(labels: Sequence[str]) -> Iterator[tuple[str, int, int]]:
    """Yields the kind, start and end of each span marked by B- and I- labels; a lone I- starts a span (CoNLL)."""
    kind, begin = "", 0
    for place, label in enumerate([*labels, "O"]):
        mark, _, name = label.partition("-")
        if kind and not (mark == "I" and name == kind):
            yield kind, begin, place
            kind = ""
        if mark in ("B", "I") and not kind:
            kind, begin = name, place
