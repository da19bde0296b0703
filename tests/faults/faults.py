"""Faults that disturb a run, and the comparison of its end with that of an undisturbed run."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.faults.victims import GIVEN, PLAIN, run, said, start
from tests.training import together
from tests.training.corpora import write_reversals

WEIGHTS = "weights.safetensors"


@dataclass(frozen=True)
class Outcome:
    """The result of one fault."""

    fault: str
    when: str
    continued: bool  # whether the run went on, or ended with one clear line and could be gone on with
    lost: int  # bytes of the final weights that are not those of the undisturbed run
    seconds: float  # from the fault to the end of the process


class Bench:
    """A folder in which runs are disturbed, and the ends of the undisturbed ones."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.root, self.dice, self.number = root, random.Random(seed), 0
        root.mkdir(parents=True, exist_ok=True)
        root.chmod(0o755)
        self.corpus = write_reversals(root, 300)
        self.ends: dict[str, Path] = {}

    def new(self) -> Path:
        self.number += 1
        return self.root / f"run-{self.number}"

    def end(self, kind: str) -> Path:
        """Returns the folder of an undisturbed run of one process, of one without dropout, or of two."""
        if kind not in self.ends:
            self.ends[kind] = self.prepared(2) if kind == "two" else self.new()
            if kind == "two":
                assert together.finish(together.start(self.ends[kind], 2)) == [0, 0]
            else:
                assert run(self.ends[kind], self.corpus, given=PLAIN if kind == "plain" else GIVEN) == 0
        return self.ends[kind]

    def prepared(self, _processes: int) -> Path:
        """Prepares a run without starting it."""
        from regard.preparation.train_and_resume import train

        if "prepared" not in self.ends:
            self.ends["prepared"] = self.new()
            list(train(self.corpus, self.ends["prepared"], overrides=GIVEN, prepare_only=True))
        folder = self.new()
        shutil.copytree(self.ends["prepared"], folder)
        return folder

    def lost(self, folder: Path, kind: str) -> int:
        """Returns the bytes of the weights that differ from those of the undisturbed run."""
        mine, right = (path / WEIGHTS for path in (folder, self.end(kind)))
        if kind == "plain":  # Adam makes steps of rounding where a gradient is nothing but that: losses are compared
            one, other = (losses(path) for path in (folder, self.end(kind)))
            return 4 * sum(abs(a - b) > 1e-4 for a, b in zip(one, other, strict=True))
        ours, theirs = mine.read_bytes(), right.read_bytes()
        return abs(len(ours) - len(theirs)) + sum(a != b for a, b in zip(ours, theirs, strict=False))

    def finished(self, folder: Path, fault: str, when: str, kind: str, seconds: float = 0.0) -> Outcome:
        """Resumes a disturbed run of one process to its end, and compares."""
        code = run(folder, self.corpus, given=PLAIN if kind == "plain" else GIVEN)
        return Outcome(fault, when, code == 0, self.lost(folder, kind), round(seconds, 2))


