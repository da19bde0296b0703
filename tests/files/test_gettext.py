"""PO, POT and MO: pairs as other libraries read them, and translations put back with nothing else changed."""

from __future__ import annotations

import gzip
import shutil
import struct
import subprocess
from pathlib import Path

import polib
import pytest
from hypothesis import given, strategies as st
from translate.storage import pypo

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats import Document, format_by_suffix as files
from regard.settings import DataSettings
from tests.examples import examples

DATA = DataSettings(source="en", target="de")
HEADER = r"""msgid ""
msgstr ""
"Language: de\n"
"Content-Type: text/plain; charset=UTF-8\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\n"
"""
CATALOGUE = (
    "# Übersetzung\n"
    + HEADER
    + r"""
# by hand
#. for translators
#: a.c:1
msgid "Open"
msgstr "Öffnen"

#, fuzzy, c-format
#| msgid "%d old"
msgid "%d new"
msgstr "%d alt"

#: b.c:2
#, c-format
msgctxt "menu"
msgid ""
"A long\n"
"text\t\"quoted\" \\ \033[1m"
msgstr ""

msgid "%d file"
msgid_plural "%d files"
msgstr[0] "%d Datei"
msgstr[1] ""

#| msgid "Before"
msgid "After"
msgstr ""

#, fuzzy
#~ msgid "gone"
#~ msgstr "weg"
"""
)
TEMPLATE = r"""#, fuzzy
msgid ""
msgstr ""
"Language: \n"
"Content-Type: text/plain; charset=CHARSET\n"
"Plural-Forms: nplurals=INTEGER; plural=EXPRESSION;\n"

msgid "%d file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
"""


def opened(folder: Path, content: str | bytes, name: str = "a.po") -> Document:
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return files.open_document(folder / name)


def pairs(path: Path, data: DataSettings = DATA) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in files.read(path, data, Report())]


def refusal(path: Path, content: str | bytes) -> str:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(DataError) as caught:
        list(files.read(path, DATA, Report()))
    if path.suffix == ".po":
        with pytest.raises(DataError, match=r"a\.po"):
            files.open_document(path)
    message = str(caught.value)
    assert "\n" not in message
    return message.removeprefix(str(path))


def rendered(folder: Path, content: str, targets: dict[int, str], language: str = "") -> str:
    return opened(folder, content).render(targets, language).decode()


# Reading


def test_units_have_contexts_forms_and_states(tmp_path: Path) -> None:
    document = opened(tmp_path, CATALOGUE)
    told = [(unit.source, unit.target, unit.state, unit.context, unit.where.line) for unit in document.units]
    assert told == [
        ("Open", "Öffnen", "done", "", 11),
        ("%d new", "%d alt", "draft", "", 16),
        ('A long\ntext\t"quoted" \\ \033[1m', "", "empty", "menu", 22),
        ("%d file", "%d Datei", "done", "", 27),
        ("%d files", "", "empty", "", 27),
        ("After", "", "empty", "", 33),
    ]
    assert (document.source_language, document.target_language) == ("", "de")


def test_only_finished_translations_are_pairs(tmp_path: Path) -> None:
    path = tmp_path / "a.po.gz"
    path.write_bytes(gzip.compress(CATALOGUE.encode()))
    report = Report()
    found = list(files.read(path, DATA, report))
    assert [(pair.source, pair.target) for pair in found] == [("Open", "Öffnen"), ("%d file", "%d Datei")]
    assert str(found[0].where) == f"{path}:11"
    assert report.read == 2


@pytest.mark.parametrize("charset", ["ISO-8859-1", "cp1252", "UTF-8"])
def test_the_charset_is_that_of_the_header(tmp_path: Path, charset: str) -> None:
    content = CATALOGUE.replace("UTF-8", charset).encode(charset)
    document = opened(tmp_path, content)
    assert pairs(tmp_path / "a.po")[0] == ("Open", "Öffnen")
    assert document.render({}) == content
    assert "Schließen".encode(charset) in document.render({0: "Schließen"})


