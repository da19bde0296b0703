"""Memory of preparing and training, against the size of the corpus: `python benchmarks/memory.py --pairs 2000000`.

Makes two corpora of invented words with a Zipf distribution, or of the pairs of two files (`--files one.en one.de`),
which come again and again, each time with another number at the end. Trains some steps on each in a process of its own,
and prints what each phase took: time, and the peak memory of all processes together, of which the system takes back
what is mapped of files when it needs room; then the peak of each process, as the system counts it. The large corpus
must not need much more than the small one.

`--copies 77` trains on the tokens of the large corpus so many times over: steps on very many pairs without their
preparation.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 60_000
DIFFERENT = 500_000
"""Invented pairs; from there on they come again."""
DEV = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2_000_000, help="size of the large corpus")
    parser.add_argument("--small", type=int, help="size of the small one (a twentieth; 0: none)")
    parser.add_argument("--copies", type=int, default=1, help="of the large one's tokens that are trained on (1)")
    parser.add_argument(
        "--files", nargs=2, type=Path, metavar="FILE", help="two files with a sentence a line to repeat"
    )
    parser.add_argument("--limit", type=float, default=1.5, help="GB that the large one may take")
    parser.add_argument("--steps", type=int, default=20, help="of training")
    parser.add_argument("--threads", type=int, help="of training, and processes that cut (all processors)")
    parser.add_argument(
        "--folder", type=Path, help="where corpora and runs are put meanwhile (that for temporary files)"
    )
    records.add_keep(parser)
    options = parser.parse_args()
    small = options.pairs // 20 if options.small is None else options.small
    rows: list[records.Row] = []
    for pairs, copies in [(small, 1)] * bool(small) + [(options.pairs, options.copies)]:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            files = write_corpus(Path(folder), pairs, options.files)
            size = sum(file.stat().st_size for file in files) / 2**20
            print(f"{pairs:,} pairs, {size:,.0f} MiB of text", flush=True)
            peak, phases = train(files, Path(folder) / "run", options.steps, options.threads, copies)
            rows += [{"pairs": pairs * copies, "text MiB": round(size), **phase.row()} for phase in phases]
    if options.keep:
        settings = {"steps": options.steps, "threads": options.threads, "copies": options.copies}
        title = f"{options.pairs * options.copies:,} pairs"
        records.keep("memory", [records.table(title, rows)], settings=settings)
    if peak > options.limit:
        sys.exit(f"more than {options.limit} GB")


def write_corpus(folder: Path, pairs: int, repeated: list[Path] | None) -> list[Path]:
    """So many pairs, and as dev set the first of them."""
    different = list(islice(read_pairs(repeated) if repeated else invent_pairs(), pairs))
    files = [folder / "train.en", folder / "train.xx"]
    with files[0].open("w", encoding="utf-8") as source, files[1].open("w", encoding="utf-8") as target:
        for start in range(0, pairs, len(different)):
            number = f" {start // len(different)}\n" if start else "\n"
            some = different[: pairs - start]
            source.writelines(left + number for left, _ in some)
            target.writelines(right + number for _, right in some)
    for side, file in enumerate(files):
        lines = [f"{pair[side]}\n" for pair in different[:DEV]]
        file.with_name(f"dev{file.suffix}").write_text("".join(lines), encoding="utf-8")
    return files


def read_pairs(files: list[Path]) -> Iterator[tuple[str, str]]:
    """The pairs of two files."""
    sides = [file.read_text(encoding="utf-8").removesuffix("\n").split("\n") for file in files]
    return zip(*sides, strict=True)


def invent_pairs() -> Iterator[tuple[str, str]]:
    """Sentences of 3 to 25 invented words, and as their translation the same words spelt backwards."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    for _ in range(0, DIFFERENT, 10_000):
        stream = iter(dice.choices(words, weights, k=10_000 * 25))
        for _ in range(10_000):
            sentence = [next(stream) for _ in range(dice.randint(3, 25))]
            yield " ".join(sentence), " ".join(word[::-1] for word in sentence)


def train(files: list[Path], output: Path, steps: int, threads: int | None, copies: int) -> tuple[float, list[Phase]]:
    """Trains, tells of every phase and process, and returns the GB that all held together at most, and the phases."""
    dev = [str(file.with_name(f"dev{file.suffix}")) for file in files]
    command = [sys.executable, "-m", "regard", "train"]
    given = [*map(str, files), "-o", str(output), "--preset", "tiny", "--dev", *dev]
    given += ["--training.subword_sampling", "0", *(["--training.threads", str(threads)] if threads else [])]
    if copies == 1:
        return watch([*command, *given, *length(steps)])
    before, preparing = watch([*command, *given, *length(1)])
    pairs = copy_shards(output / "training" / "train", copies)
    print(f"{pairs:,} pairs, the same {copies} times", flush=True)
    peak, phases = watch([*command, "--resume", str(output), *length(steps + 1)])
    return max(before, peak), preparing + phases


