"""Finds the pieces of a text that a translation must keep unchanged, such as placeholders, tags and URLs.

Every pattern has limited length or stops where another piece could begin, so matching takes linear time.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True)
class ProtectedPiece:
    """A part of a text that its translation must contain unchanged."""

    start: int
    end: int
    text: str
    kind: str  # a key of PATTERNS, "icu", "number", or "mark" for a literal string that the caller passed


def find(text: str, marks: Sequence[str] = (), *, numbers: bool = False) -> list[ProtectedPiece]:
    """Returns the protected pieces of a text in order; if two overlap, the one that starts first.

    `marks` are additional literal strings to protect; `numbers` also protects numbers with a unit.
    """
    if not marks and not numbers and not SIGN.search(text):
        return []
    return list(_scan(text, _pattern(tuple(marks), numbers)))


def counts(text: str, marks: Sequence[str] = (), *, numbers: bool = False) -> Counter[str]:
    """Counts each protected piece of a text; a correct translation has the same counts."""
    return Counter(piece.text for piece in find(text, marks, numbers=numbers))


def arguments(piece: str) -> list[str]:
    """Lists the conversions in a piece that consume the next argument: ["f"] for `%5.2f`, [] for `%1$s`.

    A translation must keep their order.
    """
    if piece[:2] in ("{}", "{:", "{!"):
        return ["{}"]
    return [each for match in ARGUMENT.finditer(piece) for each in (*("*" * match[1].count("*")), match[2])]


SIGN = re.compile(r"[%{&<$@]|://|www\.|\[X")
"""A quick test: every piece except marks and numbers contains a match."""

CONVERSION = r"""
    %(?:\d{1,3}\$|\([^()%\s]{0,100}\))?             # refers to an argument by its number or name
    [-+\#0'I]{0,5}                                  # flags, but no space: "100% sure" does not contain "% s"
    (?:\*(?:\d{1,3}\$)?|\d{1,5})?(?:\.(?:\*(?:\d{1,3}\$)?|\d{0,5}))?
    (?:(?:hh|h|ll|l|L|q|j|z|t)?[A-Za-z@]|<PRI\w{1,20}>)
"""
PROSE = r"(?!(?<=\d)%-?ig|(?<=\d)%-[a-z]{2}|%'(?:t|s|ll)\b)"  # excludes 100%ig, 50%-off, and GCC's "doesn%'t"
TAIL = r"[^\s<>\"“”„«»‘’|\\^`]+"  # the rest of a URL; punctuation at its end is cut off later
UNITS = (
    "%|‰|°[CF]?|[kMGTP]i?[Bb](?:it|yte)?s?|[kcmµnd]?m|km/h|mph|[kmµ]?g|[mc]?l|[kMG]?Hz|[mk]?W|[mk]?V|m?A|Wh|kWh|"
    "[mµn]?s|min|h|px|pt|dpi|fps|bit|[Bb]ytes?|B|€|\\$|£|¥"
)
PATTERNS = {
    "url": rf"\b(?:[A-Za-z][A-Za-z0-9+.-]{{1,20}}://|www\.)(?=[\w/\[$%{{]){TAIL}",
    "email": r"(?<![\w.+-])[\w.+-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+",
    "brace": r"[$\#%]?\{",  # `_placeholder` finds the end
    "nesting": r"\$t\([^()]*\)",  # i18next
    "variable": r"\$[A-Za-z_]\w*|(?<!\d)%[A-Z]{3}[A-Z0-9_]{0,60}%?",  # $HOME, %PATH%, LibreOffice's %PRODUCTNAME
    "printf": rf"%L\d{{1,2}}|{PROSE}(?:{CONVERSION})|%%|%\d{{1,2}}(?!\d)|%<(?=[^<>]*%>)|%>",  # Qt's %1; GCC's %< and %>
    "entity": r"&(?:\#[0-9]{1,7}|\#[xX][0-9A-Fa-f]{1,6}|[A-Za-z][A-Za-z0-9]{1,31});",
    "mnemonic": r"(?<!&)&(?:(?<![A-Z]&)|(?![A-Z]))(?=[^\W_])",  # &File, E&xit, but not R&D
    "tag": r"""</?[A-Za-z][\w:.-]*(?=[\s/>])[^<>"']*(?:(?:"[^"<]*"|'[^'<]*')[^<>"']*)*>"""
    r"|<!--[^<>]*-->|<[!?][A-Za-z][^<>]*>",
    "code": r"\[X\d{1,9}X\]",  # used by Weblate
}
NUMBER = rf"(?<![\w.,])\d{{1,30}}(?:[.,]\d{{1,30}}){{0,20}}[ \u00a0\u202f]?(?:{UNITS})(?!\w)"
SIMPLE = re.compile(r"\S*|[^\s,:!]*\s?(?:![rsa])?\s?[:,].*", re.DOTALL)  # {}, {name}, {0,number,#.##}, {name!r:>10}
BLOCK = re.compile(r"\s*[\w.]+\s*,\s*(?:plural|select|selectordinal|choice)\s*,")  # start of an ICU message
ARGUMENT = re.compile(
    r"(?<!%)%([-+#0'I]{0,5}[\d.*]{0,12})(?:hh|h|ll|l|L|q|j|z|t)?([A-Za-z@](?![A-Z]{2})|<PRI\w{1,20}>)"
)


@lru_cache(maxsize=256)
def _pattern(marks: tuple[str, ...], numbers: bool) -> re.Pattern[str]:
    """Combines the patterns of all pieces into one; longer marks come before shorter ones."""
    kinds = {**PATTERNS, "number": NUMBER} if numbers else PATTERNS
    named = [f"(?P<{kind}>{pattern})" for kind, pattern in kinds.items()]
    given = sorted({mark for mark in marks if mark}, key=lambda mark: (-len(mark), mark))
    if given:
        named.insert(0, f"(?P<mark>{'|'.join(map(re.escape, given))})")
    return re.compile("|".join(named), re.VERBOSE)


def _scan(text: str, pattern: re.Pattern[str]) -> Iterator[ProtectedPiece]:
    blocks = _blocks(text) if "{" in text else {}
    place, quoted = 0, False
    while match := pattern.search(text, place):
        kind, start, end = str(match.lastgroup), match.start(), match.end()
        if kind == "brace":
            kind, end = _placeholder(text, end - 1, blocks)
        elif kind == "url":
            end = start + len(_without_punctuation(match[0]))
        elif match[0] == "%>" and not quoted:
            end = start
        quoted = match[0] == "%<" or (quoted and match[0] != "%>")
        if end > start:
            yield ProtectedPiece(start, end, text[start:end], kind)
        place = max(end, start + 1)


def _blocks(text: str) -> dict[int, tuple[int, bool]]:
    """Maps the start of each closed block of braces to its end, and to whether it contains no other block."""
    blocks: dict[int, tuple[int, bool]] = {}
    still_open: list[int] = []
    last = -1  # start of the most recently closed block
    for match in re.finditer(r"[{}]", text):
        if match[0] == "{":
            still_open.append(match.start())
        elif still_open:
            start = still_open.pop()
            blocks[start] = match.end(), last < start
            last = start
    return blocks


def _placeholder(text: str, start: int, blocks: dict[int, tuple[int, bool]]) -> tuple[str, int]:
    """Returns the kind and end of the placeholder whose brace is at `start`; the end is 0 without a placeholder."""
    end, leaf = blocks.get(start, (0, False))
    if leaf:
        inside = text[start + 1 : end - 1].strip()
        command = len(inside) > 1 and inside[0] == inside[-1] == "%"
        return "brace", end if command or SIMPLE.fullmatch(inside) else 0
    for depth in (1, 2):  # {{name}}, {{{name}}}
        if end and blocks.get(start + depth) == (end - depth, True):
            return "brace", end
    return "icu", end if end and BLOCK.match(text, start + 1) else 0


def _without_punctuation(url: str) -> str:
    """Strips sentence punctuation from the end of a URL, but keeps brackets that were opened inside it."""
    surplus = {right: url.count(right) - url.count(left) for left, right in ("()", "[]", "{}")}
    end = len(url)
    while url[end - 1] in ".,;:!?'*_~…" or surplus.get(url[end - 1], 0) > 0:
        end -= 1
        if url[end] in surplus:
            surplus[url[end]] -= 1
    return url[:end]