def test_bytes_that_are_letters_of_the_syntax_in_another_charset(tmp_path: Path) -> None:
    content = HEADER.replace("UTF-8", "SHIFT_JIS") + '\nmsgid "x"\nmsgstr "ソ表"\n'
    assert b"\x83\x5c" in content.encode("shift_jis")  # a backslash in ASCII
    document = opened(tmp_path, content.encode("shift_jis"))
    assert document.units[0].target == "ソ表"
    assert document.render({0: "表ソ"}).decode("shift_jis").endswith('#, fuzzy\nmsgid "x"\nmsgstr "表ソ"\n')


@pytest.mark.parametrize("charset", ["ASCII", "us-ascii", "ISO-8859-1", "KOI8-R", "SHIFT_JIS"])
def test_a_charset_that_lacks_characters_becomes_utf8(tmp_path: Path, charset: str) -> None:
    content = (HEADER.replace("UTF-8", charset) + '\n#~ msgid "ü"\nmsgid "x"\nmsgstr ""\n').encode("latin1")
    document = opened(tmp_path, content)
    assert document.render({}) == content
    assert document.render({0: "so"}).startswith(content[: content.index(b"#~")])
    assert document.notes == []
    path = tmp_path / "b.po"
    path.write_bytes(document.render({0: "„Größe“ 中文"}))
    assert document.notes == [
        f"the charset {charset} lacks characters of the translations: the catalogue and its header "
        "have been converted to UTF-8"
    ]
    assert b"charset=UTF-8" in path.read_bytes()
    assert charset.encode() not in path.read_bytes()
    assert [unit.target for unit in files.open_document(path).units] == ["„Größe“ 中文"]
    assert document.render({}) == content


def test_texts_of_another_charset_are_converted_too(tmp_path: Path) -> None:
    document = opened(tmp_path, CATALOGUE.replace("UTF-8", "ISO-8859-1").encode("latin1"))
    before = [unit.source for unit in document.units]
    (tmp_path / "b.po").write_bytes(document.render({0: "“so”"}))
    found = files.open_document(tmp_path / "b.po").units
    assert [unit.source for unit in found] == before
    assert found[0].target == "“so”"


@pytest.mark.parametrize("charset", ["koi8-r", "ASCII", "ISO-8859-1", "EUC-KR"])
def test_a_catalogue_that_lies_about_its_charset_is_told_the_right_one(tmp_path: Path, charset: str) -> None:
    content = HEADER.replace("UTF-8", charset) + '\nmsgid "a dog"\nmsgstr "собака"\n'
    told = f"the declared charset is {charset}, but the file is in UTF-8: write charset=UTF-8 into the header"
    assert told in refusal(tmp_path / "a.po", content.encode())
    with pytest.raises(DataError, match=told):
        opened(tmp_path, content.encode())
    if charset == "koi8-r":
        assert opened(tmp_path, content.encode("koi8-r")).units[0].target == "собака"


def test_without_a_charset_none_is_said_to_be_declared(tmp_path: Path) -> None:
    told = refusal(tmp_path / "a.po", 'msgid "a"\nmsgstr "ä"\n'.encode("latin1"))
    assert told.startswith(":2: this line is not in UTF-8: write the actual charset")


def test_a_language_with_one_form_has_the_plural_as_its_source(tmp_path: Path) -> None:
    one = HEADER.replace("nplurals=2", "nplurals=1") + '\nmsgid "a"\nmsgid_plural "b"\nmsgstr[0] "c"\n'
    assert [unit.source for unit in opened(tmp_path, one).units] == ["b"]
    assert pairs(tmp_path / "a.po") == [("b", "c")]


