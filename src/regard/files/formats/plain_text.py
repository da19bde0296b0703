"""Plain text, gzipped or not: line n of a file translates line n of another; a unit a line of one alone."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import DataError
from regard.files.formats import Document
from regard.files.formats.replaced_text import Spliced, has_words, one_line
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Location, Pair

HEAD = 1 << 14  # bytes of a file that are looked at
MARKED = {  # what text begins with that is not plain
    "XML or HTML": rb"<(?:\?xml|!doctype|html|head|body|svg|xliff|tmx|martif|tbx|ts|resources|root|plist|rss)\b",
    "JSON": rb'(?:\[\s*)?\{\s*"(?:[^"\\\n]|\\.)*"\s*:',
    "a PO catalogue": rb'(?:#[^\n]*(?:\n|\Z)|\s)*(?:msgctxt|msgid)[ \t]*"',
    "subtitles": rb"WEBVTT\b|[0-9]+\s*\n[0-9:]+[.,][0-9]+ *-->",
    "a PDF file": rb"%PDF-",
    "an RTF file": rb"\{\\rtf",
}
MARKED_AS = {kind: re.compile(pattern, re.IGNORECASE) for kind, pattern in MARKED.items()}


def detect_markup(path: Path) -> str:
    """Names what a file is by its first bytes if that is not plain text; a pipe is left unread."""
    if not path.is_file():
        return ""
    with open_unpacked(path) as file:
        head = file.read(HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    return next((kind for kind, pattern in MARKED_AS.items() if pattern.match(head)), "")


def is_surely_utf8(data: bytes) -> bool:
    """Whether bytes that are said to be in another charset are in UTF-8: three letters are so by chance no more."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return sum(not character.isascii() for character in text) >= 3


def read(source: Path, target: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of two files with equally many lines."""
    lefts, rights = lines(source), lines(target)
    for number, (left, right) in enumerate(zip_longest(lefts, rights), 1):
        if left is None or right is None:
            shorter, longer = number - 1, number + sum(1 for _ in (rights if left is None else lefts))
            counts = (shorter, longer) if left is None else (longer, shorter)
            raise DataError(
                f"{source} has {counts[0]:,} lines but {target} has {counts[1]:,}: pairs would be misaligned; "
                "line n of the one must translate line n of the other"
            )
        report.read += 1
        source_text = decode(left, source, number, data, report)
        target_text = None if source_text is None else decode(right, target, number, data, report)
        if source_text is not None and target_text is not None:
            yield Pair(source_text, target_text, Location(str(source), number))


def texts(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[str, Location]]:
    """The lines of a file as text, each counted as read; what is not UTF-8 is left out where the settings say so."""
    for number, line in enumerate(lines(path), 1):
        report.read += 1
        text = decode(line, path, number, data, report)
        if text is not None:
            yield text, Location(str(path), number)


def lines(path: Path) -> Iterator[bytes]:
    """The lines of a file, cut at line feeds only, without line ends and byte-order mark."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, 1):
            if b"\0" in line:
                raise DataError("looks like a binary file; text in UTF-16 must be converted to UTF-8", path, number)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """A file to read, gzipped or not, wherever it is; what goes wrong while it is read is told with its name."""
    try:
        with path.open("rb") as file:
            if path.suffix != ".gz":
                yield file
                return
            with gzip.open(file) as inner:
                yield cast(BinaryIO, inner)
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise DataError(f"cannot be read ({reason})", path) from None


def content(path: Path) -> bytes:
    """All bytes of a file, unpacked."""
    with open_unpacked(path) as file:
        return file.read()


def text(path: Path) -> str:
    """All text of a file in UTF-8, with its byte-order mark and its line ends."""
    whole = content(path)
    try:
        return whole.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"byte {error.start + 1} of the file (0x{whole[error.start]:02X}) is not UTF-8: convert it, e.g. with "
            "iconv -f latin1 -t utf-8",
            path,
            whole.count(b"\n", 0, error.start) + 1,
        ) from None


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each line that has words in it."""
    kind = detect_markup(path)
    if kind:
        raise DataError(f"begins like {kind}, not like plain text: let its name end as its format does", path)
    document = Spliced(path, text(path), source, target)
    for found in re.finditer(r"[^\s\ufeff][^\n]*", document.text):
        line = found[0].rstrip()
        if has_words(line):
            document.add(line, found.start(), found.start() + len(line), one_line)
    return document


def decode(line: bytes, path: Path, number: int, data: DataSettings, report: Report) -> str | None:
    """The text of a line; None, with a note in the report, when it is not UTF-8 and such lines are dropped."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        if data.undecodable == "drop":
            report.drop("undecodable", Location(str(path), number))
            return None
        raise DataError(
            f"byte {error.start + 1} of the line (0x{line[error.start]:02X}) is not UTF-8: convert the file, e.g. "
            "with iconv -f latin1 -t utf-8, or leave such lines out with regard train --data.undecodable drop",
            path,
            number,
        ) from None
