"""Training by command: what it tells, what it replaces, and how it can be stopped."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import regard
from regard.model_folder import read_settings
from tests.cli.conftest import TINY, write_corpus
from tests.cli.running import call, tree

BRIEF = [*TINY, "--training.steps", "1"]


def test_a_run_tells_its_course(trained: tuple[Path, str]) -> None:
    folder, printed = trained
    lines = printed.splitlines()
    assert lines[:3] == ["reading ...", "train: 120 pairs read, 120 kept", "splitting off a dev set ..."]
    assert "dev: 12 pairs held out; none of their sources is in the rest" in lines
    assert "Preset tiny: 108 pairs are fewer than 50,000." in lines
    assert any(
        re.match(r"Training on 108 pairs \(12 held out as dev set\): [\d,]+ parameters, ", line) for line in lines
    )
    assert [line.split(":")[0] for line in lines if line.startswith("dev at")] == ["dev at step 10", "dev at step 20"]
    assert re.search(r"^dev  BLEU [\d.]+ \(nrefs:1", printed, re.MULTILINE)
    assert re.search(r"^Training ended after \d+ s: all 20 steps are done\.$", printed, re.MULTILINE)
    assert (
        lines[-1]
        == f"The model is in {folder} (read {folder / 'card.md'}). Use it with: regard translate {folder} input.txt"
    )
    assert not any(line != line.rstrip() or "\x1b" in line for line in lines)


def test_a_run_leaves_a_whole_folder(trained: tuple[Path, str]) -> None:
    folder, _ = trained
    names = {
        "model.toml",
        "weights.safetensors",
        "tokenizer.json",
        "card.md",
        "canary.json",
        "confidence.json",
        "log.jsonl",
        "manifest.json",
        "training",
    }
    assert {path.name for path in folder.iterdir()} - {"native"} == names  # which another test may have used already
    assert read_settings(folder).data.source == "en"
    assert isinstance(regard.load(folder)("a dog sees me 5."), str)


def test_languages_and_folder_come_from_the_names_of_the_files(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = call(capsys, "train", "train.en", "train.de", "--target", "nds", *BRIEF)
    assert (done.code, done.err) == (0, "")
    data = read_settings(tmp_path / "runs" / "en-nds").data
    assert (data.source, data.target) == ("en", "nds")


def test_flags_go_before_the_file_and_the_file_before_the_preset(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "my.toml").write_text('[data]\nsource = "xx"\n[model]\nhidden = 48\nheads = 1\n[decoding]\nbeam = 2\n')
    command = ["train", *write_corpus(tmp_path), "-o", str(tmp_path / "new"), "--settings", str(tmp_path / "my.toml")]
    small = [flag for pair in zip(BRIEF[::2], BRIEF[1::2], strict=True) if pair[0] != "--model.hidden" for flag in pair]
    assert call(capsys, *command, "--preset", "small", *small).code == 0
    settings = read_settings(tmp_path / "new")
    assert (settings.data.source, settings.data.target, settings.decoding.beam) == ("xx", "de", 2)
    assert (settings.model.hidden, settings.model.heads, settings.preset) == (48, 2, "small")


def test_what_is_wrong_with_a_corpus_is_told_with_its_place(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path)
    with Path(source).open("a") as en, Path(target).open("a") as de:
        for left, right in [("", "leer"), ("bell\a", "Glocke"), ("long " * 500, "lang"), (" ", "leer")]:
            en.write(left + "\n")
            de.write(right + "\n")
    dev = [tmp_path / "dev.en", tmp_path / "dev.de"]
    known, other = Path(source).read_text().splitlines()[4], "a new sentence."
    dev[0].write_text(f"{other}\n{known}\n")
    dev[1].write_text("neu\nbekannt\n")
    done = call(
        capsys, "train", source, target, "--dev", *map(str, dev), "--test", *map(str, dev), "-o", str(tmp_path / "new"),
        *BRIEF,
    )  # fmt: skip
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert "train: 124 pairs read, 120 kept" in lines
    assert f"train: 2 left out: one side or both are empty ({source}:121, {source}:124)" in lines
    assert f"train: 1 left out: control characters in the text ({source}:122)" in lines
    assert f"train: 1 left out: a side is longer than data.max_characters ({source}:123)" in lines
    for name in ("dev", "test"):
        place = f"({dev[0]}:2 is {source}:5)"
        assert f"{name}: 1 of 2 {name} sources are also in train, so scores will be too optimistic {place}" in lines
    assert re.search(r"^test  BLEU ", done.out, re.MULTILINE)


def test_overwriting_replaces_the_model(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    before = tree(folder)
    files = write_corpus(tmp_path, seed=5)
    done = call(capsys, "train", *files, "-o", str(folder), "--overwrite", *BRIEF)
    assert (done.code, done.err) == (0, "")
    after = tree(folder)
    assert before["weights.safetensors"] != after["weights.safetensors"]
    assert after["card.md"] is not None
    assert b"1 steps in" in after["card.md"]
    assert not [name for name in after if "step-00000020" in name or name.startswith("training.new")]
    assert isinstance(regard.load(folder)("a dog"), str)


def test_a_finished_run_can_be_lengthened(capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    done = call(capsys, "train", "--resume", str(folder), "--training.steps", "22", "--device", "cpu")
    assert (done.code, done.err) == (0, "")
    assert "Training from step 20 on 108 pairs" in done.out
    assert "dev at step 22" in done.out
    assert read_settings(folder).training.steps == 22


@pytest.mark.parametrize("more", [[], ["--processes", "2"], ["--training.steps", "20"]])
def test_resuming_a_finished_run_says_so_and_changes_nothing(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path, more: list[str]
) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    before = tree(folder), [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))]
    done = call(capsys, "train", "--resume", str(folder), *more)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"{folder}: training is finished: all 20 steps are done. Nothing was changed. ")
    assert "resume with --training.steps above 20, or start a new run from this model: regard train FILES" in done.out
    assert "Training from step" not in done.out
    assert (tree(folder), [path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))]) == before


def test_ctrl_c_saves_and_resume_goes_on(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    files, folder = write_corpus(tmp_path), tmp_path / "new"
    endless = [*TINY, "--training.steps", "1000000", "--training.evaluate_every", "2000"]
    command = [sys.executable, "-m", "regard", "train", *files, "-o", str(folder), *endless]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        for line in running.stdout:
            if line.startswith("Training on"):
                break
        while running.poll() is None and not (folder / "log.jsonl").exists():
            time.sleep(0.01)  # until steps are done, which are noted ten times between two evaluations
        running.send_signal(signal.SIGINT)
        said, complained = running.communicate(timeout=300)
    assert (running.returncode, complained) == (130, "")
    last = said.splitlines()[-1]  # on a busy machine it may have told how far it was before
    stopped = re.fullmatch(
        rf"Stopped at step ([\d,]+); the run is saved. Continue with: regard train --resume {folder}", last
    )
    assert stopped
    step = int(stopped[1].replace(",", ""))
    assert step > 0
    assert isinstance(regard.load(folder)("a dog"), str)

    done = call(capsys, "train", "--resume", str(folder), "--training.steps", str(step + 3))
    assert (done.code, done.err) == (0, "")
    assert f"Training from step {step:,} on 108 pairs" in done.out
    assert f"all {step + 3:,} steps are done" in done.out
    logged = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert [event["step"] for event in logged if event["event"] == "Finished"] == [step + 3]


# A full disk

LIMITED = """
import resource, sys
from regard.cli import main
limit = int(sys.argv[1])
sys.dont_write_bytecode = True  # Python would leave cut-off files that the next process cannot read
resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
sys.exit(main(sys.argv[2:]))
"""


def limited(size: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    """The command where no file may become larger than `size` bytes."""
    command = [sys.executable, "-c", LIMITED, str(size), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_no_room_for_the_weights(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    done = limited(30_000, "train", *write_corpus(tmp_path), "-o", str(folder), *TINY)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "step-00000010.safetensors: cannot be written (" in done.stderr
    assert "File too large" in done.stderr
    assert not [name for name in tree(folder) if name.endswith((".safetensors", ".new"))]


def test_no_room_to_prepare_leaves_the_old_model(model: str, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(model, tmp_path / "model"))
    before = tree(folder)
    done = limited(3_000, "train", *write_corpus(tmp_path, seed=5), "-o", str(folder), "--overwrite", *TINY)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "tokenizer.json: cannot be written (File too large)" in done.stderr
    assert tree(folder) == before


@pytest.mark.parametrize("size", [20, 60, 100, 200])
def test_a_full_disk_is_a_line(capsys: pytest.CaptureFixture[str], tmp_path: Path, size: int) -> None:
    """However far it comes: with so many kilobytes it fails at another file each time."""
    files = write_corpus(tmp_path)
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}k", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode:
        pytest.skip("only root can make a small disk")
    try:
        done = call(capsys, "train", *files, "-o", str(disk / "new"), *TINY)
        assert done.code == 2
        assert done.err.count("\n") == 1
        assert "the disk is full: free some space and try again" in done.err
        assert not [name for name in tree(disk) if name.endswith(".new")]
        weights = disk / "new" / "weights.safetensors"
        assert not weights.exists() or isinstance(regard.load(disk / "new")("a dog"), str)
    finally:
        subprocess.run(["umount", "--lazy", str(disk)], check=True)
