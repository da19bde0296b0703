"""The code of a page, run from its first block to its last, in one folder, as a reader would type it.

A block in a fence named sh or python is run; other fences (text, toml, none) are not. Comments, which no reader sees,
change that:

    <!-- not run: why -->      before a block: it is left out
    <!-- runs on -->           before a block of one command that does not end: it is started, and ended after the page
    <!-- check: command -->    after a block: must succeed, where the page is run as it is written and not quickly

Run quickly, `regard train` gets flags that make a toy of the model (QUICK), the grammar is asked for fewer sentences,
and no process is started where a call will do.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
Kind = Literal["sh", "python", "check"]

PART = re.compile(
    r"^(?P<before>(?:<!-- (?:not run: [^\n]+|runs on) -->\n\s*)?)"
    r"^```(?P<language>sh|python)\n(?P<text>.*?)^```[^\S\n]*$"
    r"|^<!-- check: (?P<check>[^\n]+) -->$",
    re.MULTILINE | re.DOTALL,
)
TRAINING = "steps=3 warmup=1 evaluate_every=2 evaluate_pairs=4 batch_tokens=256 threads=1 device=cpu"
MODEL = "model.width=16 model.hidden=16 model.heads=2 tokenizer.vocabulary=400"
QUICK = [word for each in TRAINING.split() for word in ("--training." + each.split("=")[0], each.split("=")[1])]
AT_LEAST_ENDING = ["--training.steps", "120", "--training.learning_rate", "0.01", "--training.evaluate_every", "120"]
"""For a model whose translations are learnt from in turn: those that do not end are left out."""
QUICK_MODEL = [word for each in MODEL.split() for word in ("--" + each.split("=")[0], each.split("=")[1])]


@dataclass(frozen=True)
class Block:
    """Some code of a page, and the line on which it begins."""

    kind: Kind
    text: str
    line: int
    skipped: bool = False
    stays: bool = False  # does not end by itself


def blocks(markdown: str) -> list[Block]:
    """The code of a page, in its order."""
    found = []
    for match in PART.finditer(markdown):
        line = markdown[: match.start()].count("\n") + 1
        if match["check"]:
            found.append(Block("check", match["check"] + "\n", line))
            continue
        kind: Kind = "sh" if match["language"] == "sh" else "python"
        before = match["before"]
        found.append(
            Block(kind, match["text"], line + before.count("\n") + 1, "not run" in before, "runs on" in before)
        )
    return found


@dataclass
class Runner:
    """Runs blocks in a folder; Python blocks share their names."""

    folder: Path
    quick: bool
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.names["__name__"] = "page"
        self.running: list[subprocess.Popen[bytes]] = []
        tools = self.folder / ".tools"
        tools.mkdir(exist_ok=True)
        for name, words in (("regard", "-m regard"), ("python", "")):
            (tools / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {words} "$@"\n')
            (tools / name).chmod(0o755)
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "HOME": str(self.folder)}

    def page(self, path: Path, kinds: Sequence[Kind] = ("sh", "python", "check")) -> int:
        """Runs the blocks of these kinds on a page; returns how many it ran."""
        written = blocks(path.read_text(encoding="utf-8"))
        found = [block for block in written if block.kind in kinds and not block.skipped]
        with chdir(self.folder), quick_training() if self.quick else contextlib.nullcontext():
            try:
                for block in found:
                    self.block(block, path.name)
            finally:
                for process in self.running:
                    process.terminate()
                    process.communicate(timeout=120)
        return len(found)

    def block(self, block: Block, page: str) -> None:
        where = f"{page}:{block.line}"
        if block.kind == "python":
            with contextlib.redirect_stdout(io.StringIO()):
                exec(compile(smaller(block.text) if self.quick else block.text, where, "exec"), self.names)  # noqa: S102 - the page is ours
        elif block.stays:
            self.start(block.text, where)
        elif block.kind == "check" and self.quick:
            return
        else:
            for command in commands(block.text) if self.quick else [block.text]:
                self.command(command, where)

    def command(self, command: str, where: str) -> None:
        """Runs a command of the shell, or calls what it would."""
        if self.quick and (words := plain_call(command)) is not None:
            from regard.cli import main

            if words[0] in ("serve", "look") and "-o" not in words:
                return self.start(command, where)
            make_room(words)
            error = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(error):
                code = main(quickly(words))
            assert code == 0, f"{where}: {command}\n{error.getvalue()}"
            return None
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", command],
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{where}: {command}\n{done.stdout[-1000:]}{done.stderr[-2000:]}"
        return None

    def start(self, command: str, where: str) -> None:
        """Starts what does not end, and waits until it has said something."""
        words = [*shlex.split(command, comments=True), "--port", "0"]
        words += ["--no-browser"] if words[1] == "look" else []
        process = subprocess.Popen(words, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.running.append(process)
        assert process.stdout is not None
        assert process.stdout.readline(), f"{where}: {command} said nothing"
        time.sleep(0.2)
        assert process.poll() is None, f"{where}: {command} ended"


@contextlib.contextmanager
def chdir(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def commands(text: str) -> Iterator[str]:
    """The commands of a block, one at a time; lines that belong together, as in a here-document, stay so."""
    lines, end = [], ""
    for line in text.splitlines():
        lines.append(line)
        opened = re.search(r"<<'?(\w+)'?$", line)
        end = opened[1] if opened else "" if line == end else end
        if not end and not line.endswith("\\"):
            yield "\n".join(lines)
            lines = []
    assert not lines, text


def plain_call(command: str) -> list[str] | None:
    """The words after `regard`, if that is all that a command is."""
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.commenters = "#"
    words = list(lexer)
    plain = words[:1] == ["regard"] and not any(set(word) & set("|<>;&*?$") for word in words)
    return shlex.split(command, comments=True)[1:] if plain else None


def smaller(code: str) -> str:
    """Code that asks for thousands of sentences, and gets hundreds."""
    return re.sub(r"\btrain=\d+000\b", "train=400", code)


def make_room(words: list[str]) -> None:
    """Removes what a call would write: pages show several ways to make the same file."""
    for flag, name in pairwise(words):
        if flag == "-o" and words.count(name) == 1 and (found := Path(name)).exists():
            shutil.rmtree(found) if found.is_dir() else found.unlink()


def quickly(words: list[str]) -> list[str]:
    """A call whose training is over in a second."""
    if words[0] not in ("train", "distill") or "--resume" in words:
        return words
    anew = [] if "-o" in words else ["--overwrite"]
    longer = AT_LEAST_ENDING if "--back-translate" in words else []
    return [*words, *anew, *QUICK, *longer, *([] if "--from" in words else QUICK_MODEL)]


@contextlib.contextmanager
def quick_training() -> Iterator[None]:
    """While this is open, calls from Python train toys too, and replace what is there; resuming adds one update."""
    import regard

    flags = dict(zip([*QUICK, *QUICK_MODEL][::2], [*QUICK, *QUICK_MODEL][1::2], strict=True))
    toy = {flag.removeprefix("--"): value for flag, value in flags.items()}

    def quick(train: Callable[..., Any]) -> Callable[..., Any]:
        def call(*files: Any, overrides: Mapping[str, Any] | None = None, **options: Any) -> Any:
            return train(*files, overrides={**(overrides or {}), **toy}, overwrite=True, **options)

        return call

    calls: dict[str, Any] = {"train": quick(regard.train), "distill": quick(regard.distill)}
    again = partial(regard.resume, overrides={"training.steps": int(toy["training.steps"]) + 1})
    with patch.multiple(regard, create=True, resume=lambda folder, **_: again(folder), **calls):
        yield
