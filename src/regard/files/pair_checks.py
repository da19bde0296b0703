"""Finds faults in single pairs: damaged characters, and placeholders, tags, addresses and numbers that differ."""

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

CHUNK = 4096
"""Number of pairs that are checked at a time."""
Severity = Literal["error", "warning"]
"""The severity of a fault: pairs with errors are dropped by `regard check --fix`, pairs with warnings are kept."""
CheckResult = tuple[str, Sequence[int]]
"""The name of a check, and the indices of the pairs in which it finds a fault."""


@dataclass(frozen=True)
class Check:
    """A kind of fault and its severity."""

    meaning: str
    severity: Severity
    always: bool = False  # True if training cannot use such pairs


CHECKS = {
    "undecodable": Check("not UTF-8", "error", always=True),
    "damaged": Check("damaged encoding, such as Ã¤ for ä or �", "error"),
    "control": Check("control characters", "error", always=True),
    "empty": Check("one side or both are empty", "error", always=True),
    "long": Check("a side is too long", "error", always=True),
    "ratio": Check("one side is much longer than the other", "error"),
    "duplicate": Check("repeats an earlier pair", "error"),
    "language": Check("a side is in the language of the other", "error"),
    "swapped": Check("the two sides are swapped", "error"),
    "leaked": Check("the source is in the test set", "error"),
    "direction": Check("the languages do not match any direction", "error", always=True),
    "placeholders": Check("placeholders differ", "warning"),
    "tags": Check("tags differ", "warning"),
    "addresses": Check("URLs or e-mail addresses differ", "warning"),
    "numbers": Check("numbers differ", "warning"),
    "targets": Check("the source has many different targets", "warning"),
    "identical": Check("both sides are the same", "warning"),
    "invisible": Check("zero-width or other invisible characters", "warning"),
}
"""All checks in the order of the report, keyed by their names in JSON and in flags."""


def find_faults(
    sources: Sequence[str], targets: Sequence[str], left: Characters, right: Characters
) -> Iterator[CheckResult]:
    """Yields each check with the indices of the pairs in which it finds a fault."""
    either = left.kinds | right.kinds
    yield "control", _rows(either & CONTROL)
    yield "invisible", _rows(either & INVISIBLE)
    yield "empty", _rows((left.lengths == 0) | (right.lengths == 0))
    suspects = (row for row in _rows(either & SUSPECT) if MOJIBAKE.search(f"{sources[row]}\n{targets[row]}"))
    yield "damaged", sorted({*_rows(either & REPLACED), *suspects})
    same = np.fromiter(map(eq, sources, targets), bool, len(sources))
    yield "identical", _rows(same & (left.lengths > 0))
    either[same | (left.lengths == 0) | (right.lengths == 0)] = 0
    rows: dict[str, list[int]] = {name: [] for name in (*PIECES_BY_CHECK, "numbers")}
    for row in _rows(either & (PIECES | DIGIT)):
        for name in differences(sources[row], targets[row]):
            rows[name].append(row)
    yield from rows.items()


def _rows(flags: NDArray[np.generic]) -> list[int]:
    rows: list[int] = np.flatnonzero(flags).tolist()
    return rows


