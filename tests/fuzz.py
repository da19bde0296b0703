"""Fuzzing: files of every format with random damage are refused in one line or read, and written again as they are.

python -m tests.fuzz --inputs 1000000    (make fuzz; a short run is one of the tests)
"""

from __future__ import annotations

import argparse
import gzip
import resource
import signal
import struct
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import format_by_suffix as files, glossary_tables as terms
from regard.settings import DataSettings

SECONDS = 10.0  # of computing for one input
MEMORY = 1 << 31  # bytes for all
ROUND = 200  # draws after which hypothesis forgets what it has seen, so that its memory does not grow
LARGE, LARGE_INPUTS = 300_000, 5  # bytes of a large input, and how many of them each round has
SHIFTS = 8  # places at which the same damage is done to each file, since a draw takes longer than an input

XML = (".tmx", ".xlf", ".xliff")

PO = """# A comment
msgid ""
msgstr ""
"Language: de\\n"
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: a.py:1
#, fuzzy, python-format
#| msgid "old"
msgctxt "menu"
msgid "Open %s"
msgstr "Öffne %s"

msgid "one file"
msgid_plural "%d files"
msgstr[0] "eine Datei"
msgstr[1] ""

msgid ""
"two "
"lines\\n"
msgstr ""

#~ msgid "gone"
#~ msgstr "weg"
"""
TMX = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE tmx SYSTEM "tmx14.dtd">
<tmx version="1.4"><header srclang="en-US"/><body>
 <tu tuid="1"><tuv xml:lang="EN-us"><seg>A <bpt i="1">&lt;b&gt;</bpt>cat<ept i="1">&lt;/b&gt;</ept></seg></tuv>
  <tuv xml:lang="de"><seg>Eine <hi>Katze</hi></seg></tuv></tu>
 <tu><tuv lang="en"><seg>Dog &amp; <![CDATA[<bone>]]></seg></tuv><!-- none yet --></tu>
</body></tmx>
"""
XLIFF_1 = """<?xml version="1.0"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file source-language="en" original="a"><body>
 <trans-unit id="1"><source>A <g id="1">red</g> <x id="2"/></source><target state="new"/></trans-unit>
 <trans-unit id="2" approved="yes"><source>One. Two.</source>
  <seg-source><mrk mtype="seg" mid="1">One.</mrk> <mrk mtype="seg" mid="2">Two.</mrk></seg-source>
  <target><mrk mtype="seg" mid="2">Zwei.</mrk></target></trans-unit>
</body></file></xliff>
"""
XLIFF_2 = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en" trgLang="de"><file id="f">
 <unit id="u"><segment id="s"><source>Hello <pc id="1">you</pc><ph id="2"/>.</source></segment>
 <segment state="final"><source>Bye</source><target>Tschüs</target></segment></unit></file></xliff>
"""
SRT = "1\r\n00:00:01,000 --> 00:00:02,500\r\n<i>Hi</i>\r\nthere\r\n\r\n2\r\n00:00:03,000 --> 00:00:04,000\n- A\n- B\n"
VTT = "WEBVTT\n\nNOTE a\n\nSTYLE\n::cue {}\n\nx\n00:01.000 --> 00:02.000 align:start\n<v Ann>Hi &amp; <c.a>bye</c>\n"
JSON = '\ufeff{"a": "One {name}", "b": {"c": ["Two\\n", 3, null, {"d": "\\u00e9t\\u00e9"}]}, "e": ""}\n'
ARB = '{"@@locale": "en", "hello": "Hello, {name}!", "@hello": {"description": "x"}}'
MARKDOWN = """---
title: A page
---
# A *title*

Some `code` and [a link](http://a.b "title"), then
the second line.  \nAfter a break.

- one
- two
  1. deep

| a | b |
|---|---|
| c | d \\| e |

```python
x = 1
```
> quoted <b>text</b> ![i](x.png)[^1]

[^1]: A note.
"""
CSV = 'en,de,note\r\n"One, ""two""",Eins,x\r\nThree,,"a\nb"\r\n'
JSONL = '{"source": "a", "target": "b"}\n\n{"translation": {"en": "c", "de": ""}}\n{"source": "\\u00e9", "target": "d"}'
TSV = "one\teins\r\ntwo\t\n\n"
TBX = """<?xml version="1.0"?>
<!DOCTYPE martif SYSTEM "TBXcoreStructV02.dtd">
<martif type="TBX"><text><body><termEntry id="1"><langSet xml:lang="en"><tig><term>cat</term></tig></langSet>
 <langSet xml:lang="de"><tig><term>Katze</term><termNote type="administrativeStatus">preferred</termNote></tig>
 <ntig><termGrp><term>Mieze</term></termGrp></ntig></langSet></termEntry></body></text></martif>
"""
TERMS = 'source,target,forbidden,note\ncat,Katze,"Mieze|Miez",an animal\nRegard,,,\n'
GLOSSARIES = ("a.tbx", "terms.csv")
TEXT = "\ufeffOne line\n\n  Another one  \r\nLast"


