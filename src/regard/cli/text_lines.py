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
    """Opens a file, or standard input for None and "-"; it can be closed while another thread waits for input."""
    is_stdin = name is None or name == "-"
    if is_stdin and sys.stdin.buffer.isatty():
        print("Type your text; Ctrl-D ends it.", file=sys.stderr)
    if is_stdin and not isinstance(sys.stdin.buffer, io.BufferedReader):
        yield sys.stdin.buffer
        return
    if not is_stdin and isinstance(path := as_path(name or ""), RemotePath):
        with path.open("rb") as remote:
            yield remote
        return
    try:  # a new file object, because Python cannot close sys.stdin at exit while a thread waits for it
        source = open(sys.stdin.fileno() if is_stdin else str(name), "rb", closefd=not is_stdin)  # noqa: SIM115
    except OSError as error:
        hint = "; to translate a text, give it on standard input" if " " in str(name) else ""
        raise InputError(f"{name}: cannot be read ({error.strerror}){hint}") from None
    try:
        yield source
    finally:
        source.raw.close()  # closing the buffer would wait for that thread


def read_lines(source: BinaryIO, name: str, sizes: deque[int] | None = None) -> Iterator[str]:
    """Yields lines of UTF-8, split at line feeds only; no character is removed except a byte-order mark.

    The length of each line in bytes is appended to `sizes`.
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
    """Refuses a file with a line that is not UTF-8 before any work; standard input is checked as it is read."""
    if name not in (None, "-") and Path(str(name)).is_file():
        with open_source(name) as source:
            deque(read_lines(source, str(name)), 0)


def read_text(path: Path) -> list[str]:
    """Returns the lines of a UTF-8 file, split at line feeds only."""
    require_plain(path, "give a plain text file, one sentence per line")
    with open_source(str(path)) as source:
        return list(read_lines(source, str(path)))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Writes lines of text."""
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(line + "\n" for line in lines)
