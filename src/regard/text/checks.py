"""What can be wrong with a pair, seen from the pair alone."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import eq
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from regard.text.characters import ADDRESS, CONTROL, DIGIT, INVISIBLE, PLACEHOLDER, REPLACED, SUSPECT, TAG, Characters

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


def inspect(sources: Sequence[str], targets: Sequence[str], left: Characters, right: Characters) -> Iterator[Found]:
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
    for name, kind, differ in DIFFERENCES:
        yield name, [row for row in _rows(either & kind) if differ(sources[row], targets[row])]


Found = tuple[str, Sequence[int]]


def _rows(flags: NDArray[np.generic]) -> list[int]:
    rows: list[int] = np.flatnonzero(flags).tolist()
    return rows


# UTF-8 that was read as Windows-1252: a first byte, then as many others as it asks for. Quotation marks and the like
# are such bytes too, and may well stand after a letter, so that only what nobody writes counts.
_FOLLOWER = "[\x80-\xbf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_SYMBOL = "[\x80-\x9f¡-ª¬-º¼-¿€ƒ†‡ˆ‰ŠŒŽ˜™šœžŸ]"
MOJIBAKE = re.compile(
    f"[ÃÄÅ]{_SYMBOL}|Â[\xa0-\xbf]|â[\x80-\x9f€„†ˆ‰]{_FOLLOWER}|(?:[ÐÑ]{_FOLLOWER}){{3}}|(?:[à-ï]{_FOLLOWER}{{2}}){{2}}"
)


def placeholders_differ(source: str, target: str) -> bool:
    """Whether a program would put other things into the one text than into the other, in whatever order."""
    found, wanted = ([POSITION.sub("%", each) for each in PLACEHOLDERS.findall(text)] for text in (source, target))
    return sorted(found) != sorted(wanted)


PLACEHOLDERS = re.compile(
    r"(?<!\d)%(?:\d+\$|\(\w+\))?[-+#0]*\d*(?:\.\d+)?(?:hh|h|ll|l|z|j|t)?[sdifgGeExXucopL@]|%[A-Z_]{2,}%"
    r"|\{\{\s*[\w.]+\s*\}\}|\$?\{[\w.]*\}|\$t\([\w.:]+\)|\$[a-zA-Z_]\w*|\[X\d+X\]"
)
POSITION = re.compile(r"^%\d+\$")


def tags_differ(source: str, target: str) -> bool:
    """Whether one text has a tag of HTML or XML that the other has not, whatever their attributes say."""
    return _tags(source) != _tags(target)


def _tags(text: str) -> list[str]:
    found = TAGS.findall(text)
    closed = {name for slash, name, _, _ in found if slash}  # a lone <file> is a word in brackets
    return sorted(
        slash + name for slash, name, attributes, end in found if attributes or end or name in closed or name in SINGLE
    )


TAGS = re.compile(r"<(/?)([A-Za-z][\w:.-]*)(\s+[\w:-]+=[^<>]*?)?\s*(/?)>")
SINGLE = frozenset(("br", "hr", "img", "p", "li", "td", "tr", "wbr"))


def addresses_differ(source: str, target: str) -> bool:
    """Whether one text has a URL or an e-mail address that the other has not."""
    return ("://" in source or "@" in source or "://" in target or "@" in target) and (
        _addresses(source) != _addresses(target)
    )


def _addresses(text: str) -> list[str]:
    return sorted(found.removesuffix("&gt").rstrip(".,:;!?/'*_") for found in ADDRESSES.findall(text))


ADDRESSES = re.compile(
    r"\b[a-z]+://\w[^\s<>\"'“”„«»()\[\]{}|;、。，；！（）]*|[\w.+-]+@[\w-]+\.[\w.-]*[A-Za-z]", re.ASCII
)


def numbers_differ(source: str, target: str) -> bool:
    """Whether a number of one text is another in the other text.

    One that is missing may have been written in words, unless it is long and not round; that its digits are grouped
    in another way, as in 1,000.5 and 1.000,5 and 1000.5, is no difference.
    """
    texts = [APART.sub(" ", text) for text in (source, target)]
    for pattern in (RUNS, NUMBERS):
        left, right = (Counter(_value(number) for number in pattern.findall(text)) for text in texts)
        missing, added = left - right, right - left
        if not any(value > SPELT for value in missing) and not any(value > SPELT for value in added):
            return False
    if missing and added:
        return any(value > SPELT for value in missing) and any(value > SPELT for value in added)
    if any(map(NUMERALS.search, texts)):
        return False
    return any(len(str(value).rstrip("0")) > 1 and value > HUNDRED for value in missing | added)


def _value(number: str) -> int:
    return int("".join(filter(str.isdecimal, number))[:LONGEST_NUMBER])


RUNS = re.compile(r"\d+")
NUMBERS = re.compile(r"\d+(?:[.,'’\u00a0\u202f]\d+)*")
NUMERALS = re.compile("[一二三四五六七八九十百千万萬亿億两兩〇零]")
APART = re.compile(f"{PLACEHOLDERS.pattern}|{ADDRESSES.pattern}|{TAGS.pattern}")
SPELT, HUNDRED, LONGEST_NUMBER = 12, 100, 1000

DIFFERENCES: tuple[tuple[str, int, Callable[[str, str], bool]], ...] = (
    ("placeholders", PLACEHOLDER, placeholders_differ),
    ("tags", TAG, tags_differ),
    ("addresses", ADDRESS, addresses_differ),
    ("numbers", DIGIT, numbers_differ),
)
