"""Glossaries: tables of terms, and TBX in the dialects of version 2 (termEntry) and 3 (conceptEntry)."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.files.formats import plain_text as plain
from regard.files.formats.format_by_suffix import ALONE, MARKED, PAIRED, suffix
from regard.files.formats.xml_parsing import Element, ElementReader, load
from regard.tokens.language_tags import normalize_code, primary
from regard.tokens.text_pairs import Location

FORM = "a glossary has one term a line, as source,target,forbidden,note (for example dog,Hund)"
FEW_WORDS, MANY_WORDS = 6, 9
"""Words of a row from which on it may be running text, and is if there are spaces after its commas."""
MARKS = (*".!?;:…。！？", ',"', '."')
COLUMNS = ("source", "target", "forbidden", "note")
ENTRIES, LANGUAGES, TERMS = ("termEntry", "conceptEntry"), ("langSet", "langSec"), ("tig", "ntig", "termSec")
ROOTS = ("martif", "tbx", "TBX")
AVOIDED = ("deprecated", "superseded", "forbidden", "obsolete")
"""What the administrative status of a term begins with that shall not be used."""


class TermRow(NamedTuple):
    """A term of the source language, and what it is and is not called in the target language."""

    source: str
    targets: tuple[str, ...]
    forbidden: tuple[str, ...]
    note: str
    where: Location


def read(path: Path, source: str, target: str) -> Iterator[TermRow]:
    """The terms of a file, from one language into another."""
    if suffix(path) == ".tbx":
        return _read_tbx(path, source, target)
    if suffix(path) in {*PAIRED, *ALONE, *MARKED} - {".csv", ".tsv"}:
        raise DataError(f"{suffix(path)} is not a format of glossaries: give a .csv, .tsv or .tbx file", path)
    return _read_table(path, source, target)


def _read_table(path: Path, source: str, target: str) -> Iterator[TermRow]:
    lines = (f"{_decoded(line, path, number)}\n" for number, line in enumerate(plain.lines(path), 1))
    first = next(lines, "")
    delimiter = "\t" if suffix(path) == ".tsv" else max(",;\t", key=first.count)
    rows = csv.reader(
        _again(first, lines),
        delimiter=delimiter,
        quoting=csv.QUOTE_NONE if delimiter == "\t" else csv.QUOTE_MINIMAL,
        strict=True,
    )
    names: Sequence[str] | None = None
    found, prose = list[TermRow](), list[TermRow]()
    try:
        for cells in rows:
            spaced = any(cell[:1] == " " for cell in cells)
            cells = [cell.strip() for cell in cells]
            if names is None:
                names = _header(cells, source, target)
                if names:
                    continue
            if any(cells):
                row = _row(cells, names or COLUMNS, Location(str(path), rows.line_num))
                found.append(row)
                prose += [row] if not names and _is_prose(cells[:3], spaced=spaced) else []
    except csv.Error as error:
        raise DataError(f"is not a table ({error}): {FORM}", path, rows.line_num) from None
    if len(prose) * 2 >= len(found) > 0:
        raise DataError(f"is running text, not a term: {FORM}", path, prose[0].where.line)
    yield from found


def _is_prose(cells: Sequence[str], *, spaced: bool) -> bool:
    """Whether a row is a line of running text that was cut at its commas or tabs, rather than a term and what it is
    called; `spaced` rows have spaces after their commas."""
    filled = [cell for cell in cells if cell]
    words = sum(len(cell.split()) for cell in filled)
    if words < FEW_WORDS:
        return False
    ends = [cell.endswith(MARKS) for cell in (filled[0], filled[-1])]
    return len(filled) == 1 or ends[0] != ends[1] or (spaced and words >= MANY_WORDS)


def _header(cells: Sequence[str], source: str, target: str) -> list[str]:
    """What the columns are, if the first row says it: by the names of columns, or by the languages."""
    columns = {source.lower(): "source", target.lower(): "target"} if source and target else {}
    names = [columns.get(cell.lower(), cell.lower()) for cell in cells]
    return names if "source" in names and "target" in names else []


def _row(cells: Sequence[str], names: Sequence[str], where: Location) -> TermRow:
    if len(cells) > len(names):
        raise DataError(f"{len(cells)} columns, where there are {', '.join(names)}: {FORM}", where.path, where.line)
    values = dict(zip(names, cells, strict=False))
    term, targets, forbidden = (values.get(name, "") for name in COLUMNS[:3])
    if not term:
        raise DataError("there is no term of the source language in this row", where.path, where.line)
    wanted, unwanted = _several(targets), _several(forbidden)
    return TermRow(term, wanted or (() if unwanted else (term,)), unwanted, values.get("note", ""), where)


def _several(cell: str) -> tuple[str, ...]:
    return tuple(each for part in cell.split("|") if (each := part.strip()))


def _decoded(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason}): convert it with iconv", path, number) from None


def _again(first: str, lines: Iterator[str]) -> Iterator[str]:
    if first:
        yield first
        yield from lines


def _read_tbx(path: Path, source: str, target: str) -> Iterator[TermRow]:
    found = list(_concepts(path))
    languages = list(dict.fromkeys(name for each in found for name in (*each.terms, *each.avoided)))
    if not source and not target and len(languages) == 2:
        sources, targets = languages[:1], languages[1:]
    else:
        sources, targets = (_named(languages, name, path) for name in (source, target))
    for concept in found:
        wanted, unwanted = _of(concept.terms, targets), _of(concept.avoided, targets)
        if wanted or unwanted:
            for term in (*_of(concept.terms, sources), *_of(concept.avoided, sources)):
                yield TermRow(term, wanted, unwanted, concept.note, Location(str(path), concept.line))


def _named(languages: Sequence[str], name: str, path: Path) -> list[str]:
    """The languages of a file that are meant by a name: en is en-US too, and the other way round."""
    same = [each for each in languages if normalize_code(each) == normalize_code(name)]
    alike = [each for each in languages if primary(each) == primary(name)]
    if not name or not alike:
        missing = f"has no terms in {name}" if name else "is for a model that does not say what its languages are"
        raise DataError(f"{missing}: the languages in it are {', '.join(languages)}", path)
    return same or alike


def _of(terms: dict[str, list[str]], languages: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(term for language in languages for term in terms.get(language, ())))


@dataclass
class _Concept:
    """The terms of one concept, and those that shall not be used, by language."""

    line: int
    terms: dict[str, list[str]] = field(default_factory=dict)
    avoided: dict[str, list[str]] = field(default_factory=dict)
    note: str = ""


def _concepts(path: Path) -> Iterator[_Concept]:
    """The concepts of a file."""
    seen = False
    for element in ElementReader(load(path), ROOTS, ENTRIES).elements():
        seen = True
        yield _concept(element)
    if not seen:
        raise DataError("has no termEntry or conceptEntry: there is nothing in it", path)


def _concept(entry: Element) -> _Concept:
    found = _Concept(entry.line)
    for section in _below(entry, *LANGUAGES):
        language = section.attributes.get("xml:lang") or section.attributes.get("lang", "")
        for group in _below(section, *TERMS):
            term = " ".join("".join(_text(each) for each in _below(group, "term")[:1]).split())
            status = "".join(_text(each) for each in _below(group, "termNote", "administrativeStatus") if _states(each))
            kind = found.avoided if status.lower().startswith(AVOIDED) else found.terms
            known = kind.setdefault(language, [])
            if term:
                known.insert(0 if status.lower().startswith("preferred") else len(known), term)
    found.note = "".join(_text(note) for note in _below(entry, "note")[:1])
    return found


def _states(element: Element) -> bool:
    """Whether an element tells the administrative status of a term."""
    return "administrativeStatus" in (_name(element), element.attributes.get("type"))


def _below(element: Element, *names: str) -> list[Element]:
    """The elements of these names in another, in any namespace."""
    found = [element] if _name(element) in names else []
    for each in element.content:
        if isinstance(each, Element):
            found += _below(each, *names)
    return found


def _name(element: Element) -> str:
    return element.name.rpartition(":")[2]


def _text(element: Element) -> str:
    return "".join(each if isinstance(each, str) else _text(each) for each in element.content).strip()
