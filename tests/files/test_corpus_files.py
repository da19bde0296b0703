"""Which files a corpus is made of: folders, patterns, several formats together, and their languages."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_files import declared_languages, expand_paths, language_in_name, languages
from regard.files.corpus_report import Report
from regard.settings import DataSettings

DATA = DataSettings()
HEADER = 'msgid ""\nmsgstr "Language: {}\\nContent-Type: text/plain; charset=UTF-8\\n"\n'


def catalogue(path: Path, language: str, *texts: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    entries = [f'\nmsgid "{text}"\nmsgstr "{language} {text}"\n' for text in texts]
    path.write_text(HEADER.replace("{}", language) + "".join(entries), encoding="utf-8")
    return path


def memory(path: Path, source: str = "en-US", target: str = "de-DE") -> Path:
    two = f'<tuv xml:lang="{source}"><seg>m1</seg></tuv><tuv xml:lang="{target}"><seg>m2</seg></tuv>'
    content = f'<tmx version="1.4"><header srclang="{source}"/><body><tu>{two}</tu></body></tmx>'
    path.write_bytes(gzip.compress(content.encode()) if path.suffix == ".gz" else content.encode())
    return path


def translated(path: Path, target: str = "de") -> Path:
    unit = '<trans-unit id="1"><source>x1</source><target>x2</target></trans-unit>'
    file = f'<file source-language="en" target-language="{target}"><body>{unit}</body></file>'
    path.write_text(f'<xliff version="1.2">{file}</xliff>', encoding="utf-8")
    return path


def texts(files: list[Path], data: DataSettings = DATA) -> list[tuple[str, str]]:
    return [(pair.source, pair.target) for pair in read_pairs(files, data, Report())]


def test_files_of_all_formats_together(tmp_path: Path) -> None:
    (tmp_path / "train.en").write_text("one\n", encoding="utf-8")
    (tmp_path / "train.de").write_text("eins\n", encoding="utf-8")
    (tmp_path / "a.tsv").write_text("two\tzwei\n", encoding="utf-8")
    files = [
        tmp_path / "train.en",
        memory(tmp_path / "a.tmx.gz"),
        tmp_path / "train.de",
        catalogue(tmp_path / "de.po", "de", "p1"),
        translated(tmp_path / "a.xlf"),
        tmp_path / "a.tsv",
    ]
    expected = [("m1", "m2"), ("p1", "de p1"), ("x1", "x2"), ("two", "zwei"), ("one", "eins")]
    assert texts(files) == expected
    assert texts(files, DataSettings(source="en", target="de")) == expected


def test_folders_and_patterns_stand_for_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue(tmp_path / "locales/de/app.po", "de", "one")
    catalogue(tmp_path / "locales/de/app.mo", "de", "one")
    catalogue(tmp_path / "locales/app.pot", "", "one")
    catalogue(tmp_path / "locales/fr/app.po", "fr", "one")
    memory(tmp_path / "locales/all.tmx.gz")
    (tmp_path / "locales/README").write_text("not this", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    both = [Path("locales/all.tmx.gz"), Path("locales/de/app.po"), Path("locales/fr/app.po")]
    assert expand_paths(["locales"]) == both
    assert expand_paths(["locales"], DataSettings(source="en", target="de")) == both[:2]
    assert expand_paths(["locales/**/*.po", "locales"]) == [*both[1:], both[0]]
    assert expand_paths([tmp_path / "locales" / "*" / "app.po"])[0] == tmp_path / "locales/de/app.po"
    assert expand_paths(["missing.tmx", "a.en", "a.en"]) == [Path("missing.tmx"), Path("a.en"), Path("a.en")]
    for nothing in ("locales/**/*.xlf", "locales/*/nowhere"):
        with pytest.raises(DataError, match="there is no file with a known format"):
            expand_paths([nothing])
    with pytest.raises(DataError, match="there is no file from en to ru with a known format"):
        expand_paths(["locales/**/*.po"], DataSettings(source="en", target="ru"))


@pytest.mark.parametrize(
    ("name", "language"),
    [
        ("de.po", "de"),
        ("app.pt_BR.po", "pt_BR"),
        ("django-admin.de.po", "de"),
        ("messages-fr.po.gz", "fr"),
        ("locale/zh_Hans/LC_MESSAGES/app.po", "zh_Hans"),
        ("app.po", ""),
        ("po/all.mo", ""),
    ],
)
def test_the_language_in_a_name(name: str, language: str) -> None:
    assert language_in_name(Path(name)) == language


def test_files_tell_their_languages(tmp_path: Path) -> None:
    memory(tmp_path / "a.tmx")
    german = catalogue(tmp_path / "a.po", "de_DE", "x")
    assert declared_languages(tmp_path / "a.tmx") == ("en_US", "de_DE")
    assert declared_languages(german) == ("en", "de_DE")
    assert declared_languages(catalogue(tmp_path / "fr.po", "", "x")) == ("en", "fr")
    assert declared_languages(translated(tmp_path / "a.xlf", "de-AT")) == ("en", "de_AT")
    assert languages([german]) == ("en", "de_DE")
    assert languages([tmp_path / "a.tmx", german, tmp_path / "a.xlf"]) == ("en", "de")
    assert languages([tmp_path / "a.en", tmp_path / "a.de"]) == ("", "")
    assert languages([Path("en.json"), Path("app.de.json")]) == ("en", "de")
    with pytest.raises(DataError, match=r"several target languages: de \(.*a.po\), fr \(.*fr.po\); .* --target"):
        languages([german, tmp_path / "fr.po"])
    assert languages([german, tmp_path / "fr.po"], target="fr") == ("en", "fr")


def test_a_catalogue_is_turned_where_that_is_wanted(tmp_path: Path) -> None:
    path = catalogue(tmp_path / "de.po", "de", "one")
    assert texts([path], DataSettings(source="de", target="en")) == [("de one", "one")]
    assert texts([path], DataSettings(source="en", target="de")) == [("one", "de one")]
