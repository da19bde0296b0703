"""HTML in runs: nothing is lost, what is kept is kept, and no page takes long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, strategies as st

from regard.serving import html_text

PARTS = [
    "<b>",
    "</b>",
    "<p>",
    "</p>",
    "<br/>",
    "<a href='x>y'>",
    "</a>",
    "<code>",
    "</code>",
    "word",
    " ",
    "&amp;",
    "<",
    ">",
]
PARTS += ["<!--", "-->", "<script>", "</script>", "\n", "é", '<img src="a">', "&", '"', "'"]


@given(st.lists(st.sampled_from(PARTS), max_size=20).map("".join))
def test_runs_are_the_page(page: str) -> None:
    runs = html_text.cut(page)
    assert "".join(run.text for run in runs) == page
    assert not any("<p>" in run.text or "<script" in run.text for run in runs if run.words)


@given(st.text("ab<>&;/ ", max_size=30))
def test_escaping_twice_changes_nothing(text: str) -> None:
    assert html_text.safe(html_text.safe(text)) == html_text.safe(text)


def test_tags_around_a_text_are_no_part_of_it() -> None:
    runs = html_text.cut(" <p> <b><i>one</i> <u>two</u></b></p><b>three</b> four <CODE>x y</CODE><br>12")
    texts = [(run.text, run.marks) for run in runs if run.words]
    assert texts == [("<i>one</i> <u>two</u>", ()), ("<b>three</b> four <CODE>x y</CODE>", ("<CODE>x y</CODE>",))]


def test_letters_written_as_entities_are_letters_and_markup_is_not() -> None:
    (run,) = html_text.cut("caf&eacute; &#233; &lt;b&gt; &amp; &#60; &nbsp;x &unknown;")
    assert run.text == "café é &lt;b&gt; &amp; &#60; &nbsp;x &unknown;"
    assert html_text.safe("a < b & c &amp; d > <b>") == "a &lt; b &amp; c &amp; d &gt; <b>"


LONG = ["<a" + "a" * 50_000, '<a "' * 12_000, "<b>" * 9_000 + "x" + "</b>" * 6_000, "<code>" * 8_000, "&a" * 25_000]
LONG += ["<!--" * 12_000, "<script>" * 6_000, "<" * 50_000, "<div " * 10_000]


@pytest.mark.parametrize("page", LONG, ids=lambda page: page[:8])
def test_no_page_takes_long(page: str) -> None:
    started = time.process_time()
    assert "".join(run.text for run in html_text.cut(page)) == page
    assert time.process_time() - started < 2
