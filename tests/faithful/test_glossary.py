"""Terms are read from every kind of file, found as whole words, and recognized in translations."""

from __future__ import annotations

import contextlib
import gzip
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.decoding.translation_results import TermOutcome
from regard.errors import DataError
from regard.faithful.glossary import Glossary, Term, summarize_outcomes

TABLE = """source,target,forbidden,note
file,Datei,File|Akte,a thing on a disk
file manager,Dateiverwaltung|Datei-Manager,,
"folder, open",offener Ordner
Git,
Debian,Debian,
user,,Benützer
"""
BASIC = """<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE martif SYSTEM "TBXBasiccoreStructV02.dtd">
<martif type="TBX-Basic" xml:lang="en-US"><martifHeader/><text><body>
<termEntry id="1">
  <note>a thing on a disk</note>
  <langSet xml:lang="en-US"><tig><term>file</term></tig></langSet>
  <langSet xml:lang="de"><tig><term>Datei</term>
    <termNote type="administrativeStatus">admittedTerm-admn-sts</termNote></tig>
    <ntig><termGrp><term>File</term>
    <termNote type="administrativeStatus">deprecatedTerm-admn-sts</termNote></termGrp></ntig>
    <tig><term>Dokument</term><termNote type="partOfSpeech">noun</termNote>
    <termNote type="administrativeStatus">preferredTerm-admn-sts</termNote></tig></langSet>
</termEntry>
<termEntry id="2"><langSet xml:lang="en-US"><tig><term>alone</term></tig></langSet></termEntry>
</body></text></martif>
"""
THREE = """<?xml version="1.0"?>
<tbx type="TBX-Basic" style="dct" xml:lang="en" xmlns="urn:iso:std:iso:30042:ed-2"
  xmlns:min="http://www.tbxinfo.net/ns/min" xmlns:basic="http://www.tbxinfo.net/ns/basic"><text><body>
<conceptEntry id="c1">
  <langSec xml:lang="en"><termSec><term>file</term></termSec><termSec><term>document</term></termSec></langSec>
  <langSec xml:lang="de"><termSec><term>Datei</term></termSec>
    <termSec><term>File</term><min:administrativeStatus>supersededTerm-admn-sts</min:administrativeStatus></termSec>
  </langSec>
  <langSec xml:lang="fr"><termSec><term>fichier</term></termSec></langSec>
</conceptEntry></body></text></tbx>
"""


def written(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return path


def one(source: str, *targets: str, forbidden: tuple[str, ...] = (), languages: tuple[str, str] = ("", "")) -> Glossary:
    return Glossary([Term(source, targets, forbidden)], *languages)


# Files


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz"])
def test_a_table_with_a_header(tmp_path: Path, name: str) -> None:
    found = Glossary.read(written(tmp_path, name, "\ufeff" + TABLE)).terms
    assert [(term.source, term.targets, term.forbidden) for term in found] == [
        ("file", ("Datei",), ("File", "Akte")),
        ("file manager", ("Dateiverwaltung", "Datei-Manager"), ()),
        ("folder, open", ("offener Ordner",), ()),
        ("Git", ("Git",), ()),
        ("Debian", ("Debian",), ()),
        ("user", (), ("Benützer",)),
    ]
    assert found[0].note == "a thing on a disk"
    assert str(found[3].where) == f"{tmp_path / name}:5"
    assert [term.kept for term in found] == [False, False, False, True, True, False]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "file,Datei\nGit\n"),
        ("t.csv", "file;Datei\r\nGit;\r\n"),
        ("t.tsv", "file\tDatei\n\nGit\t\n"),
        ("t.tsv", "note\ttarget\tsource\nx\tDatei\tfile\n\t\tGit\n"),
        ("t.csv", "en,de\nfile,Datei\nGit,\n"),
        ("t.txt", "file,Datei\n  file , Datei \nGit,Git"),
    ],
)
def test_other_tables(tmp_path: Path, name: str, text: str) -> None:
    found = Glossary.read(written(tmp_path, name, text), "en", "de").terms
    assert [(term.source, term.targets) for term in found] == [("file", ("Datei",)), ("Git", ("Git",))]


