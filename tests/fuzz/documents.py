"""Documents of every format: damaged ones are refused in one line or read, and written again as they are."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

from regard.errors import DataError, RegardError
from regard.files.corpus_report import Report
from regard.files.formats import format_by_suffix as files, glossary_tables as terms
from regard.settings import DataSettings

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


DOCUMENTS: dict[str, bytes] = {
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


def examine_document(path: Path, content: bytes) -> str:
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


def require_one_line(error: RegardError) -> None:
    assert "\n" not in str(error), str(error)
