"""XLIFF 1.2 and 2.0: states, segments, inline elements, and translations that are put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from translate.storage.xliff import xlifffile
from translate.storage.xliff2 import Xliff2File

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import xliff
from regard.settings import DataSettings
from tests.examples import examples

ONE = """<?xml version="1.0" encoding="utf-8"?>
<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2">
  <file source-language="en" {}datatype="plaintext" original="a">
    <body>
      <trans-unit id="1" resname="hello" approved='yes'>
        <source>Hello &amp; welcome</source>
      </trans-unit>
      <trans-unit id="2">
        <source>Bye</source><target state="needs-translation" state-qualifier="fuzzy-match">Bis</target>
      </trans-unit>
      <group translate="no"><trans-unit id="3"><source>Code</source><target>Code</target></trans-unit></group>
      <trans-unit id="4">
        <source>A <g id="1">bold</g> <x id="2"/><mrk mtype="protected">Regard</mrk></source>
        <target state="final">Ein <g id="1">fettes</g> <x id="2"/><mrk mtype="protected">Regard</mrk></target>
        <alt-trans><source>not this</source><target>dies nicht</target></alt-trans>
      </trans-unit>
      <trans-unit id="5">
        <source>First. Second.</source>
        <seg-source><mrk mtype="seg" mid="a">First.</mrk> <mrk mtype="seg" mid="b">Second.</mrk></seg-source>
      </trans-unit>
      <trans-unit id="6"><source>Red.</source><target/><note>a color</note></trans-unit>
      <trans-unit id="7"><source></source><target>nothing</target></trans-unit>
    </body>
  </file>
</xliff>
"""
TWO = """<xliff xmlns="urn:oasis:names:tc:xliff:document:2.0" version="2.0" srcLang="en"{}>
 <file id="f">
  <unit id="u1" name="greeting">
   <segment id="s1">
    <source>Hello <pc id="1" dataRefStart="d1">you</pc>.</source>
   </segment>
   <ignorable><source> </source></ignorable>
   <segment id="s2" state="final">
    <source>Bye<ph id="2"/>.</source>
    <target>Tschüs<ph id="2"/>.</target>
   </segment>
  </unit>
  <unit id="u2" translate="no"><segment><source>x</source><target>x</target></segment></unit>
  <unit id="u3"><segment state="initial"><source>Red</source><target>Rot</target></segment></unit>
  <unit id="u4"><segment><source>Blue</source><target>Blau</target></segment></unit>
 </file>
