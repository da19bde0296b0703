"""Gettext catalogues: reads pairs from PO, POT and MO files, and opens PO and POT files as documents."""

from __future__ import annotations

import copy
import re
import struct
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import TranslationState, Unit, plain_text as plain
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.po_lines import CHARSET, POEntry, charset, entries, format_value, line_decoder
from regard.files.formats.text_replacements import replace_surrogates
from regard.settings import DataSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.text_pairs import Location, Pair

MAX_FORMS = 10  # maximum number of plural forms; Arabic has six
_FEW = "n%10>=2 && n%10<=4 && (n%100<12 || n%100>14) ? 1 : 2"
PLURALS = {  # plural rules of languages with two or three forms, since templates contain no rules
    "nplurals=2; plural=(n != 1);": "bg ca da de el en eo es et eu fi gl he hu it nb nl nn no pt sq sv",
    "nplurals=2; plural=(n > 1);": "fr pt_br",
    "nplurals=3; plural=(n==1 ? 0 : n>=2 && n<=4 ? 1 : 2);": "cs sk",
    f"nplurals=3; plural=(n==1 ? 0 : {_FEW});": "pl",
    f"nplurals=3; plural=(n%10==1 && n%100!=11 ? 0 : {_FEW});": "be bs hr ru sr uk",
}
RULES = {language: rule for rule, languages in PLURALS.items() for language in languages.split()}
LineEdit = tuple[int, int, bytes]
"""First line, last line and the bytes that replace them; for an insertion, the last line is before the first."""


