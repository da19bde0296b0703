"""The placeholders that JavaScript finds, and the parts of long texts, are those of Python."""

from __future__ import annotations

import random
from pathlib import Path

from regard.errors import InputError
from regard.tokens.protected_pieces import find
from regard.tokens.split_long_texts import split_lines, split_text
from tests.browser.node import run

PARTS = [
    *(
        "{name}",
        "{}",
        "{0,number,#.##}",
        "{name!r:>10}",
        "{{x}}",
        "{{{y}}}",
        "{ not a placeholder }",
        "${a}",
        "#{b}",
        "{",
    ),
    *(
        "{n, plural, one {# dog} other {# dogs}}",
        "}",
        "{a:b}",
        "%{c}",
        "{% if x %}",
        "$t(key)",
        "$HOME",
        "%PATH%",
        "%PRODUCTNAME",
    ),
    *(
        "%s",
        "%d",
        "%5.2f",
        "%1$s",
        "%(name)s",
        "100%",
        "100% sure",
        "50%-off",
        "100%ig",
        "doesn%'t",
        "%%",
        "%1",
        "%L1",
        "%<x%>",
    ),
    *(
        "%>",
        "%<PRIu64>",
        "%*d",
        "&amp;",
        "&#39;",
        "&#x1F;",
        "&File",
        "E&xit",
        "R&D",
        "AT&T",
        "<b>",
        "</b>",
        "<br/>",
        "a < b > c",
    ),
    *(
        '<a href="x>y">',
        "<!-- c -->",
        "<!DOCTYPE html>",
        "[X1X]",
        "[X",
        "https://a.example/b_(c)?d=e#f.",
        "www.example.org,",
    ),
    *(
        "http://[::1]/",
        "(see ftp://x.y)",
        "me@example.org",
        "é@x.y.",
        "@",
        "漢字",
        "été",
        " ",
        "\n",
        ".",
        ",",
        "word",
        "Ünï_1",
    ),
]
SENTENCES = [
    "A dog runs.",
    "Does it?",
    "Yes, it does; look:",
    "漢字。",
    "かな、",
    "a" * 30,
    "b c d",
    "\u00a0",
    "\t",
    "\r\n",
    "\n\n",
    " ",
]
SCRIPT = """
import { findPieces, holdsPieces, cutAtPieces } from "./protected-pieces.js";
import { splitLines, splitText } from "./split-long-texts.js";
const split = (text) => {
  try {
    return splitText(text, (part) => [...part].length <= 25);
  } catch {
    return null;
  }
};
result = {
  pieces: data.texts.map((text) => findPieces(text).map((piece) => [piece.text, piece.kind])),
  lines: data.long.map(splitLines),
  parts: data.long.map(split),
  holds: data.holds.map(([source, made]) => holdsPieces(made, cutAtPieces(source).pieces)),
};
"""
HOLDS = [
    ("%s and %d", "%s und %d", True),
    ("%s and %d", "%d und %s", False),
    ("{a} and {b}", "{b} und {a}", True),
    ("<b>a</b>", "</b>a<b>", False),
    ("{a}", "", False),
    ("{a}", "{a}{a}", False),
    ("<b><i>x</i></b>", "<i><b>x</b></i>", True),
    ("a<br>b", "a<br>b", True),
]


def split(text: str) -> list[str] | None:
    try:
        return split_text(text, lambda part: len(part) <= 25)
    except InputError:
        return None


def test_pieces_lines_and_parts_are_those_of_python(tmp_path: Path) -> None:
    dice = random.Random(3)
    texts = [*PARTS, *("".join(dice.choices(PARTS, k=dice.randrange(1, 9))) for _ in range(3000))]
    long = ["".join(dice.choices(SENTENCES, k=dice.randrange(20))) for _ in range(500)]
    data = {"texts": texts, "long": long, "holds": [each[:2] for each in HOLDS]}
    found = run(SCRIPT, data, tmp_path)
    for text, pieces in zip(texts, found["pieces"], strict=True):
        assert pieces == [[piece.text, piece.kind] for piece in find(text)], text
    assert found["lines"] == [[list(line) for line in split_lines(text)] for text in long]
    assert found["parts"] == [split(text) for text in long]
    assert found["holds"] == [each[2] for each in HOLDS]
    assert None in found["parts"]
