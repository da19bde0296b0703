"""Opens SRT and WebVTT subtitles as documents: the texts of cues are units; numbers, times and styles are kept."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape, unescape
from itertools import pairwise
from pathlib import Path

from regard.files.formats import Document, plain_text as plain
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.text_replacements import TextDocument, Write, has_words, on_one_line, wrap

CLOCK = r"(?:[0-9]+:)?[0-9]{1,2}:[0-9]{1,2}[.,][0-9]{1,3}"
TIME = re.compile(rf"\s*{CLOCK}\s*-->\s*{CLOCK}(?:\s.*)?")
MARKS = {
    ".srt": re.compile(r"</?(?:[ibus]|font)(?:\s[^<>]*)?>|\{\\[^{}]*\}", re.IGNORECASE),
    ".vtt": re.compile(r"<[^<>]*>"),
}
WORD = re.compile(r"(?:<[^<>]{0,200}>|\S)++")  # a word with its tags, within which lines are not broken
DASHES = "\N{EN DASH}\N{EM DASH}\N{HYPHEN}-"  # if two people speak, each line begins with a dash


@dataclass(frozen=True, slots=True)
class CueLine:
    """A non-blank line and its position."""

    start: int
    text: str

    @property
    def is_time(self) -> bool:
        return "-->" in self.text and self.text.lstrip()[:1].isdigit()

    @property
    def is_number(self) -> bool:
        return self.text.strip().isdigit()


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """Opens a file with a unit for each cue, or for each line of a cue in which several people speak."""
    document = TextDocument(path, plain.text(path), source, target)
    kind, has_cues = suffix(path), False
    for i, block in enumerate(_blocks(document.text)):
        first = block[0]
        times = [k for k, line in enumerate(block) if line.is_time]
        if kind == ".vtt" and i == 0 and not re.match(r"WEBVTT(?:\s|$)", first.text):
            raise document.fault("a WebVTT file must begin with the line WEBVTT", first.start)
        if kind == ".vtt" and (not times or first.text.startswith("NOTE")):
            continue
        before = len(block) if not times else max(times[0] - 1, 0)  # number of lines before the number of the first cue
        if kind == ".srt" and before and not has_cues:
            raise document.fault("expected a time such as 00:00:01,000 --> 00:00:02,500 first", first.start)
        if kind == ".srt" and not (before == 1 and first.is_number):
            _add_cue(document, block[:before], kind)  # the rest of a cue that contains a blank line
        for begin, end in pairwise([*times, len(block)]):
            has_cues = True
            if not TIME.fullmatch(block[begin].text):
                raise document.fault(f"not a time: {block[begin].text[:40]}", block[begin].start)
            next_has_number = end < len(block) and block[end - 1].is_number
            _add_cue(document, block[begin + 1 : end - next_has_number], kind)
    return document


def _blocks(text: str) -> Iterator[list[CueLine]]:
    """Yields blocks of lines, which are separated by blank lines."""
    block: list[CueLine] = []
    for match in re.finditer(r"[^\n]*\n|[^\n]+", text):
        mark = match[0].startswith("\ufeff")
        line = CueLine(match.start() + mark, match[0][mark:].rstrip())
        if line.text:
            block.append(line)
        elif block:
            yield block
            block = []
    if block:
        yield block


def _add_cue(document: TextDocument, lines: Sequence[CueLine], kind: str) -> None:
    pattern = MARKS[kind]
    dashes = [re.match(rf"(?:{pattern.pattern}|\s)*+[{DASHES}]\s*", line.text, pattern.flags) for line in lines]
    if len(lines) > 1 and all(dashes):
        pairs = ((line, dash.end()) for line, dash in zip(lines, dashes, strict=True) if dash)
        groups: list[Sequence[CueLine]] = [[CueLine(line.start + end, line.text[end:])] for line, end in pairs]
    else:
        groups = [lines] if lines else []
    for group in groups:
        raw = " ".join(line.text.strip() for line in group)
        unescaped = unescape if kind == ".vtt" else str
        if has_words(unescaped(pattern.sub(" ", raw))):
            start = group[0].start + len(group[0].text) - len(group[0].text.lstrip())
            end = group[-1].start + len(group[-1].text)
            line_end = "\r\n" if "\r\n" in document.text[start:end] else "\n"
            width, marks = max(len(line.text) for line in group), tuple(pattern.findall(raw))
            text, write = _between_marks(raw, marks, unescaped), _writer(kind, marks, len(group), width, line_end)
            document.add(text, start, end, write, marks=marks)


def _writer(kind: str, marks: Sequence[str], most: int, width: int, line_end: str) -> Write:
    """Returns a function that breaks a translation into at most `most` lines of similar length."""

    def write(text: str) -> str:
        text = on_one_line(text).strip()
        if kind == ".srt":
            text = text.replace("-->", "->")
        else:
            text = _between_marks(text, marks, lambda part: escape(part, quote=False))
        if most == 1 or len(text) <= width:
            return text
        words = WORD.findall(text)

        def broken(width: int) -> list[str]:
            return wrap(words, width, lambda word: not word.startswith(tuple(DASHES)))

        widths = range(len(text) // most, len(text))
        return line_end.join(broken(widths.start + bisect_left(widths, True, key=lambda n: len(broken(n)) <= most)))

    return write


def _between_marks(text: str, marks: Sequence[str], change: Write) -> str:
    """Applies `change` to all parts of a text except its marks."""
    known, pieces, position = set(marks), [], 0
    for match in re.finditer("<[^<>]*>", text):
        if match[0] in known:
            pieces += [change(text[position : match.start()]), match[0]]
            position = match.end()
    return "".join([*pieces, change(text[position:])])
