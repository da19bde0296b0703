"""JSON and ARB files with the texts of one language, and JSONL files with a source and a target on each line."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document, TranslationState, plain_text as plain
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.text_replacements import TextDocument, has_words
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location, Pair

TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[{}\[\],:]|[^\s{}\[\],:"]+', re.DOTALL)
LONGEST_PREFIX = 200  # maximum length of the context prefix of nested values in characters


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of a JSONL file, one per line; a blank line is an empty pair."""
    for text, where in plain.texts(path, data, report):
        source, target = _texts(text, data, where) if text.strip() else ("", "")
        if is_valid_text(source + target, where, data):
            yield Pair(source, target, where)
        else:
            report.drop("undecodable", where)


def is_valid_text(text: str, where: Location, data: DataSettings) -> bool:
    """Returns whether a text has no lone surrogates; raises an error for them unless such lines are to be dropped."""
    if not SURROGATE.search(text):
        return True
    if data.undecodable == "error":
        advice = "correct it, or skip such lines with regard train --data.undecodable drop"
        raise DataError(f"a lone surrogate (such as \\ud800) is not a character: {advice}", where.path, where.line)
    return False


def records(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[dict[str, Any], Location]]:
    """Yields the objects of a JSONL file, and counts them as read; skips blank lines."""
    for number, line in plain.decoded_lines(path, data, report):
        if line.strip():
            report.read += 1
            where = Location(str(path), number)
            yield record(line, where), where


def record(line: str, where: Location) -> dict[str, Any]:
    """Parses a line as a JSON object."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at character {error.pos + 1}", where.path, where.line) from None
    except (ValueError, RecursionError) as error:  # a number is too long, or lists are nested too deep
        raise DataError(f"cannot be read as JSON: {error}", where.path, where.line) from None
    if not isinstance(value, dict):
        raise DataError(f"expected a JSON object, not {type(value).__name__}", where.path, where.line)
    return value


def _texts(line: str, data: DataSettings, where: Location) -> tuple[str, str]:
    """Returns the source and target of a JSON line."""
    value = record(line, where)
    nested = value.get("translation")
    forms = [(value, "source", "target"), (value, data.source, data.target), (nested, data.source, data.target)]
    for texts, source, target in forms:
        if isinstance(texts, dict) and isinstance(texts.get(source), str) and isinstance(texts.get(target), str):
            return texts[source], texts[target]
    keys = [*value, *(f"translation.{key}" for key in nested)] if isinstance(nested, dict) else [*value]
    raise DataError(
        f"no texts under the keys source and target, {data.source} and {data.target}, or translation.{data.source} and "
        f"translation.{data.target}; the keys are {', '.join(map(json.dumps, keys[:10])) or 'none'} (specify two keys "
        "with regard train --source NAME --target NAME, or several with regard train --directions LIST)",
        where.path,
        where.line,
    )


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """Opens a JSON or ARB file with a unit for each string with words, or a JSONL file with a unit for each object."""
    document = TextDocument(path, plain.text(path), source, target)
    if suffix(path) == ".jsonl":
        document.source_language = document.target_language = ""
        for match in re.finditer(r"[^\s\ufeff][^\n]*", document.text):
            _add_object(document, match[0], match.start(), source, target)
    else:
        _add_table(document, is_arb=suffix(path) == ".arb")
    return document


def _add_table(document: TextDocument, *, is_arb: bool) -> None:
    """Adds the string values of a JSON or ARB file, without the metadata of ARB."""
    begin = int(document.text.startswith("\ufeff"))
    try:
        table = json.loads(document.text[begin:])
    except json.JSONDecodeError as error:
        at = begin + error.pos
        raise document.fault(f"not JSON: {error.msg}, not {document.text[at : at + 20]!r}", at) from None
    except (ValueError, RecursionError) as error:  # a number is too long, or lists are nested too deep
        raise DataError(f"cannot be read as JSON: {error}", document.path) from None
    has_messages = (  # messages with descriptions, as in browser extensions
        bool(table)
        and isinstance(table, dict)
        and all(isinstance(each, dict) and isinstance(each.get("message"), str) for each in table.values())
    )
    write = json.dumps if document.text.isascii() and "\\u" in document.text else _spell
    for value in _values(document.text, begin):
        text = json.loads(value.spelled) if value.spelled.startswith('"') else ""
        if is_arb and value.context == "@@locale":
            document.source_language = document.source_language or text
            document.language = (value.start, value.end, json.dumps)
        elif value.keys and str(value.keys[0]).startswith("@" if is_arb else "$"):
            continue
        elif has_words(text) and (not has_messages or value.keys[1:] == ["message"]):
            document.add(text, value.start, value.end, write, context=value.context)


def _add_object(document: TextDocument, line: str, start: int, source: str, target: str) -> None:
    """Adds the object on a line; if it has no key for the translation, the key is added after the source."""
    where = document.location(start)
    whole = record(line, where)
    places = {tuple(value.keys): value for value in _values(line) if len(value.keys) < 3}
    forms: list[tuple[str | int, ...]] = [("source",), (source,), ("translation", source)]
    keys = next((form for form in forms if form in places and places[form].spelled.startswith('"')), None)
    if keys is None:
        raise document.fault(f"no text under source{' or ' * bool(source)}{source}", start)
    name = "target" if keys == ("source",) else target
    if not name:
        raise document.fault("specify the target language with --to", start)
    if isinstance((whole if len(keys) == 1 else whole["translation"]).get(name), dict | list):
        raise document.fault(f"no text under {name}", start)
    text, place = json.loads(places[keys].spelled), places.get((*keys[:-1], name))
    if not text.strip() or SURROGATE.search(text):
        return
    if place is None:
        end = start + places[keys].end
        document.add(text, end, end, lambda new: f", {_spell(name)}: {_spell(new)}")
    else:
        old = json.loads(place.spelled) if place.spelled.startswith('"') else ""
        state: TranslationState = "done" if old.strip() else "empty"
        document.add(text, start + place.start, start + place.end, _spell, target=old, state=state)


def _spell(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


class _JSONValue(NamedTuple):
    """A JSON value other than an object or list, with its position in the text."""

    keys: list[str | int]  # keys and list indices that lead to the value; valid until the next value is read
    context: str  # the keys joined to one text
    start: int
    end: int
    spelled: str


def _values(text: str, start: int = 0) -> Iterator[_JSONValue]:
    """Yields the values in a text that is valid JSON."""
    keys: list[str | int] = []  # the current key of each open object, and the current index of each open list
    prefixes: list[str] = []  # the context of each open object and list
    is_key = False
    for match in TOKEN.finditer(text, start):
        piece = match[0]
        if piece in "{[":
            prefixes.append(_shortened(f"{prefixes[-1]}{keys[-1]}.") if keys else "")
            keys.append("" if piece == "{" else 0)
            is_key = piece == "{"
        elif piece in "}]":
            keys.pop()
            prefixes.pop()
            is_key = False
        elif piece == ",":
            last = keys[-1]
            is_key = isinstance(last, str)
            keys[-1] = last if isinstance(last, str) else last + 1
        elif piece == ":":
            is_key = False
        elif is_key:
            keys[-1] = json.loads(piece)
        else:
            context = f"{prefixes[-1]}{keys[-1]}" if keys else ""
            yield _JSONValue(keys, context, match.start(), match.end(), piece)


def _shortened(prefix: str) -> str:
    """Replaces a long context prefix by its digest, because every nested value repeats it."""
    if len(prefix) <= LONGEST_PREFIX:
        return prefix
    return blake2b(prefix.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest() + "."
