"""XML as a stream of elements, or as elements with the places of their bytes.

It is read with expat. Nothing is fetched, declared entities are refused, and what is held of a file is bounded.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Container, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast
from xml.parsers import expat

from regard.errors import DataError
from regard.files.formats import plain_text as plain

DEEPEST = 200  # elements in one another
LONGEST = 1 << 22  # bytes of a tag or a comment
LARGEST = 1 << 29  # bytes of a file that is held as a whole
PIECE = 1 << 18  # bytes that are read at a time
MARKS = [  # of the byte order; a longer one goes before its beginning
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
DECLARED = re.compile(rb"<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z][\w.-]*)[\"']")
NOT_TEXT = {"idna", "punycode", "raw_unicode_escape", "unicode_escape", "utf-7"}  # codecs, but no encoding of a file
TAG = re.compile(rb"<[^>\"']*(?:(?:\"[^\"]*\"|'[^']*')[^>\"']*)*>")


class Walker:
    """Goes through the elements of a file; a subclass says what is done at the begin and the end of each."""

    roots: Sequence[str] = ()  # what the first element may be called

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: list[str] = []  # of the elements that are open
        self.prefix = ""  # of the names of the format's own elements, such as xlf:
        self.fed = 0
        self.parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.specified_attributes = True  # defaults from a DTD are left out
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.EntityDeclHandler = self._refuse_declared
        parser.SkippedEntityHandler = self._refuse_unknown

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        """An element begins."""

    def closed(self, name: str) -> None:
        """An element ends."""

    @property
    def line(self) -> int:
        """Where this is, from 1."""
        return int(self.parser.CurrentLineNumber)

    def feed(self, piece: bytes | memoryview, *, final: bool = False) -> None:
        """Reads some more of the file."""
        try:
            self.parser.Parse(cast(bytes, piece), final)
        except expat.ExpatError as error:
            what = expat.ErrorString(error.code)
            raise DataError(
                f"not well-formed XML ({what}, column {error.offset + 1}): mend it, or write the file anew",
                self.path,
                error.lineno,
            ) from None
        self.fed += len(piece)
        if self.fed - self.parser.CurrentByteIndex > LONGEST:
            raise DataError(f"a tag or comment of more than {LONGEST:,} bytes", self.path, self.line)

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        if not self.names:
            self._begin(name)
        elif len(self.names) >= DEEPEST:
            raise DataError(f"more than {DEEPEST} elements in one another", self.path, self.line)
        if self.prefix:
            name = name.removeprefix(self.prefix)
        self.names.append(name)
        self.opened(name, attributes)

    def _end(self, name: str) -> None:
        self.closed(self.names.pop())

    def _begin(self, name: str) -> None:
        prefix, colon, local = name.rpartition(":")
        if local not in self.roots:
            needed = " or ".join(f"<{root}>" for root in self.roots)
            raise DataError(f"its first element is <{name[:40]}>, where {needed} is needed", self.path, self.line)
        self.prefix = prefix + colon

    def _refuse_declared(self, name: str, *_rest: object) -> None:
        raise DataError(
            f"declares an entity ({name[:40]}), which can hide anything: write out what it stands for, and remove it",
            self.path,
            self.line,
        )

    def _refuse_unknown(self, name: str, _parameter: object) -> None:
        raise DataError(f"the entity &{name[:40]}; is nowhere defined: write the character", self.path, self.line)


def walk(walker: Walker) -> Iterator[None]:
    """Reads the file of a walker piece by piece; after each, what it has found can be taken."""
    for text in _texts(walker.path):
        walker.feed(text.encode())
        yield
    walker.feed(b"", final=True)
    yield


def _texts(path: Path) -> Iterator[str]:
    """The text of a file, piece by piece."""
    with plain.open_unpacked(path) as file:
        piece = file.read(PIECE)
        mark, encoding = encoding_of(piece, path)
        piece = piece[len(mark) :]
        decoder = codecs.getincrementaldecoder(encoding)()
        line = 1
        while True:
            try:
                text = decoder.decode(piece, not piece)
            except UnicodeError as error:
                raise _undecodable(error, encoding, path, line) from None
            line += text.count("\n")
            yield text
            if not piece:
                return
            piece = file.read(PIECE)


def encoding_of(content: bytes, path: Path) -> tuple[bytes, str]:
    """The byte-order mark of a file, and its encoding: by the mark, by the first bytes, or as it says."""
    for mark, encoding in MARKS:
        if content.startswith(mark):
            return mark, encoding
    if content[:2] in (b"<\0", b"\0<"):
        return b"", "utf-16-le" if content.startswith(b"<") else "utf-16-be"
    declared = DECLARED.match(content, 0, 1024)
    if declared is None:
        return b"", "utf-8"
    name = declared[1].decode()
    if re.match("utf-?(16|32)|ucs", name, re.IGNORECASE):  # it says so, and has no wide characters
        return b"", "utf-8"
    with suppress(LookupError, UnicodeError):
        encoding = codecs.lookup(name).name
        if encoding not in NOT_TEXT and b"<?xml".decode(encoding) == "<?xml":
            if encoding != "utf-8" and plain.is_surely_utf8(content):
                raise DataError(f"declares the encoding {name}, but is in UTF-8: write encoding='UTF-8' there", path, 1)
            return b"", encoding
    raise DataError(f"its encoding {name[:40]} is not known: convert it to UTF-8", path, 1)


def _undecodable(error: UnicodeError, encoding: str, path: Path, line: int) -> DataError:
    what = ""
    if isinstance(error, UnicodeDecodeError):
        line += error.object[: error.start].count(b"\n")
        what = f" (byte 0x{error.object[error.start]:02X})"
    return DataError(f"cannot be read as {encoding.upper()}{what}: convert it, e.g. with iconv", path, line)


# Files that are held as a whole


@dataclass
class Content:
    """The bytes of a file, and the same as UTF-8, in which places are told."""

    path: Path
    raw: bytes
    mark: bytes
    encoding: str
    text: bytes

    def edited(self, edits: list[tuple[int, int, bytes]]) -> bytes:
        """The file with other bytes in some places, told by where they begin and end, in its own encoding."""
        if not edits:
            return self.raw
        pieces, done = [], 0
        for start, end, new in sorted(edits, key=lambda edit: edit[:2]):
            pieces += [self.text[done:start], new]
            done = end
        text = b"".join([*pieces, self.text[done:]])
        return self.mark + text.decode().encode(self.encoding, "xmlcharrefreplace")


def load(path: Path) -> Content:
    """The whole of a file."""
    with plain.open_unpacked(path) as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DataError(f"has more than {LARGEST:,} bytes, too many to be filled in: split it", path)
    mark, encoding = encoding_of(raw, path)
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeError as error:
        raise _undecodable(error, encoding, path, 1) from None
    if mark + text.encode(encoding, "xmlcharrefreplace") != raw:
        raise DataError(f"in {encoding}, it cannot be written as it is: convert it to UTF-8", path)
    return Content(path, raw, mark, encoding, text.encode())


@dataclass(slots=True, eq=False)
class Element:
    """An element and its places in the UTF-8 of its file."""

    name: str
    attributes: dict[str, str]
    line: int
    start: int  # of its opening tag
    inside: int  # where this ends
    parent: Element | None
    until: int = 0  # where its closing tag begins
    end: int = 0
    content: list[str | Element] = field(default_factory=list)

    @property
    def alone(self) -> bool:
        """Whether it is one tag such as <x/>."""
        return self.end == self.inside

    def find(self, name: str) -> Element | None:
        """Its first child of this name."""
        return next(iter(self.children(name)), None)

    def children(self, name: str) -> list[Element]:
        """All its children of this name."""
        return [each for each in self.content if isinstance(each, Element) and each.name == name]

    def inherited(self, *names: str) -> str:
        """The nearest value of an attribute: its own, or that of an element around it."""
        element: Element | None = self
        while element is not None:
            for name in names:
                if name in element.attributes:
                    return element.attributes[name]
            element = element.parent
        return ""


class ElementReader(Walker):
    """Collects the elements of some names with all that is in them; of those around them, only their opening tags."""

    def __init__(self, content: Content, roots: Sequence[str], wanted: Container[str]) -> None:
        super().__init__(content.path)
        self.roots, self.text, self.wanted = roots, content.text, wanted
        self.open: list[Element] = []
        self.around = 0  # elements that are open and not in a wanted one
        self.finished: list[Element] = []

    def elements(self) -> Iterator[Element]:
        """The wanted elements, each as soon as it has been read."""
        view = memoryview(self.text)
        for start in range(0, len(view) + 1, PIECE):
            self.feed(view[start : start + PIECE], final=start + PIECE > len(view))
            yield from self.finished
            self.finished.clear()

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        start = self.parser.CurrentByteIndex
        tag = TAG.match(self.text, start)
        assert tag is not None  # as expat has found it
        element = Element(name, attributes, self.line, start, tag.end(), self.open[-1] if self.open else None)
        if self.around < len(self.open):
            self.open[-1].content.append(element)
        elif name in self.wanted:
            self.parser.CharacterDataHandler = self._text
        else:
            self.around += 1
        self.open.append(element)

    def closed(self, name: str) -> None:
        element = self.open.pop()
        if self.text[element.inside - 2 : element.inside] == b"/>":
            element.until = element.end = element.inside
        else:
            element.until = self.parser.CurrentByteIndex
            element.end = self.text.index(b">", element.until) + 1
        if len(self.open) < self.around:
            self.around -= 1
        elif len(self.open) == self.around:
            self.parser.CharacterDataHandler = None
            self.finished.append(element)

    def _text(self, text: str) -> None:
        self.open[-1].content.append(text)