def test_undecodable_entries_are_an_error_or_dropped(tmp_path: Path) -> None:
    content = CATALOGUE.encode().replace("Öffnen".encode(), b"\xd6ffnen")
    assert refusal(tmp_path / "a.po", content) == (
        ":12: this line is not in UTF-8, the charset declared in the header: write the actual charset into the header, "
        "or convert the file with msgconv -t utf-8"
    )
    report = Report()
    dropping = DataSettings(undecodable="drop")
    assert [pair.source for pair in files.read(tmp_path / "a.po", dropping, report)] == ["%d file"]
    assert report.counts == {"undecodable": 1}


# Writing


def test_a_filled_entry_is_fuzzy_and_all_else_as_it_was(tmp_path: Path) -> None:
    assert rendered(tmp_path, CATALOGUE, {}) == CATALOGUE
    assert rendered(tmp_path, CATALOGUE, {}, "fr") == CATALOGUE
    filled = rendered(tmp_path, CATALOGUE, {1: "%d neu", 2: "Ein langer\nText", 4: "%d Dateien", 5: "Nach\tdem"}, "fr")
    assert filled == (
        CATALOGUE.replace('"%d alt"', '"%d neu"')
        .replace("#, c-format\nmsgctxt", "#, fuzzy, c-format\nmsgctxt")
        .replace('033[1m"\nmsgstr ""', '033[1m"\nmsgstr ""\n"Ein langer\\n"\n"Text"')
        .replace('msgid "%d file"', '#, fuzzy\nmsgid "%d file"')
        .replace('msgstr[1] ""', 'msgstr[1] "%d Dateien"')
        .replace(
            '#| msgid "Before"\nmsgid "After"\nmsgstr ""',
            '#, fuzzy\n#| msgid "Before"\nmsgid "After"\nmsgstr "Nach\\tdem"',
        )
    )


def test_line_ends_and_a_missing_last_one_are_kept(tmp_path: Path) -> None:
    content = CATALOGUE.partition("#, fuzzy\n#~")[0].strip().replace("\n", "\r\n")
    assert rendered(tmp_path, content, {}) == content
    changed = content.removesuffix('msgstr ""') + 'msgstr "Nach"'
    assert rendered(tmp_path, content, {5: "Nach"}) == changed.replace("#| msgid", "#, fuzzy\r\n#| msgid")[::1].replace(
        '#, fuzzy\r\n#| msgid "%d', '#| msgid "%d'
    )
    assert rendered(tmp_path, content, {2: "a\nb"}).count("\n") == rendered(tmp_path, content, {2: "a\nb"}).count(
        "\r\n"
    )


def test_long_translations_are_wrapped_where_the_file_is(tmp_path: Path) -> None:
    text = "Wort " * 40
    lines = rendered(tmp_path, CATALOGUE, {0: text}).splitlines()
    assert max(map(len, lines)) <= 80
    assert opened(tmp_path, "\n".join(lines)).units[0].target == text
    unwrapped = CATALOGUE + f'\nmsgid "{text}"\nmsgstr ""\n'
    assert f'msgstr "{text}"\n' in rendered(tmp_path, unwrapped, {6: text})


