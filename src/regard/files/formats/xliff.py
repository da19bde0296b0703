"""Reads the segments of XLIFF 1.0 to 1.2 and 2.0 to 2.1, and writes translations back in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import TranslationState, Unit
from regard.files.formats.inline_elements import (
    Segment,
    indentation,
    line_end_of,
    read_segment,
    rewrite_element,
    with_attributes,
    write_segment,
)
from regard.files.formats.xml_parsing import Content, Element, ElementReader, load
from regard.files.language_tags import same_language
from regard.settings import DataSettings
from regard.tokens.language_directions import normalize_code
from regard.tokens.text_pairs import Location, Pair

ByteEdit = tuple[int, int, bytes]
NEEDS_REVIEW = "needs-review-translation"


@dataclass(frozen=True, slots=True)
class XLIFFEntry:
    """A segment, and the element that contains or will contain its translation."""

    source: Segment
    target: Segment
    unit: Unit
    holder: Element  # a trans-unit of XLIFF 1, or a segment of XLIFF 2
    part: str | None  # the `mid` of one of several segments in a trans-unit


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the finished translations of a file; skips elements with `translate="no"`."""
    for entry in XLIFF(path).entries:
        is_reversed = _is_reversed(entry, data)
        if entry.unit.state == "done":
            report.read += 1
            source, target = (entry.target, entry.source) if is_reversed else (entry.source, entry.target)
            yield Pair(source.plain, target.plain, entry.unit.where)


def languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """Returns the source and target language declared in a file."""
    document = XLIFF(path, source, target)
    return document.source_language, document.target_language