def read(path: Path, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the finished translations of a catalogue; each plural form is a pair."""
    last = None
    errors = "surrogateescape" if data.undecodable == "drop" else "strict"
    for source, target, number in _messages(path) if suffix(path) == ".mo" else _finished_translations(path, errors):
        where = Location(str(path), number)
        report.read, report.further = report.read + (where != last), report.further + (where == last)
        last = where
        if SURROGATE.search(source + target):
            report.drop("undecodable", where)
        else:
            yield Pair(source, target, where)


def _finished_translations(path: Path, errors: str) -> Iterator[tuple[str, str, int]]:
    units = Catalogue(path, errors=errors).units
    return ((unit.source, unit.target, unit.where.line) for unit in units if unit.state == "done")


class Catalogue:
    """A PO or POT file with a unit for each message and each plural form."""

    def __init__(self, path: Path, source: str = "", target: str = "", errors: str = "strict") -> None:
        if suffix(path) == ".mo":
            raise DataError(
                "the catalogue is compiled: translate the .po file it was compiled from, or restore that with msgunfmt",
                path,
            )
        self.path = path
        self.notes: list[str] = []
        self.units: list[Unit] = []
        self._lines = plain.content(path).split(b"\n")
        self._decode = line_decoder(self._lines, path, errors)
        self._is_wide = any(len(line) > 100 and line.lstrip().startswith((b'"', b"msg")) for line in self._lines)
        self._header: POEntry | None = None
        self._forms: list[tuple[POEntry, str]] = []  # entry and keyword of each unit
        name = target.lower().replace("-", "_")
        self._rule = RULES.get(name) or RULES.get(name.partition("_")[0], "")
        forms = _count_forms(self._rule)
        for entry in entries(self._lines, self._decode):
            if not entry.is_header:
                self._add(entry, forms)
            elif self._header is None:
                self._header = entry
                forms = _count_forms(entry.header.get("plural-forms", "")) or forms
        header = self._header.header if self._header else {}
        self.source_language, self.target_language = header.get("x-source-language", ""), header.get("language", "")

    def _add(self, entry: POEntry, forms: int) -> None:
        context = entry.values["msgctxt"].text if "msgctxt" in entry.values else ""
        for source, key in entry.forms(forms):
            target = entry.values[key].text if key in entry.values else ""
            state: TranslationState = "empty" if not target else "draft" if entry.fuzzy else "done"
            if source:
                self.units.append(Unit(source, target, Location(str(self.path), entry.line), state, (), context))
                self._forms.append((entry, key))

    def render(self, targets: Mapping[int, str], language: str = "") -> bytes:
        """Returns the catalogue with fuzzy translations, converted to UTF-8 if its charset lacks a character."""
        if not targets:
            return b"\n".join(self._lines)
        try:
            "".join(targets.values()).encode(self._decode.charset)
        except UnicodeEncodeError:
            if self._decode.charset != "utf-8":
                return self._in_utf8().render(targets, language)
        by_entry: dict[int, tuple[POEntry, dict[str, str]]] = {}
        for number, target in targets.items():
            entry, key = self._forms[number]
            by_entry.setdefault(entry.line, (entry, {}))[1][key] = target
        edits = [edit for entry, new in by_entry.values() for edit in self._edits(entry, new)]
        lines, last = [], 0
        for edit in sorted([*edits, *self._header_edits(language)], key=lambda edit: edit[:2]):
            lines += [*self._lines[last : edit[0] - 1], edit[2]]
            last = edit[1]
        return b"\n".join([*lines, *self._lines[last:]])

    def _in_utf8(self) -> Catalogue:
        """Returns the same catalogue in UTF-8, with the charset in its header changed."""
        decoder, lines = self._decode, []
        for number, line in enumerate(self._lines, 1):
            with suppress(UnicodeError):  # comments may be in any charset, and are not changed
                line = line.decode(decoder.charset).encode()
            lines.append(CHARSET.sub(b"charset=UTF-8", line) if number == decoder.line else line)
        self.notes.append(
            f"the charset {decoder.declared} lacks characters of the translations: the catalogue and its header have "
            "been converted to UTF-8"
        )
        catalogue = copy.copy(self)
        catalogue._decode, catalogue._lines = replace(decoder, charset="utf-8"), lines
        return catalogue

    def _edits(self, entry: POEntry, new: Mapping[str, str]) -> Iterator[LineEdit]:
        """Yields the edits of one message; missing plural forms are added up to the last translated one."""
        end = b"\r" if self._lines[entry.line - 1].endswith(b"\r") else b""
        if not entry.fuzzy and entry.flags:
            before, _, flags = self._lines[entry.flags - 1].partition(b"#,")
            fuzzy = b"#, fuzzy, " if flags.strip() else b"#, fuzzy"
            yield entry.flags, entry.flags, before + fuzzy + flags.lstrip(b" \t")
        elif not entry.fuzzy:
            yield entry.begin, entry.begin - 1, b"#, fuzzy" + end
        for key in new.keys() & entry.values.keys():
            value = entry.values[key]
            final = b"\r" if self._lines[value.last - 1].endswith(b"\r") else b""
            yield value.first, value.last, (end + b"\n").join(self._formatted(key, new[key])) + final
        missing = [key for _, key in entry.forms(MAX_FORMS) if key not in entry.values]
        last_new = max((i for i, key in enumerate(missing) if key in new), default=-1)
        if last_new >= 0:
            last = max(value.last for value in entry.values.values())
            lines = [line for key in missing[: last_new + 1] for line in self._formatted(key, new.get(key, ""))]
            yield last + 1, last, (end + b"\n").join(lines) + end

    def _formatted(self, key: str, text: str) -> list[bytes]:
        lines = format_value(key, replace_surrogates(text), 10**9 if self._is_wide else 77)
        return [line.encode(self._decode.charset) for line in lines]

    def _header_edits(self, language: str) -> Iterator[LineEdit]:
        """Yields the edits that fill in the language, charset and plural rule of a template."""
        value = self._header.values["msgstr"] if self._header else None
        for number in range(value.first, value.last + 1) if value else ():
            line = self._lines[number - 1]
            new = line.replace(b"charset=CHARSET", b"charset=UTF-8")
            if language and re.fullmatch(r"[\w@.-]+", language):
                new = re.sub(rb"^(\s*\"Language:) ?\\n", rb"\1 %s\\n" % language.encode(), new)
            if self._rule:
                new = new.replace(b"nplurals=INTEGER; plural=EXPRESSION;", self._rule.encode())
            if new != line:
                yield number, number, new


open_document = Catalogue


def _count_forms(rule: str) -> int:
    match = re.search(r"nplurals\s*=\s*([0-9]{1,3})", rule)
    return int(match[1]) if match and int(match[1]) <= MAX_FORMS else 0


def _messages(path: Path) -> Iterator[tuple[str, str, int]]:
    """Yields the source, target and message number of each translation and plural form in an MO file."""
    content = plain.content(path)
    order = {b"\xde\x12\x04\x95": "<", b"\x95\x04\x12\xde": ">"}.get(content[:4])
    if order is None:
        raise DataError("not an MO file: the magic number is missing", path)
    name, bytes_left = "utf-8", 2 * len(content)
    try:
        _, count, *tables = struct.unpack_from(f"{order}4I", content, 4)
        for i in range(count):
            source, target = (_string(content, table + 8 * i, order) for table in tables)
            bytes_left -= len(source) + len(target)
            if bytes_left < 0:
                raise DataError("the file is damaged: messages overlap", path, i + 1)
            if not source:
                match = CHARSET.search(target)
                name = charset(match[1].decode("ascii", "replace"), path, i + 1) if match else name
                continue
            *_, texts = source.decode(name).rpartition("\4")
            single, _, plural = texts.partition("\0")
            forms = target.decode(name).split("\0")
            for k, form in enumerate(forms):
                chosen = single if not plural or (k == 0 and len(forms) > 1) else plural
                if chosen and form:
                    yield chosen, form, i + 1
    except struct.error:
        raise DataError("the file is damaged: it ends before its last message", path) from None
    except UnicodeError:
        raise DataError(f"message {i + 1} is not in the charset of the file, {name}", path) from None


def _string(content: bytes, position: int, order: str) -> bytes:
    length, offset = struct.unpack_from(f"{order}2I", content, position)
    return bytes(struct.unpack_from(f"{length}s", content, offset)[0])