def test_a_term_that_is_there_twice_may_be_either(tmp_path: Path) -> None:
    (term,) = Glossary.read(written(tmp_path, "t.csv", "file,Datei,Akte\nfile,Akte,File\n")).terms
    assert (term.targets, term.forbidden) == (("Datei", "Akte"), ("File",))


def test_tbx_basic(tmp_path: Path) -> None:
    path = written(tmp_path, "t.tbx", BASIC)
    for languages in (("", ""), ("en", "de"), ("en_US", "de-AT")):
        (term,) = Glossary.read(path, *languages).terms
        assert (term.source, term.targets, term.forbidden) == ("file", ("Dokument", "Datei"), ("File",))
        assert term.note == "a thing on a disk"
        assert str(term.where) == f"{path}:4"


def test_tbx_of_version_3(tmp_path: Path) -> None:
    path = written(tmp_path, "t.tbx.gz", THREE)
    found = Glossary.read(path, "en", "de").terms
    assert [term.source for term in found] == ["file", "document"]
    assert {(term.targets, term.forbidden) for term in found} == {(("Datei",), ("File",))}
    assert [term.targets for term in Glossary.read(path, "de", "fr").terms] == [("fichier",)] * 2
    with pytest.raises(
        DataError, match="a TBX file needs a model that names its languages: the languages of the file are en, de, fr"
    ):
        Glossary.read(path)
    with pytest.raises(DataError, match="there are no terms in it: the languages of the file are en, de, fr"):
        Glossary.read(path, "en", "it")


def test_entities_are_refused(tmp_path: Path) -> None:
    secret = written(tmp_path, "secret", "SECRET")
    laughs = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
    text = BASIC.split("\n", 2)[2].replace("<term>Datei<", "<term>Datei&l11;<")
    for entities in (f'<!ENTITY l11 SYSTEM "file://{secret}">', f'<!ENTITY l0 "ha">{laughs}'):
        with pytest.raises(DataError, match=r"t.tbx:1: the file declares an entity"):
            Glossary.read(written(tmp_path, "t.tbx", f"<!DOCTYPE martif [{entities}]>{text}"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.csv", "", "t.csv: the glossary has no terms"),
        ("t.csv", "source,target\n", "t.csv: the glossary has no terms"),
        ("t.csv", "file,Datei\n,Datei\n", "t.csv:2: this line has no term in the source language"),
        ("t.csv", "a,b,c,d,e\n", "t.csv:1: 5 columns, but a row has only source, target, forbidden, note"),
        ("t.csv", 'file,"Datei\n', "t.csv:1: not valid CSV"),
        ("t.tbx", "<martif>", "t.tbx:1: not well-formed XML"),
        ("t.tbx", "<tmx/>", "t.tbx:1: the root element is <tmx>, but must be <martif> or <tbx>"),
        ("t.tbx", "<tbx/>", "t.tbx: there are no terms"),
        ("t.tbx", "", "t.tbx:1: not well-formed XML"),
    ],
)
def test_what_is_wrong_is_told_in_one_line(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(DataError) as error:
        Glossary.read(written(tmp_path, name, text), "en", "de")
    assert message in str(error.value)
    assert "\n" not in str(error.value)


PROSE = """When the cat had eaten all of it, it went away and slept.
Nobody saw it, though all of them had looked for it.

It came back in the evening, as if nothing at all had happened.
"""


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("t.csv", PROSE, 1),
        ("t.txt", PROSE, 1),
        ("t.txt", "\n" + PROSE.replace(", ", " "), 2),
        ("t.tsv", PROSE.replace(", ", "\t"), 1),
        ("t.txt", "It was the best of times,\nit was the worst of times,\nit was the age of wisdom,\n", 1),
        ("t.txt", "dog,Hund\n" + PROSE, 2),
        ("t.md", PROSE, None),
        ("t.json", '{"dog": "Hund"}', None),
    ],
)
def test_running_text_is_no_glossary(name: str, text: str, line: int | None, tmp_path: Path) -> None:
    path = written(tmp_path, name, text)
    with pytest.raises(DataError) as caught:
        Glossary.read(path, "en", "de")
    if line is None:
        assert str(caught.value).startswith(f"{path}: .{name[2:]} is not a glossary format: pass a .csv")
    else:
        form = "a glossary has one term per line, as source,target,forbidden,note (for example dog,Hund)"
        assert str(caught.value) == f"{path}:{line}: this line is running text, not a term: {form}"


