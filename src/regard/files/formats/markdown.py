"""Markdown: paragraphs, headings, list items and cells of tables; code, HTML, front matter and links' targets stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from regard.files.formats import Document, plain_text as plain
from regard.files.formats.replaced_text import Spliced, has_words, one_line, wrap

MARK = "|".join(
    (
        r"(?<!`)(?P<ticks>`{1,9})(?!`).{1,1000}?(?<!`)(?P=ticks)(?!`)",  # code
        r"!\[[^\[\]]{0,500}\](?:\([^()\s]*(?:\s+\"[^\"]*\")?\)|\[[^\[\]]*\])",  # an image
        r"\]\((?:[^()\s]|\([^()\s]*\))*(?:\s+(?:\"[^\"]*\"|'[^']*'))?\s*\)",  # where a link leads
        r"\]\[[^\[\]]*\]",
        r"\[\^[^\[\]\s]+\]",  # a footnote
        r"\[(?=[^\[\]]{0,500}\][(\[])",  # what begins a link
        r"<!--.{0,1000}?-->|<[A-Za-z/][^<>]*>",
        r"\{[#.:][^{}]*\}|\{%.{0,500}?%\}",  # attributes, and what templates are made of
        r"\\[!-/:-@\[-`{-~]",
        r"\*{1,3}|~~|(?<!\w)_{1,3}(?=\S)|(?<=\S)_{1,3}(?!\w)",
    )
)
DEEPEST = 20  # lists on one line
SPACE = " \t\r\f\v\ufeff"
MARKS = re.compile(MARK)
WORDS = re.compile(rf"(?:{MARK}|\S)+")
QUOTE = re.compile(r"[ \t]*>[ \t]?")
ITEM = re.compile(r"[ \t]*(?P<marker>[-*+]|[0-9]{1,9}[.)])(?:[ \t]+|$)(?:\[[ xX]\][ \t]+)?")
FOOTNOTE = re.compile(r"[ \t]*\[\^[^\[\]]+\]:[ \t]*")
RULE = re.compile(r"(?:-[ \t]*)+|(?:=[ \t]*)+|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,}")
FENCE = re.compile(r"`{3,}(?!.*`)|~{3,}|\$\$(?!.*\$\$)")
HEADING = re.compile(r"#{1,6}(?:[ \t]+|$)")
ASIDE = re.compile(r"\[[^\[\]^][^\[\]]*\]:.*|\{%.*%\}|\{\{.*\}\}|:::.*|\[!\w+\].*|\[\[?_?TOC_?\]\]?")
"""Lines without text: what reference links lead to, what templates are made of, kinds of boxes."""
DASHES = re.compile(r"[ \t]*\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*")
CELL = re.compile(r"(?:\\.|[^|\\])+")
BLOCKS = (
    "address article aside base blockquote body br caption center col colgroup dd details dialog dir div dl dt "
    "fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 head header hr html iframe img "
    "legend li link main menu menuitem nav ol optgroup option p param picture search section summary svg table "
    "tbody td tfoot th thead title tr track ul video"
).replace(" ", "|")
HTML = [  # how a part in HTML begins and ends; some end at a blank line
    (
        re.compile(r"<(?:script|pre|style|textarea)(?:[\s>]|$)", re.I),
        re.compile(r"</(?:script|pre|style|textarea)>", re.I),
    ),
    (re.compile(r"<!--"), re.compile(r"-->")),
    (re.compile(r"<[?!]"), re.compile(r">")),
    (re.compile(rf"</?(?:{BLOCKS})(?:\s|/?>|$)", re.I), None),
    (re.compile(r"</?[A-Za-z][\w-]*(?:\s[^<>]*)?/?>\s*$"), None),
]
BEGINS = re.compile(r"(?=[-+*](?:\s|$)|#{1,6}(?:\s|$)|>|`{3}|~{3}|:::|\||(?:=+|-+|\*+|_+)\s*$)|(?<=\d)(?=[.)](?:\s|$))")
"""Where a text needs a backslash in order not to begin something else."""


def open_document(path: Path, source: str = "", target: str = "") -> Document:
    """A unit for each piece of text, its lines joined; the marks are what has to survive in it."""
    document = Spliced(path, plain.text(path), source, target)
    lines = [MarkdownLine(found.start(), found[1]) for found in re.finditer(r"([^\n]*?)\r?(?:\n|\Z)", document.text)]
    Scanner(document, lines).scan()
    return document


@dataclass(frozen=True, slots=True)
class MarkdownLine:
    """A line, or what is left of it, and where that begins."""

    start: int
    text: str

    def after(self, end: int) -> MarkdownLine:
        """What is left after so many characters, without white space around it."""
        rest = self.text[end:]
        return MarkdownLine(self.start + end + len(rest) - len(rest.lstrip(SPACE)), rest.strip(SPACE))

    @property
    def indent(self) -> int:
        expanded = self.text.expandtabs(4)
        return len(expanded) - len(expanded.lstrip(" "))


class Scanner:
    """Goes through the lines and knows which paragraph, list and quotation they stand in."""

    def __init__(self, document: Spliced, lines: Sequence[MarkdownLine]) -> None:
        self.document, self.lines = document, lines
        self.paragraph: list[MarkdownLine] = []
        self.items: list[int] = []  # how far the items of the lists around are indented
        self.depth = 0  # of quotations

    def scan(self) -> None:
        at = self.front_matter()
        while at < len(self.lines):
            at = self.block(at)
        self.end_paragraph()

    def front_matter(self) -> int:
        """The line after what is told about the page at its top."""
        first = self.lines[0].text.removeprefix("\ufeff").rstrip()
        if first in ("---", "+++"):
            for i, line in enumerate(self.lines[1:], 1):
                if line.text.rstrip() in (first, "..." if first == "---" else first):
                    return i + 1
        return 0

    def block(self, at: int) -> int:
        """Takes in what begins at a line, and tells which line comes next."""
        line = self.unquoted(self.lines[at])
        if not line.text.strip():
            self.end_paragraph()
            return at + 1
        if not self.paragraph:
            while self.items and line.indent < self.items[-1]:
                self.items.pop()
            if line.indent - (self.items[-1] if self.items else 0) >= 4:  # code
                return at + 1
        content = self.item(line)
        if content.text and (FENCE.match(content.text) or self.html(content.text) is not None):
            self.end_paragraph()
            return self.skip(at, content.text)
        if RULE.fullmatch(content.text) or ASIDE.fullmatch(content.text):
            self.end_paragraph()
        elif heading := HEADING.match(content.text):
            self.end_paragraph()
            title = content.after(heading.end())
            self.add([MarkdownLine(title.start, re.sub(r"(?:^|[ \t])#+$", "", title.text).rstrip())])
        elif not self.paragraph and "|" in content.text and self.is_table(at + 1):
            return self.table(at, content)
        elif content.text:
            hard = self.lines[at].text.endswith("  ") or content.text.endswith("\\")
            self.paragraph.append(
                MarkdownLine(content.start, content.text.removesuffix("\\").rstrip() if hard else content.text)
            )
            if hard:  # a line end that has to stay
                self.end_paragraph()
        return at + 1

    def unquoted(self, line: MarkdownLine) -> MarkdownLine:
        """A line without the signs of quotations; where their number changes, but not to none, a paragraph ends."""
        depth = 0
        while (found := QUOTE.match(line.text)) and (depth or line.indent < 4 or self.items):
            line = MarkdownLine(line.start + found.end(), line.text[found.end() :])
            depth += 1
        if depth > self.depth or (depth and depth != self.depth):
            self.end_paragraph()
        if depth != self.depth and not self.paragraph:
            self.items = []
        self.depth = depth
        return line

    def item(self, line: MarkdownLine) -> MarkdownLine:
        """What is left of a line after the signs of list items and footnotes."""
        content, width = line.after(0), line.indent
        for _ in range(DEEPEST):
            if RULE.fullmatch(content.text):
                break
            found = ITEM.match(content.text)
            if found and self.paragraph and not self.items and found["marker"][:-1] not in ("", "1"):
                found = None  # a number at the beginning of a line of a paragraph
            found = found or FOOTNOTE.match(content.text)
            if found is None:
                break
            self.end_paragraph()
            rest = content.after(found.end())
            width += rest.start - content.start
            self.items = [*(each for each in self.items if each <= line.indent), width]
            content = rest
            while quote := QUOTE.match(content.text):
                content = content.after(quote.end())
        return content

    def html(self, text: str) -> int | None:
        """Which kind of HTML begins here; a tag on a line of its own begins none in a paragraph."""
        kinds = HTML[:-1] if self.paragraph else HTML
        return next((i for i, (begin, _) in enumerate(kinds) if begin.match(text)), None)

    def skip(self, at: int, text: str) -> int:
        """The line after code or HTML that begins at a line."""
        fence, kind = FENCE.match(text), self.html(text)
        if fence:
            end = re.compile(rf"[ \t>]*{re.escape(fence[0][0])}{{{len(fence[0])},}}[ \t]*$")
            at += 1
        else:
            end = HTML[kind][1] or re.compile(r"^[ \t>]*$") if kind is not None else re.compile("")
        while at < len(self.lines) and not (end.match if fence else end.search)(self.lines[at].text):
            at += 1
        return at + 1

    def is_table(self, at: int) -> bool:
        """Whether a line has the dashes that stand under the first row of a table."""
        if at >= len(self.lines):
            return False
        text = self.lines[at].text
        while self.depth and (found := QUOTE.match(text)):
            text = text[found.end() :]
        return "-" in text and DASHES.fullmatch(text) is not None

    def table(self, at: int, content: MarkdownLine) -> int:
        """Takes in a table, and tells which line comes after it."""
        first = at
        while True:
            if at != first + 1:
                for cell in CELL.finditer(content.text):
                    self.add([MarkdownLine(content.start + cell.start(), cell[0]).after(0)], cell=True)
            at += 1
            if at == len(self.lines):
                return at
            content = self.unquoted(self.lines[at]).after(0)
            if "|" not in content.text:
                return at

    def end_paragraph(self) -> None:
        if self.paragraph:
            self.add(self.paragraph, begins=True)
            self.paragraph = []

    def add(self, lines: Sequence[MarkdownLine], *, cell: bool = False, begins: bool = False) -> None:
        """A unit of some lines."""
        text = " ".join(line.text for line in lines)
        marks = tuple(found[0] for found in MARKS.finditer(text))
        if not has_words(text, marks):
            return
        start, end = lines[0].start, lines[-1].start + len(lines[-1].text)
        between = self.document.text[start + len(lines[0].text) : lines[1].start] if len(lines) > 1 else ""
        width = max(len(line.text) for line in lines)

        def write(new: str) -> str:
            new = one_line(new).strip()
            if cell:
                return re.sub(r"(?<!\\)\|", r"\\|", new)
            escape = BEGINS.search(new[:12]) if begins else None
            if escape and new[: escape.start()].isdigit() == bool(escape.start()):
                new = f"{new[: escape.start()]}\\{new[escape.start() :]}"
            return (
                between.join(wrap([found[0] for found in WORDS.finditer(new)], width, _may_begin)) if between else new
            )

        self.document.add(text, start, end, write, marks=marks)


def _may_begin(word: str) -> bool:
    """Whether a word at the beginning of a line is nothing but a word."""
    return word[0].isalpha() or (word[0] in "`(\"'\N{DOUBLE LOW-9 QUOTATION MARK}" and not word.startswith("```"))