def compiled() -> bytes:
    """A catalogue as msgfmt makes it."""
    sources = [b"", b"menu\x04Open", b"one\x00many"]
    targets = [b"Content-Type: text/plain; charset=UTF-8\nLanguage: de\n", "Öffnen".encode(), b"eins\x00viele"]
    place = 28 + 16 * len(sources)
    tables, texts = [b"", b""], b""
    for side, strings in enumerate((sources, targets)):
        for string in strings:
            tables[side] += struct.pack("<II", len(string), place + len(texts))
            texts += string + b"\0"
    head = struct.pack("<7I", 0x950412DE, 0, len(sources), 28, 28 + 8 * len(sources), 0, 0)
    return head + tables[0] + tables[1] + texts


FILES: dict[str, bytes] = {
    "a.po": PO.encode(),
    "latin.po": PO.replace("UTF-8", "ISO-8859-1").encode("latin-1"),
    "a.mo": compiled(),
    "a.tmx": TMX.encode(),
    "wide.tmx": TMX.replace("UTF-8", "UTF-16").encode("utf-16"),
    "a.tmx.gz": gzip.compress(TMX.encode(), mtime=0),
    "one.xlf": XLIFF_1.encode(),
    "two.xliff": XLIFF_2.encode(),
    "a.srt": SRT.encode(),
    "a.vtt": VTT.encode(),
    "a.json": JSON.encode(),
    "a.arb": ARB.encode(),
    "a.md": MARKDOWN.encode(),
    "a.csv": CSV.encode(),
    "a.tsv": TSV.encode(),
    "a.jsonl": JSONL.encode(),
    "a.txt": TEXT.encode(),
    "a.tbx": TBX.encode(),
    "terms.csv": TERMS.encode(),
}
TOKENS: Sequence[bytes] = [  # what formats are made of
    *(
        b"<",
        b">",
        b"/>",
        b"</",
        b"&",
        b"&#0;",
        b"&#13;",
        b"&a;",
        b'"',
        b"'",
        b"\\",
        b"\0",
        b"\r",
        b"\n",
        b"\n\n",
        b"\t",
    ),
    *(b"<![CDATA[", b"]]>", b"<!--", b"-->", b"<?", b'<!DOCTYPE a [<!ENTITY a "b">]>', b"<seg>", b"</seg>", b"<tuv>"),
    *(b"<target>", b"</source>", b'<mrk mtype="seg">', b"<g/>", b' state="', b' xml:lang="en"', b"xmlns:", b"<sub>"),
    *(
        b"msgid ",
        b"msgstr ",
        b"msgstr[0] ",
        b"msgctxt ",
        b"msgid_plural ",
        b"#~ ",
        b"#, fuzzy\n",
        b"charset=",
        b"utf-7",
    ),
    *(b"{", b"}", b"[", b"]", b":", b",", b";", b"|", b"`", b"```\n", b"*", b"_", b"# ", b"- ", b"> ", b"](", b"---\n"),
    *(
        b" --> ",
        b"00:00:00,000",
        b"WEBVTT",
        b"NOTE",
        b"1e999",
        b"9" * 400,
        b"-1",
        b"\xff",
        b"\xfe\xff",
        b"\xef\xbb\xbf",
    ),
    *(
        b"\xc3",
        b"\xed\xa0\x80",
        "\u2028".encode(),
        "\x85".encode(),
        "\u202e".encode(),
        "𝄞".encode(),
        b"\\ud800",
        b"\\u0000",
    ),
    *(b"(" * 300, b"[" * 3000, b"<a>" * 300, b"> " * 300, b"*" * 300, b"{" * 300, b"  " * 300, b"\xff\xff\xff\xff"),
]
WHOLE: Sequence[bytes] = [  # what leaves XML well-formed, where it is put into text
    b'<mrk mtype="seg" mid="2">x</mrk>',
    b"<target>x</target>",
    b'<target state="final"><x id="9"/></target>',
    b"<source>y</source>",
    b'<seg-source><mrk mtype="seg" mid="1">z</mrk></seg-source>',
    b'<tuv xml:lang="de"><seg>z</seg></tuv>',
    b"<tuv lang='en-GB'><seg/></tuv>",
    b"<segment><source>a</source></segment>",
    b'<g id="7">b<ph id="8">&lt;c/&gt;</ph></g>',
    b"<!-- d -->",
    b"<?e f?>",
    b"<![CDATA[<g>]]>",
    b"&amp;&#x85;&#13;",
]
Edit = tuple[int, int, int, bytes]  # a place, a length, another place, and what is put there
places = st.integers(0, 4095)
edits = st.lists(
    st.tuples(
        places,
        st.integers(0, 40),
        places,
        st.one_of(st.sampled_from(WHOLE), st.sampled_from(TOKENS), st.binary(max_size=3)),
    ),
    min_size=1,
    max_size=4,
)


