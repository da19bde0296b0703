"""XLIFF 1.0 to 1.2 and 2.0 to 2.1: segments with their translations; these are put back, and nothing else changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import TranslationState, Unit, inline_elements as inline
from regard.files.formats.inline_elements import (
    Segment,
    indentation,
    rewrite_element,
    segment,
    with_attributes,
    write_segment,
)
from regard.files.formats.xml_parsing import Content, Element, ElementReader, load
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.language_tags import normalize_code, same_language
from regard.tokens.text_pairs import Location, Pair

ByteEdit = tuple[int, int, bytes]
NEEDS_REVIEW = "needs-review-translation"


@dataclass(frozen=True, slots=True)
class XLIFFEntry:
    """A segment and where its translation stands or has to be put."""

    source: Segment
    target: Segment
    unit: Unit
    holder: Element  # a trans-unit of XLIFF 1, or a segment of XLIFF 2
    number: str | None  # of a part that XLIFF 1 has cut a source into


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The finished translations of a file; what must not be translated (`translate="no"`) is nothing to learn from."""
    for entry in XLIFF(path).entries:
        turned = _turned(entry, data)
        if entry.unit.state == "done":
            report.read += 1
            source, target = (entry.target, entry.source) if turned else (entry.source, entry.target)
            yield Pair(source.plain, target.plain, entry.unit.where)


def languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """What a file says of its languages."""
    found = XLIFF(path, source, target)
    return found.source_language, found.target_language


def open_document(path: Path, source: str = "", target: str = "") -> XLIFF:
    """A file as units that can be filled in; of one with several languages, those of the wanted ones."""
    return XLIFF(path, source, target)


class XLIFF:
    """A file with its segments."""

    def __init__(self, path: Path, source: str = "", target: str = "") -> None:
        self.content = load(path)
        self.notes: list[str] = []
        tree = ElementReader(self.content, ("xliff",), ("trans-unit", "unit"))
        elements = (each for each in tree.elements() if each.inherited("translate") != "no")
        entries = [entry for element in elements for entry in _entries(element, self.content)]
        fitting = [entry for entry in entries if _fits(entry.holder, source, target)]
        self.entries = fitting or entries  # a file of one language is meant, whatever it is called
        self.prefix = tree.prefix.encode()
        first = self.entries[0].holder if self.entries else None
        self.source_language = _language(first, "source")
        self.target_language = _language(first, "target")

    @property
    def units(self) -> Sequence[Unit]:
        return [entry.unit for entry in self.entries]

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """The file with these translations: in XLIFF 1 their state is needs-review-translation, in XLIFF 2 initial."""
        holders: dict[int, list[int]] = {}
        for number in targets:
            holders.setdefault(self.entries[number].holder.start, []).append(number)
        edits: list[ByteEdit] = []
        for numbers in holders.values():
            edits += self._fill({number: targets[number] for number in sorted(numbers)})
        return self.content.edited([*edits, *self._tell(targets, language)])

    def _fill(self, targets: Mapping[int, str]) -> Iterator[ByteEdit]:
        """The translations of one holder."""
        entries = {self.entries[number]: text for number, text in targets.items()}
        holder = next(iter(entries)).holder
        end = inline.line_end(self.content)
        written = {entry.number: write_segment(text, entry.source.marks, end) for entry, text in entries.items()}
        states = {"state": NEEDS_REVIEW} if holder.name == "trans-unit" else {}
        target = holder.find("target")
        if target is not None and "state-qualifier" in target.attributes:
            states["state_qualifier"] = "leveraged-mt"
        inside = written[None] if None in written else self._parts(holder, target, written)
        if target is not None:
            yield target.start, target.end, rewrite_element(target, self.content, inside, **states)
        else:
            before = holder.find("seg-source") or holder.find("source")
            assert before is not None  # there would be no unit
            tag = with_attributes(b"<%starget>" % self.prefix, **states)
            new = indentation(before, self.content) + tag + inside + b"</%starget>" % self.prefix
            yield before.end, before.end, new
        yield from self._mark(holder)

    def _parts(self, holder: Element, target: Element | None, written: Mapping[str | None, bytes]) -> bytes:
        """A target in the parts of its source, as far as these are translated."""
        source = holder.find("seg-source")
        assert source is not None  # it has the parts
        old = {} if target is None else {part.attributes.get("mid"): part for part in _parts(target)}
        pieces, done = [], source.inside
        for part in _parts(source):
            pieces.append(self.content.text[done : part.start])
            number = part.attributes.get("mid")
            stands = old.get(number)
            kept = b"" if stands is None else self.content.text[stands.inside : stands.until]
            pieces.append(rewrite_element(part, self.content, written.get(number, kept)))
            done = part.end
        return b"".join([*pieces, self.content.text[done : source.until]])

    def _mark(self, holder: Element) -> Iterator[ByteEdit]:
        """Says in the opening tag of a holder that somebody has to look at it."""
        tag = self.content.text[holder.start : holder.inside]
        if holder.name == "segment":
            yield holder.start, holder.inside, with_attributes(tag, state="initial", subState=f"regard:{NEEDS_REVIEW}")
        elif holder.attributes.get("approved") == "yes":
            yield holder.start, holder.inside, with_attributes(tag, approved="no")

    def _tell(self, targets: Mapping[int, str], language: str) -> Iterator[ByteEdit]:
        """The language of the translations, where nothing says it."""
        homes = {home.start: home for number in targets if (home := _home(self.entries[number].holder))}
        for home in homes.values():
            name = "target_language" if home.name == "file" else "trgLang"
            if language and name.replace("_", "-") not in home.attributes:
                tag = self.content.text[home.start : home.inside]
                yield (
                    home.start,
                    home.inside,
                    with_attributes(tag, **{name: normalize_code(language).replace("_", "-")}),
                )


