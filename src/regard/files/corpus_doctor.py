"""What is wrong with a corpus, and what was done about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from regard.settings import DataSettings
from regard.tokens.clean_text import CONTROL, tidy
from regard.tokens.corpus_report import EXAMPLES, Report
from regard.tokens.text_pairs import Location, Pair


def clean(pairs: Iterable[Pair], data: DataSettings, report: Report) -> Iterator[Pair]:
    """The usable pairs, tidied; the report tells what was left out."""
    for pair in pairs:
        source, target = tidy(pair.source), tidy(pair.target)
        if not source or not target:
            report.drop("empty", pair.where)
        elif CONTROL.search(source) or CONTROL.search(target):
            report.drop("control characters", pair.where)
        elif len(source) > data.max_characters or len(target) > data.max_characters:
            report.drop("too long", pair.where)
        else:
            report.kept += 1
            same = source == pair.source and target == pair.target
            yield pair if same else replace(pair, source=source, target=target)


@dataclass
class Leak:
    """How much of a held-out set is also in the training data."""

    pairs: int = 0
    leaked: int = 0
    examples: list[str] = field(default_factory=list)


def leaks(train: Iterable[Pair], held_out: Mapping[str, Iterable[Pair]]) -> dict[str, Leak]:
    """For each held-out set, the pairs whose source sentence is also a training source; holds only these sets."""
    found = {name: Leak() for name in held_out}
    sought: dict[str, list[tuple[Leak, Location]]] = {}
    for name, pairs in held_out.items():
        for pair in pairs:
            found[name].pairs += 1
            sought.setdefault(pair.source, []).append((found[name], pair.where))
    for pair in train:
        for leak, where in sought.pop(pair.source, ()):
            leak.leaked += 1
            if len(leak.examples) < EXAMPLES:
                leak.examples.append(f"{where} is {pair.where}")
    return found
