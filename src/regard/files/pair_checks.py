"""What can be wrong with a pair, seen from the pair alone."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import eq
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.files.character_arrays import CONTROL, DIGIT, FOLLOWERS, INVISIBLE, PIECES, REPLACED, SUSPECT, Characters
from regard.tokens.protected_pieces import ProtectedPiece, find
from regard.tokens.text_pairs import Pair

Severity = Literal["error", "warning"]
"""An error is dropped, by training or by `regard check --fix`; a warning is kept."""


@dataclass(frozen=True)
class Check:
    """What is looked for, in words, and what a find means."""

    meaning: str
    severity: Severity
    always: bool = False  # training cannot use such pairs


CHECKS = {
    "undecodable": Check("not UTF-8", "error", always=True),
    "damaged": Check("damaged encoding, such as Ã¤ for ä or �", "error"),
    "control": Check("control characters", "error", always=True),
    "empty": Check("one side or both are empty", "error", always=True),
    "long": Check("a side is too long", "error", always=True),
    "ratio": Check("one side is much longer than the other", "error"),
    "duplicate": Check("stands there before", "error"),
    "language": Check("a side is in the language of the other", "error"),
    "swapped": Check("the two sides are swapped", "error"),
    "leaked": Check("the source is in the test set", "error"),
    "direction": Check("no two languages of a direction", "error", always=True),
    "placeholders": Check("placeholders differ", "warning"),
    "tags": Check("tags differ", "warning"),
    "addresses": Check("URLs or e-mail addresses differ", "warning"),
    "numbers": Check("numbers differ", "warning"),
    "targets": Check("the source has many different targets", "warning"),
    "identical": Check("both sides are the same", "warning"),
    "invisible": Check("zero-width or other invisible characters", "warning"),
}
"""Every check, by the name that it has in JSON and in flags, in the order in which they are told."""


def find_faults(
    sources: Sequence[str], targets: Sequence[str], left: Characters, right: Characters
) -> Iterator[CheckResult]:
    """The faults of some pairs: the name of a check, and the numbers of the pairs in which it finds something."""
    either = left.kinds | right.kinds
    yield "control", _rows(either & CONTROL)
    yield "invisible", _rows(either & INVISIBLE)
    yield "empty", _rows((left.lengths == 0) | (right.lengths == 0))
    suspects = (row for row in _rows(either & SUSPECT) if MOJIBAKE.search(f"{sources[row]}\n{targets[row]}"))
    yield "damaged", sorted({*_rows(either & REPLACED), *suspects})
    same = np.fromiter(map(eq, sources, targets), bool, len(sources))
    yield "identical", _rows(same & (left.lengths > 0))
    either[same | (left.lengths == 0) | (right.lengths == 0)] = 0
    found: dict[str, list[int]] = {name: [] for name in ("placeholders", "tags", "addresses", "numbers")}
    for row in _rows(either & (PIECES | DIGIT)):
        for name in differences(sources[row], targets[row]):
            found[name].append(row)
    yield from found.items()


CheckResult = tuple[str, Sequence[int]]


class Notices:
    """What is found in pairs on their way to somewhere else."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """The same pairs, which are tidy; some thousand are looked at together."""
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = [pair.source for pair in chunk], [pair.target for pair in chunk]
            for name, rows in find_faults(sources, targets, Characters(sources), Characters(targets)):
                self.counts[name] += len(rows)
            yield from chunk

    def line(self, files: Sequence[Path]) -> str:
        """What was found, for people, and how to find out more; nothing if nothing was."""
        found = [f"{CHECKS[name].meaning}: {count:,}" for name, count in self.counts.most_common() if count]
        command = shlex.join(["regard", "check", *map(str, files)]) if len(files) < 4 else "regard check"
        return f"to look at ({command} tells more): {'; '.join(found)}" if found else ""


CHUNK = 4096
"""Pairs that are looked at together."""


def _rows(flags: NDArray[np.generic]) -> list[int]:
    rows: list[int] = np.flatnonzero(flags).tolist()
    return rows


# UTF-8 that was read as Windows-1252: a first byte, then as many others as it asks for. Quotation marks and the like
# are such bytes too, and may well stand after a letter, so that only what nobody writes counts.
_FOLLOWER = f"[\x80-\xbf{FOLLOWERS}]"
_SYMBOL = "[\x80-\x9f¡-ª¬-º¼-¿€ƒ†‡ˆ‰ŠŒŽ˜™šœžŸ]"
MOJIBAKE = re.compile(
    f"[ÃÄÅ]{_SYMBOL}|Â[\xa0-\xbf]|â[\x80-\x9f€„†ˆ‰]{_FOLLOWER}|(?:[ÐÑ]{_FOLLOWER}){{3}}|(?:[à-ï]{_FOLLOWER}{{2}}){{2}}"
)


def differences(source: str, target: str) -> Iterator[str]:
    """What one text has and the other has not: placeholders, tags, addresses, numbers."""
    texts = source, target
    if _roughly(source) != _roughly(target):  # quick, and mostly they are the same
        pieces = find(source), find(target)
        texts = _without(source, pieces[0]), _without(target, pieces[1])
        for name, essence in ESSENCES.items():
            if sorted(essence(pieces[0])) != sorted(essence(pieces[1])):
                yield name
    if numbers_differ(*texts):
        yield "numbers"


def unmatched_items(name: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """What only one of two texts has of that which a check compares, the source and the target."""
    texts, essence = (source, target), ESSENCES.get(name)
    if essence:
        left, right = (Counter(essence(find(text))) for text in texts)
    else:
        bare = [_without(text, find(text)) if name == "numbers" else "" for text in texts]
        left, right = (Counter(NUMBERS.findall(text)) for text in bare)
    return list((left - right).elements()), list((right - left).elements())


def _roughly(text: str) -> list[str]:
    return sorted(text.split()) if "@" in text else sorted(ROUGHLY.findall(text))


def _without(text: str, pieces: Sequence[ProtectedPiece]) -> str:
    ends = [0, *(piece.end for piece in pieces)]
    starts = [*(piece.start for piece in pieces), len(text)]
    return " ".join(text[end:start] for end, start in zip(ends, starts, strict=True))


def _placeholders(pieces: Sequence[ProtectedPiece]) -> Iterator[str]:
    """What a program will put something in place of, by name or kind; other positions and forms are no difference."""
    for piece in pieces:
        if piece.kind == "icu":
            yield piece.text.partition(",")[0]
        elif piece.kind == "printf" and piece.text not in ("%%", "%<", "%>"):
            yield POSITION.sub("%", piece.text)
        elif piece.kind in ("brace", "nesting", "variable", "code"):
            yield piece.text


def _tags(pieces: Sequence[ProtectedPiece]) -> list[str]:
    """The names of tags; a lone <file> is a word in brackets."""
    found = [match for piece in pieces if piece.kind == "tag" and (match := TAG_NAME.match(piece.text))]
    closed = {match[2] for match in found if match[1]}
    return [match[1] + match[2] for match in found if match[3] or match[2] in closed or match[2] in SINGLE]


def _addresses(pieces: Sequence[ProtectedPiece]) -> Iterator[str]:
    found = (piece.text for piece in pieces if piece.kind in ("url", "email"))
    return (text.partition("&gt;")[0].removesuffix("&gt").rstrip("/") for text in found)


ESSENCES: dict[str, Callable[[Sequence[ProtectedPiece]], Iterable[str]]] = {
    "placeholders": _placeholders,
    "tags": _tags,
    "addresses": _addresses,
}
ROUGHLY = re.compile(r"%(?:\([^)]*\))?[\w.$#+-]{0,2}|[{<\[][^}>\]]*|\$\S*|//\S*|www\.\S*")
POSITION = re.compile(r"^%\d+\$")
TAG_NAME = re.compile(r"<(/?)([\w:.-]+)(\s*/|\s[^<>]*=)?")
SINGLE = frozenset(("br", "hr", "img", "p", "li", "td", "tr", "wbr"))


def numbers_differ(source: str, target: str) -> bool:
    """Whether a number of one text is another in the other text.

    One that is missing may have been written in words, unless it is long and not round; that its digits are grouped
    in another way, as in 1,000.5 and 1.000,5 and 1000.5, is no difference.
    """
    if sorted(RUNS.findall(source)) == sorted(RUNS.findall(target)):  # quick, and mostly so
        return False
    for pattern in (RUNS, NUMBERS):
        left, right = (Counter(_value(number) for number in pattern.findall(text)) for text in (source, target))
        missing, added = left - right, right - left
        if not any(value > SPELT for value in missing) and not any(value > SPELT for value in added):
            return False
    if missing and added:
        return any(value > SPELT for value in missing) and any(value > SPELT for value in added)
    if NUMERALS.search(source) or NUMERALS.search(target):
        return False
    return any(len(str(value).rstrip("0")) > 1 and value > HUNDRED for value in missing | added)


def _value(number: str) -> int:
    return int("".join(filter(str.isdecimal, number))[:LONGEST_NUMBER])


RUNS = re.compile(r"\d+")
NUMBERS = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
NUMERALS = re.compile("[一二三四五六七八九十百千万萬亿億两兩〇零]")
SPELT, HUNDRED, LONGEST_NUMBER = 12, 100, 1000
