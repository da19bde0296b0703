"""TMX 1.1 to 1.4b: texts in any number of languages; streamed, so that a memory may be larger than the machine's."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import TranslationState, Unit, inline_elements as inline
from regard.files.formats.inline_elements import (
    EMPTY,
    Segment,
    escape,
    indentation,
    on_one_line,
    rewrite_element,
    segment,
    write_segment,
)
from regard.files.formats.xml_parsing import Element, ElementReader, Walker, load, walk
from regard.settings import DataSettings
from regard.tokens.corpus_report import Report
from regard.tokens.language_tags import best_match, matches_code, normalize_code, primary, same_language
from regard.tokens.text_pairs import Location, Pair

CODES = {"bpt", "ept", "it", "ph", "ut"}  # native code is in these, and no text but that of a <sub>
LONGEST = 1 << 22  # characters of a segment
MOST = 1000  # languages that are remembered
ALL = "*all*"  # where any language is the source
MACHINE = {"creationtool": "regard", "creationid": "MT!"}  # what says in a tuv that nobody has looked at it


@dataclass(slots=True)
class TranslationUnit:
    """What is said in one place, by language; a language may come more than once."""

    line: int
    texts: list[tuple[str, str]] = field(default_factory=list)

    def find(self, wanted: str) -> tuple[str, list[str]]:
        """The texts of a language, or else of the first region of it, with its code; not the empty ones."""
        fitting = [(normalize_code(code), text) for code, text in self.texts if text and matches_code(code, wanted)]
        codes = [code for code, _ in fitting]
        chosen = normalize_code(wanted) if normalize_code(wanted) in codes else codes[0] if codes else ""
        return chosen, [text for code, text in fitting if code == chosen]


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The pairs of the two languages that are wanted, or else of those that the file has."""
    named = (data.source, DataSettings.source), (data.target, DataSettings.target)
    source, target = languages(path, *("" if name == unnamed else name for name, unnamed in named))
    walker, found = TMXReader(path), False
    for group in walker.groups():
        (one, sources), (other, targets) = group.find(source), group.find(target)
        if sources and targets and one != other:
            found = True
            report.read += 1
            where = Location(str(path), group.line)
            yield Pair(sources[0], targets[0], where)
            for _ in range(1, max(len(sources), len(targets))):
                report.drop("repeated language", where)
    if not found:
        raise DataError(f"has no text in both {source} and {target}: its languages are {_list(walker.languages)}", path)


