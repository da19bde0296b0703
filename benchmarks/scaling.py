"""Several processes beside one: tokens a second of training, what DDP costs, and whether they compute the same.

python benchmarks/scaling.py                two processes of one thread beside one process of two, in turns
python benchmarks/scaling.py --curves 200   losses of one, two and four processes over so many updates, DDP and FSDP2
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records
from regard.preparation.train_and_resume import train

SHAPE: dict[str, Any] = {
    "preset": "tiny",  # 4 + 4 layers, width 128, as for Multi30k; Adam, as it was measured
    "training.optimizer": "adam",
    "training.precision": "float32",
    "training.subword_sampling": 0.0,
    "training.batch_tokens": 4096,
    "training.evaluate_pairs": 1,
    "training.average": 1,
    "training.patience": 0,
}
TOY: dict[str, Any] = {
    "tokenizer.vocabulary": 300,
    "model.width": 32,
    "model.heads": 2,
    "model.hidden": 64,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.max_length": 32,
    "model.dropout": 0.0,
    "training.optimizer": "adam",
    "training.precision": "float32",
    "training.batch_tokens": 256,
    "training.evaluate_pairs": 1,
    "training.average": 1,
    "training.patience": 0,
    "training.threads": 1,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=40, help="updates that are timed (40)")
    parser.add_argument("--rounds", type=int, default=3, help="of each, in turns (3)")
    parser.add_argument("--curves", type=int, default=0, metavar="STEPS", help="compare losses instead")
    records.add_keep(parser)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        work(Path(arguments.worker[0]), int(arguments.worker[1]))
        return
    with tempfile.TemporaryDirectory() as root:
        if arguments.curves:
            table = compare(Path(root), arguments.curves)
        else:
            table = measure(Path(root), arguments.steps, arguments.rounds)
    if arguments.keep:
        records.keep("scaling", [table])


def compare(root: Path, steps: int) -> records.Record:
    """How far the losses of several processes are from those of one."""
    given = {**TOY, "training.steps": steps, "training.evaluate_every": steps}
    prepared = prepare(root, given, 600, 9)
    one = [event["loss"] for event in go(prepared, root, 1, "ddp", 0)]
    print(f"one process: {len(one)} updates, loss {one[0]:.4f} at first and {one[-1]:.4f} at last")
    rows = []
    for kind in ("ddp", "fsdp"):
        for processes in (2, 4):
            found = [event["loss"] for event in go(prepared, root, processes, kind, 0)]
            apart = max(abs(a - b) for a, b in zip(one, found, strict=True))
            rows.append({"way": kind, "processes": processes, "at most apart": f"{apart:.1e}"})
            print(f"{kind}, {processes} processes: at most {apart:.1e} from one process over {len(found)} updates")
    return records.table(f"Losses beside those of one process, {steps} updates", rows)


def measure(root: Path, steps: int, rounds: int) -> records.Record:
    """Tokens a second of one process with two threads, of two with one each, and of one with one."""
    warmup = 5
    given = {**SHAPE, "training.steps": warmup + steps, "training.evaluate_every": warmup + steps}
    prepared = prepare(root, given, 8000, 24)
    kinds = {
        "one process, two threads": (1, 2),
        "two processes, one thread each": (2, 2),
        "one process, one thread": (1, 1),
    }
    speeds: dict[str, list[float]] = {name: [] for name in kinds}
    for _ in range(rounds):
        for name, (processes, threads) in kinds.items():
            events = go(prepared, root, processes, "ddp", threads)
            first, last = events[warmup - 1], events[-1]
            speeds[name].append((last["tokens"] - first["tokens"]) / (last["time"] - first["time"]))
    middle = {name: statistics.median(found) for name, found in speeds.items()}
    for name, found in speeds.items():
        print(f"{name}: {middle[name]:,.0f} target tokens/s ({', '.join(f'{speed:,.0f}' for speed in found)})")
    one, two, single = (middle[name] for name in kinds)
    print(f"two processes reach {two / one:.1%} of one process with as many threads")
    print(f"and {two / (2 * single):.1%} of twice one process of one thread, which has caches and memory to itself:")
    print(f"DDP and sharing the machine cost {1 - two / (2 * single):.1%}")
    rows = [{"what": name, "target tokens/s": records.spread(found, 0)} for name, found in speeds.items()]
    shares = f"{two / one:.1%} of one with as many threads, and {two / (2 * single):.1%} of twice one thread"
    note = f"Two processes reach {shares}."
    return records.table("Processes beside threads", rows, note)


def prepare(root: Path, given: dict[str, Any], pairs: int, longest: int) -> Path:
    """A run that is prepared: words, and the same words backwards."""
    dice = random.Random(0)
    words = ["".join(dice.choices("aeioubcdfghklmnprstvwz", k=dice.randint(2, 9))) for _ in range(5000)]
    rows = [dice.choices(words, k=dice.randint(3, longest)) for _ in range(pairs)]
    for name, lines in (("train.forth", rows), ("train.back", [row[::-1] for row in rows])):
        (root / name).write_text("".join(" ".join(row) + "\n" for row in lines))
    folder = root / "prepared"
    list(train([root / "train.forth", root / "train.back"], folder, overrides=given, prepare_only=True))
    return folder


def go(prepared: Path, root: Path, processes: int, kind: str, threads: int) -> list[dict[str, float]]:
    """Trains a copy in so many processes; what each update was."""
    folder = root / "run"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(prepared, folder)
    text = (folder / "model.toml").read_text(encoding="utf-8").replace('parallel = "ddp"', f'parallel = "{kind}"')
    (folder / "model.toml").write_text(text, encoding="utf-8")
    command = [sys.executable, __file__, "--worker", str(folder), str(threads)]
    if processes > 1:
        torchrun = ["-m", "torch.distributed.run", "--nproc-per-node", str(processes), "--standalone"]
        command[1:1] = torchrun
    subprocess.run(
        command, check=True, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": str(max(1, threads))}
    )
    found: list[dict[str, float]] = json.loads((folder / "updates.json").read_text())
    return found


def work(folder: Path, threads: int) -> None:
    """One process: trains, and notes every update."""
    from regard.preparation import train_and_resume as trainer
    from regard.preparation.train_and_resume import resume
    from regard.training.events import Progress
    from regard.training.run import TrainingRun

    runs: list[TrainingRun] = []
    open_run = vars(trainer)["open_run"]

    def opened(*arguments: Any) -> TrainingRun:
        runs.append(open_run(*arguments))
        return runs[-1]

    vars(trainer)["open_run"] = opened
    events = resume(folder, overrides={"training.threads": threads} if threads else None)
    notes = [
        {"loss": event.loss, "tokens": runs[0].state.tokens, "time": time.perf_counter()}
        for event in events
        if isinstance(event, Progress)
    ]
    if os.environ.get("RANK", "0") == "0":
        (folder / "updates.json").write_text(json.dumps(notes))


if __name__ == "__main__":
    main()
