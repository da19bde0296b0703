"""TMX: languages, inline codes, and texts that are put back."""

from __future__ import annotations

from pathlib import Path

import pytest
from translate.storage.tmx import tmxfile

from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_report import Report
from regard.files.formats import Unit, tmx
from regard.settings import DataSettings

HEADER = '<?xml version="1.0" encoding="UTF-8"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4">\n'
SEVERAL = """ <header srclang="{}" segtype="sentence"/>
 <body>
  <!-- the first -->
  <tu tuid="1">
   <note>A greeting</note>
   <tuv xml:lang="EN-US"><prop type="x">y</prop><seg>Hello</seg></tuv>
   <tuv xml:lang="de-DE">
    <seg>Hallo</seg>
   </tuv>
   <tuv xml:lang="fr"><seg>Bonjour</seg></tuv>
   <tuv xml:lang="fr"><seg>Salut</seg></tuv>
   <tuv xml:lang="fr-CA"><seg>Allô</seg></tuv>
  </tu>
  <tu tuid="2">
   <tuv xml:lang="de_AT"><seg>Ein <hi type="b">Bild</hi>: <ph x="1">&lt;img alt="<sub>Kuh</sub>"/&gt;</ph>!</seg></tuv>
   <tuv xml:lang="en-us"><seg>A <hi type="b">picture</hi>: <ph x="1">&lt;img alt="<sub>cow</sub>"/&gt;</ph>!</seg></tuv>
  </tu>
  <tu tuid="3">
   <tuv xml:lang="EN-US">
    <seg>Only
      here</seg>
   </tuv>
   <tuv xml:lang="de-DE"><seg/></tuv>
  </tu>
 </body>
</tmx>
"""


def write(path: Path, content: str = SEVERAL, source: str = "en-us") -> Path:
    path.write_text(HEADER + content.replace("{}", source), encoding="utf-8", newline="")
    return path


def texts(path: Path, source: str = "source", target: str = "target") -> list[tuple[str, str]]:
    pairs = tmx.read(path, DataSettings(source=source, target=target), Report())
    return [(pair.source, pair.target) for pair in pairs]


def refusal(path: Path, source: str = "source", target: str = "target") -> str:
    with pytest.raises(DataError) as caught:
        texts(path, source, target)
    return str(caught.value)