</xliff>
"""


def write(path: Path, content: str = ONE, language: str = "") -> Path:
    path.write_text(content.replace("{}", language), encoding="utf-8", newline="")
    return path


def texts(path: Path, source: str = "source", target: str = "target") -> list[tuple[str, str]]:
    pairs = xliff.read(path, DataSettings(source=source, target=target), Report())
    return [(pair.source, pair.target) for pair in pairs]


def test_units_of_version_one(tmp_path: Path) -> None:
    document = xliff.open_document(write(tmp_path / "a.xlf"))
    assert (document.source_language, document.target_language) == ("en", "")
    assert [(unit.source, unit.target, unit.state, unit.context, unit.where.line) for unit in document.units] == [
        ("Hello & welcome", "", "empty", "hello", 5),
        ("Bye", "Bis", "draft", "2", 8),
        (
            'A <g id="1">bold</g> <x id="2"/><mrk mtype="protected">Regard</mrk>',
            'Ein <g id="1">fettes</g> <x id="2"/><mrk mtype="protected">Regard</mrk>',
            "done",
            "4",
            12,
        ),
        ("First.", "", "empty", "5/a", 17),
        ("Second.", "", "empty", "5/b", 17),
        ("Red.", "", "empty", "6", 21),
    ]
    assert document.units[2].marks == ('<g id="1">', "</g>", '<x id="2"/>', '<mrk mtype="protected">Regard</mrk>')
    assert texts(tmp_path / "a.xlf") == [("A bold", "Ein fettes")]


def test_units_of_version_two(tmp_path: Path) -> None:
    document = xliff.open_document(write(tmp_path / "a.xlf", TWO, ' trgLang="de"'))
    assert (document.source_language, document.target_language) == ("en", "de")
    assert [(unit.source, unit.target, unit.state, unit.context) for unit in document.units] == [
        ('Hello <pc id="1" dataRefStart="d1">you</pc>.', "", "empty", "greeting/s1"),
        ('Bye<ph id="2"/>.', 'Tschüs<ph id="2"/>.', "done", "greeting/s2"),
        ("Red", "Rot", "draft", "u3"),
        ("Blue", "Blau", "done", "u4"),
    ]
    assert texts(tmp_path / "a.xlf") == [("Bye.", "Tschüs."), ("Blue", "Blau")]


@pytest.mark.parametrize("holder", ["unit", "group", "file", "yes in no"])
@pytest.mark.parametrize("version", [1, 2])
def test_what_must_not_be_translated_is_not_learnt(tmp_path: Path, version: int, holder: str) -> None:
    marks = {name: ' translate="no"' if name == holder else "" for name in ("unit", "group", "file")}
    if holder == "yes in no":  # the nearest mark counts
        marks = {"unit": ' translate="yes"', "group": ' translate="no"', "file": ""}
    texts_of_it = "<source>Code</source><target>Kode</target>"
    unit = f'<trans-unit id="1"{marks["unit"]}>{texts_of_it}</trans-unit>'
    if version == 2:
        unit = f'<unit id="1"{marks["unit"]}><segment>{texts_of_it}</segment></unit>'
    group = f'<group id="g"{marks["group"]}>{unit}</group>'
    body = f"<body>{group}</body>" if version == 1 else group
    content = f'<xliff version="{version}.0"><file id="f"{marks["file"]}>{body}</file></xliff>'
    assert texts(write(tmp_path / "a.xlf", content)) == ([("Code", "Kode")] if holder == "yes in no" else [])


def test_version_one_is_filled_in(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlf")
    document = xliff.open_document(path)
    assert document.render({}, "de") == path.read_bytes()
    marked = 'Ein <x id="2"/><g id="1">dickes</g> <mrk mtype="protected">Regard</mrk>'
    filled = document.render({0: "Hallo & <willkommen>", 1: "Tschüs", 2: marked, 4: "Zweitens.", 5: "Rot."}, "de_AT")
    review = 'state="needs-review-translation"'
    expected = path.read_text(encoding="utf-8")
    for old, new in (
        ("approved='yes'", 'approved="no"'),
        (
            "welcome</source>",
            f"welcome</source>\n        <target {review}>Hallo &amp; &lt;willkommen&gt;</target>",
        ),
        (
            'state="needs-translation" state-qualifier="fuzzy-match">Bis',
            f'{review} state-qualifier="leveraged-mt">Tschüs',
        ),
        ('state="final">Ein <g id="1">fettes</g> <x id="2"/><mrk mtype="protected">Regard</mrk>', f"{review}>{marked}"),
        (
            "</seg-source>",
            f'</seg-source>\n        <target {review}><mrk mtype="seg" mid="a"></mrk> '
            '<mrk mtype="seg" mid="b">Zweitens.</mrk></target>',
        ),
        ("<target/>", f"<target {review}>Rot.</target>"),
        ('original="a">', 'original="a" target-language="de-AT">'),
    ):
        assert old in expected
        expected = expected.replace(old, new)
    assert filled.decode() == expected
    path.write_bytes(filled)
    again = xliff.open_document(path)
    assert [unit.state for unit in again.units] == ["draft", "draft", "draft", "empty", "draft", "draft"]
    assert again.render({3: "Erstens."}) == filled.replace(b'mid="a"></mrk> <', b'mid="a">Erstens.</mrk> <')


def test_version_two_is_filled_in(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlf", TWO.replace("\n", "\r\n"))
    filled = xliff.open_document(path).render({0: 'Hallo <pc id="1" dataRefStart="d1">du</pc>.', 2: "Röte"}, "de")
    states = 'state="initial" subState="regard:needs-review-translation"'
    expected = path.read_bytes().decode()
    for old, new in (
        ('srcLang="en"', 'srcLang="en" trgLang="de"'),
        ('<segment id="s1">', f'<segment id="s1" {states}>'),
        (
            "you</pc>.</source>",
            'you</pc>.</source>\r\n    <target>Hallo <pc id="1" dataRefStart="d1">du</pc>.</target>',
        ),
        ('<segment state="initial">', f"<segment {states}>"),
        ("Rot", "Röte"),
    ):
        assert old in expected
        expected = expected.replace(old, new)
    assert filled.decode() == expected


def test_names_with_a_prefix(tmp_path: Path) -> None:
    segment = '<a:segment><a:source>Hi <a:ph id="1"/></a:source></a:segment>'
    content = f'<a:xliff xmlns:a="x" version="2.1"><a:file><a:unit>{segment}</a:unit></a:file></a:xliff>'
    path = write(tmp_path / "a.xlf", content)
    filled = xliff.open_document(path).render({0: 'Na <a:ph id="1"/>'})
    assert b'</a:source><a:target>Na <a:ph id="1"/></a:target></a:segment>' in filled


def test_a_target_that_is_not_cut_like_its_source_is_taken_as_a_whole(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.xlf", ONE.replace("</seg-source>", '</seg-source><target state="new">Eins. Zwei.</target>')
    )
    units = xliff.open_document(path).units
    assert [(unit.source, unit.target, unit.state) for unit in units if unit.context.startswith("5")] == [
        ("First. Second.", "Eins. Zwei.", "draft")
    ]


def test_nothing_is_lost_of_a_target_with_text_beside_its_segments(tmp_path: Path) -> None:
    target = '</seg-source><target>Vor <mrk mtype="seg" mid="a">Eins.</mrk></target>'
    path = write(tmp_path / "a.xlf", ONE.replace("</seg-source>", target))
    unit = next(unit for unit in xliff.open_document(path).units if unit.context == "5")
    assert unit.target == 'Vor <mrk mtype="seg" mid="a">Eins.</mrk>'


def test_languages_that_do_not_fit_are_refused_or_turned(tmp_path: Path) -> None:
    path = write(tmp_path / "a.xlf", ONE, 'target-language="de-DE" ')
    assert xliff.languages(path) == ("en", "de-DE")
    assert texts(path, "en", "de") == [("A bold", "Ein fettes")]
    assert texts(path, "de", "en_US") == [("Ein fettes", "A bold")]
    with pytest.raises(DataError, match=r"a.xlf:5: this file translates from en to de-DE, not from en to fr"):
        texts(path, "en", "fr")


def test_of_several_files_in_one_those_of_the_wanted_language_are_filled(tmp_path: Path) -> None:
    files = [
        f'<file source-language="en" target-language="{code}"><body><trans-unit id="{code}"><source>One</source>'
        "</trans-unit></body></file>"
        for code in ("fr", "de-DE")
    ]
    path = write(tmp_path / "a.xlf", f"<xliff version='1.2'>{''.join(files)}</xliff>")
    assert [unit.context for unit in xliff.open_document(path, "en", "de").units] == ["de-DE"]
    assert [unit.context for unit in xliff.open_document(path).units] == ["fr", "de-DE"]


def test_as_many_units_as_the_translate_toolkit(tmp_path: Path) -> None:
    content = ONE.replace('<trans-unit id="3"', '<trans-unit translate="no" id="3"')  # the toolkit looks there only
    one = xlifffile.parsefile(str(write(tmp_path / "a.xlf", content, 'target-language="de" ')))
    found = [unit for unit in one.units if unit.istranslatable() and unit.source]
    units = xliff.open_document(tmp_path / "a.xlf").units
    assert len({unit.context.split("/")[0] for unit in units}) == len(found)
    two = Xliff2File.parsefile(str(write(tmp_path / "b.xlf", TWO, ' trgLang="de"')))
    assert len(xliff.open_document(tmp_path / "b.xlf").units) == sum(unit.istranslatable() for unit in two.units)


@examples(50)
@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs", "Cc"]), max_size=40), number=st.integers(0, 5))
def test_what_is_put_in_is_read_again(text: str, number: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.getbasetemp()
    path = write(folder / "again.xlf")
    clean = text.replace("\ufffe", "").replace("\uffff", "")
    (folder / "out.xlf").write_bytes(xliff.open_document(path).render({number: clean}))
    units = xliff.open_document(folder / "out.xlf").units
    assert [unit.target for unit in units][number] == clean or number == 2
