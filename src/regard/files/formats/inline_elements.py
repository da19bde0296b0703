"""What stands in a segment of XLIFF or TMX: text with inline elements, read, and written as markup again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from regard.files.formats.xml_parsing import Content, Element

AROUND = {"g", "hi", "mrk", "pc"}  # elements around text that is translated; all others are code, with what is in them
FORBIDDEN = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # in XML, even as a reference
BREAK = re.compile(r"\s*[\r\n]\s*")


@dataclass(frozen=True, slots=True)
class Segment:
    """A text with inline elements."""

    text: str  # with its marks
    marks: tuple[str, ...]
    plain: str  # without them, on one line

    def __bool__(self) -> bool:
        return bool(self.text.strip())


EMPTY = Segment("", (), "")


def segment(element: Element | None, content: Content) -> Segment:
    """What an element has in it."""
    if element is None:
        return EMPTY
    pieces = list(_pieces(element, content))
    marks = tuple(text for text, is_mark in pieces if is_mark)
    plain = on_one_line("".join(text for text, is_mark in pieces if not is_mark))
    return Segment("".join(text for text, _ in pieces), marks, plain)


def on_one_line(text: str) -> str:
    """A text as a model sees it, which has no line ends."""
    return (BREAK.sub(" ", text) if "\n" in text or "\r" in text else text).strip()


def _pieces(element: Element, content: Content) -> Iterator[tuple[str, bool]]:
    """Texts and marks in their order, and whether each is a mark."""
    for each in element.content:
        if isinstance(each, str):
            yield each, False
        elif each.name not in AROUND or each.alone or _untranslatable(each):
            yield content.text[each.start : each.end].decode(), True
        else:
            yield content.text[each.start : each.inside].decode(), True
            yield from _pieces(each, content)
            yield content.text[each.until : each.end].decode(), True


def _untranslatable(element: Element) -> bool:
    attributes = element.attributes
    return attributes.get("mtype") == "protected" or attributes.get("translate") == "no"


def write_segment(text: str, marks: Sequence[str], line_end: str = "\n") -> bytes:
    """A translation as it is written: its marks as they are, all else escaped.

    Marks that are not well nested come in the order of the source, in the places that the translation has for them.
    """
    left = Counter(marks)
    pieces: list[str] = []
    places: list[int] = []
    for number, piece in enumerate(_cut(text, marks)):
        is_mark = number % 2 == 1 and left[piece] > 0
        left[piece] -= is_mark
        if is_mark:
            places.append(len(pieces))
        pieces.append(piece if is_mark else escape(piece, line_end))
    if not _nested([pieces[place] for place in places]):
        for place in places[len(marks) :]:
            pieces[place] = ""
        for place, mark in zip(places, marks, strict=False):
            pieces[place] = mark
        pieces += marks[len(places) :]
    return "".join(pieces).encode()


def _cut(text: str, marks: Sequence[str]) -> list[str]:
    """Text and marks by turns."""
    if not marks:
        return [text]
    longest_first = sorted(set(marks), key=lambda mark: (-len(mark), mark))
    return re.split(f"({'|'.join(map(re.escape, longest_first))})", text)


def _nested(marks: Sequence[str]) -> bool:
    """Whether every element that begins among the marks ends there, those inside it before it."""
    names: list[str] = []
    for mark in marks:
        name = re.split(r"[\s/>]", mark.lstrip("</"), maxsplit=1)[0]
        if mark.startswith("</"):
            if not names or names.pop() != name:
                return False
        elif not mark.endswith("/>") and not re.search(rf"</{re.escape(name)}\s*>$", mark):
            names.append(name)
    return not names


def escape(text: str, line_end: str = "\n") -> str:
    """Text as XML has it; what no XML can have is the replacement character."""
    text = FORBIDDEN.sub("\ufffd", text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return text.replace("\r", "&#13;").replace("\n", line_end)


# Places for translations


def with_attributes(tag: bytes, **values: str) -> bytes:
    """An opening tag with these attributes, instead of those that it has; `_` in a name is a hyphen."""
    for key, value in values.items():
        name = key.replace("_", "-").encode()
        new = b'%s="%s"' % (name, escape(value).replace('"', "&quot;").encode())
        old = re.search(rb"(?<=\s)%s\s*=\s*(?:\"[^\"]*\"|'[^']*')" % name, _blank(tag))
        if old is not None:
            tag = tag[: old.start()] + new + tag[old.end() :]
        else:
            end = re.search(rb"\s*/?>$", tag)
            assert end is not None  # it is a tag
            tag = tag[: end.start()] + b" " + new + tag[end.start() :]
    return tag


def _blank(tag: bytes) -> bytes:
    """A tag of which the values are blank, so that no name is found in them."""
    return re.sub(rb"\"[^\"]*\"|'[^']*'", lambda value: b'"%s"' % (b"." * (len(value[0]) - 2)), tag)


def rewrite_element(element: Element, content: Content, inside: bytes, **values: str) -> bytes:
    """An element with other attributes and another inside."""
    name = (content.text[element.start + 1 : element.inside].split(None, 1)[0]).rstrip(b"/>")
    tag = with_attributes(content.text[element.start : element.inside], **values)
    if element.alone:
        return re.sub(rb"\s*/>$", b">", tag) + inside + b"</%s>" % name
    return tag + inside + content.text[element.until : element.end]


def indentation(element: Element, content: Content) -> bytes:
    """The line end and the white space before an element."""
    start = max(element.parent.inside if element.parent else 0, element.start - 1000)
    found = re.search(rb"\r?\n[ \t]*$", content.text[start : element.start])
    return found[0] if found else b""


def line_end(content: Content) -> str:
    """How the lines of a file end."""
    return "\r\n" if b"\r\n" in content.text[:10_000] else "\n"
