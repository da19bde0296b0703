"""XML: what is hostile or damaged is refused with one line, and nothing is expanded, fetched or held for long."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import format_by_suffix as files, xml_parsing as markup
from regard.files.formats.inline_elements import with_attributes, write_segment
from regard.files.formats.tmx import TMXReader
from regard.settings import DataSettings

Readers = dict[str, Callable[[Path], object]]
READERS: Readers = {
    "pairs": lambda path: list(files.read(path, DataSettings(source="en", target="de"), Report())),
    "document": lambda path: files.open_document(path, "en", "de").units,
}
SEG = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'
TEXTS = SEG.format("en", "a") + SEG.format("de", "b")
GOOD = f'<tmx version="1.4"><header srclang="en"/><body><tu>{TEXTS}</tu></body></tmx>'

BOMB = (
    '<?xml version="1.0"?><!DOCTYPE tmx [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in zip("abcdefgh", "bcdefghi", strict=True))
    + "]>"
    + GOOD.replace(">a<", ">&i;<")
)
REFUSED = {  # what is in the file, and what is said of it
    "entity bomb": (BOMB, ":1: the file declares an entity (a)"),
    "outside entity": (
        '<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/passwd">]>\n' + GOOD.replace(">a<", ">&x;<"),
        ":1: the file declares an entity (x)",
    ),
    "parameter entity": (
        '<!DOCTYPE tmx [\n<!ENTITY % x SYSTEM "http://localhost/x.dtd"> %x;]>' + GOOD,
        ":2: the file declares an entity (x)",
    ),
    "unknown entity": ("<tmx>\n&nbsp;</tmx>", ":2: not well-formed XML (undefined entity"),
    "unknown entity of a DTD": (
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd"><tmx>\n&nbsp;</tmx>',
        ":2: the entity &nbsp; is not defined",
    ),
    "deep": ("<tmx>" + "<a>" * 100_000, ":1: elements are nested more than 200 deep"),
    "cut off": (GOOD[:-6], ":1: not well-formed XML (no element found"),
    "empty": ("", ":1: not well-formed XML (no element found"),
    "crossed": ("<tmx>\n<a><b></a></b></tmx>", ":2: not well-formed XML (mismatched tag"),
    "another root": ("\n<html></html>", ":2: the root element is <html>, but must be <tmx>"),
    "no XML": ("Hello", ":1: not well-formed XML (syntax error"),
    "a control character": ("<tmx>\n\n\x01</tmx>", ":3: not well-formed XML (not well-formed (invalid token)"),
    "encoding": ('<?xml version="1.0" encoding="klingon"?>' + GOOD, ":1: the encoding klingon is unknown"),
    "codec": ('<?xml version="1.0" encoding="rot13"?>' + GOOD, ":1: the encoding rot13 is unknown"),
    "long tag": (f'<tmx a="{"x" * (markup.LONGEST_TAG + 10 * markup.PIECE)}"/>', "a tag or comment has more than"),
    "long comment": (
        f"<tmx><!--{'x' * (markup.LONGEST_TAG + 10 * markup.PIECE)}--></tmx>",
        "a tag or comment has more than",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("reader", READERS)
def test_what_is_hostile_or_broken_is_refused_at_once(reader: str, name: str, tmp_path: Path) -> None:
    content, message = REFUSED[name]
    path = tmp_path / "a.tmx"
    path.write_text(content, encoding="utf-8")
    began = time.monotonic()
    with pytest.raises(DataError) as caught:
        READERS[reader](path)
    assert time.monotonic() - began < 30
    said = str(caught.value)
    assert said.startswith(str(path))
    assert message in said
    assert "\n" not in said


@pytest.mark.parametrize("reader", READERS)
def test_files_that_cannot_be_read_are_refused(reader: str, tmp_path: Path) -> None:
    bad = tmp_path / "bad.tmx.gz"
    bad.write_bytes(gzip.compress(GOOD.encode())[:-9])
    for path in (tmp_path / "nowhere.tmx", bad):
        with pytest.raises(DataError, match="cannot be read"):
            READERS[reader](path)


@pytest.mark.parametrize("reader", READERS)
def test_a_dtd_is_not_looked_for(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    for doctype in (
        '<!DOCTYPE tmx SYSTEM "tmx14.dtd">',
        '<!DOCTYPE tmx PUBLIC "-//LISA OSCAR:1998//DTD for Translation Memory eXchange//EN" "http://localhost/tmx14.dtd">',
        '<!DOCTYPE tmx [<!ELEMENT tmx ANY><!ATTLIST tmx a CDATA "x">]>',
    ):
        path.write_text(doctype + GOOD, encoding="utf-8")
        assert READERS[reader](path)


ENCODINGS = {  # with what the declaration says
    "utf-8": "",
    "utf-8-sig": ' encoding="UTF-8"',
    "utf-16": ' encoding="UTF-16"',
    "utf-16-le": "",
    "utf-16-be": ' encoding="utf-16"',
    "utf-32": "",
    "iso-8859-1": ' encoding="ISO-8859-1"',
    "cp1252": " encoding='windows-1252'",
    "shift_jis": ' encoding="Shift_JIS"',
}


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings_are_read_and_written_as_they_are(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    source, target = ("日本", "ニッポン") if encoding == "shift_jis" else ("Äpfel", "Bäume")
    content = GOOD.replace(">a<", f">{source}<").replace(">b<", f">{target}<")
    path.write_bytes(f'<?xml version="1.0"{ENCODINGS[encoding]}?>\r\n{content}'.encode(encoding))
    pairs = list(files.read(path, DataSettings(), Report()))
    assert [(pair.source, pair.target, pair.where.line) for pair in pairs] == [(source, target, 2)]
    document = files.open_document(path)
    assert document.render({}) == path.read_bytes()
    (tmp_path / "b.tmx").write_bytes(document.render({0: "<∑>"}))
    assert [unit.target for unit in files.open_document(tmp_path / "b.tmx").units] == ["<∑>"]


@pytest.mark.parametrize("reader", READERS)
def test_bytes_that_are_not_in_the_encoding_have_their_line(reader: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_bytes(b"<tmx>\n\n\xe4</tmx>")
    with pytest.raises(DataError, match=r"a.tmx:3: not valid UTF-8 \(byte 0xE4\)"):
        READERS[reader](path)


def test_lines_are_counted_through_all_pieces_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.files.formats.xml_parsing.PIECE", 8)
    path = tmp_path / "a.tmx"
    path.write_bytes(b"<tmx>\n" + b"x\n" * 20 + b"\xe4</tmx>")
    with pytest.raises(DataError, match=r"a.tmx:\d+: not valid UTF-8") as error:
        list(markup.decoded_pieces(path))
    assert 18 <= int(str(error.value).split(":")[1]) <= 22


def test_memory_does_not_grow_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx.gz"
    unit = f"<tu>{SEG.format('en', 'one ' * 100)}{SEG.format('de', 'eins ' * 100)}</tu>\n"
    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write('<tmx version="1.4"><header srclang="en"/><body>' + unit * 5_000 + "</body></tmx>")
    tracemalloc.start()
    assert sum(1 for _ in files.read(path, DataSettings(source="en", target="de"), Report())) == 5_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4_000_000


def test_a_segment_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx.gz"

    def pieces() -> Iterator[bytes]:
        yield b'<tmx><header srclang="en"/><body><tu><tuv xml:lang="en"><seg>'
        for _ in range(100):
            yield b"x" * 100_000

    with gzip.open(path, "wb", compresslevel=1) as file:
        file.writelines(pieces())
    with pytest.raises(DataError, match="an element has more than"):
        list(TMXReader(path).units())


MARKS = ('<g id="1">', '<x id="2"/>', "</g>", '<ph id="3">&lt;br/&gt;</ph>', '<g id="4">', "</g>")
pieces_of = st.lists(st.one_of(st.sampled_from(MARKS), st.text(max_size=5)), max_size=12)


@given(pieces=pieces_of)
def test_any_translation_gives_well_formed_xml(pieces: list[str]) -> None:
    reader = markup.ElementReader(Path("a.tmx"), ("tmx",), ())
    reader.feed(b"<tmx>" + write_segment("".join(pieces), MARKS) + b"</tmx>", final=True)


def test_marks_stay_where_they_are_well_nested() -> None:
    text = 'a <x id="2"/>&<g id="4">b</g> <g id="1">c</g>'
    assert write_segment(text, MARKS) == text.replace("&", "&amp;").encode()
    assert write_segment('<b> </g>a<g id="1">', MARKS[:3]) == b'&lt;b&gt; <g id="1">a<x id="2"/></g>'
    assert write_segment("a\nb\r\x00", (), "\r\n") == "a\r\nb&#13;\ufffd".encode()


def test_attributes_are_set() -> None:
    assert with_attributes(b"<t>", state="a&b") == b'<t state="a&amp;b">'
    assert with_attributes(b"<t x='state=\"1\"' state = 'new' />", state="y") == b'<t x=\'state="1"\' state="y" />'
    assert with_attributes(b'<t my-state="new"/>', state="y") == b'<t my-state="new" state="y"/>'


def test_a_file_that_lies_about_its_encoding_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.xlf"
    path.write_text('<?xml version="1.0" encoding="ISO-8859-1"?>\n<xliff>größer</xliff>\n', encoding="utf-8")
    assert markup.encoding_of(path.read_text(encoding="utf-8").encode("latin1"), path) == (b"", "iso8859-1")
    with pytest.raises(DataError, match=r"a\.xlf:1: the declared encoding is ISO-8859-1, but the file is in UTF-8"):
        markup.encoding_of(path.read_text(encoding="utf-8").replace("ö", "öäü").encode(), path)