def losses(folder: Path) -> list[float]:
    """Returns the losses in the log of a run."""
    events = [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
    return [event["loss"] for event in events if event["event"] == "Progress"]


def killed_alone(bench: Bench, count: int) -> Iterator[Outcome]:
    """Sends SIGKILL at random moments until a run has ended; preparation is killed too."""
    bench.end("one")
    done, longest = 0, 1.5
    while done < count:
        folder, moments = bench.new(), list[str]()
        while done + len(moments) < count:
            process = start(folder, bench.corpus)
            moment = bench.dice.uniform(0.02, longest)
            began = time.monotonic()
            process.join(moment)
            if process.exitcode is not None:
                longest = max(0.3, min(longest, 1.5 * (time.monotonic() - began)))
                break
            process.kill()
            process.join()
            moments.append(f"after {moment:.2f} s, {stage(folder)}")
        if not moments:
            continue
        done += len(moments)
        last = bench.finished(folder, "SIGKILL, one process", "", "one")
        for when in moments:
            yield Outcome(last.fault, when, last.continued, last.lost, 0.0)
        shutil.rmtree(folder)


def stage(folder: Path) -> str:
    """Returns how far a run had come, from its files."""
    states = sorted((folder / "training").glob("state-*"))
    if states:
        return f"past step {int(states[-1].name[6:14])}"
    return "before the first state" if (folder / "training").exists() else "preparing"


def killed_together(bench: Bench, count: int) -> Iterator[Outcome]:
    """Kills one of two processes at random moments: the other ends by itself, and both continue."""
    bench.end("two")
    done, longest = 0, 4.0
    while done < count:
        folder, moments = bench.prepared(2), list[tuple[str, float]]()
        while done + len(moments) < count:
            processes = together.start(folder, 2)
            moment = bench.dice.uniform(0.05, longest)
            began = time.monotonic()
            processes[0].join(moment)
            if processes[0].exitcode is not None:
                longest = max(0.5, min(longest, 1.2 * (time.monotonic() - began)))
                break
            bench.dice.choice(processes).kill()
            killed = time.monotonic()
            together.finish(processes, 120)
            moments.append((f"after {moment:.2f} s, {stage(folder)}", time.monotonic() - killed))
        if not moments:
            continue
        done += len(moments)
        codes = together.finish(together.start(folder, 2))
        lost = bench.lost(folder, "two")
        for when, seconds in moments:
            yield Outcome("SIGKILL, one of two processes", when, codes == [0, 0], lost, round(seconds, 2))
        shutil.rmtree(folder)


def replaced(bench: Bench, count: int) -> Iterator[Outcome]:
    """Kills a worker of `regard train --processes 2`: a new one replaces it automatically."""
    yield from _with_launcher(
        bench, count, signal.SIGKILL, "SIGKILL of a worker of --processes 2", "A process was lost"
    )


def preempted(bench: Bench, count: int) -> Iterator[Outcome]:
    """Sends SIGTERM to a worker of `regard train --processes 2`, as before a machine is reclaimed."""
    message = "A process received a stop signal"
    yield from _with_launcher(bench, count, signal.SIGTERM, "SIGTERM to a worker of --processes 2", message)


def _with_launcher(bench: Bench, count: int, number: int, fault: str, message: str) -> Iterator[Outcome]:
    for _ in range(count):
        folder, step = bench.prepared(2), bench.dice.choice((8, 16))
        command = [sys.executable, "-m", "regard", "train", "--resume", str(folder), "--processes", "2"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            lines = []
            killed = 0.0
            for line in process.stdout:
                lines.append(line)
                if f"dev at step {step}:" in line and not killed:
                    os.kill(bench.dice.choice(_workers(process.pid)), number)
                    killed = time.monotonic()
        seconds = time.monotonic() - killed
        continued = process.returncode == 0 and any(line.startswith(message) for line in lines)
        yield Outcome(fault, f"after step {step}", continued, bench.lost(folder, "two"), round(seconds, 2))


def _workers(parent: int) -> list[int]:
    """Returns the processes that a launcher has started."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-f", "spawn_main"], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


def told_to_end(bench: Bench, count: int) -> Iterator[Outcome]:
    """Sends SIGTERM: the run is saved and ends within the 30 seconds of a scheduler."""
    for _ in range(count):
        folder = bench.new()
        process = start(folder, bench.corpus)
        moment = bench.dice.uniform(0.1, 1.0)
        process.join(moment)
        began = time.monotonic()
        process.terminate()
        process.join(30)
        seconds = time.monotonic() - began
        in_time = process.exitcode in (0, 130, -signal.SIGTERM)  # the last: before it could receive anything
        when = f"after {moment:.2f} s, {stage(folder)}"
        found = bench.finished(folder, "SIGTERM, 30 s of grace", when, "one", seconds)
        yield Outcome(found.fault, found.when, found.continued and in_time, found.lost, found.seconds)


def full_disk(bench: Bench, count: int) -> Iterator[Outcome]:
    """Limits the size of files: the run ends with one line, and continues when there is space again."""
    for _ in range(count):
        folder, share = bench.new(), bench.dice.uniform(0.01, 1.0)
        code = run(folder, bench.corpus, "no space", share)
        clear = code == 0 or (code == 2 and "\n" not in (said(folder).splitlines() or [""])[-1])
        found = bench.finished(folder, "disk full", f"at {share * 500_000:,.0f} bytes of a file", "one")
        yield Outcome(found.fault, found.when, found.continued and clear, found.lost, 0.0)


def read_only(bench: Bench, count: int) -> Iterator[Outcome]:
    """Makes the folder read-only: the run ends with one line, and continues when it can write again."""
    for _ in range(count):
        folder, moment = bench.new(), bench.dice.uniform(0.3, 1.0)
        process = start(folder, bench.corpus)
        process.join(moment)
        process.kill()
        process.join()
        folder.mkdir(exist_ok=True)
        when = f"after {moment:.2f} s, {stage(folder)}"
        modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
        for path, mode in modes.items():
            path.chmod(mode & ~0o222 | 0o055 * path.is_dir())
        code = run(folder, bench.corpus, "no rights")
        for path, mode in modes.items():
            path.chmod(mode)
        found = bench.finished(folder, "read-only folder", when, "one")
        yield Outcome(found.fault, found.when, found.continued and code == 2, found.lost, 0.0)


def damaged_state(bench: Bench, count: int) -> Iterator[Outcome]:
    """Damages the newest state: a message says so, and the run continues from the one before."""
    for number in range(count):
        folder = bench.new()
        shutil.copytree(bench.end("one"), folder)
        newest = max((folder / "training").glob("state-*"))
        data = bytearray(newest.read_bytes())
        place = bench.dice.randrange(8, len(data))
        if number % 2:
            del data[place:]
        else:
            data[place] ^= 1 << bench.dice.randrange(8)
        newest.write_bytes(data)
        log = folder / "log.jsonl"  # without its last line, the run has not finished and needs its state
        log.write_text("".join(log.read_text(encoding="utf-8").splitlines(keepends=True)[:-1]), encoding="utf-8")
        kind = "cut off" if number % 2 else "a bit flipped"
        found = bench.finished(folder, f"newest state: {kind}", f"at byte {place:,}", "one")
        reported = "continuing from step 16 instead" in said(folder)
        yield Outcome(found.fault, found.when, found.continued and reported, found.lost, 0.0)


def damaged_data(bench: Bench, count: int) -> Iterator[Outcome]:
    """Flips a bit of the tokens: the run refuses them in one line, and continues with the right bit."""
    from regard.errors import ModelError
    from regard.preparation.train_and_resume import resume, train

    text = bench.root / "text.txt"
    text.write_text("".join(f"the {i} cats and {i * i} dogs.\n" for i in range(200)))
    small = {"task": "write", "training.steps": 2, "training.batch_tokens": 200, "model.width": 16, "model.heads": 2}
    small |= {"model.decoder_layers": 1, "model.hidden": 32, "model.max_length": 24, "tokenizer.vocabulary": 320}
    right = bench.new()
    list(train([text], right, overrides=small, prepare_only=True))
    undisturbed = bench.new()
    shutil.copytree(right, undisturbed)
    list(resume(undisturbed))
    for _ in range(count):
        folder = bench.new()
        shutil.copytree(right, folder)
        path = folder / "training" / "train" / "tokens.bin"
        data = path.read_bytes()
        place = bench.dice.randrange(len(data))
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        try:
            list(resume(folder))
            refused = False
        except ModelError as error:
            refused = "damaged training data" in str(error)
        path.write_bytes(data)
        list(resume(folder))
        lost = sum(a != b for a, b in zip(*((f / WEIGHTS).read_bytes() for f in (folder, undisturbed)), strict=True))
        yield Outcome("data shard: a bit flipped", f"at byte {place:,}", refused, lost, 0.0)


def clock(bench: Bench, count: int) -> Iterator[Outcome]:
    """Makes the clocks jump back and forth."""
    for _ in range(count):
        folder, amount = bench.new(), bench.dice.uniform(0, 5)
        code = run(folder, bench.corpus, "clock", amount)
        yield Outcome("clock jump", "by a year, back and forth", code == 0, bench.lost(folder, "one"), 0.0)


def second_process(bench: Bench, count: int) -> Iterator[Outcome]:
    """Starts a second process in the same folder: it is refused, and the first continues."""
    for _ in range(count):
        folder = bench.new()
        first = start(folder, bench.corpus)
        while not (folder / "training.new").exists() and not (folder / "training").exists():
            time.sleep(0.01)
        code = run(folder, bench.corpus)
        refused = code == 2 and "another process is training here" in said(folder)
        first.join(300)
        yield Outcome("a second process", "", refused and first.exitcode == 0, bench.lost(folder, "one"), 0.0)


def out_of_memory(bench: Bench, count: int) -> Iterator[Outcome]:
    """Makes allocations fail: the batch is computed in parts, with one note for each halving."""
    for _ in range(count):
        folder, rows = bench.new(), bench.dice.choice((4, 8, 15))
        code = run(folder, bench.corpus, "no memory", rows, PLAIN)
        told = [line for line in said(folder).splitlines() if "not enough memory" in line]
        once = 1 <= len(told) == len(set(told))
        yield Outcome("out of memory", f"above {rows} rows", code == 0 and once, bench.lost(folder, "plain"), 0.0)


KINDS: dict[str, Callable[[Bench, int], Iterator[Outcome]]] = {
    "killed_alone": killed_alone,
    "killed_together": killed_together,
    "replaced": replaced,
    "preempted": preempted,
    "told_to_end": told_to_end,
    "full_disk": full_disk,
    "read_only": read_only,
    "damaged_state": damaged_state,
    "damaged_data": damaged_data,
    "clock": clock,
    "second_process": second_process,
    "out_of_memory": out_of_memory,
}


def table(outcomes: list[Outcome]) -> str:
    """Returns the results of all faults as Markdown."""
    lines = ["| fault | injected | runs that went on | bytes lost | longest end |", "|---|---:|---:|---:|---:|"]
    for name in dict.fromkeys(each.fault for each in outcomes):
        alike = [each for each in outcomes if each.fault == name]
        continued, lost = sum(each.continued for each in alike), sum(each.lost for each in alike)
        longest = max(each.seconds for each in alike)
        lines.append(f"| {name} | {len(alike)} | {continued} | {lost} | {f'{longest:.1f} s' if longest else ''} |")
    continued, lost = sum(each.continued for each in outcomes), sum(each.lost for each in outcomes)
    return "\n".join([*lines, f"| **all** | {len(outcomes)} | {continued} | {lost} | |"])


def read_log(path: Path) -> list[Outcome]:
    return [Outcome(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def line_of(outcome: Outcome) -> str:
    return json.dumps(asdict(outcome))
