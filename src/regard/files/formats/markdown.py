"""Opens Markdown as a document: paragraphs, headings, list items and table cells are units; code and HTML are kept."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.files.formats import Document, plain_text as plain
from regard.files.formats.text_replacements import TextDocument, has_words, on_one_line, wrap

MARK = "|".join(
    (
        r"(?<!`)(?P<ticks>`{1,9})(?!`).{1,1000}?(?<!`)(?P=ticks)(?!`)",  # code
        r"!\[[^\[\]]{0,500}\](?:\([^()\s]*(?:\s+\"[^\"]*\")?\)|\[[^\[\]]*\])",  # an image
        r"\]\((?:[^()\s]++|\([^()\s]*\))*+(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)",  # the target of a link
        r"\]\[[^\[\]]*\]",
        r"\[\^[^\[\]\s]+\]",  # a footnote
        r"\[(?=[^\[\]]{0,500}\][(\[])",  # the beginning of a link
        r"<!--.{0,1000}?-->|<[A-Za-z/][^<>]*>",
        r"\{[#.:][^{}]*\}|\{%.{0,500}?%\}",  # attributes and templates
        r"\\[!-/:-@\[-`{-~]",
        r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)",
    )
)
DEEPEST = 20  # maximum number of list markers on one line
SPACE = " \t\r\f\v\ufeff"
MARKS = re.compile(MARK)
PARTS = re.compile(rf"{MARK}|\S")
QUOTES = re.compile(r"(?:[ \t]*>[ \t]?)*+")
ITEM = re.compile(r"[ \t]*(?P<marker>[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)(?:\[[ xX]\][ \t]+)?")
FOOTNOTE = re.compile(r"[ \t]*\[\^[^\[\]]+\]:[ \t]*")
FENCE = re.compile(r"`{3,}(?!`)(?!.*`)|~{3,}|\$\$(?!.*\$\$)")
HEADING = re.compile(r"#{1,6}(?:[ \t]+|$)")
ASIDE = re.compile(r"\[[^\[\]^][^\[\]]*\]:.*|\{%.*%\}|\{\{.*\}\}|:::.*|\[!\w+\].*|\[\[?_?TOC_?\]\]?")
"""Lines without text to translate: link reference definitions, templates and the openings of boxes."""
DASHES = re.compile(r"[ \t]*:?-+:?[ \t]*")
CELL = re.compile(r"(?:\\.|[^|\\]++)++")
BLOCKS = (
    "address article aside base blockquote body br caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe img "
    "legend li link main menu menuitem nav ol optgroup option p param picture search section summary svg table "
    "tbody td tfoot th thead title tr track ul video"
).replace(" ", "|")
BLANK = r"^[ \t>]*$"
HTML = [  # patterns for the beginning and end of HTML blocks; the last one cannot interrupt a paragraph
    (re.compile(begin, re.IGNORECASE), re.compile(end, re.IGNORECASE))
    for begin, end in (
        (r"<(?:script|pre|style|textarea)(?:[\s>]|$)", r"</(?:script|pre|style|textarea)>"),
        (r"<!--", r"-->"),
        (r"<[?!]", r">"),
        (rf"</?(?:{BLOCKS})(?:\s|/?>|$)", BLANK),
        (r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>\s*$", BLANK),
    )
]
BEGINS = re.compile(r"(?=[-+*](?:\s|$)|#{1,6}(?:\s|$)|>|`{3}|~{3}|:::|\||(?:=+|-+|\*+|_+)\s*$)|(?<=\d)(?=[.)](?:\s|$))")
"""Positions where a text needs a backslash, so that it does not begin a list, a heading or another block."""


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """Opens a file with a unit for each block of text, joined to one line; inline markup becomes protected marks."""
    document = TextDocument(path, plain.text(path), source, target)
    lines = [MarkdownLine(match.start(), match[1]) for match in re.finditer(r"([^\n]*?)\r?(?:\n|\Z)", document.text)]
    MarkdownScanner(document, lines).scan()
    return document


@dataclass(frozen=True, slots=True)
class MarkdownLine:
    """A line or the rest of a line, with its position in the file."""

    start: int
    text: str

    def after(self, end: int) -> MarkdownLine:
        """Returns the rest of the line from the character `end` on, without surrounding white space."""
        rest = self.text[end:]
        return MarkdownLine(self.start + end + len(rest) - len(rest.lstrip(SPACE)), rest.strip(SPACE))

    @property
    def indent(self) -> int:
        expanded = self.text.expandtabs(4)
        return len(expanded) - len(expanded.lstrip(" "))


class MarkdownScanner:
    """Finds the blocks of a Markdown document line by line."""

    def __init__(self, document: TextDocument, lines: Sequence[MarkdownLine]) -> None:
        self.document, self.lines = document, lines
        self.paragraph: list[MarkdownLine] = []  # lines of the current paragraph
        self.items: list[int] = []  # indentation of the current list item and of its parents
        self.depth = 0  # nesting depth of block quotes

    def scan(self) -> None:
        number = self._end_of_front_matter()
        while number < len(self.lines):
            number = self._block(number)
        self._end_paragraph()

    def _end_of_front_matter(self) -> int:
        first = self.lines[0].text.removeprefix("\ufeff").rstrip()
        if first in ("---", "+++"):
            for number, line in enumerate(self.lines[1:], 1):
                if line.text.rstrip() in (first, "..." if first == "---" else first):
                    return number + 1
        return 0

    def _block(self, number: int) -> int:
        """Reads the block that begins on a line, and returns the number of the next line to read."""
        line = self._unquoted(self.lines[number])
        if not line.text.strip():
            self._end_paragraph()
            return number + 1
        if not self.paragraph:
            while self.items and line.indent < self.items[-1]:
                self.items.pop()
            if line.indent - (self.items[-1] if self.items else 0) >= 4:  # code
                return number + 1
        content = self._without_item(line)
        ends = self._code_or_html(content.text)
        if ends is not None:
            self._end_paragraph()
            return self._after(number, ends, is_html=content.text.startswith("<"))
        if _is_rule(content.text) or ASIDE.fullmatch(content.text):
            self._end_paragraph()
        elif heading := HEADING.match(content.text):
            self._end_paragraph()
            title = content.after(heading.end())
            self._add([MarkdownLine(title.start, re.sub(r"(?:^|[ \t])#+$", "", title.text).rstrip())])
        elif not self.paragraph and "|" in content.text and self._is_delimiter_row(number + 1):
            return self._table(number, content)
        elif content.text:
            is_hard_break = self.lines[number].text.endswith("  ") or content.text.endswith("\\")
            text = content.text.removesuffix("\\").rstrip() if is_hard_break else content.text
            self.paragraph.append(MarkdownLine(content.start, text))
            if is_hard_break:
                self._end_paragraph()
        return number + 1

    def _unquoted(self, line: MarkdownLine) -> MarkdownLine:
        """Removes block quote markers from a line; ends the paragraph if the depth changes to a value other than 0."""
        quotes = QUOTES.match(line.text) if line.indent < 4 or self.items else None
        depth = quotes[0].count(">") if quotes else 0
        if depth > self.depth or (depth and depth != self.depth):
            self._end_paragraph()
        if depth != self.depth and not self.paragraph:
            self.items = []
        self.depth = depth
        return MarkdownLine(line.start + quotes.end(), line.text[quotes.end() :]) if quotes else line

    def _without_item(self, line: MarkdownLine) -> MarkdownLine:
        """Removes the markers of list items and footnotes from a line."""
        content, width = line.after(0), line.indent
        for _ in range(DEEPEST):
            if _is_rule(content.text):
                break
            sign = ITEM.match(content.text)
            if sign and self.paragraph and not self.items and sign["marker"][:-1] not in ("", "1"):
                sign = None  # a number at the beginning of a line of a paragraph
            sign = sign or FOOTNOTE.match(content.text)
            if sign is None:
                break
            self._end_paragraph()
            rest = content.after(sign.end())
            width += rest.start - content.start
            self.items = [*(indent for indent in self.items if indent <= line.indent), width]
            quotes = QUOTES.match(rest.text)
            content = rest.after(quotes.end()) if quotes else rest
        return content

    def _code_or_html(self, text: str) -> re.Pattern[str] | None:
        """Returns a pattern for the last line of the code or HTML block that begins here, or None."""
        if fence := FENCE.match(text):
            return re.compile(rf"^[ \t>]*{re.escape(fence[0][0])}{{{len(fence[0])},}}[ \t]*$")
        kinds = HTML[:-1] if self.paragraph else HTML
        return next((end for begin, end in kinds if begin.match(text)), None)

    def _after(self, number: int, ends: re.Pattern[str], *, is_html: bool) -> int:
        """Returns the number of the line after a code or HTML block; only HTML may end on its first line."""
        number += not is_html
        while number < len(self.lines) and not ends.search(self.lines[number].text):
            number += 1
        return number + 1

    def _is_delimiter_row(self, number: int) -> bool:
        text = self.lines[number].text if number < len(self.lines) else ""
        quotes = QUOTES.match(text)
        text = text[quotes.end() :] if self.depth and quotes else text
        return all(map(DASHES.fullmatch, text.strip(" \t").removeprefix("|").removesuffix("|").split("|")))

    def _table(self, number: int, content: MarkdownLine) -> int:
        """Adds the cells of a table, and returns the number of the line after it."""
        first = number
        while True:
            if number != first + 1:
                for cell in CELL.finditer(content.text):
                    self._add([MarkdownLine(content.start + cell.start(), cell[0]).after(0)], is_cell=True)
            number += 1
            if number == len(self.lines):
                return number
            content = self._unquoted(self.lines[number]).after(0)
            if "|" not in content.text:
                return number

    def _end_paragraph(self) -> None:
        if self.paragraph:
            self._add(self.paragraph, is_paragraph=True)
            self.paragraph = []

    def _add(self, lines: Sequence[MarkdownLine], *, is_cell: bool = False, is_paragraph: bool = False) -> None:
        text = " ".join(line.text for line in lines)
        if not has_words(MARKS.sub(" ", text)):
            return
        start, end = lines[0].start, lines[-1].start + len(lines[-1].text)
        between = self.document.text[start + len(lines[0].text) : lines[1].start] if len(lines) > 1 else ""
        width = max(len(line.text) for line in lines)

        def write(new: str) -> str:
            new = on_one_line(new).strip()
            if is_cell:
                return re.sub(r"(?<!\\)\|", r"\\|", new)
            escape = BEGINS.search(new[:12]) if is_paragraph else None
            if escape and new[: escape.start()].isdigit() == bool(escape.start()):
                new = f"{new[: escape.start()]}\\{new[escape.start() :]}"
            return between.join(wrap(_words(new), width, _may_begin_line)) if between else new

        self.document.add(text, start, end, write, marks=tuple(match[0] for match in MARKS.finditer(text)))


def _words(text: str) -> list[str]:
    """Splits a text at the spaces outside marks; a single pattern with a repeated group would fail in Python 3.11."""
    spans: list[tuple[int, int]] = []
    for part in PARTS.finditer(text):
        begin = spans.pop()[0] if spans and spans[-1][1] == part.start() else part.start()
        spans.append((begin, part.end()))
    return [text[begin:end] for begin, end in spans]


def _is_rule(text: str) -> bool:
    """Returns whether a line is a thematic break or underlines a heading."""
    signs = text.replace(" ", "").replace("\t", "")
    return len(set(signs)) == 1 and (signs[0] in "-=" or (signs[0] in "*_" and len(signs) > 2))


def _may_begin_line(word: str) -> bool:
    return word[0].isalpha() or (word[0] in "`(\"'\N{DOUBLE LOW-9 QUOTATION MARK}" and not word.startswith("```"))
