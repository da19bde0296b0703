"""One JSON object per line, with the two texts under names that are looked for in turn."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.files.formats import Document, TranslationState, plain_text as plain
from regard.files.formats.json_strings import JSONValue, values
from regard.files.formats.replaced_text import Spliced
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Location, Pair

MEND = "mend the file, or leave such lines out with regard train --data.undecodable drop"


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file; a blank line is an empty pair."""
    for text, where in plain.texts(path, data, report):
        source, target = _texts(text, data, where) if text.strip() else ("", "")
        if is_valid_text(source + target, where, data):
            yield Pair(source, target, where)
        else:
            report.drop("undecodable", where)


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each object with a source; a translation that has no place yet is put after it."""
    document = Spliced(path, plain.text(path))
    for found in re.finditer(r"[^\s\ufeff][^\n]*", document.text):
        where = document.place(found.start())
        whole = record(found[0], where)
        texts = {value.keys: value for value in values(found[0])}
        forms = [("source",), (source,), ("translation", source)]
        keys = next((each for each in forms if each in texts and texts[each].spelled.startswith('"')), None)
        if keys is None:
            raise DataError(f"no text under source{' or ' * bool(source)}{source}", where.path, where.line)
        name = "target" if keys == ("source",) else target
        if not name:
            raise DataError("say which language is the target, with --to", where.path, where.line)
        if isinstance((whole if keys[1:] == () else whole["translation"]).get(name), dict | list):
            raise DataError(f"no text under {name}", where.path, where.line)
        _add(document, found.start(), texts[keys], texts.get((*keys[:-1], name)), name)
    return document


def _add(document: Spliced, at: int, source: JSONValue, target: JSONValue | None, name: str) -> None:
    """A unit of the line that begins at `at`."""
    text = json.loads(source.spelled)
    if not text.strip() or SURROGATE.search(text):
        return
    if target is None:
        document.add(text, at + source.end, at + source.end, lambda new: f", {_spell(name)}: {_spell(new)}")
        return
    old = json.loads(target.spelled)
    old = old if isinstance(old, str) else ""
    state: TranslationState = "done" if old.strip() else "empty"
    document.add(text, at + target.start, at + target.end, _spell, target=old, state=state)


def _spell(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def is_valid_text(text: str, where: Location, data: DataSettings) -> bool:
    """Whether a text has characters only: JSON can spell what UTF-8 cannot."""
    if not SURROGATE.search(text):
        return True
    if data.undecodable == "error":
        raise DataError(f"a lone surrogate (such as \\ud800) is not a character: {MEND}", where.path, where.line)
    return False


def record(line: str, where: Location) -> dict[str, Any]:
    """The object of a line."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError as error:
        raise DataError(f"not JSON: {error.msg} at character {error.pos + 1}", where.path, where.line) from None
    except (ValueError, RecursionError) as error:  # a number too long, lists too deep
        raise DataError(f"not JSON that can be read: {error}", where.path, where.line) from None
    if not isinstance(found, dict):
        raise DataError(f"a JSON {type(found).__name__}, where an object is needed", where.path, where.line)
    return found


def _texts(line: str, data: DataSettings, where: Location) -> tuple[str, str]:
    """The source and the target of a line."""
    found = record(line, where)
    nested = found.get("translation")
    forms = [(found, "source", "target"), (found, data.source, data.target), (nested, data.source, data.target)]
    for texts, source, target in forms:
        if isinstance(texts, dict) and isinstance(texts.get(source), str) and isinstance(texts.get(target), str):
            return texts[source], texts[target]
    keys = [*found, *(f"translation.{key}" for key in nested)] if isinstance(nested, dict) else [*found]
    raise DataError(
        f"no texts under source and target, {data.source} and {data.target}, or translation.{data.source} and "
        f"translation.{data.target}; the keys are {', '.join(map(json.dumps, keys[:10])) or 'none'} (say which two, "
        "as in regard train --source NAME --target NAME, or more with regard train --directions LIST)",
        where.path,
        where.line,
    )
