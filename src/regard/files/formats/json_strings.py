"""JSON and ARB: tables of the texts of an interface in one language."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import Document, format_by_suffix as files, plain_text as plain
from regard.files.formats.replaced_text import Spliced, has_words

TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)


@dataclass(frozen=True, slots=True)
class JSONValue:
    """A string, number or other value of a JSON text that holds no further ones, and where it stands."""

    keys: tuple[str, ...]  # those that lead to it, and numbers of list items
    start: int
    end: int
    spelled: str


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each string that has words in it; not for keys, nor for what an ARB file tells about them."""
    document = Spliced(path, plain.text(path), source, target)
    mark = document.text.startswith("\ufeff")
    table = _parsed(document, mark)
    arb = files.suffix(path) == ".arb"
    escaped = document.text.isascii() and "\\u" in document.text
    messages = _has_messages(table)
    for value in values(document.text, mark):
        text = json.loads(value.spelled) if value.spelled.startswith('"') else ""
        if arb and value.keys == ("@@locale",):
            document.source_language = document.source_language or text
            document.language = (value.start, value.end, json.dumps)
        elif value.keys[:1] and value.keys[0].startswith("@" if arb else "$"):
            continue
        elif has_words(text) and (not messages or value.keys[1:] == ("message",)):
            context = ".".join(value.keys)
            document.add(text, value.start, value.end, _ascii if escaped else _unicode, context=context)
    return document


def _unicode(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _ascii(text: str) -> str:
    return json.dumps(text)


def _parsed(document: Spliced, start: int) -> object:
    """What a JSON text stands for; it is parsed to know that it is right."""
    try:
        return json.loads(document.text[start:])
    except json.JSONDecodeError as error:
        at = start + error.pos
        raise document.fault(f"not JSON: {error.msg}, not {document.text[at : at + 20]!r}", at) from None
    except (ValueError, RecursionError) as error:  # a number too long, lists too deep
        raise DataError(f"not JSON that can be read: {error}", document.path) from None


def _has_messages(table: object) -> bool:
    """Whether each text has a description beside it, as in the extensions of browsers."""
    return (
        bool(table)
        and isinstance(table, dict)
        and all(isinstance(each, dict) and isinstance(each.get("message"), str) for each in table.values())
    )


def values(text: str, start: int = 0) -> Iterator[JSONValue]:
    """The values of a text that is right JSON, with their places."""
    levels: list[str | int] = []  # the current key of each object, and the current number of each list
    in_key = False
    for found in TOKEN.finditer(text, start):
        piece = found[0]
        if piece == "{":
            levels.append("")
            in_key = True
        elif piece == "[":
            levels.append(0)
            in_key = False
        elif piece in "}]":
            levels.pop()
            in_key = False
        elif piece == ",":
            last = levels[-1]
            in_key = isinstance(last, str)
            levels[-1] = last if isinstance(last, str) else last + 1
        elif piece == ":":
            in_key = False
        elif in_key:
            levels[-1] = json.loads(piece)
        else:
            yield JSONValue(tuple(map(str, levels)), found.start(), found.end(), piece)