def damaged(content: bytes, changes: Sequence[Edit], shift: int = 0) -> bytes:
    """A file with some bytes put in, left out, or taken from elsewhere in it, further on by a shift."""
    for place, length, other, new in changes:
        start, source = (place + 97 * shift) % (len(content) + 1), (other + 89 * shift) % (len(content) + 1)
        if new in WHOLE and length < 30:  # behind a tag
            start = content.find(b">", start) + 1
            content = content[:start] + new + content[start:]
        elif length > 38:  # cut off
            content = content[:start] + new
        elif length > 30:  # a copy of what stands elsewhere
            content = content[:start] + content[source : source + 4 * length] + content[start:]
        else:
            content = content[:start] + new + content[start + max(0, length - 15) :]
    return content[:20_000]


def enlarged(content: bytes, random: Random) -> bytes:
    """Returns a file with a token repeated many times somewhere in it, and perhaps without its end."""
    token = random.choice([*TOKENS, *WHOLE])
    place = random.randrange(len(content) + 1)
    end = random.choice([content[place:], b""])
    return content[:place] + token * (LARGE // len(token)) + end


def examine(path: Path, content: bytes) -> str:
    """Reads a file and writes it again; tells whether it was refused. Anything but a DataError is a bug."""
    path.write_bytes(content)
    outcome = "refused"
    if path.name in GLOSSARIES:
        try:
            return "read" if list(terms.read(path, "en", "de")) else "empty"
        except DataError as error:
            require_one_line(error)
            return outcome
    try:
        if files.suffix(path) in files.PAIRED:
            for pair in files.read(path, DataSettings(source="en", target="de"), Report()):
                assert isinstance(pair.source + pair.target, str)
            outcome = "read"
    except DataError as error:
        require_one_line(error)
    try:
        document = files.open_document(path, "en", "de")
        units = list(document.units)
        unpacked = gzip.decompress(content) if path.suffix == ".gz" else content
        assert document.render({}, "de") == unpacked, "written otherwise than it was read"
        filled = document.render({number: f"ü <{unit.source}> & \\ \n" for number, unit in enumerate(units)}, "de")
        if files.suffix(path) in XML:
            other = path.with_name(f"filled{files.suffix(path)}")
            other.write_bytes(filled)
            again = files.open_document(other, "en", "de").units
            assert [unit.source for unit in again] == [unit.source for unit in units], "filled in otherwise"
        outcome = "read"
    except DataError as error:
        require_one_line(error)
    return outcome


def require_one_line(error: DataError) -> None:
    assert "\n" not in str(error), str(error)


@dataclass
class Run:
    """Goes through random inputs, and counts what became of them."""

    folder: Path
    names: Sequence[str] = tuple(sorted(FILES))
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def round(self, number: int, count: int) -> None:
        """So many draws, which depend on the number alone."""

        @seed(number)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        )
        @given(changes=edits)
        def test(changes: list[Edit]) -> None:
            for name in self.names:
                for shift in range(SHIFTS):
                    self.one(name, damaged(FILES[name], changes, shift))

        test()

    def large_inputs(self, number: int) -> None:
        """Examines some large inputs, which depend on the number alone."""
        random = Random(number)
        for name in random.choices(self.names, k=LARGE_INPUTS):
            content = FILES[name]
            if name.endswith(".gz"):
                self.one(name, gzip.compress(enlarged(gzip.decompress(content), random), 1, mtime=0))
            else:
                self.one(name, enlarged(content, random))

    def one(self, name: str, content: bytes) -> None:
        """One input under a time limit."""
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        began = time.process_time()
        try:
            outcome = examine(self.folder / name, content)
        except Exception as error:
            raise AssertionError(f"{name}: {content[:20_000]!r}, {len(content):,} bytes") from error
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.slowest = max(self.slowest, time.process_time() - began)
        self.inputs += 1
        self.outcomes[outcome] += 1


def too_slow(_number: int, _frame: object) -> None:
    raise TimeoutError(f"an input took more than {SECONDS} seconds")


def fuzz(inputs: int, first: int, tell: Callable[[str], object], names: Sequence[str] = tuple(sorted(FILES))) -> Run:
    """Examines so many inputs, from a seed on; raises what is found."""
    before = signal.signal(signal.SIGVTALRM, too_slow)
    began = time.monotonic()
    in_memory = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as folder:
        run = Run(Path(folder), names)
        while run.inputs < inputs:
            left = -(-(inputs - run.inputs) // (len(names) * SHIFTS))
            run.round(first, min(ROUND, left))
            run.large_inputs(first)
            first += 1
            speed = run.inputs / (time.monotonic() - began)
            told = ", ".join(f"{count:,} {name}" for name, count in sorted(run.outcomes.items()))
            tell(f"{run.inputs:,} of {inputs:,} inputs: {told}; {speed:,.0f} a second, slowest {run.slowest:.2f} s")
    signal.signal(signal.SIGVTALRM, before)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; other seeds give other inputs")
    parser.add_argument("--only", nargs="+", default=sorted(FILES), metavar="NAME", help="which of the files to damage")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    run = fuzz(arguments.inputs, arguments.seed, lambda line: print(line, flush=True), arguments.only)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{run.inputs:,} inputs without a fault; {most:,} MB at most", file=sys.stderr)


if __name__ == "__main__":
    main()
