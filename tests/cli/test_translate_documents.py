"""Documents in, documents out: filled in where they are empty, the same elsewhere."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from regard.cli.translate_documents import escape
from regard.decoding.confidence import Confidence
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.faithful import translation_memory as memory
from regard.model_folder import CONFIDENCE, MEMORY
from regard.tokens.text_pairs import Location, Pair
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call, tree
from tests.cli.test_translate import watch

PO = """# A comment.
msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Language: de\\n"
"Plural-Forms: nplurals=2; plural=(n != 1);\\n"

#: main.c:1
msgid "a dog sees me 5."
msgstr ""

msgid "the cat"
msgstr "die Katze"

#, fuzzy
msgid "she likes us 7."
msgstr "sie"

#, c-format
msgid "a tree %d"
msgid_plural "a tree %d."
msgstr[0] ""
msgstr[1] ""

msgid "a dog sees me 5.\\n"
msgstr ""
"""


@pytest.fixture
def catalogue(tmp_path: Path) -> Path:
    path = tmp_path / "app.po"
    path.write_text(PO, encoding="utf-8")
    return path


def texts(path: Path) -> list[str]:
    """What is translated in a catalogue, in the order of its units."""
    from regard.files.formats.format_by_suffix import open_document

    return [unit.target for unit in open_document(path).units]


def test_what_is_empty_or_fuzzy_is_filled_and_the_rest_stays(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    output = tmp_path / "app.de.po"
    done = call(capsys, "translate", model, str(catalogue), "-o", str(output))
    assert (done.code, done.out) == (0, "")
    assert done.err.startswith(f"{catalogue}: 5 filled (")
    assert re.search(rf", 1 unchanged, \d flagged; written to {output}\n", done.err)
    found = texts(output)
    assert found[1] == "die Katze"
    assert all(found)
    assert found[0] + "\n" == found[5]
    assert found[2] != "sie"
    assert [text.count("%d") for text in found] == [0, 0, 0, 1, 1, 0]
    assert catalogue.read_text(encoding="utf-8") == PO
    written = output.read_text(encoding="utf-8")
    assert written.startswith(PO[: PO.index("#: main.c")])
    assert written.count("fuzzy") == 4


def test_the_same_translations_as_of_lines(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    assert call(capsys, "translate", model, str(catalogue), "-o", str(tmp_path / "out.po")).code == 0
    expected = load_as(Translator, model, "cpu")("a dog sees me 5.")
    assert texts(tmp_path / "out.po")[0] == expected


def test_all_is_translated_if_asked_for(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    done = call(capsys, "translate", model, str(catalogue), "--all", "-o", str(tmp_path / "out.po"))
    assert ": 6 filled (" in done.err
    assert texts(tmp_path / "out.po")[1] == load_as(Translator, model, "cpu")("the cat")


def test_a_file_may_be_filled_in_its_place(capsys: pytest.CaptureFixture[str], model: str, catalogue: Path) -> None:
    assert call(capsys, "translate", model, str(catalogue), "-o", str(catalogue)).code == 0
    assert all(texts(catalogue))
    again = call(capsys, "translate", model, str(catalogue), "-o", str(catalogue))
    assert ": 5 filled (" in again.err  # they are fuzzy until somebody has looked at them


def test_a_catalogue_in_ascii_becomes_utf8_and_says_so(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    catalogue.write_text('msgid ""\nmsgstr "Content-Type: text/plain; charset=ASCII\\n"\n\nmsgid "a dog"\nmsgstr ""\n')
    (tmp_path / "memory.tsv").write_text("a dog\tein Hündchen\n", encoding="utf-8")
    flags = ["--memory", str(tmp_path / "memory.tsv"), "-o", str(tmp_path / "out.po")]
    done = call(capsys, "translate", model, str(catalogue), *flags)
    assert done.code == 0
    assert done.err.startswith(f"{catalogue}: the charset ASCII lacks characters of the translations: the catalogue ")
    assert texts(tmp_path / "out.po") == ["ein Hündchen"]


@pytest.mark.parametrize("names", [("app.po.gz", "out.po"), ("app.po", "out.po.gz"), ("app.po.gz", "out.po.gz")])
def test_gzip_goes_by_the_name(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, names: tuple[str, str]
) -> None:
    source, output = (tmp_path / name for name in names)
    source.write_bytes(gzip.compress(PO.encode()) if source.suffix == ".gz" else PO.encode())
    assert call(capsys, "translate", model, str(source), "-o", str(output)).code == 0
    assert output.read_bytes().startswith(b"\x1f\x8b") == (output.suffix == ".gz")
    assert all(texts(output))


def test_a_dry_run_writes_nothing_and_shows_the_doubtful_first(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    before = tree(tmp_path)
    done = call(capsys, "translate", model, str(catalogue), "--dry-run")
    assert done.code == 0
    assert tree(tmp_path) == before
    assert done.err.startswith(f"{catalogue}: 5 would be filled (")
    heads = [line.split("  ") for line in done.out.splitlines() if not line.startswith(" ")]
    assert [head[0] for head in heads] != []
    trusts = [float(head[1]) for head in heads]
    assert trusts == sorted(trusts)
    assert "  - a dog sees me 5.\\n\n" in done.out


def test_a_report_can_be_sorted_by_doubt(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    flags = ["-o", str(tmp_path / "out.po"), "--report", str(tmp_path / "report.tsv")]
    assert call(capsys, "translate", model, str(catalogue), *flags).code == 0
    header, *rows = [line.split("\t") for line in (tmp_path / "report.tsv").read_text(encoding="utf-8").splitlines()]
    assert header == ["place", "confidence", "how", "match", "flags", "source", "translation"]
    assert len(rows) == 5
    assert {row[0] for row in rows} >= {f"{catalogue}:9", f"{catalogue}:16"}
    assert [row[6] for row in rows if row[0] == f"{catalogue}:9"] == [escape(texts(tmp_path / "out.po")[0])]


def test_json_tells_each_translation(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    done = call(capsys, "translate", model, str(catalogue), "--json", "-o", str(tmp_path / "out.po"))
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [record["source"] for record in records][:2] == ["a dog sees me 5.", "she likes us 7."]
    assert records[0]["text"] == texts(tmp_path / "out.po")[0]
    assert records[0]["line"] == 9
    assert all(0 <= record["confidence"] <= 1 for record in records)


def test_a_memory_is_used_before_the_model(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    table = tmp_path / "memory.tsv"
    table.write_text("a dog sees me 6.\tein Hund sieht mich 6.\nshe likes us\tsie mag uns\n", encoding="utf-8")
    done = call(capsys, "translate", model, str(catalogue), "--memory", str(table), "--json", "--dry-run")
    assert "2 from memory" in done.err
    records = [json.loads(line) for line in done.out.splitlines()]
    assert (records[0]["text"], records[0]["how"]) == ("ein Hund sieht mich 5.", "memory")
    assert records[1]["how"] != "memory"
    assert records[1]["matches"] == [{"score": 80, "source": "she likes us", "target": "sie mag uns"}]


def test_a_memory_is_used_for_lines_too(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    table = tmp_path / "memory.tsv"
    table.write_text("a dog sees me\tein Hund sieht mich\n", encoding="utf-8")
    stdin = b"the cat hears us.\na dog sees me\n\na dog sees us\n"
    plain = call(capsys, "translate", model, stdin=stdin).out.split("\n")
    with_memory = call(capsys, "translate", model, "--memory", str(table), stdin=stdin)
    assert with_memory == (0, "\n".join([plain[0], "ein Hund sieht mich", *plain[2:]]), "")
    done = call(capsys, "translate", model, "--memory", str(table), "--json", stdin=stdin)
    records = [json.loads(line) for line in done.out.splitlines()]
    assert [[match["score"] for match in record.get("matches", [])] for record in records] == [[], [100], [], [84]]


def test_a_model_keeps_what_it_was_trained_on_as_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    english, german = (Path(name).read_text(encoding="utf-8").splitlines() for name in write_corpus(tmp_path))
    entries = [f'msgid "{source}"\nmsgstr "{target}"\n' for source, target in zip(english, german, strict=True)]
    (tmp_path / "train.po").write_text("\n".join(dict.fromkeys(entries)), encoding="utf-8")
    folder = tmp_path / "model"
    flags = [*TINY, "--training.steps", "2", "--source", "en", "--target", "de"]
    assert call(capsys, "train", str(tmp_path / "train.po"), "-o", str(folder), *flags).code == 0
    kept = dict(memory.read(folder / MEMORY))
    held = [json.loads(line)["source"] for line in (folder / "training" / "dev.jsonl").read_text().splitlines()]
    assert {*kept, *held} == set(english)
    assert not {*kept} & {*held}
    (tmp_path / "new.po").write_text(f'msgid "{next(iter(kept))}"\nmsgstr ""\n', encoding="utf-8")
    done = call(capsys, "translate", str(folder), str(tmp_path / "new.po"), "--memory", "auto", "--dry-run")
    assert "1 from memory" in done.err
    monkeypatch.setattr(memory, "MOST_ENTRIES", 5)
    done = call(capsys, "train", str(tmp_path / "train.po"), "-o", str(tmp_path / "small"), *flags)
    assert f"{len(kept) - 5} pairs are not in the translation memory" in done.out
    assert len(list(memory.read(tmp_path / "small" / MEMORY))) == 5


def stop_before_its_end(model: Path) -> None:
    """Leaves the model as a run does that is stopped: with its training, and without the last line of its log."""
    (model / "training").mkdir(exist_ok=True)
    lines = (model / "log.jsonl").read_text().splitlines(keepends=True)
    (model / "log.jsonl").write_text("".join(lines[:-1]))


def test_a_model_without_a_memory_or_confidence_says_so(
    capsys: pytest.CaptureFixture[str], model: str, catalogue: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(model, tmp_path / "copy"))
    assert not (copy / MEMORY).exists()  # it was trained on plain text
    done = call(capsys, "translate", str(copy), str(catalogue), "--memory", "auto", "--dry-run")
    assert (done.code, done.out) == (2, "")
    assert "has no translation memory" in done.err
    (copy / CONFIDENCE).unlink()
    done = call(capsys, "translate", str(copy), str(catalogue), "--dry-run", "--json")
    assert "has no confidence.json, which regard train writes at the end" in done.err.splitlines()[0]
    assert all(json.loads(line)["confidence"] is None for line in done.out.splitlines())
    stop_before_its_end(copy)
    done = call(capsys, "translate", str(copy), str(catalogue), "--dry-run", "--json")
    assert (
        f"its training was stopped, and confidence is calibrated at the end (regard train --resume {copy})" in done.err
    )


def test_training_calibrates_the_confidence(model: str) -> None:
    found = Confidence.load(Path(model))
    assert found is not None
    assert found.pairs == len((Path(model) / "training" / "dev.jsonl").read_text(encoding="utf-8").splitlines())


def test_several_documents_go_into_a_folder(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    for name in ("a/de.po", "b/de.po", "b/notes.txt", "b/old.mo"):
        (tmp_path / "in" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "in" / name).write_text(PO, encoding="utf-8")
    done = call(capsys, "translate", model, str(tmp_path / "in"), "-o", str(tmp_path / "out"))
    assert done.code == 0
    assert done.err.count("filled") == 2
    found = sorted(str(path.relative_to(tmp_path / "out")) for path in (tmp_path / "out").rglob("*.*"))
    assert found == ["a/de.po", "b/de.po"]
    names = [str(tmp_path / "in" / name) for name in ("a/de.po", "b/de.po")]
    assert call(capsys, "translate", model, *names, "-o", str(tmp_path / "two")).code == 0
    assert tree(tmp_path / "two") == tree(tmp_path / "out")
    pattern = str(tmp_path / "in" / "**" / "de.po")
    assert call(capsys, "translate", model, pattern, "-o", str(tmp_path / "four")).code == 0
    assert tree(tmp_path / "four") == tree(tmp_path / "out")
    names[0] = str(tmp_path / "in" / "b" / "notes.txt")
    assert (
        "the file looks like a PO catalogue"
        in call(capsys, "translate", model, *names, "-o", str(tmp_path / "three")).err
    )
    Path(names[0]).write_text("a dog\n")
    assert call(capsys, "translate", model, *names, "-o", str(tmp_path / "three")).code == 0
    assert {path.name for path in (tmp_path / "three").iterdir()} == {"de.po", "notes.txt"}


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["app.po"], "app.po: a document needs an output: add -o translated.po"),
        (["app.po", "--stream", "-o", "x.po"], "--stream and --scores work only with lines of text"),
        (["app.po", "none.po", "-o", "x"], "none.po: no such file"),
        (["app.po", "a.xyz", "-o", "x"], "a.xyz: Regard cannot write translations back into this format"),
        (["app.po", "fr.po", "-o", "a.txt"], "a.txt: is a file: specify a folder for several documents"),
        (["empty", "-o", "x"], "empty: contains no documents"),
        (["fr.po", "-o", "x.po"], "fr.po: translates into fr, but the model translates into de"),
        (["app.po", "--memory", "fr.po", "-o", "x.po"], "contains no translations"),
        (["a.txt", "--dry-run"], "--dry-run works only with documents"),
        (["a.txt", "--report", "x"], "--report works only with documents"),
        (["a.txt", "--all"], "--all works only with documents"),
    ],
)
def test_what_cannot_be_done_is_refused(
    capsys: pytest.CaptureFixture[str],
    model: str,
    catalogue: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: list[str],
    says: str,
) -> None:
    folder = catalogue.parent
    (folder / "empty").mkdir()
    (folder / "a.txt").write_text("a dog\n")
    (folder / "a.xyz").write_text("a dog\n")
    (folder / "fr.po").write_text('msgid ""\nmsgstr "Language: fr\\n"\n\n#, fuzzy\nmsgid "a"\nmsgstr "b"\n')
    monkeypatch.chdir(folder)
    before = tree(folder)
    done = call(capsys, "translate", model, *flags)
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert done.err.count("\n") == 1
    assert tree(folder) == before


def test_a_template_in_no_language_is_filled(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    (tmp_path / "app.pot").write_text('msgid ""\nmsgstr ""\n"Language: \\n"\n\nmsgid "a dog"\nmsgstr ""\n')
    done = call(capsys, "translate", model, str(tmp_path / "app.pot"), "-o", str(tmp_path / "de.po"))
    assert done.code == 0
    assert "Language: de" in (tmp_path / "de.po").read_text(encoding="utf-8")


def test_who_watches_sees_a_bar(model: str, catalogue: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from regard.cli import main

    screen = watch(monkeypatch)
    assert main(["translate", model, str(catalogue), "-o", str(tmp_path / "out.po")]) == 0
    assert sys.stderr is screen
    assert "translating" in screen.getvalue()
    assert "5 filled" in screen.getvalue()


def test_a_memory_may_have_several_directions(tmp_path: Path) -> None:
    path = tmp_path / MEMORY
    memory.write(path, [Pair("a", "b", Location("x", 1), direction="en-de")])
    assert list(memory.read(path)) == [("a", "b")]


@pytest.mark.parametrize(
    ("name", "text", "filled"),
    [
        ("a.srt", "1\n00:00:01,000 --> 00:00:02,000\na dog sees me\n\n2\n00:00:03,000 --> 00:00:04,000\nshe\n", 2),
        ("a.vtt", "WEBVTT\n\n00:01.000 --> 00:02.000\nthe cat likes us\n", 1),
        ("a.csv", "source,target\na dog,\nthe cat,die Katze\n", 1),
        ("a.tsv", "a dog\t\nthe cat\tdie Katze\n", 1),
        ("a.jsonl", '{"source": "a dog", "target": ""}\n{"source": "the cat", "target": "die Katze"}\n', 1),
        ("a.json", '{"menu": {"open": "a dog", "close": "the cat"}, "size": 3}\n', 2),
        ("a.md", "# a dog\n\nshe likes `code`.\n", 2),
        (
            "a.xlf",
            '<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file original="a" datatype="x" '
            'source-language="en" target-language="de"><body><trans-unit id="1"><source>a <g id="1">dog</g></source>'
            "</trans-unit></body></file></xliff>\n",
            1,
        ),
        (
            "a.tmx",
            '<tmx version="1.4"><header srclang="en" datatype="plaintext" segtype="sentence" adminlang="en" '
            'creationtool="x" creationtoolversion="1" o-tmf="x"/><body><tu><tuv xml:lang="en"><seg>a dog</seg></tuv>'
            "</tu></body></tmx>\n",
            1,
        ),
        ("a.arb", '{"@@locale": "en", "open": "a dog", "@open": {"description": "x"}}\n', 1),
    ],
)
def test_every_format_is_filled(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, name: str, text: str, filled: int
) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    done = call(capsys, "translate", model, str(tmp_path / name), "-o", str(tmp_path / f"out{name}"))
    assert done.code == 0, done.err
    assert f": {filled} filled (" in done.err
    assert (tmp_path / f"out{name}").read_text(encoding="utf-8") != text
