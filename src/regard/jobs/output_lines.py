"""Translations as lines of output."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regard.decoding.translator import Translation


def rows_of(
    number: int, found: Translation, *, scores: bool = False, as_json: bool = False, several: bool = False
) -> Iterator[str]:
    """The output lines of one input line; with alternatives, `several` that begin with the line's number."""
    if as_json:
        yield json.dumps(_plain(found), ensure_ascii=False)
        return
    for each in (found, *found.alternatives) if several else (found,):
        columns = [str(number)] if several else []
        columns += [f"{each.score:.4f}"] if scores or several else []
        yield "\t".join([*columns, each.text.replace("\n", " ")])


def _plain(found: Translation) -> dict[str, Any]:
    plain = {name: value for name, value in asdict(found).items() if value or name not in IF_THERE}
    plain["alternatives"] = [_plain(other) for other in found.alternatives]
    return plain


IF_THERE = ("confidence", "matches", "source_tokens", "alignment", "glossary")