def test_a_template_gets_its_language_and_charset(tmp_path: Path) -> None:
    document = opened(tmp_path, TEMPLATE, "a.pot")
    assert [unit.source for unit in document.units] == ["%d file", "%d files"]
    filled = document.render({1: "%d Blätter"}, "de").decode()
    assert '"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"' in filled
    assert opened(tmp_path, filled).target_language == "de"
    assert document.render({}, "de").decode() == TEMPLATE


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
@pytest.mark.parametrize(("language", "forms"), [("de_AT", 2), ("pt-BR", 2), ("pl", 3), ("uk", 3), ("cs", 3)])
def test_a_template_gets_the_plurals_of_its_language(tmp_path: Path, language: str, forms: int) -> None:
    (tmp_path / "a.pot").write_text(TEMPLATE, encoding="utf-8")
    document = files.open_document(tmp_path / "a.pot", "en", language)
    assert len(document.units) == forms
    (tmp_path / "a.po").write_bytes(document.render(dict.fromkeys(range(forms), "%d"), language))
    done = subprocess.run(
        ["msgfmt", "--check", "-o", tmp_path / "a.mo", tmp_path / "a.po"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_forms_that_have_no_line_yet_get_one(tmp_path: Path) -> None:
    content = TEMPLATE.replace("nplurals=INTEGER", "nplurals=4")
    document = opened(tmp_path, content)
    assert [unit.source for unit in document.units] == ["%d file", *["%d files"] * 3]
    assert document.render({3: "x"}).decode().endswith('msgstr[1] ""\nmsgstr[2] ""\nmsgstr[3] "x"\n')


def test_a_compiled_catalogue_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="msgunfmt"):
        opened(tmp_path, b"", "a.mo")


# Faults


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('msgid "a\nmsgstr ""\n', ':1: a string has no closing quotation mark: "a'),
        ('msgid "a\\"\nmsgstr ""\n', ":1: a string has no closing quotation mark"),
        ('msgid "a" b\nmsgstr ""\n', ":1: text outside a string: b"),
        ('msgstr "a"\n', ":1: msgstr is not allowed at the beginning of an entry"),
        ('msgid "a"\nmsgid "b"\n', ":2: msgid is not allowed after"),
        ('msgid "a"\nmsgstr[0] "b"\n', ":2: msgstr[0] is not allowed after"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr "b"\n', ":3: msgstr is not allowed after"),
        ('msgid "a"\nmsgid_plural "b"\nmsgstr[1] "b"\n', ":3: msgstr[1] is not allowed after"),
        ('msgid "a"\nmsgctxt "b"\nmsgstr "b"\n', ":2: msgctxt is not allowed after"),
        ('"a"\n', ":1: a string does not belong to a msgid or msgstr"),
        ('msgid "a"\nmsgstr "b"\n# c\n"d"\n', ":4: a string does not belong to a msgid or msgstr"),
        ('msgid "a"\n\n', ":1: this entry has no msgstr"),
        ('msgid "a"\nmsgstr\n', ":2: msgstr is not followed by a string"),
        ("<<<<<<< HEAD\n", ":1: expected a comment, msgid, msgstr or a string: <<<<<<< HEAD"),
        (HEADER.replace("UTF-8", "UTF-16"), ":4: the charset UTF-16 cannot be used"),
        (HEADER.replace("UTF-8", "no-such"), ":4: the charset no-such cannot be used"),
        (HEADER.replace("UTF-8", "unicode_escape"), ":4: the charset unicode_escape cannot be used"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    assert refusal(tmp_path / "a.po", content).startswith(message)


@given(
    content=st.binary(max_size=60)
    | st.lists(st.sampled_from([*CATALOGUE.splitlines(keepends=True), '"', "\\", "msgstr[9]"])).map(
        lambda lines: "".join(lines).encode()
    )
)
def test_anything_opens_or_is_refused(content: bytes, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("po")
    try:
        document = opened(folder, content)
    except DataError:
        return
    assert document.render({}) == content


def without_translations(content: str) -> list[str]:
    return [line for line in content.split("\n") if not line.startswith(("msgstr", '"', "#,"))]


@given(data=st.data(), crlf=st.booleans())
def test_a_translation_is_found_again_and_nothing_else_changes(
    data: st.DataObject, crlf: bool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("po")
    content = CATALOGUE.replace("\n", "\r\n") if crlf else CATALOGUE
    texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(' \n\t\\"\033')).map(
        lambda text: f"a{text}"
    )
    before = opened(folder, content)
    targets = data.draw(st.dictionaries(st.integers(0, len(before.units) - 1), texts))
    after = opened(folder, before.render(targets))
    for i, (old, new) in enumerate(zip(before.units, after.units, strict=True)):
        assert (new.source, new.context) == (old.source, old.context)
        assert new.target == targets.get(i, old.target)
        assert new.state == "draft" if i in targets else True
    assert without_translations(before.render(targets).decode()) == without_translations(content)
    polib.pofile(str(folder / "a.po"))


# Other libraries


def test_pairs_are_those_of_the_translate_toolkit_and_of_polib(tmp_path: Path) -> None:
    (tmp_path / "a.po").write_text(CATALOGUE, encoding="utf-8")
    store = pypo.pofile.parsefile(str(tmp_path / "a.po"))
    units = [unit for unit in store.units if unit.istranslated() and not unit.isheader()]
    assert [target for _, target in pairs(tmp_path / "a.po")] == [str(unit.target) for unit in units]
    assert len(polib.pofile(str(tmp_path / "a.po")).fuzzy_entries()) == 1


@pytest.mark.skipif(shutil.which("msgfmt") is None, reason="needs gettext")
def test_gettext_accepts_a_filled_catalogue(tmp_path: Path) -> None:
    document = opened(tmp_path, CATALOGUE)
    targets = {i: unit.source for i, unit in enumerate(document.units)}
    (tmp_path / "b.po").write_bytes(document.render(targets))
    done = subprocess.run(
        ["msgfmt", "--check-format", "--use-fuzzy", "-o", tmp_path / "b.mo", tmp_path / "b.po"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(pairs(tmp_path / "b.mo")) == sorted((source, source) for source in (u.source for u in document.units))


# MO


def compiled(order: str = "<", charset: str = "UTF-8") -> bytes:
    """A compiled catalogue, of either byte order."""
    header = f"Content-Type: text/plain; charset={charset}\n".encode()
    messages = [
        (b"", header),
        (b"%d file\0%d files", b"%d Datei\0%d Dateien"),
        (b"menu\4Open", "Öffnen".encode(charset)),
        (b"empty", b""),
    ]
    at, tables, strings = 28 + 16 * len(messages), [b"", b""], b""
    for texts in messages:
        for side, text in enumerate(texts):
            tables[side] += struct.pack(f"{order}2I", len(text), at + len(strings))
            strings += text + b"\0"
    head = struct.pack(f"{order}7I", 0x950412DE, 0, len(messages), 28, 28 + 8 * len(messages), 0, 0)
    return head + b"".join(tables) + strings


@pytest.mark.parametrize(("order", "charset"), [("<", "UTF-8"), (">", "UTF-8"), ("<", "ISO-8859-1")])
def test_a_compiled_catalogue_is_read(tmp_path: Path, order: str, charset: str) -> None:
    (tmp_path / "a.mo").write_bytes(compiled(order, charset))
    expected = [("%d file", "%d Datei"), ("%d files", "%d Dateien"), ("Open", "Öffnen")]
    assert pairs(tmp_path / "a.mo") == expected
    if charset == "UTF-8":
        assert [entry.msgid for entry in polib.mofile(str(tmp_path / "a.mo"))] == ["%d file", "Open", "empty"]


def test_a_damaged_compiled_catalogue_is_refused(tmp_path: Path) -> None:
    path, whole = tmp_path / "a.mo", compiled()
    assert refusal(path, b"").startswith(": not an MO file")
    assert refusal(path, whole[:60]) == ": the file is damaged: it ends before its last message"
    assert refusal(path, whole.replace("Öffnen".encode(), b"\xff\xd6fnen")).startswith(
        ": message 3 is not in the charset"
    )
    bomb = struct.pack("<7I", 0x950412DE, 0, 1000, 28, 28, 0, 0) + struct.pack("<2I", 8000, 28) * 1000
    assert "messages overlap" in refusal(path, bomb)


@examples(50)
@given(place=st.integers(0, len(compiled()) - 1), byte=st.integers(0, 255), end=st.integers(0, len(compiled())))
def test_any_damage_is_met(place: int, byte: int, end: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    content = bytearray(compiled())
    content[place] = byte
    path = tmp_path_factory.mktemp("mo") / "a.mo"
    path.write_bytes(content[:end])
    try:
        pairs(path)
    except DataError:
        return
