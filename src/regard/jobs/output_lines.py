"""Formats translations as output lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.decoding.translation_results import Translation


def format_translation(
    translation: Translation, *, number: int = 0, scores: bool = False, as_json: bool = False, several: bool = False
) -> Iterator[str]:
    """Yields the output line of a translation; with `several`, one per alternative, each with the line's number."""
    if as_json:
        yield json.dumps(_values_of(translation), ensure_ascii=False)
        return
    for each in (translation, *translation.alternatives) if several else (translation,):
        columns = [str(number)] if several else []
        columns += [f"{each.score:.4f}"] if scores or several else []
        yield "\t".join([*columns, each.text.replace("\n", " ")])


def _values_of(translation: Translation) -> dict[str, Any]:
    values = {name: value for name, value in asdict(translation).items() if value or name not in OPTIONAL}
    values["alternatives"] = [_values_of(other) for other in translation.alternatives]
    return values


OPTIONAL = ("confidence", "matches", "source_tokens", "alignment", "glossary")
