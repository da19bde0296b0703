"""One JSON object per line, with the two texts under names that are looked for in turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.settings import DataSettings
from regard.text.doctor import SURROGATE, Report
from regard.text.formats import Pair, Place, plain

MEND = "mend the file, or leave such lines out with --data.undecodable drop"


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file; a blank line is an empty pair."""
    for number, line in enumerate(plain.lines(path), 1):
        report.read += 1
        where = Place(str(path), number)
        text = plain.decode(line, path, number, data, report)
        if text is None:
            continue
        source, target = _texts(text, data, where) if text.strip() else ("", "")
        if legible(source + target, where, data):
            yield Pair(source, target, where)
        else:
            report.drop("undecodable", where)


def legible(text: str, where: Place, data: DataSettings) -> bool:
    """Whether a text has characters only: JSON can spell what UTF-8 cannot."""
    if not SURROGATE.search(text):
        return True
    if data.undecodable == "error":
        raise DataError(f"a lone surrogate (such as \\ud800) is not a character: {MEND}", where.path, where.line)
    return False


def record(line: str, where: Place) -> dict[str, Any]:
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


def _texts(line: str, data: DataSettings, where: Place) -> tuple[str, str]:
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
        f"translation.{data.target}; the keys are {', '.join(map(json.dumps, keys[:10])) or 'none'} (say which two "
        "with --source and --target, or more with --directions)",
        where.path,
        where.line,
    )
