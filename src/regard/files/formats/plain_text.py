"""Plain text, gzipped or not: line n of one file translates line n of another; documents have a unit for each line."""

from __future__ import annotations

import codecs
import gzip
import re
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document
from regard.files.formats.text_replacements import TextDocument, has_words, on_one_line
from regard.settings import DataSettings
from regard.tokens.text_pairs import Location, Pair

HEAD = 1 << 14  # number of bytes from which the kind of a file is detected
BEGINNINGS = {
    "XML or HTML": rb"<(?:\?xml|!doctype|html|head|body|svg|xliff|tmx|martif|tbx|ts|resources|root|plist|rss)\b",
    "JSON": rb'(?:\[\s*)?\{\s*"(?:[^"\\\n]|\\.)*"\s*:',
    "a PO catalogue": rb'(?:#[^\n]*(?:\n|\Z)|\s)*(?:msgctxt|msgid)[ \t]*"',
    "subtitles": rb"WEBVTT\b|[0-9]+\s*\n[0-9:]+[.,][0-9]+ *-->",
    "a PDF file": rb"%PDF-",
    "an RTF file": rb"\{\\rtf",
}
"""Patterns for the beginnings of files that are not plain text, keyed by the kind of file."""


def detect_markup(path: Path) -> str:
    """Returns the kind of a file that is not plain text, otherwise an empty text; never reads from a pipe."""
    if not path.is_file():
        return ""
    with open_unpacked(path) as file:
        head = file.read(HEAD).removeprefix(codecs.BOM_UTF8).lstrip()
    return next((kind for kind, beginning in BEGINNINGS.items() if re.match(beginning, head, re.IGNORECASE)), "")


def is_surely_utf8(data: bytes) -> bool:
    """Returns whether bytes are UTF-8 with at least three non-ASCII characters, which hardly ever happens by chance."""
    try:
        text = codecs.getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return sum(not character.isascii() for character in text) >= 3


def read(source: Path, target: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields line pairs from two plain-text files with the same number of lines."""
    for number, (left, right) in aligned_lines([source, target], "line n of one must translate line n of the other"):
        source_text = decode(left, source, number, data, report)
        target_text = None if source_text is None else decode(right, target, number, data, report)
        if source_text is not None and target_text is not None:
            report.read += 1
            yield Pair(source_text, target_text, Location(str(source), number))


def aligned_lines(paths: Sequence[Path], rule: str) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yields each line number with that line of all files; raises an error if the numbers of lines differ."""
    readers = [lines(path) for path in paths]
    for number, row in enumerate(zip_longest(*readers), 1):
        if None in row:
            counts = [
                number - 1 if line is None else number + sum(1 for _ in reader)
                for line, reader in zip(row, readers, strict=True)
            ]
            sizes = (f"{count:,} line{'s' * (count != 1)}" for count in counts)
            listed = " but ".join(f"{path} has {size}" for path, size in zip(paths, sizes, strict=True))
            raise DataError(f"{listed}: pairs would be misaligned; {rule}")
        yield number, row


def texts(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[str, Location]]:
    """Yields the lines of a file as text, and counts them as read."""
    for number, text in decoded_lines(path, data, report):
        report.read += 1
        yield text, Location(str(path), number)


def decoded_lines(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[int, str]]:
    """Yields numbers and texts of the lines of a file; drops and counts undecodable lines if the settings say so."""
    for number, line in enumerate(lines(path), 1):
        text = decode(line, path, number, data, report)
        if text is not None:
            yield number, text


def lines(path: Path) -> Iterator[bytes]:
    """Yields the lines of a file, split at line feeds only, without line ends and byte-order mark."""
    with open_unpacked(path) as file:
        for number, line in enumerate(file, 1):
            if b"\0" in line:
                raise DataError("this looks like a binary file; convert UTF-16 text to UTF-8", path, number)
            if number == 1:
                line = line.removeprefix(codecs.BOM_UTF8)
            yield line.removesuffix(b"\n").removesuffix(b"\r")


@contextmanager
def open_unpacked(path: Path) -> Iterator[BinaryIO]:
    """Opens a local or remote file and decompresses it if it is gzipped; errors during reading name the file."""
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
    """Returns the bytes of a file, decompressed if it is gzipped."""
    with open_unpacked(path) as file:
        return file.read()


def text(path: Path) -> str:
    """Returns the text of a UTF-8 file, including its byte-order mark and line ends."""
    whole = content(path)
    try:
        return whole.decode()
    except UnicodeDecodeError as error:
        advice = "convert it, for example with iconv -f latin1 -t utf-8"
        byte = f"byte {error.start + 1} of the file (0x{whole[error.start]:02X})"
        raise DataError(f"{byte} is not UTF-8: {advice}", path, whole.count(b"\n", 0, error.start) + 1) from None


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """Opens a file with a unit for each line that contains words."""
    if kind := detect_markup(path):
        raise DataError(f"the file looks like {kind}, not like plain text: use the suffix of its format", path)
    document = TextDocument(path, text(path), source, target)
    for match in re.finditer(r"[^\s\ufeff][^\n]*", document.text):
        line = match[0].rstrip()
        if has_words(line):
            document.add(line, match.start(), match.start() + len(line), on_one_line)
    return document


def decode(line: bytes, path: Path, number: int, data: DataSettings, report: Report) -> str | None:
    """Decodes a line; returns None if it is not UTF-8 and the settings drop such lines."""
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        if data.undecodable == "drop":
            report.read += 1
            report.drop("undecodable", Location(str(path), number))
            return None
        raise DataError(
            f"byte {error.start + 1} of the line (0x{line[error.start]:02X}) is not UTF-8: convert the file, e.g. "
            "with iconv -f latin1 -t utf-8, or skip such lines with regard train --data.undecodable drop",
            path,
            number,
        ) from None
