"""What files that are translated in place have in common: which texts have words, and how lines are broken."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.files.formats.format_by_suffix import open_document
from regard.files.formats.text_replacements import has_words, on_one_line, replace_surrogates, wrap


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a", True), ("12 %", False), ("", False), ("é", True), ("a \ud800", False)],
)
def test_a_letter_makes_a_word(text: str, expected: bool) -> None:
    assert has_words(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("<b> 5 </b>", 0), ("<b>é</b>", 1), ("<b><b>", 0), ("&lt;b> 5", 1)])
@pytest.mark.parametrize("suffix", [".vtt", ".md"])
def test_marks_are_not_words(text: str, expected: int, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_text(f"WEBVTT\n\n00:01.000 --> 00:02.000\n{text}\n" if suffix == ".vtt" else f"- {text}\n")
    assert len(open_document(path).units) == expected


def test_a_text_is_put_on_one_line_and_into_utf8() -> None:
    assert on_one_line("a\r\n\nb\rc") == "a b c"
    assert replace_surrogates("a\ud800b") == "a\N{REPLACEMENT CHARACTER}b"


def test_lines_are_as_wide_as_they_may_be() -> None:
    assert wrap(["aa", "bb", "cc"], 5) == ["aa bb", "cc"]
    assert wrap(["aa", "bbb", "cc"], 5) == ["aa", "bbb", "cc"]
    assert wrap(["aaaaaaaa", "b"], 5) == ["aaaaaaaa", "b"]
    assert wrap(["aa", "bbb", "-", "cc"], 5, lambda word: word != "-") == ["aa", "bbb -", "cc"]
    assert wrap([], 5) == []
