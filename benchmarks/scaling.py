"""Compares several processes with one: speed of training, the cost of DDP, and the losses.

python benchmarks/scaling.py                two processes of one thread beside one process of two, in turns
python benchmarks/scaling.py --curves 200   losses of one, two and four processes over 200 updates, DDP and FSDP2
"""

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables

WARMUP = 5  # updates
SPLITS = {
    "one process, two threads": (1, 2),
    "two processes, one thread each": (2, 2),
    "one process, one thread": (1, 1),
}
"""Processes, and the threads that they share."""


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--steps", type=int, default=40, help="updates that are timed (40)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds, in turns (3)")
    parser.add_argument("--curves", type=int, default=0, metavar="STEPS", help="compare losses instead")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        table = (
            compare_losses(Path(folder), arguments.curves)
            if arguments.curves
            else measure_speed(Path(folder), arguments.steps, arguments.rounds)
        )
    records.publish(arguments.keep, "scaling", [table])


def compare_losses(folder: Path, steps: int) -> tables.Table:
    """Returns how far the losses of several processes are from those of one."""
    corpus = write_corpus(folder, 600, 9)
    one = [update["loss"] for update in train(corpus, "losses", steps, 1, 1, "ddp")]
    rows = []
    for kind in ("ddp", "fsdp"):
        for processes in (2, 4):
            found = [update["loss"] for update in train(corpus, "losses", steps, processes, processes, kind)]
            apart = max(abs(a - b) for a, b in zip(one, found, strict=True))
            rows.append({"way": kind, "processes": processes, "at most apart": f"{apart:.1e}"})
            print(rows[-1], flush=True)
    return tables.build(f"Losses beside those of one process, {steps} updates", rows)


def measure_speed(folder: Path, steps: int, rounds: int) -> tables.Table:
    """Returns the tokens a second of one process with two threads, of two with one each, and of one with one."""
    corpus = write_corpus(folder, 8000, 24)
    speeds: dict[str, list[float]] = {name: [] for name in SPLITS}
    for _ in range(rounds):
        for name, (processes, threads) in SPLITS.items():
            updates = train(corpus, "speed", WARMUP + steps, processes, threads, "ddp")[WARMUP:]
            speeds[name].append(statistics.harmonic_mean([update["tokens_per_second"] for update in updates]))
            print(f"{name}: {speeds[name][-1]:,.0f} tokens/s", flush=True)
    one, two, single = (statistics.median(speeds[name]) for name in SPLITS)
    note = (
        f"Two processes reach {two / one:.1%} of one with as many threads, and {two / (2 * single):.1%} of twice one "
        "thread, which has caches and memory to itself."
    )
    rows = [{"what": name, "tokens/s": tables.spread(found, 0)} for name, found in speeds.items()]
    return tables.build("Processes beside threads", rows, note)


def write_corpus(folder: Path, pairs: int, longest: int) -> list[Path]:
    """Writes generated words, and the same words in reverse order as their translation."""
    dice = random.Random(0)
    words = ["".join(dice.choices("aeioubcdfghklmnprstvwz", k=dice.randint(2, 9))) for _ in range(5000)]
    rows = [dice.choices(words, k=dice.randint(3, longest)) for _ in range(pairs)]
    files = [folder / "train.forth", folder / "train.back"]
    for file, lines in zip(files, (rows, [row[::-1] for row in rows]), strict=True):
        file.write_text("".join(" ".join(row) + "\n" for row in lines), encoding="utf-8")
    return files


def train(
    corpus: list[Path], model: str, steps: int, processes: int, threads: int, kind: str
) -> list[dict[str, float]]:
    """Trains in several processes that share some threads; returns the log of every update."""
    settings = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))[model]
    given = {"training.steps": steps, "training.parallel": kind, "training.threads": threads}
    for table, value in settings.items():
        given |= {f"{table}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {table: value}
    flags = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    folder = corpus[0].with_name("run")
    command = [sys.executable, "-m", "regard", "train", *map(str, corpus), "-o", str(folder), "--overwrite", *flags]
    environment = {**os.environ, "OMP_NUM_THREADS": str(max(1, threads // processes))}
    subprocess.run([*command, "--processes", str(processes)], check=True, capture_output=True, env=environment)
    lines = (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()
    return [event for event in map(json.loads, lines) if event["event"] == "Progress"]


if __name__ == "__main__":
    main()
