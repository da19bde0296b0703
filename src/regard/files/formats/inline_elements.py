"""Reads the segments of XLIFF and TMX as texts with inline elements, and writes their translations as XML."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.files.formats.xml_parsing import Content, Element

AROUND = {"g", "hi", "mrk", "pc"}  # elements that contain text to translate; all others are code
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # not allowed in XML


@dataclass(frozen=True, slots=True)
class Segment:
    """The text of a segment with its inline elements, the marks."""

    text: str = ""  # the text with its marks
    marks: tuple[str, ...] = ()
    plain: str = ""  # the text without its marks, as one line

    def __bool__(self) -> bool:
        return bool(self.text.strip())


def read_segment(element: Element | None, content: Content) -> Segment:
    """Returns the segment in an element, or an empty segment for None."""
    pieces = list(_pieces(element, content)) if element else []
    marks = tuple(text for text, is_mark in pieces if is_mark)
    plain = join_lines("".join(text for text, is_mark in pieces if not is_mark))
    return Segment("".join(text for text, _ in pieces), marks, plain)


def join_lines(text: str) -> str:
    """Joins the lines of a text, because a model reads single lines."""
    if "\n" not in text and "\r" not in text:
        return text.strip()
    return " ".join(filter(None, map(str.strip, re.split("[\r\n]", text))))


def _pieces(element: Element, content: Content) -> Iterator[tuple[str, bool]]:
    """Yields the texts and marks of an element in order, each with a flag that is true for marks."""
    for each in element.content:
        if isinstance(each, str):
            yield each, False
        elif each.name not in AROUND or each.alone or _is_untranslatable(each):
            yield content.text[each.start : each.end].decode(), True
        else:
            yield content.text[each.start : each.inside].decode(), True
            yield from _pieces(each, content)
            yield content.text[each.until : each.end].decode(), True


def _is_untranslatable(element: Element) -> bool:
    return element.attributes.get("mtype") == "protected" or element.attributes.get("translate") == "no"


def write_segment(text: str, marks: Sequence[str], line_end: str = "\n") -> bytes:
    """Returns a translation as XML: marks are kept, and everything else is escaped.

    If the marks are not well nested, they are written in the order of the source, at the positions of the translation.
    """
    pieces = list(_split_at_marks(text, marks, line_end))
    places = [place for place, (_, is_mark) in enumerate(pieces) if is_mark]
    texts = [piece for piece, _ in pieces]
    if not _is_nested([texts[place] for place in places]):
        for place, mark in zip(places, marks, strict=False):
            texts[place] = mark
        texts += marks[len(places) :]
    return "".join(texts).encode()


def _split_at_marks(text: str, marks: Sequence[str], line_end: str) -> Iterator[tuple[str, bool]]:
    """Yields escaped texts and marks in order; a mark that occurs too often is treated as text."""
    left = Counter(marks)
    lengths = sorted({len(mark) for mark in marks}, reverse=True)
    begin, position = 0, text.find("<")
    while position >= 0 and lengths:
        mark = next((mark for length in lengths if left[mark := text[position : position + length]]), "")
        if mark:
            left[mark] -= 1
            yield escape(text[begin:position], line_end), False
            yield mark, True
            begin = position + len(mark)
        position = text.find("<", position + (len(mark) or 1))
    yield escape(text[begin:], line_end), False


def _is_nested(marks: Sequence[str]) -> bool:
    names: list[str] = []
    for mark in marks:
        name = re.split(r"[\s/>]", mark.lstrip("</"), maxsplit=1)[0]
        if mark.startswith("</"):
            if not names or names.pop() != name:
                return False
        elif not mark.endswith("/>") and not mark[:-1].rstrip().endswith(f"</{name}"):
            names.append(name)
    return not names


def escape(text: str, line_end: str = "\n") -> str:
    """Escapes a text for XML, and replaces characters that XML does not allow by U+FFFD."""
    text = FORBIDDEN.sub("\ufffd", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;").replace("\n", line_end)


# Changing the attributes and the content of elements


def with_attributes(tag: bytes, **values: str) -> bytes:
    """Sets attributes of an opening tag; an underscore in a name stands for a hyphen."""
    for key, value in values.items():
        name = key.replace("_", "-").encode()
        new = b'%s="%s"' % (name, escape(value).replace('"', "&quot;").encode())
        without_values = re.sub(rb"\"[^\"]*\"|'[^']*'", lambda value: b'"%s"' % (b"." * (len(value[0]) - 2)), tag)
        old = re.search(rb"(?<=\s)%s\s*=\s*\"\.*\"" % name, without_values)
        start, end = old.span() if old else (len(tag.removesuffix(b">").removesuffix(b"/").rstrip()),) * 2
        tag = tag[:start] + (new if old else b" " + new) + tag[end:]
    return tag


def rewrite_element(element: Element, content: Content, inside: bytes, **values: str) -> bytes:
    """Returns an element with its content replaced and these attributes set."""
    name = (content.text[element.start + 1 : element.inside].split(None, 1)[0]).rstrip(b"/>")
    tag = with_attributes(content.text[element.start : element.inside], **values)
    if element.alone:
        return tag.removesuffix(b"/>").rstrip() + b">" + inside + b"</%s>" % name
    return tag + inside + content.text[element.until : element.end]


def indentation(element: Element, content: Content) -> bytes:
    """Returns the line end and white space before an element."""
    start = max(element.parent.inside if element.parent else 0, element.start - 1000)
    match = re.search(rb"\r?\n[ \t]*\Z", content.text[start : element.start])
    return match[0] if match else b""


def line_end_of(content: Content) -> str:
    """Returns the line end used in a file."""
    return "\r\n" if b"\r\n" in content.text[:10_000] else "\n"
