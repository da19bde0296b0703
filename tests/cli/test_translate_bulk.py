"""regard translate --cluster: the same lines as without it, whatever is killed."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cli.running import call, process

MODEL = Path(__file__).parents[2] / "src" / "regard" / "demo" / "glass_model"
PACKED = shutil.ignore_patterns("native")  # which another test may write just now
LINES = [f"{a} {b} {c}" for a in ("a cat", "the dog", "he") for b in ("sees", "likes") for c in ("me", "the bird")]
needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")


@pytest.fixture
def model(tmp_path: Path) -> str:
    return str(shutil.copytree(MODEL, tmp_path / "glass", ignore=PACKED))


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "in.txt"
    path.write_text("\n".join(LINES * 20) + "\n\nno line end")
    return path


def test_shards_give_what_one_process_gives(
    model: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alone, shards = tmp_path / "alone.txt", tmp_path / "shards.txt"
    assert call(capsys, "translate", model, str(source), "-o", str(alone)).code == 0
    flags = ["--cluster", "local", "--workers", "2", "--shard-lines", "60"]
    done = call(capsys, "translate", model, str(source), "-o", str(shards), *flags)
    assert (done.code, done.out, done.err) == (0, "", f"{shards}: 242 lines\n")
    assert shards.read_bytes() == alone.read_bytes()
    done = call(capsys, "translate", model, "-", "-o", str(shards), "--cluster", "local", "--json", stdin=b"he\nhe\n")
    assert [set(json.loads(line)) >= {"text", "score"} for line in shards.read_text().splitlines()] == [True, True]


def test_a_command_that_is_killed_goes_on_when_it_is_given_again(model: str, source: Path, tmp_path: Path) -> None:
    output = tmp_path / "out.txt"
    flags = ["translate", model, str(source), "-o", str(output), "--cluster", "local", "--shard-lines", "2"]
    running = subprocess.Popen([sys.executable, "-m", "regard", *flags])
    end = time.monotonic() + 300
    while len(list(tmp_path.glob("out.txt.shards/*.txt"))) < 3 and time.monotonic() < end:
        time.sleep(0.005)
    running.kill()
    running.wait()
    assert not output.exists()
    done = process(*flags)
    assert done.code == 0
    assert "of them translated before" in done.err
    assert process("translate", model, str(source)).out == output.read_text()


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--cluster", "local"], "--cluster needs an output file: add -o FILE"),
        (["--workers", "2"], "--workers works only with --cluster: add --cluster local"),
        (["--shard-lines", "9"], "--shard-lines works only with --cluster"),
        (["--cluster", "local", "-o", "x", "--stream"], "--stream cannot be combined with --cluster"),
        (["--cluster", "local", "-o", "x", "--glossary", "t.csv"], "--glossary cannot be combined with --cluster"),
        (["--cluster", "local", "-o", "x", "--alternatives", "2"], "use --alternatives with --json"),
        (["--cluster", "local", "-o", "x", "--beam", "0"], "beam"),
        (["--cluster", "local", "-o", "x", "--shard-lines", "0"], "must be a whole number of at least 1, not 0"),
        (["--cluster", "local", "-o", "x", "--to", "xx"], "this model translates only from en to fr"),
        (["a.po", "--cluster", "local", "-o", "x"], "translate documents without --cluster"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(
    flags: list[str], told: str, model: str, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    done = call(capsys, "translate", model, str(source), *flags)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert told in done.err


def test_without_ray_the_extra_is_named(
    model: str, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    done = call(capsys, "translate", model, str(source), "-o", str(tmp_path / "out.txt"), "--cluster", "auto")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "pip install 'regard[cluster]', or use --cluster local" in done.err


@pytest.mark.slow
@needs_ray
def test_ray_gives_the_same_after_an_engine_was_killed(model: str, source: Path, tmp_path: Path) -> None:
    """Two engines of a cluster of our own; one is killed when three shards of ninety are there."""
    output = tmp_path / "out.txt"
    source.write_text("\n".join(LINES * 150) + "\n")
    flags = ["translate", model, str(source), "-o", str(output), "--shard-lines", "20", "--beam", "8"]
    command = [sys.executable, "-m", "regard", *flags, "--cluster", "auto", "--workers", "2"]
    killed, found = 0, list[int]()
    environment = {**os.environ, "RAY_worker_niceness": "0"}  # beside other work, theirs would hardly be done
    with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as running, ended(running):
        while running.poll() is None and not killed:
            found = found or engines(running.pid)
            if found and len(list(tmp_path.glob("out.txt.shards/*.txt"))) >= 3:
                os.kill(found[0], signal.SIGKILL)
                killed = found[0]
            time.sleep(0.01)
        _, told = running.communicate(timeout=600)
    assert killed
    assert (running.returncode, told.decode().splitlines()[-1]) == (0, f"{output}: 1,800 lines")
    assert process("translate", model, str(source), "--beam", "8", "--threads", "1").out == output.read_text()


@contextmanager
def ended(running: subprocess.Popen[bytes]) -> Iterator[None]:
    """Whatever happens, no cluster is left behind."""
    try:
        yield
    finally:
        running.kill()


def engines(root: int) -> list[int]:
    """The processes of a cluster that have an engine in them, among those that this process started."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            name, pid = path.read_bytes(), int(path.parent.name)
        except OSError:
            continue
        if name.startswith(b"ray::ShardActor") and root in ancestors(pid):
            found.append(pid)
    return sorted(found)


def ancestors(pid: int) -> list[int]:
    line = []
    while pid > 1:
        line.append(pid)
        try:
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            return line
    return line
