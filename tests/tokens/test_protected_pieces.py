"""The pieces of a text that must survive its translation."""

from __future__ import annotations

import time
from collections import Counter

import pytest
from hypothesis import given, strategies as st

from regard.tokens.protected_pieces import PATTERNS, arguments, counts, find
from tests.examples import examples

CASES = [
    ("%s is %d of %5.2f, %-10s", ["%s", "%d", "%5.2f", "%-10s"]),
    ("%(name)s has %(count)5d", ["%(name)s", "%(count)5d"]),
    ("%1$s, %2$*3$d and %%", ["%1$s", "%2$*3$d", "%%"]),
    ("%ld %lld %zu %hhx %I64u %<PRIu64> bytes", ["%ld", "%lld", "%zu", "%hhx", "%I64u", "%<PRIu64>"]),
    ("%@ and %1$@", ["%@", "%1$@"]),
    ("%1 of %L2, %n files", ["%1", "%L2", "%n"]),
    ("%PRODUCTNAME, %PATH% and 50%OFF", ["%PRODUCTNAME", "%PATH%", "%O"]),
    ("%Y-%m-%d %H:%M", ["%Y", "%m", "%d", "%H", "%M"]),
    ("100% sure, 50% discount, 7 %, 100%ig, 50%-off", []),
    ("doesn%'t, %'d", ["%'d"]),
    ("100%s %%s", ["%s", "%%"]),
    ("expected %<int%> here, 5%> 4", ["%<", "%>"]),
    ("50%<br>", ["<br>"]),
    ("{} {0} {name} {name!r:>10} {0:0.##} {0,10} {user.name} {list[0]}", None),
    ("{{name}} {{ name }} {{{raw}}} {{count, number}}", ["{{name}}", "{{ name }}", "{{{raw}}}", "{{count, number}}"]),
    ("${name} #{name} %{name} { $name }", ["${name}", "#{name}", "%{name}", "{ $name }"]),
    ("{% if a %}yes{% endif %}", ["{% if a %}", "{% endif %}"]),
    ("{not a placeholder} {", []),
    ("{n, plural, one {# file} other {# files of {x}}} left", ["{n, plural, one {# file} other {# files of {x}}}"]),
    ("{g, select, male {He} other {They}}", ["{g, select, male {He} other {They}}"]),
    ("{0,date,short} {0, number, percent}", ["{0,date,short}", "{0, number, percent}"]),
    ("$t(key) $t(a.b, {}) $HOME costs $5", ["$t(key)", "$t(a.b, {})", "$HOME"]),
    ("&File E&xit 文件(&F) &1", ["&", "&", "&", "&"]),
    ("R&D, AT&T, a && b, a & b", []),
    ("&amp; &#39; &#x27; &nbsp;", ["&amp;", "&#39;", "&#x27;", "&nbsp;"]),
    ("<b>bold</b><br/><a href=\"x>y\" title='z'>", ["<b>", "</b>", "<br/>", "<a href=\"x>y\" title='z'>"]),
    ("<!-- note --> <?php ?> <!DOCTYPE html>", ["<!-- note -->", "<?php ?>", "<!DOCTYPE html>"]),
    ("a < b > c, 1<2, <3", []),
    ("see https://a.org/b?c=%s&d=1.", ["https://a.org/b?c=%s&d=1"]),
    ("(http://a.org/x_(y)), www.b.org!", ["http://a.org/x_(y)", "www.b.org"]),
    ("Jo <jo.do+x@mail.example.org>, a@b", ["jo.do+x@mail.example.org"]),
    ("[X12X] [Xx] [X1X", ["[X12X]"]),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_what_is_protected(text: str, expected: list[str] | None) -> None:
    assert [piece.text for piece in find(text)] == (text.split() if expected is None else expected)


def test_every_kind_has_a_case() -> None:
    found = {piece.kind for text, _ in CASES for piece in find(text)}
    assert found == {*PATTERNS, "icu"}


def test_marks_are_found_as_they_are_given() -> None:
    marks = ('<ph id="1">{0} items</ph>', "<ph id=", "|", "")
    text = 'a <ph id="1">{0} items</ph> | b <ph id="2"/>'
    assert [(p.text, p.kind) for p in find(text, marks)][:2] == [(marks[0], "mark"), ("|", "mark")]
    assert counts("| a | {b}", marks) == Counter({"|": 2, "{b}": 1})


def test_numbers_with_units_are_protected_if_asked_for() -> None:
    text = "1.5 MB at 20 °C, 5km in 2021, version 1.2.3s"
    assert find(text) == []
    assert [p.text for p in find(text, numbers=True)] == ["1.5 MB", "20 °C", "5km", "1.2.3s"]


def test_arguments_of_braces_that_are_taken_in_order() -> None:
    assert [arguments(p) for p in ("{}", "{:>5}", "{!r}", "{0}", "{a}")] == [["{}"], ["{}"], ["{}"], [], []]


def test_arguments_that_are_taken_in_order() -> None:
    found = [arguments(piece) for piece in ("%s", "%-5.2f", "%*.*d", "%ld", "x/%s/%d")]
    assert found == [["s"], ["f"], ["*", "*", "d"], ["d"], ["s", "d"]]
    assert not any(map(arguments, ("%1$s", "%(a)s", "%%", "%1", "%NAME", "<b>", "{0}")))


SIGNS = st.sampled_from([*"%{}<>&$\"'()[]/!-.:;,#@X1s* \n", "plural,", "{a", "a}", "http://", "www.", "x@y.z", "ab"])


@given(st.lists(SIGNS | st.text(max_size=3), max_size=60).map("".join), st.lists(st.text(max_size=3), max_size=3))
@examples(150)
def test_pieces_are_parts_of_the_text_that_do_not_overlap(text: str, marks: list[str]) -> None:
    found = find(text, marks, numbers=True)
    end = 0
    for piece in found:
        assert end <= piece.start < piece.end
        assert text[piece.start : piece.end] == piece.text
        end = piece.end
    assert find(text, marks, numbers=True) == found


HOSTILE = [
    "%", "%(", "%0", "%00000", "%<", "%1$", "{", "}", "{a ", "{a, plural, ", "{ ", "${", "$t(", "$", "<", "<a ", '<a "',
    "<a '", "<a =\"'", "<!--", "<!-- -", "<!", "<?", "&", "&#", "&a", "@", "a@", "a@a.", "a.", "a-", "http", "http://", "a://",
    "www.", "[X", "[X1", "1.", "1,", "1 ", "a", "+", " ", "{{", "{%", ").", "http://(", "-", "'", '"',
]  # fmt: skip


@pytest.mark.parametrize("part", HOSTILE)
@pytest.mark.parametrize("end", ["", "}", ">", "\0"])
def test_time_grows_with_the_text_and_no_faster(part: str, end: str) -> None:
    text = part * (60_000 // len(part))
    nested = "{a, plural, x " * 5000 if "{" in part else ""
    start = time.process_time()
    find(text + nested + end * (len(text) if end == "}" else 1), numbers=True)
    assert time.process_time() - start < 2.0  # what is quadratic takes minutes
