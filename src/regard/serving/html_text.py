"""Splits HTML into markup and texts to translate, so that the translated page has all tags of the original.

Inline tags are protected within their sentence. Block tags, comments and scripts separate the texts.
"""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from regard.tokens.placeholder_slots import CutText
from regard.tokens.protected_pieces import find

INLINE = re.compile(
    "a|abbr|acronym|b|bdi|bdo|big|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|q|s|samp|small|span|strike|strong|"
    "sub|sup|time|tt|u|var",
    re.IGNORECASE,
)
WHOLE = "script|style|pre|textarea|svg|math|noscript|template"  # elements whose content is never translated
MAX_OUTER_TAGS = 20  # maximum number of nested tags that are removed around a text
KEPT = "code|kbd|samp|tt"  # elements that are kept unchanged within a sentence
PIECE = re.compile(
    rf"<!--.*?(?:-->|\Z)|<({WHOLE})\b[^>]*>.*?(?:</\1\s*>|\Z)|<[!?/]?[A-Za-z](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>",
    re.IGNORECASE | re.DOTALL,
)
MARK = re.compile(rf"<({KEPT})\b[^<>]*>[^<>]*</\1\s*>", re.IGNORECASE)
TAG = re.compile(r"<(/?)([A-Za-z][\w:-]*)(?=[\s/>])[^<>]*>")
MARKUP = r"lt|gt|amp|quot|apos|nbsp|\#0*(?:34|38|39|60|62|160)|\#[xX]0*(?:22|26|27|3[cCeE]|[aA]0)"
SPELLED = re.compile(rf"&(?!(?:{MARKUP});)[\w\#]+;")


@dataclass(frozen=True)
class HtmlRun:
    """A part of a page: either markup, or text that may contain inline markup."""

    text: str
    marks: tuple[str, ...] = ()  # elements in the text that are kept unchanged
    words: bool = False  # whether the text contains words to translate


def cut(page: str) -> list[HtmlRun]:
    """Splits a page into runs; joined together, they are the same page with the entities of letters decoded."""
    runs: list[HtmlRun] = []
    text, at = "", 0
    for piece in PIECE.finditer(page):
        text += _decode_letters(page[at : piece.start()])
        at = piece.end()
        if _is_inline(piece[0]):
            text += piece[0]
            continue
        runs += [*_text(text), HtmlRun(piece[0])]
        text = ""
    return [*runs, *_text(text + _decode_letters(page[at:]))]


def _is_inline(piece: str) -> bool:
    tag = TAG.fullmatch(piece)
    return tag is not None and INLINE.fullmatch(tag[2]) is not None


def _decode_letters(text: str) -> str:
    return SPELLED.sub(lambda entity: _letter(entity[0]), text)


def _letter(entity: str) -> str:
    letter = html.unescape(entity)
    return letter if len(letter) == 1 and letter.isprintable() else entity


def _text(text: str) -> list[HtmlRun]:
    """Separates a text between two blocks from the white space and tags around it."""
    before, core, after = _split_white_space(text)
    for _ in range(MAX_OUTER_TAGS):
        outer = _split_outer_tag(core)
        if outer is None:
            break
        start, core, end = _split_white_space(outer[1])
        before, after = before + outer[0] + start, end + outer[2] + after
    marks = tuple(dict.fromkeys(found[0] for found in MARK.finditer(core)))
    runs = [HtmlRun(before), HtmlRun(core, marks, words=_has_words(core, marks)), HtmlRun(after)]
    return [run for run in runs if run.text]


def _split_white_space(text: str) -> tuple[str, str, str]:
    """Returns the white space before a text, the text, and the white space after it."""
    core = text.strip()
    start = len(text) - len(text.lstrip()) if core else len(text)
    return text[:start], core, text[start + len(core) :]


def _split_outer_tag(text: str) -> tuple[str, str, str] | None:
    """Splits <b>Hello</b> into start tag, content and end tag; returns None if the tags do not match."""
    depth = 0
    tags = list(TAG.finditer(text))
    if not tags or tags[0].start() != 0 or tags[0][1] or tags[-1].end() != len(text) or not tags[-1][1]:
        return None
    if re.fullmatch(KEPT, tags[0][2], re.IGNORECASE):
        return None
    for tag in tags:
        depth += 0 if tag[0].endswith("/>") else -1 if tag[1] else 1
        if depth <= 0 and tag is not tags[-1]:
            return None
    if depth != 0 or tags[0][2].lower() != tags[-1][2].lower():
        return None
    return tags[0][0], text[tags[0].end() : tags[-1].start()], tags[-1][0]


def _has_words(text: str, marks: Sequence[str]) -> bool:
    return any(map(str.isalpha, "".join(CutText.at(text, find(text, marks)).texts)))


def safe(text: str, marks: Sequence[str] = ()) -> str:
    """Escapes HTML characters in a translation, except in its protected pieces."""
    cut = CutText.at(text, [piece for piece in find(text, marks) if piece.kind in ("tag", "entity", "mark")])
    return replace(cut, texts=tuple(map(_escaped, cut.texts))).text


def _escaped(text: str) -> str:
    return re.sub(r"&(?!#?\w+;)", "&amp;", text).replace("<", "&lt;").replace(">", "&gt;")
