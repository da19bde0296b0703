"""TMX 1.1 to 1.4b: texts in any number of languages, streamed for training and filled in as documents."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import TranslationState, Unit
from regard.files.formats.inline_elements import (
    Segment,
    escape,
    indentation,
    join_lines,
    line_end_of,
    read_segment,
    rewrite_element,
    write_segment,
)
from regard.files.formats.xml_parsing import Element, ElementReader, load
from regard.files.language_tags import best_match, matches_code, same_language
from regard.settings import DataSettings
from regard.tokens.language_directions import normalize_code, primary
from regard.tokens.text_pairs import Location, Pair

CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements with native code, in which only a <sub> has text
MOST_LANGUAGES = 1000  # that are remembered
ANY = "*all*"  # a srclang that stands for every language
MACHINE = {"creationtool": "regard", "creationid": "MT!"}  # attributes of a tuv that nobody has reviewed


class TMXReader:
    """Streams the texts of a file and remembers its languages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = ""  # language of the source, from the header
        self.languages: dict[str, None] = {}

    def units(self) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        """Yields the line of each tu and its texts without inline codes, each with its language."""
        for element in ElementReader(self.path, ("tmx",), ("tu", "header")).elements():
            if element.name == "header":
                self.source = element.attributes.get("srclang", "")
                continue
            texts = []
            for variant in element.children("tuv"):
                for segment in variant.children("seg"):
                    texts.append((_language(variant), join_lines("".join(_plain_texts(segment)))))
                    if len(self.languages) < MOST_LANGUAGES:
                        self.languages[_language(variant)] = None
            yield element.line, texts


def _plain_texts(element: Element, *, in_code: bool = False) -> Iterator[str]:
    for each in element.content:
        if not isinstance(each, str):
            yield from _plain_texts(each, in_code=each.name in CODES or (in_code and each.name not in ("hi", "sub")))
        elif not in_code:
            yield each


def _language(variant: Element) -> str:
    return variant.attributes.get("xml:lang") or variant.attributes.get("lang", "")  # lang is from TMX 1.1


def _in_language(texts: Sequence[tuple[str, str]], wanted: str) -> tuple[str, list[str]]:
    """Returns the code and the texts of a language, or else of its first region; leaves out empty texts."""
    matching = [(normalize_code(code), text) for code, text in texts if code and text and matches_code(code, wanted)]
    codes = [code for code, _ in matching]
    chosen = normalize_code(wanted) if normalize_code(wanted) in codes else codes[0] if codes else ""
    return chosen, [text for code, text in matching if code == chosen]


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs of the two languages in the settings, or else of the two in the file."""
    source, target = languages(
        path,
        "" if data.source == DataSettings.source else data.source,
        "" if data.target == DataSettings.target else data.target,
    )
    reader, is_empty = TMXReader(path), True
    for line, texts in reader.units():
        (source_code, sources), (target_code, targets) = _in_language(texts, source), _in_language(texts, target)
        if sources and targets and source_code != target_code:
            is_empty = False
            report.read += 1
            where = Location(str(path), line)
            yield Pair(sources[0], targets[0], where)
            for _ in range(1, max(len(sources), len(targets))):
                report.drop("repeated language", where)
    if is_empty:
        raise DataError(f"has no text in both {source} and {target}: its languages are {_list(reader.languages)}", path)


def rows(path: Path, names: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line of each tu, and by language the first of its texts in these languages."""
    for line, texts in TMXReader(path).units():
        by_name = {name: _in_language(texts, name)[1] for name in names}
        yield line, {name: matching[0] for name, matching in by_name.items() if matching}


def languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """Returns the two languages of a file, as far as they are not given; refuses to guess among several."""
    if source and target:
        return source, target
    reader = TMXReader(path)
    for _ in reader.units():
        pass
    if target:  # the source is the other language
        return _choose(reader.languages, target, path)[::-1]
    return _choose(reader.languages, source or reader.source, path)


def _choose(codes: Collection[str], source: str, path: Path) -> tuple[str, str]:
    """Returns the source and the one other language."""
    first = best_match(codes, source) if source and source != ANY else None
    others = [code for code in codes if first is None or not same_language(code, first)]
    others = [code for code in others if first is None or primary(code) != primary(first)] or others
    if first is not None and len({normalize_code(code) for code in others}) == 1:
        return first, others[0]
    if len(codes) > 1:
        example = f"regard train --source {first or 'LANGUAGE'} --target LANGUAGE"
        raise DataError(f"has several languages ({_list(codes)}): name two of them, as in {example}", path)
    raise DataError(f"has texts in one language only ({_list(codes)})" if codes else "contains no texts", path)


