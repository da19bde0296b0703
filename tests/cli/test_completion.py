"""Shells complete verbs and flags; whoever types nothing but the name is told what to do next."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.cli import build_parser, main
from regard.cli.welcome import find_models
from regard.errors import DataError, InputError, ModelError, RegardError, SettingsError
from tests.cli.running import call

ROOT = Path(__file__).parents[2]


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    done = call(capsys, "completion", shell)
    assert (done.code, done.err) == (0, "")
    return done.out


LINES = pytest.mark.parametrize(
    ("line", "some", "none"),
    [
        ("regard tra", {"train", "translate"}, {"write"}),
        ("regard ", {"train", "look", "completion"}, {"--model.width"}),
        ("regard train --model.w", {"--model.width"}, {"--training.steps"}),
        ("regard train --ta", {"--task"}, set()),
        ("regard train --task ", {"translate", "write", "fill", "classify"}, {"--task"}),
        ("regard train --preset ", {"tiny", "base"}, {"--preset"}),
        ("regard train --model.bias ", {"true", "false"}, {"relu"}),
        ("regard train --model.activation s", {"silu", "swiglu"}, {"relu"}),
        ("regard translate m --engine ", {"native", "auto"}, {"--engine"}),
        ("regard completion ", {"bash", "fish", "zsh"}, set()),
        ("regard bench s", {"serve"}, set()),
        ("regard bench serve --cl", {"--clients"}, {"serve"}),
        ("regard demo --model", set(), {"--model.width"}),
        ("regard translate a_f", {"a_file.txt"}, set()),
    ],
)


@LINES
def test_bash_completes(line: str, some: set[str], none: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    """Asked as bash asks: with the words of the line and the number of the one to complete."""
    words = line.split(" ")
    asked = f"COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}"
    program = asked + '; _shtab_regard; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "--norc", "-u"], input=script("bash", capsys) + program, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = set(done.stdout.split())
    assert some - {"a_file.txt"} <= found  # names of files come from bash itself: -o default
    assert not none & found


@LINES
@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not here")
def test_fish_completes(
    line: str, some: set[str], none: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Asked as fish's own tests ask: `complete -C` says what it would offer."""
    (tmp_path / "a_file.txt").touch()
    program = script("fish", capsys) + f"complete -C {line!r}\n"
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        ["fish", "--no-config"],
        input=program,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    found = {each.partition("\t")[0] for each in done.stdout.splitlines()}
    assert some <= found
    assert not none & found


READY = "autoload -U compinit; compinit -u -D; eval \"$(<script)\"; PROMPT='ne''xt: '\n"


def typed_into_zsh(line: str, folder: Path) -> str:
    """What a real zsh on a terminal shows when Ctrl-D follows the line: it lists what there is and inserts nothing."""
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(folder)
        os.execvpe("zsh", ["zsh", "-f", "-i"], {**os.environ, "TERM": "dumb", "COLUMNS": "160", "LINES": "99"})  # noqa: S606

    def until(end: str) -> str:
        shown = ""
        while end not in shown:
            assert select.select([terminal], [], [], 20)[0], shown
            shown += os.read(terminal, 65536).decode(errors="replace")
        return shown

    try:
        os.write(terminal, READY.encode())
        until("next: ")  # only now is what is typed read key by key
        os.write(terminal, f"{line}\x04\x15print do''ne\n".encode())  # list, empty the line, go on
        return until("done\r\n")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)


@LINES
@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not here")
def test_zsh_completes(
    line: str, some: set[str], none: set[str], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "a_file.txt").touch()
    (tmp_path / "script").write_text(script("zsh", capsys))
    shown = typed_into_zsh(line, tmp_path)
    rows = [row.partition(" -- ")[0] for row in shown.splitlines() if line not in row]
    found = {word for row in rows for word in row.split()}
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


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_verb_is_shown_with_its_short_help(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "find and remove faults in a corpus" in text
    assert "Checks the pairs of FILES" not in text


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
    assert find_models(Path("runs")) == [("runs/mine", "translate")]
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