class Notices:
    """Counts the faults in a stream of pairs by check."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def watch(self, pairs: Iterator[Pair]) -> Iterator[Pair]:
        """Yields the same pairs, whose white space must be normalized."""
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = [pair.source for pair in chunk], [pair.target for pair in chunk]
            for name, rows in find_faults(sources, targets, Characters(sources), Characters(targets)):
                self.counts[name] += len(rows)
            yield from chunk

    def line(self, files: Sequence[Path]) -> str:
        """Returns a line with the counts and the command that shows details; empty if there are no faults."""
        counts = [f"{CHECKS[name].meaning}: {count:,}" for name, count in self.counts.most_common() if count]
        command = shlex.join(["regard", "check", *map(str, files)]) if len(files) < 4 else "regard check"
        return f"to review ({command} shows details): {'; '.join(counts)}" if counts else ""


# UTF-8 text that was read as Windows-1252: a first byte with as many following bytes as it requires. Quotation marks
# and other symbols are also such bytes and often follow a letter, so only combinations that nobody writes count.
_FOLLOWER = f"[\x80-\xbf{FOLLOWERS}]"
_SYMBOL = "[\x80-\x9f¡-ª¬-º¼-¿€ƒ†‡ˆ‰ŠŒŽ˜™šœžŸ]"
MOJIBAKE = re.compile(
    f"[ÃÄÅ]{_SYMBOL}|Â[\xa0-\xbf]|â[\x80-\x9f€„†ˆ‰]{_FOLLOWER}|(?:[ÐÑ]{_FOLLOWER}){{3}}|(?:[à-ï]{_FOLLOWER}{{2}}){{2}}"
)


def differences(source: str, target: str) -> Iterator[str]:
    """Yields the names of the checks that fail for two texts: placeholders, tags, addresses, numbers."""
    texts = source, target
    if _roughly(source) != _roughly(target):  # a quick test, which rules out most differences
        pieces = find(source), find(target)
        texts = _without(source, pieces[0]), _without(target, pieces[1])
        for name, compared in PIECES_BY_CHECK.items():
            if sorted(compared(pieces[0])) != sorted(compared(pieces[1])):
                yield name
    if numbers_differ(*texts):
        yield "numbers"


def unmatched_items(name: str, source: str, target: str) -> tuple[list[str], list[str]]:
    """Returns the pieces compared by a check that are only in the source, and those that are only in the target."""
    texts, compared = (source, target), PIECES_BY_CHECK.get(name)
    if compared:
        left, right = (Counter(compared(find(text))) for text in texts)
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
    """Yields placeholders in a normalized form, without positions and plural forms."""
    for piece in pieces:
        if piece.kind == "icu":
            yield piece.text.partition(",")[0]
        elif piece.kind == "printf" and piece.text not in ("%%", "%<", "%>"):
            yield POSITION.sub("%", piece.text)
        elif piece.kind in ("brace", "nesting", "variable", "code"):
            yield piece.text


def _tags(pieces: Sequence[ProtectedPiece]) -> list[str]:
    """Returns the names of tags; a single <file> without a closing tag is taken as a word in brackets."""
    tags = [match for piece in pieces if piece.kind == "tag" and (match := TAG_NAME.match(piece.text))]
    closed = {match[2] for match in tags if match[1]}
    return [match[1] + match[2] for match in tags if match[3] or match[2] in closed or match[2] in SINGLE]


def _addresses(pieces: Sequence[ProtectedPiece]) -> Iterator[str]:
    texts = (piece.text for piece in pieces if piece.kind in ("url", "email"))
    return (text.partition("&gt;")[0].removesuffix("&gt").rstrip("/") for text in texts)


PIECES_BY_CHECK: dict[str, Callable[[Sequence[ProtectedPiece]], Iterable[str]]] = {
    "placeholders": _placeholders,
    "tags": _tags,
    "addresses": _addresses,
}
ROUGHLY = re.compile(r"%(?:\([^)]*\))?[\w.$#+-]{0,2}|[{<\[][^}>\]]*|\$\S*|//\S*|www\.\S*")
POSITION = re.compile(r"^%\d+\$")
TAG_NAME = re.compile(r"<(/?)([\w:.-]+)(\s*/|\s[^<>]*=)?")
SINGLE = frozenset(("br", "hr", "img", "p", "li", "td", "tr", "wbr"))


RUNS = re.compile(r"\d+")
NUMBERS = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
NUMERALS = re.compile("[一二三四五六七八九十百千万萬亿億两兩〇零]")
LARGEST_WORD = 12  # numbers up to this one are often written as words
LARGEST_ROUND = 100  # all numbers up to this one may be written as words if they are missing
LONGEST_NUMBER = 1000  # maximum number of digits that are compared


def numbers_differ(source: str, target: str) -> bool:
    """Returns whether two texts contain different numbers.

    A missing number may have been written in words, unless it is long and not round. Digits may be grouped differently,
    as in 1,000.5 and 1.000,5 and 1000.5.
    """
    if sorted(RUNS.findall(source)) == sorted(RUNS.findall(target)):  # a quick test, which is usually true
        return False
    for pattern in (RUNS, NUMBERS):
        left, right = (Counter(_value(number) for number in pattern.findall(text)) for text in (source, target))
        missing, added = left - right, right - left
        if not any(value > LARGEST_WORD for value in missing) and not any(value > LARGEST_WORD for value in added):
            return False
    if missing and added:
        return any(value > LARGEST_WORD for value in missing) and any(value > LARGEST_WORD for value in added)
    if NUMERALS.search(source) or NUMERALS.search(target):
        return False
    return any(len(str(value).rstrip("0")) > 1 and value > LARGEST_ROUND for value in missing | added)


def _value(number: str) -> int:
    return int("".join(filter(str.isdecimal, number))[:LONGEST_NUMBER])