def _list(codes: Collection[str]) -> str:
    more = f" and {len(codes) - 20} more" if len(codes) > 20 else ""
    return ", ".join(sorted(codes)[:20]) + more or "none"


# Documents


@dataclass(frozen=True, slots=True)
class TMXEntry:
    """A text, and the position of its translation if there is one."""

    source: Segment
    unit: Unit
    variant: Element  # of the source
    target: Element | None


class TMX:
    """A memory whose texts in one language are filled in from those in another."""

    def __init__(self, path: Path, source: str = "", target: str = "") -> None:
        self.content = load(path)
        self._tree = ElementReader(path, ("tmx",), ("tu", "header"), self.content)
        elements = list(self._tree.elements())
        header = next((each.attributes.get("srclang", "") for each in elements if each.name == "header"), "")
        units = [each for each in elements if each.name == "tu"]
        codes = dict.fromkeys(
            _language(variant) for unit in units for variant in unit.children("tuv") if variant.find("seg")
        )
        if not source or not target:
            first, second = (header, target) if target else _choose(codes, source or header, path)
            source, target = source or best_match(codes, first) or "", target or second
        if not source or source == ANY:
            raise DataError(f"its source language is unknown: set srclang in its header to one of {_list(codes)}", path)
        self.notes: list[str] = []
        self.source_language = best_match(codes, source) or source
        self.target_language = best_match(codes, target) or target
        self._wanted = [  # without a region that the file does not have
            code if any(matches_code(each, code) for each in codes) else match
            for code, match in ((source, self.source_language), (target, self.target_language))
        ]
        self.entries = [entry for unit in units if (entry := self._entry(unit))]
        self.units = [entry.unit for entry in self.entries]

    def _entry(self, element: Element) -> TMXEntry | None:
        source, target = (_variant(element, wanted) for wanted in self._wanted)
        text = read_segment(source.find("seg") if source else None, self.content)
        if source is None or not text or source is target:
            return None
        translation = read_segment(target.find("seg") if target else None, self.content)
        state: TranslationState = "done" if translation else "empty"
        if target and translation and target.attributes.get("creationid") == MACHINE["creationid"]:
            state = "draft"
        where = Location(str(self.content.path), element.line)
        unit = Unit(text.text, translation.text, where, state, text.marks, element.attributes.get("tuid", ""))
        return TMXEntry(text, unit, source, target)

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the file with these translations, each in a tuv that is marked as made by a machine."""
        edits = []
        for number, text in targets.items():
            entry = self.entries[number]
            segment = write_segment(text, entry.source.marks, line_end_of(self.content))
            if entry.target is None:
                edits.append(self._added(entry.variant, segment))
            else:
                edits.append((entry.target.start, entry.target.end, self._filled(entry.target, segment)))
        return self.content.edited(edits)

    def _named(self, name: str, inside: bytes, attributes: bytes = b"") -> bytes:
        """Returns an element of this format, whose name may have a prefix."""
        name_in_file = (self._tree.prefix + name).encode()
        return b"<%s%s>%s</%s>" % (name_in_file, attributes, inside, name_in_file)

    def _filled(self, variant: Element, segment: bytes) -> bytes:
        """Returns a tuv with another text in it."""
        old, text = variant.find("seg"), self.content.text
        if old is None:
            inside = text[variant.inside : variant.until] + self._named("seg", segment)
        else:
            new = rewrite_element(old, self.content, segment)
            inside = text[variant.inside : old.start] + new + text[old.end : variant.until]
        return rewrite_element(variant, self.content, inside, **MACHINE)

    def _added(self, variant: Element, segment: bytes) -> tuple[int, int, bytes]:
        """Returns a new tuv for the end of a tu, in the form of the tuv of the source."""
        seg = variant.find("seg")
        assert variant.parent
        assert seg  # it has the source
        name = "xml:lang" if "xml:lang" in variant.attributes else "lang"
        attributes = {name: self.target_language.replace("_", "-"), **MACHINE}
        spelled = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items()).encode()
        inside = self.content.text[variant.inside : variant.until]
        space = inside[len(inside.rstrip()) :]  # before the closing tag
        closing = space[space.rfind(b"\n") - (b"\r\n" in space) :] if b"\n" in space else b""
        inner = indentation(seg, self.content) + self._named("seg", segment) + closing
        end = variant.parent.children("tuv")[-1].end
        return end, end, indentation(variant, self.content) + self._named("tuv", inner, spelled)


open_document = TMX


def _variant(element: Element, wanted: str) -> Element | None:
    """Returns the first tuv of a tu in a language, or else in a region of it."""
    matching = [each for each in element.children("tuv") if matches_code(_language(each), wanted)]
    exact = [each for each in matching if normalize_code(_language(each)) == normalize_code(wanted)]
    return next(iter(exact or matching), None)
