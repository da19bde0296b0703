"""One file with two columns, source and target, and a tab between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from regard.errors import DataError
from regard.settings import DataSettings
from regard.text.doctor import Report
from regard.text.formats import Pair, Place, plain

SEVERAL = "; for more languages, name those of the columns in this line and give --directions, such as en-de,de-en"


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of a file; a blank line is an empty pair, and quotation marks are text."""
    for number, line in enumerate(plain.lines(path), 1):
        report.read += 1
        where = Place(str(path), number)
        text = plain.decode(line, path, number, data, report)
        if text is None:
            continue
        columns = text.split("\t") if text.strip() else ["", ""]
        if len(columns) != 2:
            hint = SEVERAL if number == 1 and len(columns) > 2 else ""
            raise DataError(f"{len(columns)} columns, where source, tab, target are needed{hint}", path, number)
        yield Pair(columns[0], columns[1], where)
