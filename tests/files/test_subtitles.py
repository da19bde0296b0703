"""SRT and WebVTT: cues are filled in, and all else stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.formats import Document, format_by_suffix as files

SRT = """1
00:00:01,000 --> 00:00:02,500
{\\an8}<i>Hello,
my dear friend.</i>

2
00:00:03,000 --> 00:00:04,000 X1:40 X2:600
- Who is there?
- Nobody.

3
00:00:05,000 --> 00:00:06,000
♪ 42 ♪

4
00:00:07,000 --> 00:00:08,000
The end
"""
VTT = """WEBVTT - a title
Kind: captions

STYLE
::cue { color: red }

NOTE not
a cue

intro
00:01.000 --> 00:02.000 align:start
<v Ann>Salt &amp; pepper, a &lt; b</v>

00:03.000 --> 00:04.000
Bye
"""


def opened(folder: Path, content: str | bytes, name: str) -> Document:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return files.open_document(folder / name)


def test_a_cue_is_a_unit_and_what_two_people_say_is_two(tmp_path: Path) -> None:
    document = opened(tmp_path, SRT, "a.srt")
    assert [(unit.source, unit.marks, unit.where.line) for unit in document.units] == [
        ("{\\an8}<i>Hello, my dear friend.</i>", ("{\\an8}", "<i>", "</i>"), 3),
        ("Who is there?", (), 8),
        ("Nobody.", (), 9),
        ("The end", (), 17),
    ]
    assert document.render({}).decode() == SRT


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_translations_have_as_many_lines_or_fewer(tmp_path: Path, line_end: str) -> None:
    content = "\ufeff" + SRT.replace("\n", line_end)
    document = opened(tmp_path, content, "a.srt")
    long = "{\\an8}<i>Guten Tag, mein lieber alter Freund.</i>"
    done = document.render({0: long, 2: "Niemand."}, "de").decode()
    assert done == content.replace(
        f"<i>Hello,{line_end}my dear friend.</i>", f"<i>Guten Tag, mein{line_end}lieber alter Freund.</i>"
    ).replace("Nobody", "Niemand")
    assert f"{line_end}Hallo{line_end}{line_end}" in document.render({0: "Hallo"}).decode()


def test_webvtt_has_entities_and_blocks_that_are_no_cues(tmp_path: Path) -> None:
    document = opened(tmp_path, VTT, "a.vtt")
    assert [unit.source for unit in document.units] == ["<v Ann>Salt & pepper, a < b</v>", "Bye"]
    assert document.units[0].marks == ("<v Ann>", "</v>")
    done = document.render({0: "<v Ann>Salz & Pfeffer, a --> <i></v>"}).decode()
    assert done == VTT.replace("Salt &amp; pepper, a &lt; b", "Salz &amp; Pfeffer, a --&gt; &lt;i&gt;")


def test_cues_without_blank_lines_between_them_and_with_such_within(tmp_path: Path) -> None:
    content = "1\n00:00:01,000 --> 00:00:02,000\nOne\n2\n00:00:03,000 --> 00:00:04,000\nTwo\n\nthree\n"
    assert [unit.source for unit in opened(tmp_path, content, "a.srt").units] == ["One", "Two", "three"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.srt", "Hello\n", "a.srt:1: expected a time such as 00:00:01,000 --> 00:00:02,500 first"),
        ("a.srt", "\n1\n00:00:01 --> 2\nHi\n", "a.srt:3: not a time: 00:00:01 --> 2"),
        ("a.srt", b"1\n00:00:01,000 --> 00:00:02,000\nH\xe9\n", "a.srt:3: byte 34 of the file (0xE9) is not UTF-8"),
        ("a.vtt", "00:01.000 --> 00:02.000\nHi\n", "a.vtt:1: a WebVTT file must begin with the line WEBVTT"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path: Path, name: str, content: str | bytes, message: str) -> None:
    with pytest.raises(DataError) as caught:
        opened(tmp_path, content, name)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")


@given(content=st.lists(st.sampled_from([*SRT.splitlines(True), *VTT.splitlines(True), "\r\n", "<", "-->", "1"])))
def test_anything_opens_or_is_refused(content: list[str], tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cues")
    for name in ("a.srt", "a.vtt"):
        try:
            document = opened(folder, "".join(content), name)
        except DataError:
            continue
        assert document.render({}).decode() == "".join(content)


words = st.lists(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1), min_size=1)


@given(words=words, unit=st.integers(0, 3))
def test_a_translation_is_found_again(words: list[str], unit: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("cues")
    text = "a " + " ".join(words).replace("-->", "")
    for name, content in (("a.srt", SRT), ("a.vtt", VTT)):
        before = opened(folder, content, name)
        i = unit % len(before.units)
        after = opened(folder, before.render({i: text}), name)
        expected = [unit.source for unit in before.units]
        expected[i] = text
        assert [unit.source for unit in after.units] == expected
