"""SRT and WebVTT: the texts of cues; numbers, times, notes and styles stay."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

from regard.files.formats import Document, format_by_suffix as files, plain_text as plain
from regard.files.formats.replaced_text import Spliced, Write, has_words, one_line, wrap

CLOCK = r"(?:[0-9]+:)?[0-9]{1,2}:[0-9]{1,2}[.,][0-9]{1,3}"
TIME = re.compile(rf"\s*{CLOCK}\s*-->\s*{CLOCK}(?:\s.*)?")
MARKS = {
    ".srt": re.compile(r"</?(?:[ibus]|font)(?:\s[^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE),
    ".vtt": re.compile(r"<[^<>]*>"),
}
WORD = re.compile(r"(?:<[^<>]{0,200}>|\S)+")  # what no line may be cut in
DASHES = "\N{EN DASH}\N{EM DASH}\N{HYPHEN}-"  # before what each of two speakers says


@dataclass(frozen=True, slots=True)
class CueLine:
    """A line that is not blank, and where it begins."""

    start: int
    text: str

    @property
    def is_time(self) -> bool:
        return "-->" in self.text and self.text.lstrip()[:1].isdigit()


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each cue, or for each line of a cue in which several people speak."""
    document = Spliced(path, plain.text(path), source, target)
    kind = files.suffix(path)
    cues = 0
    for i, block in enumerate(_blocks(document.text)):
        first = block[0]
        times = [k for k, line in enumerate(block) if line.is_time]
        if kind == ".vtt" and i == 0 and not re.match(r"WEBVTT(?:\s|$)", first.text):
            raise document.fault("a WebVTT file begins with the line WEBVTT", first.start)
        if kind == ".vtt" and (not times or first.text.startswith("NOTE")):
            continue
        before = len(block) if not times else max(times[0] - 1, 0)  # the number aside
        if kind == ".srt" and before and not cues:
            raise document.fault("a time such as 00:00:01,000 --> 00:00:02,500 has to come first", first.start)
        if kind == ".srt" and not (before == 1 and first.text.strip().isdigit()):
            _add(document, block[:before], kind)  # a cue goes on after a blank line
        for begin, end in pairwise([*times, len(block)]):
            cues += 1
            if not TIME.fullmatch(block[begin].text):
                raise document.fault(f"not a time: {block[begin].text[:40]}", block[begin].start)
            numbered = end < len(block) and block[end - 1].text.strip().isdigit()
            _add(document, block[begin + 1 : end - numbered], kind)
    return document


def _blocks(text: str) -> Iterator[list[CueLine]]:
    """The lines between blank ones."""
    block: list[CueLine] = []
    for found in re.finditer(r"[^\n]*\n|[^\n]+", text):
        mark = found[0].startswith("\ufeff")
        line = CueLine(found.start() + mark, found[0][mark:].rstrip())
        if line.text:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _add(document: Spliced, lines: Sequence[CueLine], kind: str) -> None:
    """The units of a cue."""
    mark = MARKS[kind]
    dashes = [re.match(rf"(?:{mark.pattern}|\s)*[{DASHES}]\s*", line.text, mark.flags) for line in lines]
    if len(lines) > 1 and all(dashes):
        said = [
            CueLine(line.start + len(dash[0]), line.text[len(dash[0]) :])
            for line, dash in zip(lines, dashes, strict=True)
            if dash
        ]
        groups = [[line] for line in said]
    else:
        groups = [list(lines)] if lines else []
    for group in groups:
        raw = " ".join(line.text.strip() for line in group)
        marks = tuple(mark.findall(raw))
        text = raw if kind == ".srt" else _outside(raw, marks, unescape)
        if has_words(text, marks):
            start = group[0].start + len(group[0].text) - len(group[0].text.lstrip())
            end = group[-1].start + len(group[-1].text)
            line_end = "\r\n" if "\r\n" in document.text[start:end] else "\n"
            width = max(len(line.text) for line in group)
            document.add(text, start, end, _writer(kind, marks, len(group), width, line_end), marks=marks)


def _writer(kind: str, marks: Sequence[str], most: int, width: int, line_end: str) -> Write:
    """What puts a translation into as many lines as the cue has, about equally long, or into fewer."""

    def write(text: str) -> str:
        text = one_line(text).strip()
        text = text.replace("-->", "->") if kind == ".srt" else _outside(text, marks, lambda part: escape(part, False))
        if most == 1 or len(text) <= width:
            return text
        words = WORD.findall(text)
        room = len(text) // most
        while len(lines := wrap(words, room, lambda word: not word.startswith(tuple(DASHES)))) > most:
            room += 1 + room // 50
        return line_end.join(lines)

    return write


def _outside(text: str, marks: Sequence[str], change: Write) -> str:
    """A text in which all but the marks is changed."""
    if not marks:
        return change(text)
    found = re.compile("|".join(map(re.escape, sorted(set(marks), key=len, reverse=True))))
    pieces, at = [], 0
    for each in found.finditer(text):
        pieces += [change(text[at : each.start()]), each[0]]
        at = each.end()
    return "".join([*pieces, change(text[at:])])
