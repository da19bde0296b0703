"""Reading and writing take time in proportion to the size of a file, whatever is in it.

Each case is a file of one repeated part. If time grew faster than files, a small upload could keep a server busy.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import format_by_suffix as files, glossary_tables
from regard.settings import DataSettings
from regard.tokens import protected_pieces

SMALLEST, LARGEST = 2_000, 250_000  # bytes of the smaller of the two files that are compared
ENOUGH = 0.005  # seconds of the smaller file, from which on times can be compared
GROWTH = 4  # of the file
MOST = 2.5 * GROWTH  # growth of the time; quadratic time grows by 16
ATTEMPTS = 4  # since a busy machine disturbs a measurement, one good one is enough
TEN_MEGABYTES = 10_000_000  # the largest upload that a server takes
LONGEST = 200.0  # seconds of computing for ten megabytes

Part = str | Callable[[int], str]


class Case(NamedTuple):
    """A file: what it begins with, what is repeated, and what it ends with."""

    name: str
    begin: str
    part: Part
    end: str = ""

    def content(self, size: int) -> bytes:
        if isinstance(self.part, str):
            return (self.begin + self.part * (size // len(self.part)) + self.end).encode()
        count = size // len(self.part(10_000))
        return (self.begin + "".join(map(self.part, range(count))) + self.end).encode()


TMX = '<tmx version="1.4"><header srclang="en"/><body>', "</body></tmx>"
SEGMENT = TMX[0] + '<tu><tuv xml:lang="en"><seg>a ', "</seg></tuv></tu>" + TMX[1]
XLIFF = '<xliff version="1.2"><file source-language="en" original="a"><body>', "</body></file></xliff>"
SOURCE = XLIFF[0] + '<trans-unit id="1"><source>a ', "</source></trans-unit>" + XLIFF[1]
CUT = XLIFF[0] + '<trans-unit id="1"><source>a</source><seg-source>', "</seg-source></trans-unit>" + XLIFF[1]
TBX = '<martif type="TBX"><text><body>', "</body></text></martif>"
SRT, VTT = "1\n00:00:01,000 --> 00:00:02,500\n", "WEBVTT\n\n00:01.000 --> 00:02.000\n"
CUE = "1\n00:00:01,000 --> 00:00:02,500\na\n\n"
PO = 'msgid "a"\nmsgstr ""\n'
TU = '<tu><tuv xml:lang="en"><seg>a</seg></tuv></tu>'
UNIT = '<trans-unit id="1"><source>a</source></trans-unit>'


def cases(name: str, begin: str, parts: Sequence[Part], end: str = "") -> list[Case]:
    """Returns a case for each part."""
    return [Case(name, begin, part, end) for part in parts]


OPEN_MARKS = ["`a ", "a `` ", "`", "*a", "_a ", "[", "[a](", "![", "![a](", "](", "](a(", "[^", "[a][", "<", "<a "]
OPEN_MARKS += ["<!--", "<!-- a ", "{%", "{#", "\\", "$$ a"]
BLOCKS = ["> ", ">", "- ", "1. ", "* ", "|", "|-", "| ", "-", "=", "```\n", "<div>\n", "a\n", "a\n\n", "- a\n", "a  \n"]


def concept(*languages: str) -> str:
    """Returns a concept of TBX with a term in each language."""
    terms = (f'<langSet xml:lang="{each}"><tig><term>a</term></tig></langSet>' for each in languages)
    return f"<termEntry>{''.join(terms)}</termEntry>"


CASES = [
    *cases("a.md", "", OPEN_MARKS),
    *cases("a.md", "", BLOCKS),
    *cases("a.md", "", ["\\*", "[a](b)", "<a>", "[a]: b\n", " ", "\t", "é"]),
    *cases("a.md", "a|b\n", ["-", " ", "|", "- "], "x"),
    *cases("a.md", "a|b\n-|-\n", ["|", "a|b\n", "\\", "\\|"]),
    *cases("a.md", "- ", ["> ", "- "], "x"),
    *cases("a.md", "[a](", ["a ", " ", "(a)"], "x"),
    *[
        Case("a.md", "# ", " #", " x"),
        Case("a.md", "", "`", "a`"),
        Case("a.md", "<div", "a"),
        Case("a.md", "<a ", " a=b"),
    ],
    *[Case("a.md", "---\n", "a\n"), Case("a.md", "{% ", "a ")],
    *cases("a.srt", SRT, ["<i>", "<i ", "{\\a", "{\\a}", "<", "- ", "a\n", "- a\n", "a ", "1\n", " ", "-->"]),
    *cases("a.srt", SRT, ["00:00:01,000 --> 00:00:02,500\na\n", "<i>a</i>\n", "- <i>a</i>\n"]),
    *[Case("a.srt", "", CUE), Case("a.srt", SRT, "<i>", "- x"), Case("a.srt", SRT + "<i> ", " ", "x\n- y")],
    *cases("a.vtt", VTT, ["<i>", "<i ", "<", "- a\n", "&amp;", "&", "&#", "NOTE a\n", "a\n\n", "a "]),
    Case("a.vtt", f"{VTT}word ", lambda i: f"<c.{i}>"),
    *cases("a.po", "", [f"{PO}\n", f'{PO[:10]}msgid_plural "b"\nmsgstr[0] ""\n\n', "# a\n", "\n", "#, a\n"]),
    *cases("a.po", PO, ['"a"\n', '"a" ', '"', "#~ a\n", "#| a\n", "domain a\n"]),
    *cases("a.po", f'{PO}"', ["\\n", "\\x41", "a ", "a", "\\"], '"\n'),
    *cases("a.po", 'msgid "', ["a ", "a\\n", "a"], '"\nmsgstr ""\n'),
    Case("a.po", 'msgid ""\n', '"a"\n', 'msgstr ""\n'),
    Case("a.po", 'msgid ""\nmsgstr ""\n', '"a: b\\n"\n', f"\n{PO}"),
    Case("a.po", 'msgid ""\nmsgstr ""\n"charset=ASCII\\n"\n\n', f"{PO}\n"),
    *cases("a.tmx", TMX[0], ["<tu/>", "<!-- a -->", "&amp;", "a", "<![CDATA[a]]>", "<?a b?>", TU], TMX[1]),
    *cases("a.tmx", TMX[0], [lambda i: f'<tu><tuv xml:lang="en-{i:07}"><seg>a</seg></tuv></tu>', "<a>"], TMX[1]),
    *cases("a.tmx", SEGMENT[0], ["<ph/>", "<hi>a</hi>", "&amp;", "&lt;ph/>", "a ", "\n"], SEGMENT[1]),
    *cases("a.tmx", SEGMENT[0], [lambda i: f'<ph x="{i}"/>', lambda i: f"<ph>{i}</ph>"], SEGMENT[1]),
    Case("a.tmx", f"{SEGMENT[0]}\nb", " ", SEGMENT[1]),
    Case("a.tmx", f"{TMX[0]}<tu>", '<tuv xml:lang="en"><seg>a</seg></tuv>', f"</tu>{TMX[1]}"),
    *cases("a.xlf", XLIFF[0], [UNIT, "<group/>", lambda i: f'<group translate="{i}">{UNIT}</group>'], XLIFF[1]),
    *cases("a.xlf", SOURCE[0], ["<x/>", "<g>a</g>", "&amp;", "a ", '<mrk mtype="seg">a</mrk>'], SOURCE[1]),
    *cases("a.xlf", SOURCE[0], [lambda i: f'<x id="{i}"/>', lambda i: f'<g id="{i}">a</g>'], SOURCE[1]),
    *cases("a.xlf", CUT[0], [lambda i: f'<mrk mtype="seg" mid="{i}">a</mrk> x{i}'], CUT[1]),
    Case("a.xlf", f'{XLIFF[0]}<trans-unit id="1">', "<source>a</source>", f"</trans-unit>{XLIFF[1]}"),
    *cases("a.csv", "en,de\n", ["a,b\n", "a,\n", '"a",""\n', '"', ",", '""', "\n", "a", '"a\n', '"a"b,\n']),
    *cases("a.csv", 'en,de\n"', ['""', "a\n", "a "], '",\n'),
    *cases("a.csv", "", [",", "en,", "a b c d", "a b c d;e\n"]),
    *cases("a.tsv", "", ["a\tb\n", "a\n", "\t", "\n", "\r", "a"]),
    *cases("terms.csv", "source,target\n", ["a,b\n", 'a,"b|c"\n', '"', "a\n", ",\n", "|", "a b c d e f.\n"]),
    Case("terms.csv", "source,target\na,", "b|", "c\n"),
    *cases("a.tbx", TBX[0], [concept("en", "de"), lambda i: concept(f"en-{i}", f"de-{i}"), "<a>"], TBX[1]),
    Case("a.tbx", f"{TBX[0]}<termEntry>", concept("en", "de")[11:-12], f"</termEntry>{TBX[1]}"),
    *cases("a.json", '{"a":"', ["a", "\\n", "\\u00e9", "\\"], '"}'),
    *cases("a.json", '["a"', [',"a"', ",1", " ", ',{"a":"b"}'], "]"),
    *[Case("a.json", '{"a":"b"', ',"a":"b"', "}"), Case("a.json", "[" * 900 + '"a"', ',"a"', "]" * 900)],
    Case("a.json", '{"a":{"message":"x"}', ',"a":{"message":"x"}', "}"),
    *cases("a.json", "", ["[", '{"a":', '"']),
    *cases("a.jsonl", "", ['{"source":"a","target":"b"}\n', '{"source":"a"}\n', "\n", "["]),
    *[Case("a.jsonl", '{"source":"', "\\n", '"}'), Case("a.jsonl", '{"source":"a"', ',"x":1', "}")],
    *cases("a.txt", "", ["a\n", "a", "\n", " ", "a b ", "\t\n", "é"]),
]
MANY_UNITS = [
    Case("a.md", "", "a|b\n-|-\n"),
    Case("a.srt", "", CUE),
    Case("a.po", "", f"{PO}\n"),
    Case("a.tmx", TMX[0], TU, TMX[1]),
    Case("a.xlf", XLIFF[0], UNIT, XLIFF[1]),
    Case("a.csv", "en,de\n", "a,\n"),
    Case("a.json", '["a"', ',"a"', "]"),
    Case("a.txt", "", "a\n"),
]


def examine(path: Path) -> None:
    """Reads a file as pairs and as a document, and writes it with a translation of each unit."""
    if path.name in ("terms.csv", "a.tbx"):
        list(glossary_tables.read(path, "en", "de"))
        return
    if files.suffix(path) in files.PAIRED:
        for _ in files.read(path, DataSettings(source="en", target="de"), Report()):
            pass
    document = files.open_document(path, "en", "de")
    document.render({number: unit.source for number, unit in enumerate(document.units)}, "de")


def seconds(path: Path, content: bytes, runs: int = 2) -> float:
    """Returns the CPU time of the fastest of some runs."""
    path.write_bytes(content)
    times = []
    for _ in range(runs):
        began = time.process_time()
        with contextlib.suppress(DataError):
            examine(path)
        times.append(time.process_time() - began)
    return min(times)


def grows_linearly(measure: Callable[[int], float]) -> bool:
    """Returns whether a time grows in proportion to a size."""
    size = SMALLEST
    while size < LARGEST and measure(size) < ENOUGH:
        size *= GROWTH
    return any(measure(GROWTH * size) <= MOST * max(measure(size), ENOUGH) for _ in range(ATTEMPTS))


def name_of(case: Case) -> str:
    part = case.part if isinstance(case.part, str) else case.part(1)
    return ascii(f"{case.name} {case.begin[-12:]} {part[:40]} {case.end[:4]}")


@pytest.mark.parametrize("case", CASES, ids=name_of)
def test_time_grows_like_the_file(case: Case, tmp_path: Path) -> None:
    assert grows_linearly(lambda size: seconds(tmp_path / case.name, case.content(size)))


PLACEHOLDERS = ["{", "}", "{a", "{{", "%", "%(", "<a ", '<a b="', "<!--", "&", "$t(", "$", "a@", "www.", "["]


@pytest.mark.parametrize("part", PLACEHOLDERS)
def test_time_grows_like_the_text_that_is_searched_for_placeholders(part: str) -> None:
    def measure(size: int) -> float:
        began = time.process_time()
        protected_pieces.find(part * (size // len(part)))
        return time.process_time() - began

    assert grows_linearly(measure)


@pytest.mark.slow
@pytest.mark.parametrize("case", MANY_UNITS, ids=name_of)
def test_ten_megabytes_are_read_and_written_in_bounded_time(case: Case, tmp_path: Path) -> None:
    assert seconds(tmp_path / case.name, case.content(TEN_MEGABYTES), runs=1) < LONGEST


def test_quadratic_time_is_noticed() -> None:
    assert grows_linearly(lambda size: size * 1e-6)
    assert not grows_linearly(lambda size: size**2 * 1e-10)