@pytest.mark.parametrize(
    "text",
    [
        "dog\ncat\nOpen Document Foundation\n",  # not translated
        "dog, Hund\nthe whole of the file, die ganze Datei\n",
        "Do you want to delete it?,Wollen Sie sie löschen?\nYes.,Ja.\n",
        "open the file in a new window,die Datei in einem neuen Fenster öffnen\n",
        "number,Nr.\napproximately,ca.|etwa\n",
        "dog,Hund,Köter,This is the word for the animal, \n".replace(", \n", "\n"),
        f"source,target,forbidden,note\ndog,Hund,,{PROSE.splitlines()[0].replace(',', '')}\n",
        "source,target\nWhen the cat had eaten it,wenn sie gefressen hat.\n",  # a header says what it is
        "dog;Hund\nWhen the cat had eaten all of it;it went away and slept.\nfile;Datei\n",  # one of three
    ],
)
def test_what_may_be_a_glossary_is_one(text: str, tmp_path: Path) -> None:
    assert Glossary.read(written(tmp_path, "t.csv", text), "en", "de").terms


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name in ("no.csv", "no.tbx"):
        with pytest.raises(DataError, match=r"cannot be read \(No such file or directory\)"):
            Glossary.read(tmp_path / name)
    (tmp_path / "latin.csv").write_bytes(b"file,Datei\nuser,Ben\xfctzer\n")
    with pytest.raises(DataError, match=r"latin.csv:2: not UTF-8 .*iconv"):
        Glossary.read(tmp_path / "latin.csv")


@given(st.binary(max_size=200), st.sampled_from([".csv", ".tsv", ".tbx"]))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes, ending: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"any{ending}"
    path.write_bytes(data)
    with contextlib.suppress(DataError):
        assert Glossary.read(path, "en", "de").terms


# In a source text


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Open the file.", ["file"]),
        ("File (new): FILES and files", ["file"]),
        ("The file manager opens a file", ["file manager", "file"]),
        ("file managers", ["file manager"]),
        ("filed, profile, filename, file_name, filet", []),
        ("a “file”-like file-", ["file"]),
        ("Two directories, one directory", ["directory"]),
        ("%(file)s {file} <file> https://file/file &file;", []),
        ("It is IT.", ["IT"]),
        ("so it is", []),
        ("Git and gits", ["Git"]),
        ("git", []),
        ("npm or Npm", ["npm"]),
        ("C++ and C", ["C++"]),
        ("", []),
    ],
)
def test_terms_are_whole_words(text: str, found: list[str]) -> None:
    sources = ["file", "file manager", "directory", "IT", "C++"]
    terms = [*(Term(each, ("x",)) for each in sources), *(Term(each, (each,)) for each in ("Git", "npm"))]
    assert [term.source for term in Glossary(terms, "en", "de").find(text)] == found


