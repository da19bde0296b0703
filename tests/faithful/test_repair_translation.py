"""A repair removes pieces that do not belong to a translation, and puts the others in order."""

from __future__ import annotations

import pytest

from regard.faithful.repair_translation import SourceLine, in_order, repair, with_ending, with_mnemonic, without_others


def test_what_a_line_asks_of_its_translation() -> None:
    line = SourceLine("E&xit %s <b>n\u0061\u0308chst</b> 5%")
    assert line.cut.texts == ("Exit ", " ", "nächst", " 5%")
    assert line.cut.pieces == ("%s", "<b>", "</b>")
    assert sorted(line.wanted) == ["%s", "&", "</b>", "<b>"]
    assert line.forbidden == "<>"  # but a % may stand alone, as it does in the line
    assert line.has_words
    assert not SourceLine("%s: 5").has_words


@pytest.mark.parametrize(
    ("source", "forbidden"),
    [
        ("%s", "%"), ("{0}", "{}"), ("{n, plural, one {a} other {b}}", "{}"), ("a <b>c</b>", "<>"), ("a &amp; b", "&"),
        ("&amp; %s {0}", "%&{}"), ("a", ""), ("a {0} } %s 5%", "{"),
    ],
)  # fmt: skip
def test_what_means_something_beside_a_piece_is_forbidden(source: str, forbidden: str) -> None:
    assert SourceLine(source).forbidden == forbidden


@pytest.mark.parametrize(
    ("source", "made", "expected"),
    [
        ("a %s b", "x %s %s y %d", "x %s y"),
        ("a b", "x <b>y</b> z", "x y z"),
        ("a", "x\r\n y\0\x85", "x y"),
        ("a {0} b", "} x {0} { y", "x {0}  y"),
        ("a", "%%ss", "ss"),
    ],
)
def test_what_does_not_belong_is_taken_out(source: str, made: str, expected: str) -> None:
    assert repair(made, SourceLine(source)) == expected
    assert not SourceLine(source).missing(without_others(source, SourceLine(source)))


@pytest.mark.parametrize(
    ("source", "made", "expected"),
    [
        ("%s %d %f", "%f %s %d", "%s %d %f"),
        ("{:d} {:s}", "{:s} {:d}", "{:d} {:s}"),
        ("%2$s %1$s", "%1$s %2$s", "%1$s %2$s"),
        ("<b>a</b> <i>b</i>", "<i>b</i> <b>a</b>", "<i>b</i> <b>a</b>"),
        ("<b>a</b> <i>b</i>", "<i>b <b>a</i></b>", "<b>b </b>a<i></i>"),
        ("a</b> <br> <i>b", "<i>b <br> </b>a", "</b>b <br> <i>a"),
    ],
)
def test_pieces_that_no_program_could_use_so_are_put_in_order(source: str, made: str, expected: str) -> None:
    line = SourceLine(source)
    assert in_order(made, line) == expected
    assert line.holds(expected)
    assert line.holds(made) == (made == expected)


def test_paired_codes_of_a_memory_stay_paired() -> None:
    marks = ('<bpt i="1">{\\b</bpt>', '<ept i="1">}</ept>', '<ph x="2">\\tab</ph>')
    line = SourceLine(f"{marks[0]}a{marks[1]} {marks[2]}", marks)
    assert line.holds(f"{marks[2]} {marks[0]}a{marks[1]}")
    assert not line.holds(f"{marks[1]}a{marks[0]} {marks[2]}")
    assert in_order(f"{marks[1]}a{marks[0]} {marks[2]}", line) == f"{marks[0]}a{marks[1]} {marks[2]}"


def test_a_mnemonic_marks_the_same_letter_the_start_of_a_word_or_comes_last() -> None:
    line = SourceLine("E&xit")
    assert with_mnemonic("der Text, x", "x", line) == "der Text, &x"
    assert with_mnemonic("Text", "x", line) == "Te&xt"
    assert with_mnemonic("{x} Ende", "x", line) == "{x} &Ende"
    assert with_mnemonic("终了", "x", line) == "终了(&X)"
    assert with_mnemonic("R", "R", line) == "&R"


def test_the_end_of_a_line() -> None:
    assert with_ending("Name.", SourceLine("name:")) == "Name:"
    assert with_ending("名前：", SourceLine("name:")) == "名前："
    assert with_ending("Warte", SourceLine("wait…")) == "Warte…"
    assert with_ending("Warte %s", SourceLine("wait %s...")) == "Warte %s..."
    assert with_ending("Ja.", SourceLine("yes")) == "Ja."
