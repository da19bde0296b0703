"""Translation memories in TMX 1.1 to 1.4b: streams their texts in any languages, and opens them as documents."""

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

CODES = {"bpt", "ept", "it", "ph", "ut"}  # elements with native code, in which only <sub> contains text
MAX_LANGUAGES = 1000  # maximum number of languages that are recorded
ANY = "*all*"  # the value of srclang that stands for all languages
MACHINE = {"creationtool": "regard", "creationid": "MT!"}  # attributes of machine translations


class TMXReader:
    """Streams the texts of a TMX file and records its languages."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.source = ""  # the source language declared in the header
        self.languages: dict[str, None] = {}

    def units(self) -> Iterator[tuple[int, list[tuple[str, str]]]]:
        """Yields the line of each tu and its (language, text) pairs, without inline codes."""
        for element in ElementReader(self.path, ("tmx",), ("tu", "header")).elements():
            if element.name == "header":
                self.source = element.attributes.get("srclang", "")
                continue
            texts = []
            for variant in element.children("tuv"):
                for segment in variant.children("seg"):
                    texts.append((_language(variant), join_lines("".join(_plain_texts(segment)))))
                    if len(self.languages) < MAX_LANGUAGES:
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
    """Returns the code and the non-empty texts of a language, or else of its first regional variant."""
    matching = [(normalize_code(code), text) for code, text in texts if code and text and matches_code(code, wanted)]
    codes = [code for code, _ in matching]
    chosen = normalize_code(wanted) if normalize_code(wanted) in codes else codes[0] if codes else ""
    return chosen, [text for code, text in matching if code == chosen]


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the pairs in the two languages of the settings or, if they are not set, of the file."""
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
        known = _list(reader.languages)
        raise DataError(f"no entry has texts in both {source} and {target}: the languages are {known}", path)


def rows(path: Path, names: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """Yields the line of each tu, and its first text in each of the languages `names`."""
    for line, texts in TMXReader(path).units():
        by_name = {name: _in_language(texts, name)[1] for name in names}
        yield line, {name: matching[0] for name, matching in by_name.items() if matching}


def languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """Returns `source` and `target` or, if empty, the languages of the file; raises an error if they are ambiguous."""
    if source and target:
        return source, target
    reader = TMXReader(path)
    for _ in reader.units():
        pass
    if target:  # the source is the other language
        return _choose(reader.languages, target, path)[::-1]
    return _choose(reader.languages, source or reader.source, path)


def _choose(codes: Collection[str], source: str, path: Path) -> tuple[str, str]:
    """Returns the source language and the only other language."""
    first = best_match(codes, source) if source and source != ANY else None
    others = [code for code in codes if first is None or not same_language(code, first)]
    others = [code for code in others if first is None or primary(code) != primary(first)] or others
    if first is not None and len({normalize_code(code) for code in others}) == 1:
        return first, others[0]
    if len(codes) > 1:
        example = f"regard train --source {first or 'LANGUAGE'} --target LANGUAGE"
        raise DataError(f"the file has several languages ({_list(codes)}): specify two of them with {example}", path)
    raise DataError(f"all texts are in one language ({_list(codes)})" if codes else "the file contains no texts", path)


def _list(codes: Collection[str]) -> str:
    more = f" and {len(codes) - 20} more" if len(codes) > 20 else ""
    return ", ".join(sorted(codes)[:20]) + more or "none"


# Documents


@dataclass(frozen=True, slots=True)
class TMXEntry:
    """A source text, with the elements of the source and of its translation, if there is one."""

    source: Segment
    unit: Unit
    variant: Element  # tuv of the source
    target: Element | None


class TMX:
    """A TMX file as a document, in which the texts in one language are translated into another."""

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
            raise DataError(f"the source language is unknown: set srclang in the header to one of {_list(codes)}", path)
        self.notes: list[str] = []
        self.source_language = best_match(codes, source) or source
        self.target_language = best_match(codes, target) or target
        self._wanted = [  # a region that does not occur in the file is dropped
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
        """Returns the file with the translations `targets`, each in a tuv that is marked as a machine translation."""
        edits = []
        for number, text in targets.items():
            entry = self.entries[number]
            segment = write_segment(text, entry.source.marks, line_end_of(self.content))
            if entry.target is None:
                edits.append(self._added(entry.variant, segment))
            else:
                edits.append((entry.target.start, entry.target.end, self._with_text(entry.target, segment)))
        return self.content.edited(edits)

    def _named(self, name: str, inside: bytes, attributes: bytes = b"") -> bytes:
        """Returns an element with the namespace prefix of the file."""
        name_in_file = (self._tree.prefix + name).encode()
        return b"<%s%s>%s</%s>" % (name_in_file, attributes, inside, name_in_file)

    def _with_text(self, variant: Element, segment: bytes) -> bytes:
        old, text = variant.find("seg"), self.content.text
        if old is None:
            inside = text[variant.inside : variant.until] + self._named("seg", segment)
        else:
            new = rewrite_element(old, self.content, segment)
            inside = text[variant.inside : old.start] + new + text[old.end : variant.until]
        return rewrite_element(variant, self.content, inside, **MACHINE)

    def _added(self, variant: Element, segment: bytes) -> tuple[int, int, bytes]:
        """Returns the edit that adds a tuv at the end of a tu, formatted like the tuv of the source."""
        seg = variant.find("seg")
        assert variant.parent
        assert seg  # it contains the source text
        name = "xml:lang" if "xml:lang" in variant.attributes else "lang"
        attributes = {name: self.target_language.replace("_", "-"), **MACHINE}
        spelled = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items()).encode()
        inside = self.content.text[variant.inside : variant.until]
        space = inside[len(inside.rstrip()) :]  # white space before the closing tag
        closing = space[space.rfind(b"\n") - (b"\r\n" in space) :] if b"\n" in space else b""
        inner = indentation(seg, self.content) + self._named("seg", segment) + closing
        end = variant.parent.children("tuv")[-1].end
        return end, end, indentation(variant, self.content) + self._named("tuv", inner, spelled)


open_document = TMX


def _variant(element: Element, wanted: str) -> Element | None:
    """Returns the first tuv of a tu in a language, or else in a regional variant of it."""
    matching = [each for each in element.children("tuv") if matches_code(_language(each), wanted)]
    exact = [each for each in matching if normalize_code(_language(each)) == normalize_code(wanted)]
    return next(iter(exact or matching), None)
