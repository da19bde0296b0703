"""What files that are translated in place have in common: which texts have words, and how lines are broken."""

from __future__ import annotations

import pytest

from regard.files.formats.replaced_text import has_words, one_line, replace_surrogates, wrap


@pytest.mark.parametrize(
    ("text", "marks", "expected"),
    [
        ("a", (), True),
        ("12 %", (), False),
        ("", (), False),
        ("<b> 5 </b>", ("<b>", "</b>"), False),
        ("<b>é</b>", ("<b>", "</b>"), True),
        ("<b><b>", ("<b>",), True),  # a mark is left out as often as it is given
        ("a \ud800", (), False),
    ],
)
def test_marks_are_no_words(text: str, marks: tuple[str, ...], expected: bool) -> None:
    assert has_words(text, marks) == expected


def test_a_text_is_put_on_one_line_and_into_utf8() -> None:
    assert one_line("a\r\n\nb\rc") == "a b c"
    assert replace_surrogates("a\ud800b") == "a\N{REPLACEMENT CHARACTER}b"


def test_lines_are_as_wide_as_they_may_be() -> None:
    assert wrap(["aa", "bb", "cc"], 5) == ["aa bb", "cc"]
    assert wrap(["aa", "bbb", "cc"], 5) == ["aa", "bbb", "cc"]
    assert wrap(["aaaaaaaa", "b"], 5) == ["aaaaaaaa", "b"]
    assert wrap(["aa", "bbb", "-", "cc"], 5, lambda word: word != "-") == ["aa", "bbb -", "cc"]
    assert wrap([], 5) == []
