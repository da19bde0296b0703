"""Compares estimates of `regard plan` with runs of `regard train`: `python benchmarks/plan.py train.en train.de`.

For each preset, estimates some steps on the files and trains for as many steps, in separate processes. The table has
the seconds of the steps alone and of everything, and the peak memory, each with the ratio of estimate to measurement.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--presets", default="tiny:150,small:60", help="presets, each with its number of steps")
    parser.add_argument("--seconds", default="12", help="seconds for which the plan measures")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--limit", type=float, default=0.2, help="greatest relative error of an estimate")
    options = parser.parse_args()
    wrong, rows = [], []
    for each in options.presets.split(","):
        preset, steps = each.split(":")
        flags = ["--preset", preset, "--training.steps", steps, "--training.evaluate_every", steps]
        flags += ["--training.threads", options.threads, "--training.patience", "0"]
        estimates = plan([*options.files, *flags, "--seconds", options.seconds])
        real = train([*options.files, *flags])
        row: tables.Row = {"preset, steps": f"{preset}, {steps}"}
        for what, estimate in estimates.items():
            ratio = estimate / real[what]
            row |= {what: f"{estimate:.1f} for {real[what]:.1f}", f"{what}, ratio": round(ratio, 2)}
            wrong += [f"{preset}: {what}"] if abs(ratio - 1) > options.limit else []
        rows.append(row)
    table = tables.build(f"{Path(options.files[0]).name}, estimated for measured", rows)
    records.publish(options.keep, "plan", [table], settings={"threads": int(options.threads)})
    if wrong:
        sys.exit(f"off by more than {options.limit:.0%}: {', '.join(wrong)}")


def plan(arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "regard", "plan", *arguments, "--json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    estimate, measured = found["estimate"], found["measured"]
    return {
        "seconds of the steps": estimate["steps"] * measured["seconds_per_step"],
        "seconds in all": estimate["seconds"],
        "peak memory, MB": estimate["memory"] / 1e6,
    }


def train(arguments: list[str]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        command = [sys.executable, "-m", "regard", "train", *arguments, "-o", f"{folder}/run"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = status
        if status:
            sys.exit("training failed")
        seconds = time.monotonic() - began
        lines = (Path(folder) / "run" / "log.jsonl").read_text(encoding="utf-8").splitlines()
    steps = json.loads(lines[-1])["seconds"]
    return {"seconds of the steps": steps, "seconds in all": seconds, "peak memory, MB": usage.ru_maxrss * 1024 / 1e6}


if __name__ == "__main__":
    main()
