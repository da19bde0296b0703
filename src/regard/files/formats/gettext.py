"""PO, POT and MO, the catalogues of gettext: pairs of all of them, documents of PO and POT."""

from __future__ import annotations

import copy
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from regard.errors import DataError
from regard.files.formats import Document, TranslationState, Unit, plain_text as plain
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.po_lines import CHARSET, POEntry, charset, entries, line_decoder, spell
from regard.files.formats.replaced_text import replace_surrogates
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Location, Pair

MOST_FORMS = 10  # of a plural; Arabic has six
_FEW = "n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2"
PLURALS = {  # what the header says of languages with two forms or three, for templates, which do not say it
    "nplurals=2; plural=(n != 1);": "bg ca da de el en eo es et eu fi gl he hu it nb nl nn no pt sq sv",
    "nplurals=2; plural=(n > 1);": "fr pt_br",
    "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);": "cs sk",
    f"nplurals=3; plural=(n==1 ? 0 : {_FEW});": "pl",
    f"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : {_FEW});": "be bs hr ru sr uk",
}


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """The finished translations of a catalogue, each form of a plural as a pair."""
    if suffix(path) == ".mo":
        texts = _messages(path)
    else:
        texts = _finished(path, data)
    last = None
    for source, target, number in texts:
        where = Location(str(path), number)
        report.read, report.further = report.read + (where != last), report.further + (where == last)
        last = where
        if SURROGATE.search(source + target):
            report.drop("undecodable", where)
        else:
            yield Pair(source, target, where)


def _finished(path: Path, data: DataSettings) -> Iterator[tuple[str, str, int]]:
    """The texts of a PO file that are neither fuzzy nor empty, with their lines; what is undecodable has surrogates."""
    lines = plain.content(path).split(b"\n")
    forms = 0
    for entry in entries(lines, path, "surrogateescape" if data.undecodable == "drop" else "strict"):
        if entry.is_header:
            forms = forms or _forms(entry.header.get("plural-forms", ""))
        elif not entry.fuzzy:
            for source, key in entry.forms(forms):
                if source and key in entry.values and (target := entry.values[key].text):
                    yield source, target, entry.line


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each message of a PO or POT, and for each form of a plural."""
    if suffix(path) == ".mo":
        raise DataError("is compiled: translate the .po that it was made of, or make one with msgunfmt", path)
    return Catalogue(path, target)


@dataclass(frozen=True, slots=True)
class LineEdit:
    """What takes the place of the lines from `first` to `last`, or is put before `first` if there are none such."""

    first: int
    last: int
    content: bytes


class Catalogue:
    """A PO file as its lines, and the entries that stand on them."""

    def __init__(self, path: Path, target: str = "") -> None:
        self.path = path
        self._lines = plain.content(path).split(b"\n")
        self._decode = line_decoder(self._lines, path)
        self._wide = any(len(line) > 100 and line.lstrip().startswith((b'"', b"msg")) for line in self._lines)
        self.notes: list[str] = []
        self._header: POEntry | None = None
        self._units: list[Unit] = []
        self._forms: list[tuple[POEntry, str]] = []  # of each unit
        self._rule = _rule(target)
        forms = _forms(self._rule)
        for entry in entries(self._lines, path):
            if not entry.is_header:
                self._add(entry, forms)
            elif self._header is None:
                self._header = entry
                forms = _forms(entry.header.get("plural-forms", "")) or forms
        told = self._header.header if self._header else {}
        self.source_language = told.get("x-source-language", "")
        self.target_language = told.get("language", "")

    @property
    def units(self) -> Sequence[Unit]:
        return self._units

    def _add(self, entry: POEntry, forms: int) -> None:
        context = entry.values["msgctxt"].text if "msgctxt" in entry.values else ""
        for source, key in entry.forms(forms):
            target = entry.values[key].text if key in entry.values else ""
            state: TranslationState = "empty" if not target else "draft" if entry.fuzzy else "done"
            if source and not SURROGATE.search(source):
                self._units.append(Unit(source, target, Location(str(self.path), entry.line), state, (), context))
                self._forms.append((entry, key))

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """The catalogue with these translations, whose entries are fuzzy; in UTF-8 if its charset lacks a character."""
        if not targets:
            return b"\n".join(self._lines)
        if not self._holds(targets.values()):
            return self._in_utf8().render(targets, language)
        changed: dict[int, tuple[POEntry, dict[str, str]]] = {}
        for i, target in targets.items():
            entry, key = self._forms[i]
            changed.setdefault(entry.line, (entry, {}))[1][key] = target
        edits = [edit for entry, new in changed.values() for edit in self._edits(entry, new)]
        if self._header:
            edits += self._header_edits(self._header, language)
        lines, at = [], 0
        for edit in sorted(edits, key=lambda edit: (edit.first, edit.last)):
            lines += [*self._lines[at : edit.first - 1], edit.content]
            at = edit.last
        return b"\n".join([*lines, *self._lines[at:]])

    def _holds(self, texts: Iterable[str]) -> bool:
        """Whether the charset of the file has all characters of some texts."""
        try:
            "".join(texts).encode(self._decode.charset)
        except UnicodeEncodeError:
            return self._decode.charset == "utf-8"
        return True

    def _in_utf8(self) -> Catalogue:
        """The same catalogue in UTF-8, with its header."""
        decoder = self._decode
        found = copy.copy(self)
        found._decode, found._lines = replace(decoder, charset="utf-8"), []
        for number, line in enumerate(self._lines, 1):
            with suppress(UnicodeError):  # a comment may be in any charset: it stays as it is
                line = line.decode(decoder.charset).encode()
            found._lines.append(CHARSET.sub(b"charset=UTF-8", line) if number == decoder.line else line)
        self.notes.append(
            f"the charset {decoder.declared} lacks characters of the translations: the catalogue is now in UTF-8, and "
            "its header says so"
        )
        return found

    def _edits(self, entry: POEntry, new: Mapping[str, str]) -> Iterator[LineEdit]:
        """What changes for one message; a form that has no line yet comes after the others, as do those before it."""
        end = b"\r" if self._lines[entry.line - 1].endswith(b"\r") else b""
        if not entry.fuzzy and entry.flags:
            before, _, flags = self._lines[entry.flags - 1].partition(b"#,")
            yield LineEdit(
                entry.flags,
                entry.flags,
                before + b"#, fuzzy" + (b", " if flags.strip() else b"") + flags.lstrip(b" \t"),
            )
        elif not entry.fuzzy:
            yield LineEdit(entry.begin, entry.begin - 1, b"#, fuzzy" + end)
        for key in new.keys() & entry.values.keys():
            value = entry.values[key]
            lines = self._spell(key, new[key])
            final = b"\r" if self._lines[value.last - 1].endswith(b"\r") else b""
            yield LineEdit(value.first, value.last, (end + b"\n").join(lines) + final)
        missing = [key for _, key in entry.forms(MOST_FORMS) if key not in entry.values]
        last = max((i for i, key in enumerate(missing) if key in new), default=-1)
        if last >= 0:
            where = max(value.last for value in entry.values.values())
            spelled = [line for key in missing[: last + 1] for line in self._spell(key, new.get(key, ""))]
            yield LineEdit(where + 1, where, (end + b"\n").join(spelled) + end)

    def _spell(self, key: str, text: str) -> list[bytes]:
        """The lines of a translation, in the charset of the file."""
        lines = spell(key, replace_surrogates(text), 10**9 if self._wide else 77)
        return [line.encode(self._decode.charset) for line in lines]

    def _header_edits(self, header: POEntry, language: str) -> Iterator[LineEdit]:
        """A template's language, charset and rule of plurals, which it leaves to the translator."""
        value = header.values["msgstr"]
        for number in range(value.first, value.last + 1):
            line = self._lines[number - 1]
            new = line.replace(b"charset=CHARSET", b"charset=UTF-8")
            if language and re.fullmatch(r"[\w@.-]+", language):
                new = re.sub(rb"^(\s*\"Language:) ?\\n", rb"\1 %s\\n" % language.encode(), new)
            if self._rule:
                new = new.replace(b"nplurals=INTEGER; plural=EXPRESSION;", self._rule.encode())
            if new != line:
                yield LineEdit(number, number, new)


