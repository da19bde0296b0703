"""Reads texts in several languages: plain files named by language, TSV with a header, JSONL with language keys, TMX."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import json_texts, plain_text as plain, tmx
from regard.files.formats.format_by_suffix import READ_ADVICE, require_plain
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy
from regard.tokens.language_directions import Direction, directions_of, language, languages_of
from regard.tokens.text_pairs import Location, Pair


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """The texts of one line by language; None stands for a text that cannot be decoded."""

    texts: Mapping[str, str | None]
    paths: Mapping[str, Path]  # file of each language
    line: int

    def where(self, name: str) -> Location:
        return Location(str(self.paths[name]), self.line)


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of all directions, one for each direction whose two languages a line contains."""
    directions = directions_of(data)
    names = languages_of(directions)
    require_directions(files, data)
    for path in files:
        if suffix(path) not in TABLES:
            require_plain(path, READ_ADVICE)
    for paths in group_files(files):
        for row in _plain_rows(paths, data):
            yield from _pairs(row, directions, names, report)
    for path in files:
        if suffix(path) in TABLES:
            for row in TABLES[suffix(path)](path, names, data, report):
                yield from _pairs(row, directions, names, report)


def group_files(files: Sequence[Path]) -> list[dict[str, Path]]:
    """Returns groups of plain files by language: a new group begins at a repeated language or another file stem."""
    groups: list[dict[str, Path]] = []
    for path in files:
        if suffix(path) not in TABLES:
            name = language(suffix(path)[1:])
            stems = {_stem(other) for other in groups[-1].values()} if groups else set()
            is_another = groups and len(groups[-1]) > 1 and len(stems) == 1 and _stem(path) not in stems
            if not groups or name in groups[-1] or is_another:
                groups.append({})
            groups[-1][name] = path
    return groups


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(suffix(path))


def suffix(path: Path) -> str:
    """Returns the suffix of a file without .gz and, unlike `format_by_suffix.suffix`, in its original case."""
    return Path(path.name.removesuffix(".gz")).suffix


def possible_directions(files: Sequence[Path]) -> list[Direction]:
    """Returns all directions between the languages in the names of plain files."""
    groups = [[name for name in paths if name] for paths in group_files(files)]
    return list(dict.fromkeys(Direction(*pair) for names in groups for pair in permutations(names, 2)))


def require_directions(files: Sequence[Path], data: DataSettings) -> None:
    """Raises an error if a plain file is not needed for any direction, or a direction has no files."""
    directions = directions_of(data)
    for paths in group_files(files):
        used = {name for each in directions for name in (each.source, each.target) if _covers(paths, each)}
        for name, path in paths.items():
            if name not in used:
                raise DataError(
                    f"none of the directions {', '.join(map(str, directions))} uses this file together with the files "
                    f"beside it (languages: {', '.join(paths)}): the suffix of a file is its language, and a repeated "
                    "language begins a new group",
                    path,
                )
    if any(suffix(path) in (".jsonl", ".tmx") for path in files):  # their languages are not known before they are read
        return
    groups = [*map(list, group_files(files)), *(_header(path) for path in files if suffix(path) == ".tsv")]
    for each in directions:
        if not any(_covers(names, each) for names in groups):
            raise missing_direction(str(each), files)


def _covers(names: Sequence[str] | Mapping[str, Path], direction: Direction) -> bool:
    return direction.source in names and direction.target in names


def missing_direction(direction: str, files: Sequence[Path]) -> DataError:
    """Returns the error to raise for a direction without pairs."""
    return DataError(
        f"no pairs for the direction {direction} in {', '.join(map(str, files)) or 'no file'}: its languages must be "
        "suffixes of plain files, titles in the first line of a .tsv, keys of a .jsonl, or languages of a .tmx"
    )


def _pairs(row: AlignedRow, directions: Sequence[Direction], names: Sequence[str], report: Report) -> Iterator[Pair]:
    family = next((tidy(text) for name in names if (text := row.texts.get(name))), "")
    available = [each for each in directions if each.source in row.texts and each.target in row.texts]
    if not available:
        report.read += 1
        report.drop("no direction", row.where(next(iter(row.paths))))
    for each in available:
        report.read += 1
        source, target = row.texts[each.source], row.texts[each.target]
        if source is None or target is None:
            report.drop("undecodable", row.where(each.source if source is None else each.target))
        else:
            yield Pair(source, target, row.where(each.source), (each.target,), str(each), family)


def _plain_rows(paths: Mapping[str, Path], data: DataSettings) -> Iterator[AlignedRow]:
    rule = "line n of each file must be a translation of line n of the others"
    for number, lines in plain.aligned_lines(list(paths.values()), rule):
        texts = {
            name: plain.decode(line, path, number, data, Report())
            for line, (name, path) in zip(lines, paths.items(), strict=True)
        }
        yield AlignedRow(texts, paths, number)


def _tsv_rows(path: Path, _names: Sequence[str], data: DataSettings, report: Report) -> Iterator[AlignedRow]:
    header = _header(path)
    paths = dict.fromkeys(header, path)
    for number, text in plain.decoded_lines(path, data, report):
        if number == 1:
            continue
        columns = text.split("\t") if text.strip() else [""] * len(header)
        if len(columns) != len(header):
            raise DataError(f"{len(columns)} columns, but the first line has {len(header)}", path, number)
        yield AlignedRow(dict(zip(header, columns, strict=True)), paths, number)


def _header(path: Path) -> list[str]:
    """Returns the languages in the first line of a .tsv file."""
    first = next(plain.lines(path), b"").decode("utf-8", "replace")
    names = [language(name.strip()) for name in first.split("\t")]
    if len(names) < 2 or len(set(names)) < len(names) or not all(re.fullmatch(r"\w+", name) for name in names):
        raise DataError(
            "the first line must name the language of each column, such as en and de separated by a tab, but is "
            f"{first[:60]!r}",
            path,
            1,
        )
    return names


def _jsonl_rows(path: Path, names: Sequence[str], data: DataSettings, report: Report) -> Iterator[AlignedRow]:
    """Yields the objects of a .jsonl file, which has the texts under their language codes."""
    paths = dict.fromkeys(names, path)
    for number, line in plain.decoded_lines(path, data, report):
        where = Location(str(path), number)
        record = json_texts.record(line, where) if line.strip() else {}
        record = nested if isinstance(nested := record.get("translation"), dict) else record
        texts: dict[str, str | None] = {}
        for name in names:
            text = record.get(name, record.get(name.replace("_", "-")))
            if text is not None and not isinstance(text, str):
                raise DataError(f"expected a text under {name}, not {type(text).__name__}", path, number)
            if text is not None:
                texts[name] = text if json_texts.is_valid_text(text, where, data) else None
        yield AlignedRow(texts, paths, number)


def _tmx_rows(path: Path, names: Sequence[str], _data: DataSettings, _report: Report) -> Iterator[AlignedRow]:
    paths = dict.fromkeys(names, path)
    return (AlignedRow(texts, paths, line) for line, texts in tmx.rows(path, names))


TABLES = {".tsv": _tsv_rows, ".jsonl": _jsonl_rows, ".tmx": _tmx_rows}
