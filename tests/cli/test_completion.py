"""Shells complete verbs and flags; whoever types nothing but the name is told what to do next."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import build_parser, main
from regard.cli.start import trained
from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError

from .running import call

ROOT = Path(__file__).parents[2]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    done = call(capsys, "completion", shell)
    assert (done.code, done.err) == (0, "")
    return done.out


@pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("regard tra", {"train", "translate"}, {"write"}),
        ("regard ", {"train", "look", "completion", "--help"}, {"--model.width"}),
        ("regard train --model.w", {"--model.width"}, {"--training.steps"}),
        ("regard train --ta", {"--task"}, set()),
        ("regard translate m --engine ", {"native", "auto"}, {"--engine"}),
        ("regard completion ", {"bash", "fish", "zsh"}, set()),
        ("regard demo --model", set(), {"--model.width"}),
    ],
)
def test_bash_completes(line: str, some: set[str], none: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Asked as bash asks: with the words of the line and the number of the one to complete."""
    words = line.split(" ")
    asked = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}"
    program = asked + '; _regard; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-u"], input=script("bash", capsys) + program, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = set(done.stdout.split())
    assert some <= found
    assert not none & found


@pytest.mark.parametrize(("shell", "check"), [("bash", ["-n"]), ("zsh", ["-n"]), ("fish", ["--no-execute"])])
def test_every_verb_and_flag_is_in_the_script_of_each_shell(
    shell: str, check: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = script(shell, capsys)
    verbs = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    for name in verbs:
        assert name in text
        for flag in verbs[name]._option_string_actions:  # type: ignore[index]
            assert flag in text if shell != "fish" else flag.lstrip("-") in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        subprocess.run([shell, *check, str(tmp_path / "script")], check=True)


def test_an_unknown_shell_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    done = call(capsys, "completion", "tcsh")
    assert done.code == 2
    assert "tcsh" in done.err


def test_the_name_alone_tells_what_to_do_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str
) -> None:
    monkeypatch.chdir(tmp_path)
    first = call(capsys)
    assert first.code == 0
    assert "regard look " in first.out
    assert "You have trained" not in first.out
    shutil.copytree(model, "runs/mine")
    (tmp_path / "runs" / "half").mkdir()
    assert trained(Path("runs")) == [("runs/mine", "translate")]
    assert "regard translate runs/mine" in call(capsys).out


@pytest.mark.parametrize("kind", [SettingsError, DataError, ModelError, InputError, RegardError])
def test_an_error_names_a_page_that_there_is(kind: type[RegardError]) -> None:
    assert not kind.page or (ROOT / "docs" / kind.page).is_file()


def test_a_person_is_told_the_page_and_a_log_is_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert call(capsys, "info", "nothing").err.count("\n") == 1
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    assert main(["info", "nothing"]) == 2
    assert capsys.readouterr().err.splitlines()[1] == "  more about this: docs/model-folder.md"


def test_the_script_needs_no_torch() -> None:
    program = "import sys; from regard.cli import main; main(['completion', 'bash']); sys.exit('torch' in sys.modules)"
    environment = {**os.environ}
    subprocess.run([sys.executable, "-c", program], env=environment, stdout=subprocess.DEVNULL, check=True)