def _entries(element: Element, content: Content) -> Iterator[XLIFFEntry]:
    """What can be translated in a trans-unit of XLIFF 1 or a unit of XLIFF 2."""
    context = next((element.attributes[name] for name in ("resname", "name", "id") if name in element.attributes), "")
    holders = [element] if element.name == "trans-unit" else element.children("segment")
    for holder in holders:
        name = f"{context}/{holder.attributes['id']}" if len(holders) > 1 and "id" in holder.attributes else context
        target, cut = holder.find("target"), holder.find("seg-source")
        parts = {part.attributes.get("mid"): part for part in _parts(target)} if target else {}
        pieces = _numbered(cut) if cut else []
        whole = cut is None or not pieces or not _others(target, content) <= _others(cut, content)
        sources: Sequence[Element | None] = [holder.find("source")] if whole else pieces
        for source in sources:
            number = None if whole or source is None else source.attributes.get("mid")
            text, found = segment(source, content), segment(target if whole else parts.get(number), content)
            state = _state(found, holder, target)
            where = Location(str(content.path), holder.line)
            if text and source is not None:
                told = name if whole else f"{name}/{number}"
                yield XLIFFEntry(
                    text, found, Unit(text.text, found.text, where, state, text.marks, told), holder, number
                )


def _parts(element: Element) -> list[Element]:
    """The segments of XLIFF 1 in a seg-source or a target."""
    return [part for part in element.children("mrk") if part.attributes.get("mtype") == "seg"]


def _others(element: Element | None, content: Content) -> set[bytes]:
    """What stands beside the segments in it."""
    found = [] if element is None else [each for each in element.content if each not in _parts(element)]
    literal = (each.encode() if isinstance(each, str) else content.text[each.start : each.end] for each in found)
    return {each.strip() for each in literal} - {b""}


def _numbered(element: Element) -> list[Element]:
    """Its segments, if each has a number of its own."""
    parts = _parts(element)
    numbers = {part.attributes.get("mid") for part in parts}
    return parts if None not in numbers and len(numbers) == len(parts) else []


def _state(target: Segment, holder: Element, element: Element | None) -> TranslationState:
    if not target or element is None:
        return "empty"
    state = (holder if holder.name == "segment" else element).attributes.get("state", "")
    return "draft" if state in ("new", "initial") or state.startswith("needs-") else "done"


def _home(holder: Element) -> Element | None:
    """The element that tells the languages of a unit: a file of XLIFF 1, or the root of XLIFF 2."""
    name = "file" if holder.name == "trans-unit" else "xliff"
    element: Element | None = holder
    while element is not None and element.name != name:
        element = element.parent
    return element


def _language(holder: Element | None, side: str) -> str:
    names = {"source": ("source-language", "srcLang"), "target": ("target-language", "trgLang")}[side]
    return "" if holder is None else holder.inherited(*names)


def _fits(holder: Element, source: str, target: str) -> bool:
    told = (_language(holder, "source"), source), (_language(holder, "target"), target)
    return all(not has or not wanted or same_language(has, wanted) for has, wanted in told)


def _turned(entry: XLIFFEntry, data: DataSettings) -> bool:
    """Whether the source is wanted as the target; refuses other languages."""
    source = "" if data.source == DataSettings.source else data.source
    target = "" if data.target == DataSettings.target else data.target
    if _fits(entry.holder, source, target):
        return False
    if _fits(entry.holder, target, source):
        return True
    told = " to ".join(_language(entry.holder, side) for side in ("source", "target"))
    raise DataError(
        f"translates from {told}, not from {source} to {target}: leave it out, or say other languages, as in "
        "regard train --source LANGUAGE --target LANGUAGE",
        entry.unit.where.path,
        entry.unit.where.line,
    )
