"""The lines of a PO file: which entries stand on them, and how a text is spelled there."""

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
STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"\s*', re.DOTALL)
ESCAPE = re.compile(r"(?P<bytes>(?:\\[0-7]{1,3}|\\x[0-9A-Fa-f]{2})+)|\\(?P<letter>.)", re.DOTALL)
BYTE = re.compile(r"\\([0-7]{1,3})|\\x(..)")
CHARSET = re.compile(rb"charset=([\w.:+-]+)")
LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", "\\": "\\", '"': '"'}
SPELLED = {
    **{number: f"\\{number:03o}" for number in (*range(32), 127)},
    **{ord(character): f"\\{letter}" for letter, character in LETTERS.items()},
}


@dataclass
class POValue:
    """The strings after a keyword, and the lines on which they stand, counted from 1."""

    first: int
    last: int
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.parts)


@dataclass
class POEntry:
    """A message: what stands after its keywords, and where its flags stand or would have to."""

    values: dict[str, POValue] = field(default_factory=dict)  # by keyword, such as msgid or msgstr[0], in their order
    fuzzy: bool = False
    flags: int = 0  # the first line with flags; 0 where there is none
    begin: int = 0  # the line before which flags belong

    @property
    def line(self) -> int:
        return self.values["msgid"].first

    @property
    def is_translated(self) -> bool:
        """Whether it has come to its msgstr, after which the next entry may begin."""
        return any(key.startswith("msgstr") for key in self.values)

    @property
    def is_header(self) -> bool:
        return not self.values["msgid"].text and not self.values.keys() & {"msgctxt", "msgid_plural"}

    @property
    def header(self) -> dict[str, str]:
        """What the header tells, by names in lower case."""
        text = "".join(value.text for key, value in self.values.items() if key.startswith("msgstr"))
        pairs = (line.partition(":") for line in text.split("\n"))
        return {name.strip().lower(): told.strip() for name, _, told in pairs}

    def forms(self, at_least: int) -> list[tuple[str, str]]:
        """The sources and keywords of its translations, of a plural at least so many."""
        single = self.values["msgid"].text
        if "msgid_plural" not in self.values:
            return [(single, "msgstr")]
        plural = self.values["msgid_plural"].text
        count = max(at_least, sum(key.startswith("msgstr") for key in self.values))
        return [(single if i == 0 and count > 1 else plural, f"msgstr[{i}]") for i in range(count)]


@dataclass(frozen=True)
class LineDecoder:
    """What makes text of the lines of a file."""

    charset: str
    path: Path
    errors: str = "strict"
    declared: str = ""  # the charset as the file spells it; nothing where it declares none
    line: int = 0  # where it does

    def __call__(self, line: bytes, number: int) -> str:
        try:
            return line.decode(self.charset, self.errors)
        except UnicodeError:
            told = f"{self.declared}, the charset that its header declares" if self.declared else "UTF-8"
            raise DataError(f"is not in {told}: {MEND}", self.path, number) from None

    def strings(self, line: str, at: int, number: int) -> list[str]:
        """The strings in quotation marks that a line has from `at` to its end."""
        found = []
        while at < len(line):
            match = STRING.match(line, at)
            if match is None:
                broken = "a string without its closing quotation mark" if line[at] == '"' else "what is in no string"
                raise DataError(f"{broken}: {line[at : at + 30]}", self.path, number)
            found.append(ESCAPE.sub(self._character, match[1]) if "\\" in match[1] else match[1])
            at = match.end()
        return found

    def _character(self, found: re.Match[str]) -> str:
        letter = found["letter"]
        if letter is not None:
            return LETTERS.get(letter, f"\\{letter}")
        numbers = [
            int(octal, 8) & 255 if octal else int(hexadecimal, 16) for octal, hexadecimal in BYTE.findall(found[0])
        ]
        return bytes(numbers).decode(self.charset, "replace")


def line_decoder(lines: Sequence[bytes], path: Path, errors: str = "strict") -> LineDecoder:
    """The charset that the header declares, which is the first entry; UTF-8 where it does not."""
    messages = 0
    for number, line in enumerate(lines, 1):
        messages += line.startswith(b"msgid ")
        if messages > 1:
            break
        found = CHARSET.search(line) if line.lstrip().startswith((b'"', b"msgstr")) else None
        if found and found[1] != b"CHARSET":  # which stands in templates
            declared = found[1].decode("ascii", "replace")
            name = charset(declared, path, number)
            _require_honest(declared, name, lines, path, number)
            return LineDecoder(name, path, errors, declared, number)
    return LineDecoder("utf-8", path, errors)


MEND = "write the charset that it is in into its header, or convert it with msgconv -t utf-8"