class XLIFF:
    """An XLIFF file with its segments; if it has several languages, those in the requested ones."""

    def __init__(self, path: Path, source: str = "", target: str = "") -> None:
        self.content = load(path)
        self.notes: list[str] = []
        tree = ElementReader(path, ("xliff",), ("trans-unit", "unit"), self.content)
        elements = (each for each in tree.elements() if each.inherited("translate") != "no")
        entries = [entry for element in elements for entry in _entries(element, self.content)]
        matching = [entry for entry in entries if _matches(entry.holder, source, target)]
        self.entries = matching or entries  # if no language matches, all segments are used
        self.units = [entry.unit for entry in self.entries]
        self._prefix = tree.prefix.encode()
        first = self.entries[0].holder if self.entries else None
        self.source_language, self.target_language = (_language(first, side) for side in ("source", "target"))

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the file with translations, in the state needs-review-translation (XLIFF 1) or initial (XLIFF 2)."""
        by_holder: dict[Element, dict[XLIFFEntry, str]] = {}
        for number in sorted(targets):
            by_holder.setdefault(self.entries[number].holder, {})[self.entries[number]] = targets[number]
        edits = [edit for holder, entries in by_holder.items() for edit in self._fill(holder, entries)]
        if language:
            edits += self._declare_language(language, {home: None for holder in by_holder if (home := _home(holder))})
        return self.content.edited(edits)

    def _fill(self, holder: Element, entries: Mapping[XLIFFEntry, str]) -> Iterator[ByteEdit]:
        """Yields the edits that write translations into one trans-unit or segment."""
        line_end = line_end_of(self.content)
        written = {entry.part: write_segment(text, entry.source.marks, line_end) for entry, text in entries.items()}
        states = {"state": NEEDS_REVIEW} if holder.name == "trans-unit" else {}
        target = holder.find("target")
        if target and "state-qualifier" in target.attributes:
            states["state_qualifier"] = "leveraged-mt"
        inside = written[None] if None in written else self._joined_parts(holder, target, written)
        if target:
            yield target.start, target.end, rewrite_element(target, self.content, inside, **states)
        else:
            before = holder.find("seg-source") or holder.find("source")
            assert before  # every unit has a source
            tag = with_attributes(b"<%starget>" % self._prefix, **states)
            new = indentation(before, self.content) + tag + inside + b"</%starget>" % self._prefix
            yield before.end, before.end, new
        if holder.name == "segment":
            yield self._with_attributes(holder, state="initial", subState=f"regard:{NEEDS_REVIEW}")
        elif holder.attributes.get("approved") == "yes":
            yield self._with_attributes(holder, approved="no")

    def _joined_parts(self, holder: Element, target: Element | None, written: Mapping[str | None, bytes]) -> bytes:
        """Returns the content of a target that is divided into parts like its source."""
        source, text = holder.find("seg-source"), self.content.text
        assert source  # it contains the parts
        old = {part.attributes.get("mid"): text[part.inside : part.until] for part in _parts(target)}
        pieces, position = [], source.inside
        for part in _parts(source):
            number = part.attributes.get("mid")
            new = written.get(number, old.get(number, b""))
            pieces += [text[position : part.start], rewrite_element(part, self.content, new)]
            position = part.end
        return b"".join([*pieces, text[position : source.until]])

    def _declare_language(self, language: str, homes: Mapping[Element, None]) -> Iterator[ByteEdit]:
        for home in homes:
            name = "target_language" if home.name == "file" else "trgLang"
            if name.replace("_", "-") not in home.attributes:
                yield self._with_attributes(home, **{name: normalize_code(language).replace("_", "-")})

    def _with_attributes(self, element: Element, **values: str) -> ByteEdit:
        tag = self.content.text[element.start : element.inside]
        return element.start, element.inside, with_attributes(tag, **values)


open_document = XLIFF


def _entries(element: Element, content: Content) -> Iterator[XLIFFEntry]:
    """Yields the segments of a trans-unit of XLIFF 1 or a unit of XLIFF 2."""
    context = next((element.attributes[name] for name in ("resname", "name", "id") if name in element.attributes), "")
    holders = [element] if element.name == "trans-unit" else element.children("segment")
    for holder in holders:
        name = f"{context}/{holder.attributes['id']}" if len(holders) > 1 and "id" in holder.attributes else context
        target, cut = holder.find("target"), holder.find("seg-source")
        targets = {part.attributes.get("mid"): part for part in _parts(target)}
        sources = {part.attributes.get("mid"): part for part in _parts(cut)}
        is_whole = (
            not sources
            or None in sources
            or len(sources) < len(_parts(cut))
            or not _texts_between(target, content) <= _texts_between(cut, content)
        )
        by_part: Mapping[str | None, Element | None] = {None: holder.find("source")} if is_whole else sources
        for part, source in by_part.items():
            text = read_segment(source, content)
            translation = read_segment(target if is_whole else targets.get(part), content)
            if text:
                unit = Unit(
                    text.text,
                    translation.text,
                    Location(str(content.path), holder.line),
                    _state(translation, holder, target),
                    text.marks,
                    name if is_whole else f"{name}/{part}",
                )
                yield XLIFFEntry(text, translation, unit, holder, part)


def _parts(element: Element | None) -> list[Element]:
    """Returns the segments (mrk) in a seg-source or target of XLIFF 1."""
    marks = element.children("mrk") if element else []
    return [mark for mark in marks if mark.attributes.get("mtype") == "seg"]


def _texts_between(element: Element | None, content: Content) -> set[bytes]:
    """Returns the content of an element outside its segments, without white space."""
    parts = set(_parts(element))
    others = [each for each in element.content if each not in parts] if element else []
    return {
        (each.encode() if isinstance(each, str) else content.text[each.start : each.end]).strip() for each in others
    } - {b""}


def _state(translation: Segment, holder: Element, target: Element | None) -> TranslationState:
    if not translation or not target:
        return "empty"
    state = (holder if holder.name == "segment" else target).attributes.get("state", "")
    return "draft" if state in ("new", "initial") or state.startswith("needs-") else "done"


def _home(holder: Element) -> Element | None:
    """Returns the element that declares the languages of a unit: the file in XLIFF 1, or the root in XLIFF 2."""
    name = "file" if holder.name == "trans-unit" else "xliff"
    element: Element | None = holder
    while element and element.name != name:
        element = element.parent
    return element


def _language(holder: Element | None, side: str) -> str:
    names = {"source": ("source-language", "srcLang"), "target": ("target-language", "trgLang")}[side]
    return holder.inherited(*names) if holder else ""


def _matches(holder: Element, source: str, target: str) -> bool:
    """Returns whether the languages of a unit match `source` and `target`; unknown languages always match."""
    pairs = (_language(holder, "source"), source), (_language(holder, "target"), target)
    return all(not declared or not wanted or same_language(declared, wanted) for declared, wanted in pairs)


def _is_reversed(entry: XLIFFEntry, data: DataSettings) -> bool:
    """Returns whether a file translates in the reverse direction; raises an error if its languages do not match."""
    source = "" if data.source == DataSettings.source else data.source
    target = "" if data.target == DataSettings.target else data.target
    if _matches(entry.holder, source, target):
        return False
    if _matches(entry.holder, target, source):
        return True
    declared = " to ".join(_language(entry.holder, side) for side in ("source", "target"))
    raise DataError(
        f"this file translates from {declared}, not from {source} to {target}: leave it out, or specify other "
        "languages with regard train --source LANGUAGE --target LANGUAGE",
        entry.unit.where.path,
        entry.unit.where.line,
    )
