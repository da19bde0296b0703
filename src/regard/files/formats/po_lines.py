"""Parses the lines of PO files into entries, and formats texts as PO lines."""

from __future__ import annotations

import codecs
import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import DataError
from regard.files.formats.plain_text import is_surely_utf8

KEYWORD = re.compile(r"(msgctxt|msgid_plural|msgid|msgstr)\s*(?:\[\s*([0-9]{1,3})\s*\]\s*)?")
STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*+)"\s*', re.DOTALL)
ESCAPE = re.compile(r"(?P<bytes>(?:\\[0-7]{1,3}|\\x[0-9A-Fa-f]{2})++)|\\(?P<letter>.)", re.DOTALL)
BYTE = re.compile(r"\\([0-7]{1,3})|\\x(..)")
CHARSET = re.compile(rb"charset=([\w.:+-]+)")
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}
ESCAPES = {
    **{number: f"\\{number:03o}" for number in (*range(32), 127)},
    **{ord(character): f"\\{letter}" for letter, character in LETTERS.items()},
}


@dataclass
class POValue:
    """The strings after a keyword, with their first and last line number."""

    first: int
    last: int
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass
class POEntry:
    """An entry of a PO file: the values of its keywords and the line of its flags."""

    values: dict[str, POValue] = field(default_factory=dict)  # values by keyword, such as msgid or msgstr[0], in order
    fuzzy: bool = False
    flags: int = 0  # number of the first line with flags, or 0 without flags
    begin: int = 0  # number of the line before which new flags are inserted

    @property
    def line(self) -> int:
        return self.values["msgid"].first

    @property
    def is_translated(self) -> bool:
        """True if the entry already has a msgstr, so that the next entry may begin."""
        return any(key.startswith("msgstr") for key in self.values)

    @property
    def is_header(self) -> bool:
        return not self.values["msgid"].text and not self.values.keys() & {"msgctxt", "msgid_plural"}

    @property
    def header(self) -> dict[str, str]:
        """The fields of the header, keyed by their lower-case names."""
        text = "".join(value.text for key, value in self.values.items() if key.startswith("msgstr"))
        fields = (line.partition(":") for line in text.split("\n"))
        return {name.strip().lower(): value.strip() for name, _, value in fields}

    def forms(self, at_least: int) -> list[tuple[str, str]]:
        """Returns the source and keyword of each translation; a plural has `at_least` this number of forms."""
        single = self.values["msgid"].text
        if "msgid_plural" not in self.values:
            return [(single, "msgstr")]
        plural = self.values["msgid_plural"].text
        count = max(at_least, sum(key.startswith("msgstr") for key in self.values))
        return [(single if i == 0 and count > 1 else plural, f"msgstr[{i}]") for i in range(count)]

    def require_complete(self, path: Path) -> None:
        """Raises an error if the entry lacks a string or its msgstr."""
        for key, value in self.values.items():
            if not value.parts:
                raise DataError(f"{key} is not followed by a string", path, value.first)
        if self.values and not self.is_translated:
            raise DataError("this entry has no msgstr", path, next(iter(self.values.values())).first)


@dataclass(frozen=True)
class LineDecoder:
    """Decodes the lines of a PO file from its charset."""

    charset: str
    path: Path
    errors: str = "strict"
    declared: str = ""  # the charset as written in the header; empty if it is not declared
    line: int = 0  # line number of the declaration

    def __call__(self, line: bytes, number: int) -> str:
        try:
            return line.decode(self.charset, self.errors)
        except UnicodeError:
            name = f"{self.declared}, the charset declared in the header" if self.declared else "UTF-8"
            advice = "write the actual charset into the header, or convert the file with msgconv -t utf-8"
            raise DataError(f"this line is not in {name}: {advice}", self.path, number) from None

    def strings(self, line: str, position: int, number: int) -> list[str]:
        """Returns the quoted strings of a line, beginning at a position."""
        strings = []
        while position < len(line):
            match = STRING.match(line, position)
            if match is None:
                fault = "a string has no closing quotation mark" if line[position] == '"' else "text outside a string"
                raise DataError(f"{fault}: {line[position : position + 30]}", self.path, number)
            strings.append(ESCAPE.sub(self._character, match[1]) if "\\" in match[1] else match[1])
            position = match.end()
        return strings

    def _character(self, escape: re.Match[str]) -> str:
        if letter := escape["letter"]:
            return LETTERS.get(letter, f"\\{letter}")
        numbers = [
            int(octal, 8) & 255 if octal else int(hexadecimal, 16) for octal, hexadecimal in BYTE.findall(escape[0])
        ]
        return bytes(numbers).decode(self.charset, "replace")