@pytest.mark.parametrize(("source", "target"), [("en", "de"), ("EN_us", "de"), ("en-US", "DE")])
def test_languages_are_found_by_their_codes(source: str, target: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    assert texts(path, source, target) == [("Hello", "Hallo"), ("A picture: cow!", "Ein Bild: Kuh!")]
    assert texts(path, target, source) == [("Hallo", "Hello"), ("Ein Bild: Kuh!", "A picture: cow!")]


def test_an_exact_code_goes_before_its_regions(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    report = Report()
    pairs = list(tmx.read(path, DataSettings(source="en", target="fr"), report))
    assert [(pair.target, str(pair.where)) for pair in pairs] == [("Bonjour", f"{path}:7")]
    assert (report.read, report.counts) == (1, {"repeated language": 1})
    assert texts(path, "en", "fr-CA") == [("Hello", "Allô")]
    assert texts(path, "en-US", "de-DE") == [("Hello", "Hallo")]


def test_languages_that_are_not_there_are_refused_with_those_that_are(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    languages = "EN-US, de-DE, de_AT, en-us, fr, fr-CA"
    mend = "specify two of them with regard train --source EN-US --target LANGUAGE"
    assert refusal(path, "en", "ru") == f"{path}: no entry has texts in both en and ru: the languages are {languages}"
    assert refusal(path) == f"{path}: the file has several languages ({languages}): {mend}"


def test_the_file_says_what_its_two_languages_are(tmp_path: Path) -> None:
    two = '<header srclang="{}"/><body><tu><tuv lang="de"><seg>eins</seg></tuv><tuv lang="EN"><seg>one</seg></tuv></tu>'
    path = write(tmp_path / "a.tmx", two + "</body></tmx>", "en")
    assert texts(path) == [("one", "eins")]
    assert texts(path, source="de") == [("eins", "one")]
    assert texts(path, target="en") == [("eins", "one")]
    assert tmx.languages(path) == ("EN", "de")
    assert refusal(write(tmp_path / "b.tmx", two + "</body></tmx>", "*all*")).endswith(
        "--source LANGUAGE --target LANGUAGE"
    )
    one = "<header srclang='en'/><body><tu><tuv lang='en'><seg>one</seg></tuv></tu></body></tmx>"
    assert refusal(write(tmp_path / "c.tmx", one)).endswith("all texts are in one language (en)")
    assert refusal(write(tmp_path / "d.tmx", "<header/><body/></tmx>")).endswith("contains no texts")


@pytest.mark.parametrize(
    ("source", "target"), [("en-US", "de-DE"), ("EN-US", "fr"), ("en-us", "fr-CA"), ("fr", "de-DE")]
)
def test_as_many_pairs_as_the_translate_toolkit(source: str, target: str, tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    with path.open("rb") as file:
        units = tmxfile(file, source, target).units
    assert len(texts(path, source, target)) == sum(bool(unit.source and unit.target) for unit in units)


def test_a_document_has_the_units_of_two_languages(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    document = tmx.open_document(path, "en", "de")
    assert (document.source_language, document.target_language) == ("EN-US", "de-DE")
    marks = ('<hi type="b">', "</hi>", '<ph x="1">&lt;img alt="<sub>cow</sub>"/&gt;</ph>')
    assert [(unit.target, unit.state, unit.marks, unit.context, unit.where.line) for unit in document.units] == [
        ("Hallo", "done", (), "1", 7),
        ('Ein <hi type="b">Bild</hi>: <ph x="1">&lt;img alt="<sub>Kuh</sub>"/&gt;</ph>!', "done", marks, "2", 17),
        ("", "empty", (), "3", 21),
    ]
    assert document.render({}) == path.read_bytes()


def test_an_empty_text_is_filled_and_all_else_stays(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    content = path.read_text(encoding="utf-8")
    filled = tmx.open_document(path, "en", "de").render({2: "Nur\nhier & <jetzt>"})
    machine = 'creationtool="regard" creationid="MT!"'
    expected = content.replace(
        '<tuv xml:lang="de-DE"><seg/></tuv>',
        f'<tuv xml:lang="de-DE" {machine}><seg>Nur\nhier &amp; &lt;jetzt&gt;</seg></tuv>',
    )
    assert filled.decode() == expected


def test_a_missing_language_is_added_in_the_form_of_the_source(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", SEVERAL.replace("\n", "\r\n"))
    document = tmx.open_document(path, "en", "es_MX")
    assert [unit.state for unit in document.units] == ["empty"] * 3
    filled = document.render({0: "Hola", 2: "Aquí"}).decode()
    machine = 'xml:lang="es-MX" creationtool="regard" creationid="MT!"'
    first = f"\r\n   <tuv {machine}><seg>Hola</seg></tuv>"
    third = f"\r\n   <tuv {machine}>\r\n    <seg>Aquí</seg>\r\n   </tuv>"
    content = path.read_bytes().decode()
    for before, new in (("<seg>Allô</seg></tuv>", first), ("<seg/></tuv>", third)):
        content = content.replace(before, before + new)
    assert filled == content
    path.write_bytes(filled.encode())
    again: list[Unit] = list(tmx.open_document(path, "en", "es").units)
    assert [(unit.target, unit.state) for unit in again] == [("Hola", "draft"), ("", "empty"), ("Aquí", "draft")]


def test_several_directions(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx")
    report = Report()
    pairs = list(read_pairs([path], DataSettings(directions=("en-de", "fr-en", "en-fr_CA")), report))
    assert [(pair.source, pair.target, pair.direction, pair.where.line) for pair in pairs] == [
        ("Hello", "Hallo", "en-de", 7),
        ("Bonjour", "Hello", "fr-en", 7),
        ("Hello", "Allô", "en-fr_CA", 7),
        ("A picture: cow!", "Ein Bild: Kuh!", "en-de", 17),
    ]
    assert report.counts == {"no direction": 1}
