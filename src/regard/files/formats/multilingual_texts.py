"""Texts in several languages: files told apart by their language, TSV with a header, JSONL keyed by language, TMX."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations, zip_longest
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import jsonl, plain_text as plain, tmx
from regard.files.formats.format_by_suffix import READ_ADVICE, require_plain
from regard.settings import DataSettings
from regard.tokens.clean_text import tidy
from regard.tokens.corpus_report import Report
from regard.tokens.directions import Direction, directions_of, language, languages_of
from regard.tokens.text_pairs import Location, Pair

TABLES = (".tsv", ".jsonl", ".tmx")


@dataclass(frozen=True, slots=True)
class AlignedRow:
    """What stands on one line, by language; nothing where it is not text."""

    texts: Mapping[str, str | None]
    paths: Mapping[str, Path]  # by language
    line: int

    def where(self, name: str) -> Location:
        return Location(str(self.paths[name]), self.line)


def read(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of every direction that is wanted and whose two languages stand on a line."""
    wanted = directions_of(data)
    names = languages_of(wanted)
    require_directions(files, data)
    for path in files:
        if suffix(path) not in TABLES:
            require_plain(path, READ_ADVICE)
    for paths in group_files(files):
        for row in _lines(paths, data):
            yield from _pairs(row, wanted, names, report)
    for path in files:
        if suffix(path) in TABLES:
            rows = {".tsv": _table, ".jsonl": _objects, ".tmx": _memory}[suffix(path)]
            for row in rows(path, names, data, report):
                yield from _pairs(row, wanted, names, report)


def group_files(files: Sequence[Path]) -> list[dict[str, Path]]:
    """Plain files in sets by language: one that comes again begins a new set, and so does b.fr after a.en and a.de."""
    sets: list[dict[str, Path]] = []
    for path in files:
        if suffix(path) not in TABLES:
            name = language(suffix(path)[1:])
            if not sets or name in sets[-1] or not _alike(path, sets[-1].values()):
                sets.append({})
            sets[-1][name] = path
    return sets


def _alike(path: Path, others: Collection[Path]) -> bool:
    """Whether a file's name begins like those of others, if they are several and all begin the same."""
    stems = {_stem(each) for each in others}
    return len(others) < 2 or len(stems) > 1 or _stem(path) in stems


def _stem(path: Path) -> str:
    return path.name.removesuffix(".gz").removesuffix(suffix(path))


def suffix(path: Path) -> str:
    """How a file's name ends, .gz aside."""
    return Path(path.name.removesuffix(".gz")).suffix


def possible_directions(files: Sequence[Path]) -> list[Direction]:
    """The directions that plain files could give, as far as their names have languages."""
    named = [[name for name in paths if name] for paths in group_files(files)]
    return list(dict.fromkeys(Direction(*pair) for names in named for pair in permutations(names, 2)))


def require_directions(files: Sequence[Path], data: DataSettings) -> None:
    """Refuses a file that no direction needs, and a direction that no file has; objects are seen when they are read."""
    wanted = directions_of(data)
    for paths in group_files(files):
        used = {name for d in wanted if {d.source, d.target} <= paths.keys() for name in (d.source, d.target)}
        for name, path in paths.items():
            if name not in used:
                raise DataError(
                    f"is in none of the directions {', '.join(map(str, wanted))} with the files beside it (languages: "
                    f"{', '.join(paths)}): a file's language is how its name ends, and one that comes again begins a "
                    "new set",
                    path,
                )
    if any(suffix(path) in (".jsonl", ".tmx") for path in files):
        return
    found = [*map(set, group_files(files)), *(set(_header(path)) for path in files if suffix(path) == ".tsv")]
    for each in wanted:
        if not any({each.source, each.target} <= names for names in found):
            raise missing_direction(str(each), files)


def missing_direction(direction: str, files: Sequence[Path]) -> DataError:
    """What to say where a direction has no pairs."""
    return DataError(
        f"no pairs for the direction {direction} in {', '.join(map(str, files)) or 'no file'}: languages are the ends "
        "of the names of plain files, the first line of a .tsv, the keys of a .jsonl, and those of a .tmx"
    )


