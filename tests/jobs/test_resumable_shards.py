"""Shards of lines: the same output from every executor, none made twice, none lost with its worker."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from regard.errors import DataError
from regard.jobs.resumable_shards import Executor, LinesDone, ResumableRun, ShardInput, ShardOutput, ThisProcess
from regard.jobs.worker_processes import WorkerProcesses, receive, send
from tests.jobs.small_work import Prefix

LINES = [f"line {number}" for number in range(23)]


def on_ray() -> Executor:
    from regard.jobs.ray_cluster import RayCluster

    return RayCluster("auto", 1)


needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
EXECUTORS = [ThisProcess, lambda: WorkerProcesses(2), pytest.param(on_ray, marks=[pytest.mark.slow, needs_ray])]


@pytest.fixture
def work(tmp_path: Path) -> Prefix:
    (tmp_path / "prefix").write_text("- ")
    return Prefix(path=str(tmp_path))


def make(folder: Path, work: Prefix, executor: Executor | None = None, lines: list[str] = LINES) -> ResumableRun:
    run = ResumableRun(folder, work, "txt")
    for _ in run.run(lines, 5, executor):
        pass
    return run


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_gives_the_same_lines_in_order(
    work: Prefix, tmp_path: Path, executor: Callable[[], Executor]
) -> None:
    run = make(tmp_path / "shards", work, executor())
    run.join(tmp_path / "out.txt")
    assert (tmp_path / "out.txt").read_text() == "".join(f"- {line}\n" for line in LINES)
    assert [shard.lines for shard in run.shards] == [5, 5, 5, 5, 3]
    here = {shard.about["process"] == os.getpid() for shard in run.shards}
    assert here == {executor is ThisProcess}


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_error_names_the_line_and_finished_shards_are_kept(
    work: Prefix, tmp_path: Path, executor: Callable[[], Executor]
) -> None:
    with pytest.raises(DataError, match=r"^in.txt:24: a line that cannot be used$"):
        make(tmp_path / "shards", work, executor(), [*LINES, "refused"])
    run = make(tmp_path / "shards", work, executor())
    assert run.reused
    assert len(run.shards) == 5


def test_progress_counts_lines_within_a_shard_and_of_earlier_runs(work: Prefix, tmp_path: Path) -> None:
    steps = list(ResumableRun(tmp_path / "shards", work, "txt").run(LINES[:7], 5))
    assert [step.done for step in steps] == [1, 2, 3, 4, 5, 5, 6, 7, 7, 7]
    steps = list(ResumableRun(tmp_path / "shards", work, "txt").run(LINES[:8], 5))
    assert steps == [LinesDone(6, 5), LinesDone(7, 5), LinesDone(8, 5), LinesDone(8, 5), LinesDone(8, 5)]


def test_only_shards_with_the_same_lines_settings_and_number_are_reused(work: Prefix, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    make(folder, work)
    assert make(folder, work).reused == {0, 1, 2, 3, 4}
    assert make(folder, work, lines=[*LINES[:6], "other", *LINES[7:]]).reused == {0, 2, 3, 4}
    assert make(folder, work, lines=[*LINES[5:10], *LINES[:5]]).reused == set()
    (tmp_path / "prefix").write_text("+ ")
    run = make(folder, Prefix(path=str(tmp_path)))
    assert (run.reused, run.damaged) == (set(), [])


def test_a_shard_that_was_not_finished_or_is_damaged_is_made_again(work: Prefix, tmp_path: Path) -> None:
    folder = tmp_path / "shards"
    whole = {path.name: path.read_bytes() for shard in make(folder, work).shards for path in [shard.path]}
    (folder / "00000.json").unlink()  # killed between the two files
    (folder / "00001.txt").write_text("- line")
    (folder / "00002.json").write_text(json.dumps({"key": "other"}))
    (folder / "00003.txt").unlink()
    run = make(folder, work)
    assert (run.reused, run.damaged) == ({4}, ["00001.txt", "00003.txt"])
    assert {path.name: path.read_bytes() for path in folder.glob("*.txt")} == whole


def test_nothing_is_started_if_nothing_is_missing(
    work: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(tmp_path / "shards", work)
    monkeypatch.setattr(Prefix, "start", None)
    assert make(tmp_path / "shards", work).reused == {0, 1, 2, 3, 4}


# Processes


def test_a_process_that_dies_is_replaced_and_its_shard_made_again(work: Prefix, tmp_path: Path) -> None:
    lines = [*LINES, f"killed once:{tmp_path / 'mark'}"]
    run = make(tmp_path / "shards", work, WorkerProcesses(2), lines)
    run.join(tmp_path / "out.txt")
    assert (tmp_path / "mark").exists()
    assert (tmp_path / "out.txt").read_text() == "".join(f"- {line}\n" for line in lines)


def test_a_process_that_is_killed_between_two_shards_is_replaced(work: Prefix, tmp_path: Path) -> None:
    workers = WorkerProcesses(1)

    def lines() -> Iterator[str]:
        for number, line in enumerate(LINES):
            yield line
            if number == 14:
                next(iter(workers.processes.values())).kill()

    run = ResumableRun(tmp_path / "shards", work, "txt")
    assert list(run.run(lines(), 5, workers))[-1].done == 23
    assert len({shard.about["process"] for shard in run.shards}) == 2


def test_a_process_that_died_between_two_jobs_leaves_nothing_open(work: Prefix) -> None:
    workers = WorkerProcesses(1)
    with closing(workers):
        first = workers.process(work)
        first.kill()
        first.wait()
        second = workers.process(work)
        assert second is not first
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdin.closed
        assert first.stdout.closed
        assert second.poll() is None


def test_a_shard_that_no_process_survives_is_named(work: Prefix, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"shard 4 \(lines 21 to 24\): its worker died 3 times \(exit code 7\)"):
        make(tmp_path / "shards", work, WorkerProcesses(1), [*LINES, "killed"])


def test_an_answer_that_is_cut_off_is_not_taken_for_a_shorter_one(tmp_path: Path) -> None:
    with (tmp_path / "pipe").open("wb") as file:
        send(file, {"about": {}}, b"abcdef")
    whole = (tmp_path / "pipe").read_bytes()
    for size in range(len(whole)):
        (tmp_path / "pipe").write_bytes(whole[:size])
        with (tmp_path / "pipe").open("rb") as file, pytest.raises(EOFError):
            receive(file)


# Ray


def test_a_machine_of_a_cluster_without_the_files_gets_copies(
    work: Prefix, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from regard.jobs.ray_cluster import ShardActor

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(get=lambda reference: reference))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shard = ShardInput(0, 1, b"a\n")
    assert ShardActor(work, []).work == work
    (tmp_path / "prefix").write_text("changed")
    about, data = ShardActor(work, [{"prefix": b"- "}]).make(shard)
    assert (data, set(about)) == (b"- a\n", {"about"})
    assert ShardOutput(data, about["about"])
