"""Reads the lessons that the explorer shows beside its views; the page parses and displays them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from regard.errors import InputError
from regard.explorer.request_types import MissingError

MAX_BYTES = 200_000
TITLE = re.compile(r"^title:[ \t]*(\S.*?)[ \t]*$", re.MULTILINE)


@dataclass(frozen=True)
class Lesson:
    """A lesson with its name, title and Markdown text."""

    name: str
    title: str
    text: str

    def describe(self) -> dict[str, str]:
        return {"name": self.name, "language": "", "title": self.title}


def read_lesson(path: Path) -> Lesson:
    """Reads a lesson; raises InputError if the file is not a lesson."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InputError(f"{path}: cannot read this lesson: {error.strerror}") from None
    if len(content) > MAX_BYTES:
        raise InputError(f"{path}: a lesson has at most {MAX_BYTES:,} bytes; split it into several")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8; save the lesson as UTF-8") from None
    header, separator, _ = text.removeprefix("---").partition("\n---")
    title = TITLE.search(header)
    if not text.startswith("---") or not separator or not title:
        raise InputError(f"{path}:1: a lesson starts with a header: a line ---, a line title: ..., and a line ---")
    return Lesson(path.stem, title[1], text)


def read_lessons(paths: Iterable[Path]) -> dict[str, Lesson]:
    """Reads several lessons, keyed by name."""
    lessons: dict[str, Lesson] = {}
    for path in paths:
        lesson = read_lesson(path)
        if lesson.name in lessons:
            raise InputError(f"{path}: another lesson is called {lesson.name}: rename one of the files")
        lessons[lesson.name] = lesson
    return lessons


def find_lesson(lessons: dict[str, Lesson], name: str) -> Lesson:
    """Returns the lesson with this name, or raises MissingError."""
    if name not in lessons:
        raise MissingError(f"name: no lesson is called {name[:100]!r}")
    return lessons[name]