@pytest.mark.parametrize(
    ("language", "term", "text", "found"),
    [
        ("de", "Datei", "Zwei Dateien", True),
        ("de", "Datei", "Das Dateisystem", False),
        ("ru", "файл", "нет файла", True),
        ("zh", "文件", "打开文件夹。", True),
        ("ja", "ファイル", "ファイルを開く", True),
        ("ko", "파일", "파일을 열기", True),
        ("ko", "사가", "사가를 읽기", True),  # ends in the first syllable of all
        ("ko", "읽힣", "읽힣을 열기", True),  # in the last
        ("de", "Ei", "Eier", False),  # two letters are too few for an ending
        ("de", "Tor", "Tore", True),
        ("en", "at", "ats", False),
        ("hi", "फ़ाइल", "फ़ाइल खोलें", True),
        ("hi", "कम", "कमरा", False),
        ("fr", "éte", "e\u0301te", True),
        ("tr", "dosya", "dosyayı", True),
    ],
)
def test_endings_by_language(language: str, term: str, text: str, found: bool) -> None:
    glossary = one(term, "x", languages=(language, "en"))
    assert bool(glossary.find(text)) == found


@given(st.text(max_size=30), st.text(max_size=30), st.text(max_size=60))
def test_any_text_can_be_searched(source: str, target: str, text: str) -> None:
    if source.strip():
        glossary = one(source, *([target] if target.strip() else [source]))
        glossary.check(text, text)
        if glossary.terms[0].source.isalpha():
            assert glossary.find(f"( {glossary.terms[0].source} )")


# In a translation


@pytest.mark.parametrize(
    ("targets", "output", "text"),
    [
        (("Datei",), "Die Datei öffnen", "Datei"),
        (("Datei",), "DATEI", "DATEI"),
        (("Datei",), "Zwei Dateien.", "Dateien"),
        (("Datei",), "Das Dateisystem", None),
        (("Haus",), "Zwei Häuser", "Häuser"),
        (("Tür",), "die Türen", "Türen"),
        (("offener Ordner",), "den offenen Ordner", None),
        (("offen",), "den offenen Ordner", "offenen"),
        (("Datei-Manager", "Dateiverwaltung"), "Die Dateiverwaltung", "Dateiverwaltung"),
        (("Datei-Manager",), "Der Datei-Manager", "Datei-Manager"),
        (("file",), "die Datei", None),
        (("USB",), "usb", None),
        (("USB",), "USB-Stick", "USB"),
    ],
)
def test_a_term_is_known_again(targets: tuple[str, ...], output: str, text: str | None) -> None:
    found = one("thing", *targets, languages=("en", "de")).check("a thing", output)
    assert found == [TermOutcome("thing", targets, "missing" if text is None else "placed", text or "")]


def test_no_two_terms_are_met_by_the_same_words() -> None:
    glossary = Glossary([Term("file", ("Datei",)), Term("manager", ("Datei Manager",))], "en", "de")
    states = [[each.state for each in glossary.check("file manager", text)] for text in
              ("Datei Manager", "Datei Datei Manager", "Manager Datei")]  # fmt: skip
    assert states == [["missing", "placed"], ["placed", "placed"], ["placed", "missing"]]


def test_forbidden_words_count_where_the_term_is() -> None:
    glossary = Glossary([Term("phone", ("Telefon",), ("Handy", "Tele")), Term("user", (), ("Nutzer",))], "en", "de")
    assert [str(each) for each in glossary.check("the phones", "Handys")] == [
        "'Telefon' is missing for 'phone'",
        "'Handys' is used for 'phone', but forbidden",
    ]
    assert [each.state for each in glossary.check("the phone", "das Telefon")] == ["placed"]
    assert glossary.check("a cat", "ein Handy") == []
    assert [each.state for each in glossary.check("a user", "ein Nutzer")] == ["forbidden"]
    assert glossary.check("a user", "ein Anwender") == []


def test_outcomes_are_summarized_in_a_line() -> None:
    states = Counter(("placed", "missing", "forbidden"))
    assert summarize_outcomes(states) == "glossary: 2 terms required, 1 missing; 1 forbidden terms used"
