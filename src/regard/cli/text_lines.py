"""Reads lines of text from files and standard input, and writes them to files."""

from __future__ import annotations

import codecs
import io
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from regard.errors import InputError
from regard.files.formats.format_by_suffix import require_plain
from regard.files.remote_files import RemotePath, as_path


@contextmanager
def open_source(name: str | None) -> Iterator[BinaryIO]:
    """Opens a file, or standard input for None and "-", so that it can be closed while another thread reads it."""
    is_stdin = name is None or name == "-"
    if is_stdin and sys.stdin.buffer.isatty():
        print("Type your text and end it with Ctrl-D.", file=sys.stderr)
    if is_stdin and not isinstance(sys.stdin.buffer, io.BufferedReader):
        yield sys.stdin.buffer
        return
    if not is_stdin and isinstance(path := as_path(name or ""), RemotePath):
        with path.open("rb") as remote:
            yield remote
        return
    try:  # opens standard input anew, because Python cannot close sys.stdin at exit while a thread reads it
        source = open(sys.stdin.fileno() if is_stdin else str(name), "rb", closefd=not is_stdin)  # noqa: SIM115
    except OSError as error:
        hint = "; to translate a text, pass it on standard input" if " " in str(name) else ""
        raise InputError(f"{name}: cannot be read ({error.strerror}){hint}") from None
    try:
        yield source
    finally:
        source.raw.close()  # closing the buffer would wait until the other thread has read


def read_lines(source: BinaryIO, name: str, sizes: deque[int] | None = None) -> Iterator[str]:
    """Yields lines of UTF-8 text, split at line feeds only; removes a byte-order mark.

    Appends the length of each line in bytes to `sizes`.
    """
    for number, line in enumerate(source, 1):
        if sizes is not None:
            sizes.append(len(line))
        if number == 1:
            line = line.removeprefix(codecs.BOM_UTF8)
        try:
            yield line.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InputError(f"{name}:{number}: not UTF-8 ({error.reason}): convert it with iconv") from None


def require_utf8(name: str | None) -> None:
    """Raises an error if a file is not UTF-8; standard input is checked later, as it is read."""
    if name not in (None, "-") and Path(str(name)).is_file():
        with open_source(name) as source:
            deque(read_lines(source, str(name)), 0)


def read_text(path: Path) -> list[str]:
    """Returns the lines of a UTF-8 file, split at line feeds only."""
    require_plain(path, "pass a plain text file with one sentence per line")
    with open_source(str(path)) as source:
        return list(read_lines(source, str(path)))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes each line of text with a line feed."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