def _pairs(row: AlignedRow, wanted: Sequence[Direction], names: Sequence[str], report: Report) -> Iterator[Pair]:
    """The pairs of a line."""
    family = next((tidy(text) for name in names if (text := row.texts.get(name))), "")
    found = [d for d in wanted if d.source in row.texts and d.target in row.texts]
    if not found:
        report.read += 1
        report.drop("no direction", row.where(next(iter(row.paths))))
    for each in found:
        report.read += 1
        source, target = row.texts[each.source], row.texts[each.target]
        if source is None or target is None:
            report.drop("undecodable", row.where(each.source if source is None else each.target))
        else:
            yield Pair(source, target, row.where(each.source), (each.target,), str(each), family)


def _lines(paths: Mapping[str, Path], data: DataSettings) -> Iterator[AlignedRow]:
    """The lines of some files that have equally many."""
    readers = [plain.lines(path) for path in paths.values()]
    for number, lines in enumerate(zip_longest(*readers), 1):
        if None in lines:
            counts = [
                number - 1 if line is None else number + sum(1 for _ in reader)
                for line, reader in zip(lines, readers, strict=True)
            ]
            told = [f"{path} has {count:,} lines" for path, count in zip(paths.values(), counts, strict=True)]
            raise DataError(
                f"{' but '.join(told)}: pairs would be misaligned; "
                "line n of each must say the same as line n of the others"
            )
        texts = {
            name: plain.decode(line, path, number, data, Report())
            for line, (name, path) in zip(lines, paths.items(), strict=True)
        }
        yield AlignedRow(texts, paths, number)


def _table(path: Path, names: Sequence[str], data: DataSettings, report: Report) -> Iterator[AlignedRow]:
    """The lines of a .tsv whose first line names the languages of its columns."""
    header = _header(path)
    paths = dict.fromkeys(header, path)
    for number, text in _texts(path, data, report):
        if number == 1:
            continue
        columns = text.split("\t") if text.strip() else [""] * len(header)
        if len(columns) != len(header):
            raise DataError(f"{len(columns)} columns, where the first line has {len(header)}", path, number)
        yield AlignedRow(dict(zip(header, columns, strict=True)), paths, number)


def _header(path: Path) -> list[str]:
    """The languages in the first line of a .tsv."""
    first = next(plain.lines(path), b"").decode("utf-8", "replace")
    names = [language(name.strip()) for name in first.split("\t")]
    if len(names) < 2 or len(set(names)) < len(names) or not all(re.fullmatch(r"\w+", name) for name in names):
        raise DataError(
            f"its first line must name the languages of its columns, each once, as in en, tab, de; not {first[:60]!r}",
            path,
            1,
        )
    return names


def _objects(path: Path, names: Sequence[str], data: DataSettings, report: Report) -> Iterator[AlignedRow]:
    """The objects of a .jsonl, with texts under languages; those that are missing are no fault."""
    paths = dict.fromkeys(names, path)
    for number, line in _texts(path, data, report):
        where = Location(str(path), number)
        record = jsonl.record(line, where) if line.strip() else {}
        record = nested if isinstance(nested := record.get("translation"), dict) else record
        texts: dict[str, str | None] = {}
        for name in names:
            text = record.get(name, record.get(name.replace("_", "-")))
            if text is None:
                continue
            if not isinstance(text, str):
                raise DataError(f"a JSON {type(text).__name__} under {name}, where text is needed", path, number)
            texts[name] = text if jsonl.is_valid_text(text, where, data) else None
        yield AlignedRow(texts, paths, number)


def _memory(path: Path, names: Sequence[str], data: DataSettings, report: Report) -> Iterator[AlignedRow]:
    """The texts of a .tmx in the languages that are wanted."""
    paths = dict.fromkeys(names, path)
    for line, texts in tmx.rows(path, names):
        yield AlignedRow(texts, paths, line)


def _texts(path: Path, data: DataSettings, report: Report) -> Iterator[tuple[int, str]]:
    """The lines of a file with their numbers; one that is not UTF-8 is counted, if such lines are dropped."""
    for number, line in enumerate(plain.lines(path), 1):
        text = plain.decode(line, path, number, data, report)
        if text is None:
            report.read += 1
        else:
            yield number, text