def line_decoder(lines: Sequence[bytes], path: Path, errors: str = "strict") -> LineDecoder:
    """Returns a decoder for the charset declared in the header, or for UTF-8 if none is declared."""
    messages = 0
    for number, line in enumerate(lines, 1):
        messages += line.startswith(b"msgid ")
        if messages > 1:
            break
        match = CHARSET.search(line) if line.lstrip().startswith((b'"', b"msgstr")) else None
        if match and match[1] != b"CHARSET":  # templates contain this placeholder
            declared = match[1].decode("ascii", "replace")
            name = charset(declared, path, number)
            others = b"".join(line for line in lines if not line.startswith(b"#") and not line.isascii())
            if not name.startswith(("utf", "gb18030")) and is_surely_utf8(others):
                advice = "write charset=UTF-8 into the header"
                raise DataError(f"the declared charset is {declared}, but the file is in UTF-8: {advice}", path, number)
            return LineDecoder(name, path, errors, declared, number)
    return LineDecoder("utf-8", path, errors)


def charset(name: str, path: Path, number: int) -> str:
    """Returns the Python name of a charset; raises an error if it is unknown or does not contain ASCII."""
    ascii_text = string.printable.translate({ord(character): None for character in "~\x0b\x0c"})
    try:
        is_usable = ascii_text.encode(name) == ascii_text.encode()
    except (LookupError, ValueError):
        is_usable = False
    if not is_usable:
        raise DataError(f"the charset {name} cannot be used: convert the file with msgconv -t utf-8", path, number)
    return codecs.lookup(name).name


def entries(lines: Sequence[bytes], decode: LineDecoder) -> Iterator[POEntry]:
    """Yields the entries of a file, except obsolete ones; `lines` are its lines without line feeds."""
    entry, value = POEntry(), None
    for number, raw in enumerate(lines, 1):
        line = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).strip()
        if line.startswith(b'"'):
            if value is None:
                beginning = line[:30].decode("ascii", "replace")
                raise DataError(f"a string does not belong to a msgid or msgstr: {beginning}", decode.path, number)
            value.parts += decode.strings(decode(line, number), 0, number)
            value.last = number
            continue
        begins = line.startswith((b"#", b"msgctxt", b"domain")) or (line.startswith(b"msgid") and line[5:6] != b"_")
        if begins and (entry.is_translated or line.startswith((b"#~", b"domain"))):
            entry.require_complete(decode.path)
            if entry.values:
                yield entry
            entry, value = POEntry(), None
        if line.startswith(b"#,"):
            entry.flags = entry.flags or number
            entry.fuzzy |= any(flag.strip() == b"fuzzy" for flag in line[2:].split(b","))
        elif line.startswith(b"#|"):
            entry.begin = entry.begin or number
        elif line and not line.startswith((b"#", b"domain")):
            value = _begin_value(entry, decode(line, number), decode, number)
    entry.require_complete(decode.path)
    if entry.values:
        yield entry


def _begin_value(entry: POEntry, line: str, decode: LineDecoder, number: int) -> POValue:
    """Adds the value of the keyword on a line; raises an error if the keyword is not allowed here."""
    match = KEYWORD.match(line)
    if match is None:
        raise DataError(f"expected a comment, msgid, msgstr or a string: {line[:30]}", decode.path, number)
    keyword, form = match.groups()
    key = keyword if form is None else f"msgstr[{int(form)}]"
    forms = sum(each.startswith("msgstr") for each in entry.values)
    is_plural = "msgid_plural" in entry.values
    is_wrong = {
        "msgctxt": "msgid" in entry.values,
        "msgid": False,
        "msgid_plural": "msgid" not in entry.values or entry.is_translated,
        "msgstr": "msgid" not in entry.values or (key != f"msgstr[{forms}]" if is_plural else form is not None),
    }
    if is_wrong[keyword] or key in entry.values or (form is not None and keyword != "msgstr"):
        place = f"after {', '.join(entry.values)}" if entry.values else "at the beginning of an entry"
        raise DataError(f"{key} is not allowed {place}", decode.path, number)
    entry.begin = entry.begin or number
    entry.values[key] = POValue(number, number, decode.strings(line, match.end(), number))
    return entry.values[key]


def format_value(key: str, text: str, width: int) -> list[str]:
    """Formats a keyword and its text as PO lines, which are broken after spaces and line ends if necessary."""
    pieces = [piece.translate(ESCAPES) for piece in re.findall(r"[^\n]*\n|[^\n]+", text)]
    if len(pieces) <= 1 and _display_width(key) + 1 + sum(map(_display_width, pieces)) <= width:
        return [f'{key} "{"".join(pieces)}"']
    lines: list[list[str]] = [[]]
    for piece in pieces:
        room = 0
        for word in re.findall(r"[^ ]* *", piece):
            if _display_width(word) > room:
                lines.append([])
                room = width
            lines[-1].append(word)
            room -= _display_width(word)
    first, *others = ("".join(words) for words in lines)
    return [f'{key} "{first}"', *(f'"{line}"' for line in others)]


def _display_width(text: str) -> int:
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
