"""Reads glossaries from CSV and TSV tables, and from TBX version 2 (termEntry) and version 3 (conceptEntry)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from regard.errors import DataError
from regard.files.formats import csv_table, plain_text as plain
from regard.files.formats.format_by_suffix import ALONE, MARKED, PAIRED, suffix
from regard.files.formats.xml_parsing import Element, ElementReader
from regard.tokens.language_directions import normalize_code, primary
from regard.tokens.text_pairs import Location

FORM = "a glossary has one term per line, as source,target,forbidden,note (for example dog,Hund)"
FEW_WORDS, MANY_WORDS = 6, 9
"""Number of words from which a row may be running text, and is taken as such if its commas are followed by spaces."""
SENTENCE_ENDS = (*".!?;:…。！？", ',"', '."')
COLUMNS = ("source", "target", "forbidden", "note")
ENTRIES, LANGUAGES, TERMS = ("termEntry", "conceptEntry"), ("langSet", "langSec"), ("tig", "ntig", "termSec")
AVOIDED = ("deprecated", "superseded", "forbidden", "obsolete")
"""Prefixes of the administrative status of terms that must not be used."""


class TermRow(NamedTuple):
    """A source term with its allowed and forbidden target terms."""

    source: str
    targets: tuple[str, ...]
    forbidden: tuple[str, ...]
    note: str
    where: Location


def read(path: Path, source: str, target: str) -> Iterator[TermRow]:
    """Yields the terms of a glossary file from the source language into the target language."""
    if suffix(path) == ".tbx":
        return _read_tbx(path, source, target)
    if suffix(path) in {*PAIRED, *ALONE, *MARKED} - {".csv", ".tsv"}:
        raise DataError(f"{suffix(path)} is not a glossary format: pass a .csv, .tsv or .tbx file", path)
    return _read_table(path, source, target)


def _read_table(path: Path, source: str, target: str) -> Iterator[TermRow]:
    lines = [(number, _decode(line, path, number)) for number, line in enumerate(plain.lines(path), 1)]
    delimiter = "\t" if suffix(path) == ".tsv" or not lines else max(",;\t", key=lines[0][1].count)
    names: Sequence[str] | None = None
    terms, prose = list[TermRow](), list[TermRow]()
    for number, cells in csv_table.rows(lines, path, delimiter, quoting=delimiter != "\t", advice=f": {FORM}"):
        is_spaced = any(cell[:1] == " " for cell in cells)
        cells = [cell.strip() for cell in cells]
        if names is None:
            names = _header(cells, source, target)
            if names:
                continue
        if any(cells):
            row = _row(cells, names or COLUMNS, Location(str(path), number))
            terms.append(row)
            prose += [row] if not names and _is_prose(cells[:3], is_spaced=is_spaced) else []
    if len(prose) * 2 >= len(terms) > 0:
        raise DataError(f"this line is running text, not a term: {FORM}", path, prose[0].where.line)
    yield from terms


def _decode(line: bytes, path: Path, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise DataError(f"not UTF-8 ({error.reason}): convert it with iconv", path, number) from None


def _is_prose(cells: Sequence[str], *, is_spaced: bool) -> bool:
    """Returns whether a row is running text split at commas, rather than a term and its translation.

    `is_spaced` is true if there are spaces after its commas.
    """
    filled = [cell for cell in cells if cell]
    words = sum(len(cell.split()) for cell in filled)
    if words < FEW_WORDS:
        return False
    ends = [cell.endswith(SENTENCE_ENDS) for cell in (filled[0], filled[-1])]
    return len(filled) == 1 or ends[0] != ends[1] or (is_spaced and words >= MANY_WORDS)


def _header(cells: Sequence[str], source: str, target: str) -> list[str]:
    """Returns the column names if a row is a header with column names or languages, else an empty list."""
    languages = {source.lower(): "source", target.lower(): "target"} if source and target else {}
    names = [languages.get(cell.lower(), cell.lower()) for cell in cells]
    return names if "source" in names and "target" in names else []


def _row(cells: Sequence[str], names: Sequence[str], where: Location) -> TermRow:
    if len(cells) > len(names):
        raise DataError(f"{len(cells)} columns, but a row has only {', '.join(names)}: {FORM}", where.path, where.line)
    values = defaultdict(str, zip(names, cells, strict=False))
    term, targets, forbidden = values["source"], _several(values["target"]), _several(values["forbidden"])
    if not term:
        raise DataError("this line has no term in the source language", where.path, where.line)
    return TermRow(term, targets or (() if forbidden else (term,)), forbidden, values["note"], where)


def _several(cell: str) -> tuple[str, ...]:
    return tuple(filter(None, map(str.strip, cell.split("|"))))


# TBX

Terms = Mapping[str, list[str]]
"""Terms by language."""


@dataclass
class _Concept:
    """The allowed and forbidden terms of a TBX concept."""

    line: int
    note: str
    terms: Terms = field(default_factory=lambda: defaultdict(list))
    avoided: Terms = field(default_factory=lambda: defaultdict(list))


def _read_tbx(path: Path, source: str, target: str) -> Iterator[TermRow]:
    entries = ElementReader(path, ("martif", "tbx", "TBX"), ENTRIES).elements()
    concepts = [_concept(entry) for entry in entries]
    if not concepts:
        raise DataError("there are no terms: the file contains neither a termEntry nor a conceptEntry", path)
    languages = list(dict.fromkeys(name for each in concepts for name in (*each.terms, *each.avoided)))
    if not source and not target and len(languages) == 2:
        chosen = [languages[:1], languages[1:]]
    else:
        chosen = [_matching(languages, name, path) for name in (source, target)]
    sources, targets = ({name: place for place, name in enumerate(names)} for names in chosen)
    for concept in concepts:
        wanted, avoided = _in_languages(concept.terms, targets), _in_languages(concept.avoided, targets)
        if wanted or avoided:
            for term in (*_in_languages(concept.terms, sources), *_in_languages(concept.avoided, sources)):
                yield TermRow(term, wanted, avoided, concept.note, Location(str(path), concept.line))


def _matching(languages: Sequence[str], name: str, path: Path) -> list[str]:
    """Returns the languages of a file that match a name; en also matches en-US, and vice versa."""
    same = [each for each in languages if normalize_code(each) == normalize_code(name)]
    related = [each for each in languages if primary(each) == primary(name)]
    if not name or not related:
        fault = f"there are no terms in {name}" if name else "a TBX file needs a model that names its languages"
        raise DataError(f"{fault}: the languages of the file are {', '.join(languages)}", path)
    return same or related


def _in_languages(terms: Terms, languages: Mapping[str, int]) -> tuple[str, ...]:
    """Returns the terms in these languages, in the order of the languages."""
    names = sorted(terms.keys() & languages.keys(), key=languages.__getitem__)
    return tuple(dict.fromkeys(term for name in names for term in terms[name]))


def _concept(entry: Element) -> _Concept:
    concept = _Concept(entry.line, "".join(_text(note) for note in _descendants(entry, "note")[:1]))
    for section in _descendants(entry, *LANGUAGES):
        language = section.attributes.get("xml:lang") or section.attributes.get("lang", "")
        for group in _descendants(section, *TERMS):
            term = " ".join("".join(_text(each) for each in _descendants(group, "term")[:1]).split())
            notes = _descendants(group, "termNote", "administrativeStatus")
            status = "".join(_text(note) for note in notes if _is_status(note)).lower()
            known = (concept.avoided if status.startswith(AVOIDED) else concept.terms)[language]
            if term:
                known.insert(0 if status.startswith("preferred") else len(known), term)
    return concept


def _is_status(element: Element) -> bool:
    return "administrativeStatus" in (_local_name(element), element.attributes.get("type"))


def _descendants(element: Element, *names: str) -> list[Element]:
    matching = [element] if _local_name(element) in names else []
    for each in element.content:
        if isinstance(each, Element):
            matching += _descendants(each, *names)
    return matching


def _local_name(element: Element) -> str:
    return element.name.rpartition(":")[2]


def _text(element: Element) -> str:
    return "".join(each if isinstance(each, str) else _text(each) for each in element.content).strip()