def _require_honest(declared: str, name: str, lines: Sequence[bytes], path: Path, number: int) -> None:
    """Refuses a catalogue in UTF-8 that declares another charset: its texts would be read as other characters."""
    if not name.startswith(("utf", "gb18030")):
        text = b"".join(line for line in lines if not line.startswith(b"#") and not line.isascii())
        if is_surely_utf8(text):
            raise DataError(
                f"declares the charset {declared}, but is in UTF-8: write charset=UTF-8 into its header", path, number
            )


def charset(name: str, path: Path, number: int) -> str:
    """A charset that Python knows and in which ASCII is ASCII, so that lines and keywords can be found."""
    ascii_text = string.printable.translate({ord(character): None for character in "~\x0b\x0c"})
    try:
        usable = ascii_text.encode(name) == ascii_text.encode()
    except (LookupError, ValueError):
        usable = False
    if not usable:
        raise DataError(f"the charset {name} cannot be used: convert the file with msgconv -t utf-8", path, number)
    return codecs.lookup(name).name


def entries(lines: Sequence[bytes], path: Path, errors: str = "strict") -> Iterator[POEntry]:
    """The entries of a file that are not obsolete, from its lines without line feeds."""
    decode = line_decoder(lines, path, errors)
    entry, value = POEntry(), None
    for number, raw in enumerate(lines, 1):
        line = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).strip()
        if not line:
            continue
        if line.startswith(b'"'):
            if value is None:
                raise DataError(f"a string that no msgid or msgstr begins: {_shown(line)}", path, number)
            value.parts += decode.strings(decode(line, number), 0, number)
            value.last = number
            continue
        begins = line.startswith((b"#", b"msgctxt", b"domain")) or (line.startswith(b"msgid") and line[5:6] != b"_")
        if begins and (entry.is_translated or line.startswith((b"#~", b"domain"))):
            yield from _finished(entry, path)
            entry, value = POEntry(), None
        if line.startswith(b"#"):
            _remark(entry, line, number)
        elif not line.startswith(b"domain"):
            value = _begin(entry, decode(line, number), decode, number)
    yield from _finished(entry, path)


def _shown(line: bytes) -> str:
    return line[:30].decode("ascii", "replace")


def _remark(entry: POEntry, line: bytes, number: int) -> None:
    """Note what a comment says about its entry."""
    if line.startswith(b"#,"):
        entry.flags = entry.flags or number
        entry.fuzzy |= any(flag.strip() == b"fuzzy" for flag in line[2:].split(b","))
    elif line.startswith(b"#|"):
        entry.begin = entry.begin or number


def _begin(entry: POEntry, line: str, decode: LineDecoder, number: int) -> POValue:
    """The value that a keyword begins, which has to be one that may come next."""
    found = KEYWORD.match(line)
    if found is None:
        raise DataError(f"neither a comment nor msgid, msgstr or a string: {line[:30]}", decode.path, number)
    keyword, form = found.groups()
    key = keyword if form is None else f"msgstr[{int(form)}]"
    forms = sum(each.startswith("msgstr") for each in entry.values)
    plural = "msgid_plural" in entry.values
    wrong = {
        "msgctxt": "msgid" in entry.values,
        "msgid": False,
        "msgid_plural": "msgid" not in entry.values or entry.is_translated,
        "msgstr": "msgid" not in entry.values or (key != f"msgstr[{forms}]" if plural else form is not None),
    }
    if wrong[keyword] or key in entry.values or (form is not None and keyword != "msgstr"):
        before = ", ".join(entry.values) or "nothing"
        raise DataError(f"{key} cannot stand here: its entry has {before} before it", decode.path, number)
    entry.begin = entry.begin or number
    entry.values[key] = POValue(number, number, decode.strings(line, found.end(), number))
    return entry.values[key]


def _finished(entry: POEntry, path: Path) -> Iterator[POEntry]:
    """An entry, if there is any, that has all that it needs."""
    for key, value in entry.values.items():
        if not value.parts:
            raise DataError(f"{key} without a string after it", path, value.first)
    if entry.values and not entry.is_translated:
        raise DataError("an entry without msgstr", path, next(iter(entry.values.values())).first)
    if entry.values:
        yield entry


def spell(key: str, text: str, width: int) -> list[str]:
    """The lines that give a keyword its text: one if it fits, else it goes on below, cut after spaces and line ends."""
    pieces = [piece.translate(SPELLED) for piece in re.findall(r"[^\n]*\n|[^\n]+", text)]
    if len(pieces) <= 1 and _columns(key) + 1 + sum(map(_columns, pieces)) <= width:
        return [f'{key} "{"".join(pieces)}"']
    lines = [""]
    for piece in pieces:
        room = 0
        for word in re.findall(r"[^ ]* *", piece):
            if _columns(word) > room:
                lines.append("")
                room = width
            lines[-1] += word
            room -= _columns(word)
    return [f'{key} "{lines[0]}"', *(f'"{line}"' for line in lines[1:])]


def _columns(text: str) -> int:
    """How wide a text is on a screen."""
    return len(text) + sum(unicodedata.east_asian_width(character) in "WF" for character in text)