def rows(path: Path, names: Collection[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The texts in some languages, the first of each, with the lines where they stand."""
    for group in TMXReader(path).groups():
        found = {name: group.find(name)[1] for name in names}
        yield group.line, {name: texts[0] for name, texts in found.items() if texts}


def languages(path: Path, source: str = "", target: str = "") -> tuple[str, str]:
    """The two languages of a file, as far as they are not named; refuses to guess of several."""
    if source and target:
        return source, target
    walker = TMXReader(path)
    for _ in walker.groups():
        pass
    if target:  # the source is the other one
        return choose(walker.languages, target, path)[::-1]
    return choose(walker.languages, source or walker.source, path)


def choose(codes: Collection[str], source: str, path: Path) -> tuple[str, str]:
    """The source and the one other language."""
    first = best_match(codes, source) if source and source != ALL else None
    others = [code for code in codes if first is None or not same_language(code, first)]
    others = [code for code in others if first is None or primary(code) != primary(first)] or others
    if first is not None and len({normalize_code(code) for code in others}) == 1:
        return first, others[0]
    why = f"which two of its languages are meant? It has {_list(codes)}" if len(codes) > 1 else _alone(codes)
    example = f": say so, as in regard train --source {first or 'LANGUAGE'} --target LANGUAGE" if len(codes) > 1 else ""
    raise DataError(why + example, path)


def _alone(codes: Collection[str]) -> str:
    return f"has texts in one language only ({_list(codes)})" if codes else "has no texts in it"


def _list(codes: Collection[str]) -> str:
    shown = sorted(codes)[:20]
    return ", ".join(shown) + (f" and {len(codes) - 20} more" if len(codes) > 20 else "") if shown else "none"


class TMXReader(Walker):
    """Collects the texts of a file without their inline codes."""

    roots = ("tmx",)

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.source = ""  # the language of the source, as the header has it
        self.languages: dict[str, None] = {}
        self.found: list[TranslationUnit] = []
        self.group: TranslationUnit | None = None
        self.language = ""
        self.segment = 0  # how many elements are open when one begins that is in a segment; none outside
        self.text: list[str] = []
        self.size = 0

    def groups(self) -> Iterator[TranslationUnit]:
        """What stands in the file, one after another."""
        for _ in walk(self):
            yield from self.found
            self.found.clear()

    def opened(self, name: str, attributes: dict[str, str]) -> None:
        if self.segment:
            if name in CODES or name in ("hi", "sub"):
                self._listen(name not in CODES)
        elif name == "tu":
            self.group = TranslationUnit(self.line)
        elif name == "tuv":
            self.language = language_of(attributes)
        elif name == "seg" and self.names[-2:-1] == ["tuv"]:
            self.segment, self.text, self.size = len(self.names), [], 0
            self._listen(True)
        elif name == "header":
            self.source = attributes.get("srclang", "")

    def closed(self, name: str) -> None:
        if self.segment:
            if len(self.names) < self.segment:
                self._finish()
            elif name in CODES or name in ("hi", "sub"):
                inner = [each for each in self.names[self.segment :] if each in CODES or each in ("hi", "sub")]
                self._listen(not inner or inner[-1] not in CODES)
        elif name == "tu" and self.group is not None:
            self.found.append(self.group)
            self.group = None

    def _finish(self) -> None:
        """Keeps the text of a segment."""
        self.segment = 0
        self._listen(False)
        if len(self.languages) < MOST:
            self.languages[self.language] = None
        if self.group is not None and self.language:
            self.group.texts.append((self.language, on_one_line("".join(self.text))))

    def _listen(self, wanted: bool) -> None:
        self.parser.CharacterDataHandler = self._hear if wanted else None

    def _hear(self, text: str) -> None:
        self.size += len(text)
        if self.size > LONGEST:
            raise DataError(f"a segment of more than {LONGEST:,} characters", self.path, self.line)
        self.text.append(text)


def language_of(attributes: Mapping[str, str]) -> str:
    """The language of a tuv; lang is how TMX 1.1 had it."""
    return attributes.get("xml:lang") or attributes.get("lang", "")


# Files that are filled in


@dataclass(frozen=True, slots=True)
class TMXEntry:
    """A text, and where its translation stands, if there is one."""

    source: Segment
    unit: Unit
    variant: Element  # of the source
    target: Element | None


def open_document(path: Path, source: str = "", target: str = "") -> TMX:
    """A file as units that can be filled in, from one language into another."""
    return TMX(path, source, target)


class TMX:
    """A memory with its texts in two languages."""

    def __init__(self, path: Path, source: str = "", target: str = "") -> None:
        self.content = load(path)
        tree = ElementReader(self.content, ("tmx",), ("tu", "header"))
        groups: list[Element] = []
        header = ""
        for element in tree.elements():
            if element.name == "tu":
                groups.append(element)
            else:
                header = element.attributes.get("srclang", "")
        codes = dict.fromkeys(
            language_of(each.attributes) for group in groups for each in group.children("tuv") if each.find("seg")
        )
        if not source or not target:
            found = choose(codes, source or header, path) if not target else (header, target)
            source, target = source or best_match(codes, found[0]) or "", target or found[1]
        if not source or source == ALL:
            raise DataError(f"which of its languages is the source? It has {_list(codes)}", path)
        self.prefix = tree.prefix.encode()
        self.notes: list[str] = []
        self.source_language, self.target_language = (
            best_match(codes, source) or source,
            best_match(codes, target) or target,
        )
        self.wanted = [  # a region that the file does not have is not looked for in each place
            code if any(matches_code(each, code) for each in codes) else found
            for code, found in ((source, self.source_language), (target, self.target_language))
        ]
        self.entries = [entry for group in groups if (entry := self._entry(group))]

    @property
    def units(self) -> Sequence[Unit]:
        return [entry.unit for entry in self.entries]

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """The file with these translations: their tuv says that a machine made them."""
        edits = []
        end = inline.line_end(self.content)
        for number, text in targets.items():
            entry = self.entries[number]
            written = write_segment(text, entry.source.marks, end)
            if entry.target is not None:
                edits.append((entry.target.start, entry.target.end, self._filled(entry.target, written)))
            else:
                edits.append(self._added(entry, written))
        return self.content.edited(edits)

    def _entry(self, group: Element) -> TMXEntry | None:
        source, target = (_variant(group, wanted) for wanted in self.wanted)
        text = segment(source.find("seg"), self.content) if source else EMPTY
        if source is None or not text or source is target:
            return None
        found = segment(target.find("seg"), self.content) if target else EMPTY
        state: TranslationState = "done" if found else "empty"
        if target is not None and found and target.attributes.get("creationid") == MACHINE["creationid"]:
            state = "draft"
        where = Location(str(self.content.path), group.line)
        context = group.attributes.get("tuid", "")
        unit = Unit(text.text, found.text, where, state, text.marks, context)
        return TMXEntry(text, unit, source, target)

    def _filled(self, variant: Element, written: bytes) -> bytes:
        """A tuv with another text in it."""
        old = variant.find("seg")
        if old is None:
            written = b"<%sseg>%s</%sseg>" % (self.prefix, written, self.prefix)
            return rewrite_element(
                variant, self.content, self.content.text[variant.inside : variant.until] + written, **MACHINE
            )
        before, after = self.content.text[variant.inside : old.start], self.content.text[old.end : variant.until]
        return rewrite_element(
            variant, self.content, before + rewrite_element(old, self.content, written) + after, **MACHINE
        )

    def _added(self, entry: TMXEntry, written: bytes) -> tuple[int, int, bytes]:
        """A new tuv behind the last of its tu, made like that of the source."""
        variant, text = entry.variant, self.content.text
        assert variant.parent is not None  # the tu
        last = variant.parent.children("tuv")[-1]
        seg = variant.find("seg")
        assert seg is not None  # it has the source
        outer, inner = indentation(variant, self.content), indentation(seg, self.content)
        name = "xml:lang" if "xml:lang" in variant.attributes else "lang"
        told = {name: self.target_language.replace("_", "-"), **MACHINE}
        attributes = "".join(f' {name}="{escape(value)}"' for name, value in told.items()).encode()
        closing = indentation_of_end(text, variant)
        new = b"%s<%stuv%s>%s<%sseg>%s</%sseg>%s</%stuv>"
        made = new % (outer, self.prefix, attributes, inner, self.prefix, written, self.prefix, closing, self.prefix)
        return last.end, last.end, made


def _variant(group: Element, wanted: str) -> Element | None:
    """The first tuv in a language, or else in a region of it."""
    fitting = [each for each in group.children("tuv") if matches_code(language_of(each.attributes), wanted)]
    exact = [each for each in fitting if normalize_code(language_of(each.attributes)) == normalize_code(wanted)]
    return next(iter(exact or fitting), None)


def indentation_of_end(text: bytes, element: Element) -> bytes:
    """The line end and the white space before the closing tag of an element."""
    inside = text[element.inside : element.until]
    space = inside[len(inside.rstrip()) :]
    return space[space.rfind(b"\n") - (b"\r\n" in space) :] if b"\n" in space else b""