def _forms(rule: str) -> int:
    """How many forms a plural has, as a header says; 0 where it does not."""
    found = re.search(r"nplurals\s*=\s*([0-9]{1,3})", rule)
    return int(found[1]) if found and int(found[1]) <= MOST_FORMS else 0


def _rule(language: str) -> str:
    """What a header says of the plurals of a language; nothing where that is not known."""
    name = language.lower().replace("-", "_")
    rules = {each: rule for rule, languages in PLURALS.items() for each in languages.split()}
    return rules.get(name) or rules.get(name.partition("_")[0], "")


def _messages(path: Path) -> Iterator[tuple[str, str, int]]:
    """The texts of an MO file, forms of plurals apart, with the number of their message."""
    content = plain.content(path)
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(content[:4])
    if order is None:
        raise DataError("is no MO file: it does not begin like one", path)
    name, left = "utf-8", 2 * len(content)
    try:
        _, count, *tables = struct.unpack_from(f"{order}4I", content, 4)
        for i in range(count):
            source, target = (_string(content, table + 8 * i, order) for table in tables)
            left -= len(source) + len(target)
            if left < 0:
                raise DataError("is damaged: its messages lie across each other", path, i + 1)
            if not source:
                found = CHARSET.search(target)
                name = charset(found[1].decode("ascii", "replace"), path, i + 1) if found else name
                continue
            *_, texts = source.decode(name).rpartition("\4")
            single, _, plural = texts.partition("\0")
            forms = target.decode(name).split("\0")
            for k, form in enumerate(forms):
                chosen = single if not plural or (k == 0 and len(forms) > 1) else plural
                if chosen and form:
                    yield chosen, form, i + 1
    except struct.error:
        raise DataError("is damaged: it ends before its last message", path) from None
    except UnicodeError:
        raise DataError(f"message {i + 1} is not in the charset of the file, {name}", path) from None


def _string(content: bytes, at: int, order: str) -> bytes:
    length, offset = struct.unpack_from(f"{order}2I", content, at)
    return bytes(struct.unpack_from(f"{length}s", content, offset)[0])