def length(steps: int) -> list[str]:
    return ["--training.steps", str(steps), "--training.evaluate_every", str(steps)]


def copy_shards(folder: Path, copies: int) -> int:
    """Makes a corpus larger by copies of its files; returns its pairs."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    shards = []
    for number in range(copies * len(about["shards"])):
        shard = about["shards"][number % len(about["shards"])]
        shards.append({**shard, "file": f"{number:05d}.bin"})
        if shard["file"] != shards[-1]["file"]:
            shutil.copyfile(folder / shard["file"], folder / shards[-1]["file"])
    about |= {"shards": shards, "pairs": copies * about["pairs"]}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return int(about["pairs"])


def watch(command: list[str]) -> tuple[float, list[Phase]]:
    """Runs a command, tells of it, and returns the GB that its processes held together at most, and its phases."""
    watched, phases = Watched(), []
    for phase in watched.phases(command):
        print(f"  {phase}", flush=True)
        phases.append(phase)
    for name, peak in watched.peaks.values():
        print(f"  peak of {name}: {peak:.2f} GB", flush=True)
    return watched.held, phases


@dataclass
class Phase:
    """What a command was doing, and what its processes held at most together."""

    name: str
    began: float
    seconds: float = 0.0
    held: float = 0.0  # GB
    mapped: float = 0.0  # GB of files

    def __str__(self) -> str:
        return f"{self.name:<24} {self.seconds:7.1f} s   {self.held:.2f} GB, and {self.mapped:.2f} GB of files"

    def row(self) -> records.Row:
        sizes = {"peak GB": round(self.held, 2), "mapped files, GB": round(self.mapped, 2)}
        return {"what": self.name, "seconds": round(self.seconds)} | sizes


@dataclass
class Watched:
    """A command whose memory is looked at five times a second."""

    peaks: dict[int, tuple[str, float]] = field(default_factory=dict)  # of each process, with what it does, in GB
    held: float = 0.0

    def phases(self, command: list[str]) -> Iterator[Phase]:
        """What it did, one after another, as its output tells."""
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = ["starting"]
            threading.Thread(target=follow, args=(process.stdout, told), daemon=True).start()
            now = Phase(told[0], time.monotonic())
            while process.poll() is None:
                if told[-1] != now.name:
                    yield now
                    now = Phase(told[-1], time.monotonic())
                held, mapped = self.look(process.pid)
                now.held, now.mapped = max(now.held, held), max(now.mapped, mapped)
                now.seconds, self.held = time.monotonic() - now.began, max(self.held, held)
                time.sleep(0.2)
            yield now
        if process.returncode:
            sys.exit("training failed")

    def look(self, root: int) -> tuple[float, float]:
        """What a process and those that it started hold, and what they have mapped of files, in GB."""
        parents, found = dict[int, int](), dict[int, dict[str, float]]()
        for path in Path("/proc").glob("[0-9]*/status"):
            with contextlib.suppress(OSError, KeyError, ValueError):
                lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
                pid = int(path.parent.name)
                parents[pid] = int(lines["PPid"])
                found[pid] = {
                    name: int(lines[name].split()[0]) * 1024 / 1e9 for name in ("RssAnon", "RssFile", "VmHWM")
                }
        ours = [pid for pid in found if root in ancestors(pid, parents)]
        for pid in ours:
            name = "the command" if pid == root else f"process {pid} that it started"
            self.peaks[pid] = name, found[pid]["VmHWM"]
        return sum(found[pid]["RssAnon"] for pid in ours), sum(found[pid]["RssFile"] for pid in ours)


def follow(lines: IO[str], told: list[str]) -> None:
    """Puts what is begun, by the lines of a training, at the end of `told`."""
    for line in lines:
        if line.endswith(" ...\n"):
            told.append(line.removesuffix(" ...\n"))
        elif line.startswith(("Training on", "Training from step")):
            told.append("steps")
        elif line.startswith("dev at step"):
            told.append("the last scores")


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    """A process, what started it, and so on."""
    line = []
    while pid in parents:
        line.append(pid)
        pid = parents[pid]
    return line


if __name__ == "__main__":
    main()
