"""Parses XML as a stream of elements, or into elements with their positions in the file.

The parser is expat. It loads nothing from the network, rejects entity declarations, and holds only a limited part of a
streamed file in memory.
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
from regard.files.formats.text_replacements import splice

DEEPEST = 200  # maximum depth of nested elements
LONGEST_TAG = 1 << 22  # maximum size of a tag or comment in bytes
LONGEST_ELEMENT = 1 << 23  # maximum number of characters in an element of a streamed file
ELEMENT_SIZE = 1 << 8  # number of characters for which a nested element counts
LARGEST = 1 << 29  # maximum size in bytes of a file that is held in memory
PIECE = 1 << 18  # number of bytes that are read at a time
BYTE_ORDER_MARKS = [  # longer marks come before their prefixes
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
]
DECLARED = re.compile(rb"<\?xml\s[^>]*?encoding\s*=\s*[\"']([A-Za-z][\w.-]*)[\"']")
NOT_TEXT = {"idna", "punycode", "raw_unicode_escape", "unicode_escape", "utf-7"}  # codecs that files do not use
TAG = re.compile(rb"<[^>\"']*+(?:(?:\"[^\"]*+\"|'[^']*+')[^>\"']*+)*+>")


@dataclass
class Content:
    """A file in memory: its bytes, and its text in UTF-8, to which all positions refer."""

    path: Path
    raw: bytes
    mark: bytes
    encoding: str
    text: bytes

    def edited(self, edits: list[tuple[int, int, bytes]]) -> bytes:
        """Returns the file in its original encoding, with text[start:end] replaced by `new` for each edit."""
        if not edits:
            return self.raw
        text = splice(self.text, sorted(edits, key=lambda edit: edit[:2]))
        return self.mark + text.decode().encode(self.encoding, "xmlcharrefreplace")


def load(path: Path) -> Content:
    """Reads a whole file; raises an error if it could not be written back byte for byte."""
    with plain.open_unpacked(path) as file:
        raw = file.read(LARGEST + 1)
    if len(raw) > LARGEST:
        raise DataError(f"the file has more than {LARGEST:,} bytes: split it into smaller files", path)
    mark, encoding = encoding_of(raw, path)
    try:
        text = raw[len(mark) :].decode(encoding)
    except UnicodeError as error:
        raise _undecodable(error, encoding, path, 1) from None
    if mark + text.encode(encoding, "xmlcharrefreplace") != raw:
        raise DataError(f"the file cannot be written back unchanged in {encoding}: convert it to UTF-8", path)
    return Content(path, raw, mark, encoding, text.encode())


@dataclass(slots=True, eq=False)
class Element:
    """An XML element and, if its file is held in memory, its positions in `Content.text`."""

    name: str
    attributes: dict[str, str]
    line: int
    start: int  # start of the opening tag
    inside: int  # end of the opening tag
    parent: Element | None  # None in streamed files, so that elements are freed without garbage collection
    until: int = 0  # start of the closing tag
    end: int = 0
    content: list[str | Element] = field(default_factory=list)

    @property
    def alone(self) -> bool:
        """True if the element is a single tag such as <x/>."""
        return self.end == self.inside

    def find(self, name: str) -> Element | None:
        """Returns the first child with this name, or None."""
        return next(iter(self.children(name)), None)

    def children(self, name: str) -> list[Element]:
        """Returns all children with this name."""
        return [each for each in self.content if isinstance(each, Element) and each.name == name]

    def inherited(self, *names: str) -> str:
        """Returns the value of an attribute of this element or of its nearest ancestor that has it."""
        element: Element | None = self
        while element is not None:
            for name in names:
                if name in element.attributes:
                    return element.attributes[name]
            element = element.parent
        return ""


class ElementReader:
    """Reads all elements with certain names, including their content; of their ancestors, only the opening tags.

    Without `content`, the file is streamed and elements have no positions.
    """

    def __init__(
        self, path: Path, roots: Sequence[str], wanted: Container[str], content: Content | None = None
    ) -> None:
        self.path, self.roots, self.wanted, self.content = path, roots, wanted, content
        self.prefix = ""  # namespace prefix of the elements of the format, such as xlf:
        self._open: list[Element] = []
        self._around = 0  # number of open elements outside the wanted ones
        self._finished: list[Element] = []
        self._fed = self._size = 0
        self._parser = parser = expat.ParserCreate("utf-8")
        parser.buffer_text = True
        parser.specified_attributes = True  # ignores default values from a DTD
        parser.StartElementHandler = self._opened
        parser.EndElementHandler = self._closed
        parser.EntityDeclHandler = self._reject_declaration
        parser.SkippedEntityHandler = self._reject_unknown

    def elements(self) -> Iterator[Element]:
        """Yields the wanted elements, each as soon as it has been read."""
        for piece in self._pieces():
            self.feed(piece)
            yield from self._finished
            self._finished.clear()
        self.feed(b"", final=True)
        yield from self._finished

    def _pieces(self) -> Iterator[bytes | memoryview]:
        if self.content is None:
            yield from map(str.encode, decoded_pieces(self.path))
        else:
            view = memoryview(self.content.text)
            yield from (view[start : start + PIECE] for start in range(0, len(view), PIECE))

    @property
    def _line(self) -> int:
        return int(self._parser.CurrentLineNumber)

    def feed(self, piece: bytes | memoryview, *, final: bool = False) -> None:
        """Parses the next piece of the file."""
        try:
            self._parser.Parse(cast(bytes, piece), final)
        except expat.ExpatError as error:
            reason = f"{expat.ErrorString(error.code)}, column {error.offset + 1}"
            raise DataError(f"not well-formed XML ({reason}): correct it", self.path, error.lineno) from None
        self._fed += len(piece)
        if self._fed - self._parser.CurrentByteIndex > LONGEST_TAG:
            raise self._fault(f"a tag or comment has more than {LONGEST_TAG:,} bytes: split it")

    def _fault(self, message: str) -> DataError:
        return DataError(message, self.path, self._line)

    def _opened(self, name: str, attributes: dict[str, str]) -> None:
        parent = self._open[-1] if self._open else None
        if parent is None:
            self._require_root(name)
        elif len(self._open) >= DEEPEST:
            raise self._fault(f"elements are nested more than {DEEPEST} deep")
        name, start, inside = name.removeprefix(self.prefix), self._parser.CurrentByteIndex, 0
        if self.content and (tag := TAG.match(self.content.text, start)):
            inside = tag.end()
        element = Element(name, attributes, self._line, start, inside, parent if self.content else None)
        if parent and self._around < len(self._open):
            parent.content.append(element)
            self._grow(ELEMENT_SIZE)
        elif name in self.wanted:
            self._size, self._parser.CharacterDataHandler = 0, self._text
        else:
            self._around += 1
        self._open.append(element)

    def _closed(self, _name: str) -> None:
        element = self._open.pop()
        if self.content and self.content.text[element.inside - 2 : element.inside] == b"/>":
            element.until = element.end = element.inside
        elif self.content:
            element.until = self._parser.CurrentByteIndex
            element.end = self.content.text.index(b">", element.until) + 1
        if len(self._open) < self._around:
            self._around -= 1
        elif len(self._open) == self._around:
            self._parser.CharacterDataHandler = None
            self._finished.append(element)

    def _text(self, text: str) -> None:
        self._open[-1].content.append(text)
        self._grow(len(text))

    def _grow(self, characters: int) -> None:
        self._size += characters
        if self._size > LONGEST_ELEMENT and not self.content:
            raise self._fault(f"an element has more than {LONGEST_ELEMENT:,} characters: split it")

    def _require_root(self, name: str) -> None:
        prefix, colon, local = name.rpartition(":")
        if local not in self.roots:
            needed = " or ".join(f"<{root}>" for root in self.roots)
            raise self._fault(f"the root element is <{name[:40]}>, but must be {needed}")
        self.prefix = prefix + colon

    def _reject_declaration(self, name: str, *_declaration: object) -> None:
        raise self._fault(
            f"the file declares an entity ({name[:40]}), which is unsafe: replace it by its text and remove it"
        )

    def _reject_unknown(self, name: str, _is_parameter: object) -> None:
        raise self._fault(f"the entity &{name[:40]}; is not defined: write the character instead")


def decoded_pieces(path: Path) -> Iterator[str]:
    """Yields the text of a file in pieces."""
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
    """Returns the byte-order mark and the encoding of a file, from the mark, the first bytes or the declaration."""
    for mark, encoding in BYTE_ORDER_MARKS:
        if content.startswith(mark):
            return mark, encoding
    if content[:2] in (b"<\0", b"\0<"):
        return b"", "utf-16-le" if content.startswith(b"<") else "utf-16-be"
    declared = DECLARED.match(content, 0, 1024)
    if declared is None:
        return b"", "utf-8"
    name = declared[1].decode()
    if re.match("utf-?(16|32)|ucs", name, re.IGNORECASE):  # wrong, since the declaration has one-byte characters
        return b"", "utf-8"
    with suppress(LookupError, UnicodeError):
        encoding = codecs.lookup(name).name
        if encoding not in NOT_TEXT and b"<?xml".decode(encoding) == "<?xml":
            if encoding != "utf-8" and plain.is_surely_utf8(content):
                advice = "write encoding='UTF-8' into the declaration"
                raise DataError(f"the declared encoding is {name}, but the file is in UTF-8: {advice}", path, 1)
            return b"", encoding
    raise DataError(f"the encoding {name[:40]} is unknown: convert the file to UTF-8", path, 1)


def _undecodable(error: UnicodeError, encoding: str, path: Path, line: int) -> DataError:
    byte = ""
    if isinstance(error, UnicodeDecodeError):
        line += error.object[: error.start].count(b"\n")
        byte = f" (byte 0x{error.object[error.start]:02X})"
    return DataError(f"not valid {encoding.upper()}{byte}: convert the file, for example with iconv", path, line)
