"""A student by command: what it learns from, what it is measured on, and back-translation by command."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

import regard
from regard.model_folder import read_settings
from regard.preparation import synthetic_pairs as synthetic
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Examples
from regard.training.events import Stage
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call
from tests.training.fakes import Turning

BRIEF = [*TINY, "--training.steps", "1"]


@pytest.fixture
def turning(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fake does the teacher's work."""
    monkeypatch.setattr(synthetic, "load_as", lambda *_: Turning())


def turned(text: str) -> str:
    return " ".join(reversed(text.split()))


def learnt(folder: Path) -> set[tuple[str, str]]:
    """The pairs that a model was trained on."""
    examples, vocabularies = Examples(folder / "training" / "train"), Vocabularies.load(folder / "tokenizer.json")
    pairs = (examples.pair(row) for row in range(len(examples)))
    return {(vocabularies.source.decode(s.tolist()), vocabularies.target.decode(t.tolist())) for s, t in pairs}


@pytest.mark.usefixtures("turning")
def test_a_student_learns_what_its_teacher_says(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    files, folder = write_corpus(tmp_path), tmp_path / "student"
    done = call(capsys, "distill", model, *files, "-o", str(folder), *BRIEF)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "to be translated: 120 pairs read, 120 kept" in lines
    assert "translating by en → de ..." in lines
    assert "synthetic: 120 sentences translated, 120 kept" in lines
    assert "synthetic: 12 pairs left out: in the dev or test set" in lines
    assert lines[-1].endswith(f"Use it with: regard translate {folder} input.txt")

    settings = read_settings(folder)
    assert (settings.data.source, settings.data.target, settings.tokenizer.tags) == ("en", "de", ())
    sources, targets = (Path(name).read_text(encoding="utf-8").splitlines() for name in files)
    written = (folder / "training" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    dev = [(pair["source"], pair["target"]) for pair in map(json.loads, written)]
    assert len(dev) == 12
    assert set(dev) <= set(zip(sources, targets, strict=True))  # as people wrote it
    held = {source for source, _ in dev}
    assert learnt(folder) == {(source, turned(source)) for source in sources if source not in held}
    assert f"108 synthetic pairs: the sources as translated by {Path(model).name}" in (folder / "card.md").read_text()
    assert isinstance(regard.load(folder)("a dog"), str)


@pytest.mark.usefixtures("turning")
def test_a_text_alone_will_do(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    source, _ = write_corpus(tmp_path)
    done = call(capsys, "distill", model, source, "-o", str(tmp_path / "student"), *BRIEF)
    assert (done.code, done.err) == (0, "")
    assert "to be translated: 120 sentences read, 120 kept" in done.out
    assert "dev: its targets are the teacher's, so scores measure similarity to the teacher: see --dev" in done.out
    assert len(learnt(tmp_path / "student")) > 90


@pytest.mark.usefixtures("turning")
def test_a_dev_set_of_pairs_stays_real_beside_a_text(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    source, _ = write_corpus(tmp_path)
    known = Path(source).read_text(encoding="utf-8").splitlines()[7]
    (tmp_path / "dev.tsv").write_text(f"{known}\twie es ist\nnew\tneu\n", encoding="utf-8")
    done = call(
        capsys, "distill", model, source, "--dev", str(tmp_path / "dev.tsv"), "-o", str(tmp_path / "student"), *BRIEF
    )
    assert (done.code, done.err) == (0, "")
    assert "too optimistic" not in done.out
    assert "similarity to the teacher" not in done.out
    assert known not in {source for source, _ in learnt(tmp_path / "student")}


@pytest.mark.usefixtures("turning")
def test_a_student_that_was_interrupted_goes_on(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    source, _ = write_corpus(tmp_path)
    folders, stop = [tmp_path / name for name in ("undisturbed", "interrupted")], threading.Event()
    overrides = {flag.removeprefix("--"): value for flag, value in zip(BRIEF[::2], BRIEF[1::2], strict=True)}
    list(regard.distill(model, [source], folders[0], overrides=overrides))
    for event in regard.distill(model, [source], folders[1], overrides=overrides, stop=stop):
        if isinstance(event, Stage) and event.name.startswith("translating"):
            stop.set()
    done = call(capsys, "train", "--resume", str(folders[1]))
    assert (done.code, done.err) == (0, "")
    assert "synthetic: 120 sentences translated, 120 kept" in done.out
    one, other = ((folder / "weights.safetensors").read_bytes() for folder in folders)
    assert one == other


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "pass the text that the teacher translates"),
        (["train.en"], "specify the folder for the student: -o FOLDER"),
        (["nowhere.en", "-o", "new"], "nowhere.en: cannot be read"),
        (["train.en", "-o", "new", "--preset", "modern"], "there is no preset modern for translate"),
        (["train.en", "-o", "new", "--model.widht", "3"], "did you mean --model.width?"),
        (["train.en", "-o", "new", "--training.adapters", "3"], "a student is trained from scratch"),
    ],
)
def test_mistakes_are_a_line(
    capsys: pytest.CaptureFixture[str],
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    told: str,
) -> None:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = call(capsys, "distill", model, *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "new").exists()


@pytest.mark.usefixtures("turning")
def test_back_translation_by_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files, (_, mono) = write_corpus(tmp_path), write_corpus(tmp_path, "mono", pairs=30, seed=4)
    folder = tmp_path / "new"
    done = call(capsys, "train", *files, "--back-translate", mono, "-o", str(folder), *BRIEF)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    first = lines.index("First step: train the model that translates back, de → en.")
    second = lines.index("translating back by de → en ...")
    assert first < second < lines.index("synthetic: 30 sentences translated, 30 kept")
    assert sum(line.startswith("Training on") for line in lines) == 2
    refused = call(capsys, "train", "--resume", str(folder), "--back-translate", mono)
    assert (refused.code, "--resume reads all other settings from FOLDER" in refused.err) == (2, True)
