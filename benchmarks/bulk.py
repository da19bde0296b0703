"""Very many lines in shards, and a worker killed in the middle: `python benchmarks/bulk.py --lines 100000`.

Translates invented sentences with the small model that comes with the package: in one process, in two processes of this
machine, and by two engines on a Ray cluster (pip install 'regard[cluster]'), of which one is killed when half of the
shards are there. All outputs must be the same, byte by byte.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

import regard
from benchmarks import records
from regard.demo.train_glass_model import generate_glass_splits

MODEL = Path(regard.__file__).parent / "demo" / "glass_model"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--shard-lines", type=int, default=2000)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--ways", default="alone,local,auto", help="which to measure")
    records.add_keep(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = shutil.copytree(MODEL, folder / "glass")
        write_lines(folder / "in.txt", options.lines)
        command = [sys.executable, "-m", "regard", "translate", str(model), str(folder / "in.txt")]
        command += ["--beam", str(options.beam), "--threads", "1"]
        outputs, rows = [], []
        for way in options.ways.split(","):
            output = folder / f"{way}.txt"
            flags = ["--cluster", way, "--workers", "2", "--shard-lines", str(options.shard_lines)]
            half = options.lines // options.shard_lines // 2
            seconds, killed = run([*command, "-o", str(output), *(flags if way != "alone" else [])], output, way, half)
            outputs.append(output.read_bytes())
            same = "the same" if outputs[-1] == outputs[0] else "DIFFERENT"
            speed = {"seconds": round(seconds, 1), "lines/s": round(options.lines / seconds)}
            rows.append({"way": way, **speed, "output": same, "workers killed": killed})
            print(
                f"{way:>6}: {seconds:.1f} s, {options.lines / seconds:,.0f} lines/s, "
                f"{outputs[-1].count(bytes([10])):,} lines, {same}, killed: {killed}",
                flush=True,
            )
    if options.keep:
        bars = {"names": ["way"], "values": ["lines/s"], "unit": "lines a second: longer is better"}
        records.keep("bulk", [records.table(f"{options.lines:,} sentences", rows, "", bars)])
    if any(output != outputs[0] for output in outputs):
        sys.exit("the outputs differ")


def write_lines(path: Path, count: int) -> None:
    """Sentences that the model knows, again and again."""
    sources = [sentence.source for sentence in generate_glass_splits().train]
    path.write_text("".join(f"{sources[i % len(sources)]}\n" for i in range(count)), encoding="utf-8")


def run(command: list[str], output: Path, way: str, half: int) -> tuple[float, int]:
    """Seconds that a command takes, and how many of its workers were killed when half of the shards were there."""
    began, killed = time.monotonic(), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    shards = output.with_name(f"{output.name}.shards")
    while process.poll() is None:
        time.sleep(0.02)
        if way == "alone" or killed or len(list(shards.glob("*.txt"))) < half:
            continue
        for pid in workers(process.pid, way)[:1]:
            os.kill(pid, signal.SIGKILL)
            killed += 1
    if process.returncode:
        sys.exit(f"{way} failed")
    return time.monotonic() - began, killed


def workers(root: int, way: str) -> list[int]:
    """The processes below `root` that translate."""
    mark = b"regard.jobs.bulk_translation" if way == "local" else b"ray::ShardActor"
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if mark in path.read_bytes() and root in ancestors(pid := int(path.parent.name)):
                found.append(pid)
        except OSError:
            continue
    return sorted(found)


def ancestors(pid: int) -> list[int]:
    """A process, what started it, and so on."""
    line = []
    while pid > 1:
        line.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return line


if __name__ == "__main__":
    main()
