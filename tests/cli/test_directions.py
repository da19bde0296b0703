"""A model of several directions from the command line: trained, asked, measured, described, looked into."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.cli import main
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.model_folder import read_settings
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call

LINES = ["a dog sees me 5.", "", "the cat likes us 12."]
TEXT = "".join(line + "\n" for line in LINES).encode()


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder that translates en-de, de-en and en-fr; its French is German backwards."""
    folder = tmp_path_factory.mktemp("directions")
    files = [*map(Path, write_corpus(folder))]
    files.append(folder / "train.fr")
    files[2].write_text("".join(line[::-1] + "\n" for line in files[1].read_text().splitlines()))
    flags = ["--directions", "en-de,de-en,en-fr", *TINY]
    assert main(["train", *map(str, files), "-o", str(folder / "model"), *flags]) == 0
    return folder / "model"


@pytest.fixture(scope="module")
def translator(both: Path) -> Translator:
    return load_as(Translator, both, "cpu")


def test_a_run_names_each_direction(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files, brief = write_corpus(tmp_path), [*TINY, "--training.steps", "1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        done = call(capsys, "train", *files, "--directions", "en-de,de-en", *brief)
    assert (done.code, done.err) == (0, "")
    assert "train: de-en has 120 pairs" in done.out
    assert " en-de BLEU " in done.out
    assert "\n     de-en chrF " in done.out
    assert done.out.rstrip().endswith("regard translate runs/en-de input.txt --to de")
    assert read_settings(tmp_path / "runs" / "en-de").data.directions == ("en-de", "de-en")


def test_what_is_wrong_with_directions_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    en, de = write_corpus(tmp_path)
    fr = str(tmp_path / "train.fr")
    Path(fr).write_bytes(Path(de).read_bytes())
    for arguments, complaint in (
        ([en, de, fr], "--directions en-de,en-fr,de-en,de-fr,fr-en,fr-de"),
        ([en, de, "--directions", "en-pt-BR"], "'en-pt-BR' is not a direction"),
        ([en, de, "--directions", "en-de,en-fr"], "no pairs for the direction en-fr"),
        ([en, de, fr, "--directions", "en-de"], "train.fr: none of the directions en-de"),
        ([en, de, "--directions", "en-de", "--source", "en"], "name one direction"),
        ([en, de, "--directions", "en-de", "--tokenizer.joint", "false", "--model.tie", "none"], "one vocabulary"),
    ):
        done = call(capsys, "train", *arguments, "-o", str(tmp_path / "new"), *TINY)
        assert (done.code, done.err.count("\n")) == (2, 1)
        assert complaint in done.err
        assert not (tmp_path / "new").exists()


def test_translating_takes_the_direction(
    capsys: pytest.CaptureFixture[str], both: Path, translator: Translator
) -> None:
    outputs = {}
    for flags, target in ((["--to", "de"], "de"), (["--from", "en", "--to", "fr"], "fr"), (["--from", "de"], "en")):
        done = call(capsys, "translate", str(both), *flags, "--scores", stdin=TEXT)
        assert (done.code, done.err) == (0, "")
        outputs[target] = done.out
        assert done.out == "".join(f"{t.score:.4f}\t{t.text}\n" for t in translator.translate(LINES, target=target))
    assert len(set(outputs.values())) == 3
    streamed = call(capsys, "translate", str(both), "--to", "fr", "--stream", stdin=TEXT)
    assert streamed == call(capsys, "translate", str(both), "--to", "fr", "--beam", "1", stdin=TEXT)


@pytest.mark.parametrize(
    ("flags", "complaint"),
    [
        ([], "choose one with target (--to): de or en or fr"),
        (["--from", "en"], "choose one with target (--to): de or fr"),
        (
            ["--from", "de", "--to", "fr"],
            "not trained on de-fr: it knows en-de, de-en, en-fr; to try it anyway, use zero_shot (--zero-shot)",
        ),
        (["--to", "es", "--zero-shot"], "cannot translate into es"),
    ],
)
def test_a_direction_that_is_not_known_is_a_line(
    capsys: pytest.CaptureFixture[str], both: Path, flags: list[str], complaint: str
) -> None:
    done = call(capsys, "translate", str(both), *flags, stdin=TEXT)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert complaint in done.err


def test_zero_shot_is_done_when_asked_for(capsys: pytest.CaptureFixture[str], both: Path) -> None:
    done = call(capsys, "translate", str(both), "--from", "de", "--to", "fr", "--zero-shot", stdin=TEXT)
    assert (done.code, done.err, done.out.count("\n")) == (0, "", 3)


def test_a_model_of_one_direction_refuses_another(capsys: pytest.CaptureFixture[str], model: str) -> None:
    right = call(capsys, "translate", model, "--from", "en", "--to", "de", stdin=TEXT)
    assert right == call(capsys, "translate", model, stdin=TEXT)
    wrong = call(capsys, "translate", model, "--to", "fr", stdin=TEXT)
    assert wrong.code == 2
    assert "only from en to de" in wrong.err


def test_one_direction_is_measured(capsys: pytest.CaptureFixture[str], both: Path, tmp_path: Path) -> None:
    files = write_corpus(tmp_path, "test", 6, seed=9)
    done = call(capsys, "evaluate", str(both), *files, "--from", "en", "--to", "de", "--resamples", "0", "--json")
    assert (done.code, done.err) == (0, "")
    assert len(json.loads(done.out)["scores"]) == 3
    turned = call(capsys, "evaluate", str(both), *files, "--to", "en", "--resamples", "0", "-o", str(tmp_path / "out"))
    assert turned.code == 0
    sources = Path(files[1]).read_text(encoding="utf-8").splitlines()  # the German file, though it comes second
    found = load_as(Translator, both, "cpu").translate(sources, target="en")
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == [t.text for t in found]
    done = call(capsys, "evaluate", str(both), *files)
    assert done.code == 2
    assert "--to" in done.err


def test_the_directions_are_described(capsys: pytest.CaptureFixture[str], both: Path) -> None:
    done = call(capsys, "info", str(both))
    assert done.out.startswith(f"{both}: translate en -> de, de -> en, en -> fr, preset tiny\n")


@pytest.mark.parametrize(("flags", "tag"), [([], "<de>"), (["--to", "fr"], "<fr>")])
def test_what_is_looked_at_has_its_tag(
    capsys: pytest.CaptureFixture[str], both: Path, translator: Translator, flags: list[str], tag: str, tmp_path: Path
) -> None:
    done = call(capsys, "look", str(both), "--text", LINES[0], *flags, "-o", str(tmp_path / "run.json"))
    assert (done.code, done.err) == (0, "")
    run = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    first = run["tokens"]["source"][0]
    assert (first["display"], first["special"], first["start"]) == (tag, True, None)
    assert run["text"] == translator(LINES[0], target=tag[1:-1])
    done = call(capsys, "look", str(both), "--text", LINES[0], "--to", "es", "-o", str(tmp_path / "no.json"))
    assert done.code == 2
    assert "cannot translate into es" in done.err
