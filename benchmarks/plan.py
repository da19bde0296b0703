"""What `regard plan` says against what `regard train` does: `python benchmarks/plan.py train.en train.de`.

For each preset, the estimate for some steps on the files, and a real run of as many steps, in processes of their own.
Printed are the seconds of the steps alone and of everything, and the peak memory, each with its ratio to the real one.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--presets", default="tiny:150,small:60", help="each with its steps")
    parser.add_argument("--seconds", default="12", help="that the plan measures")
    parser.add_argument("--threads", default="2")
    parser.add_argument("--limit", type=float, default=0.2, help="how far an estimate may be off")
    records.add_keep(parser)
    options = parser.parse_args()
    wrong, rows = [], []
    for each in options.presets.split(","):
        preset, steps = each.split(":")
        flags = ["--preset", preset, "--training.steps", steps, "--training.evaluate_every", steps]
        flags += ["--training.threads", options.threads, "--training.patience", "0"]
        planned = plan([*options.files, *flags, "--seconds", options.seconds])
        real = train([*options.files, *flags])
        row: dict[str, object] = {"preset, steps": f"{preset}, {steps}"}
        for what, said in planned.items():
            ratio = said / real[what]
            row |= {what: f"{said:.1f} for {real[what]:.1f}", f"{what}, ratio": round(ratio, 2)}
            wrong += [f"{preset}: {what}"] if abs(ratio - 1) > options.limit else []
            print(
                f"{preset:>6}  {what:<22} estimated {said:9.2f}  real {real[what]:9.2f}  ratio {ratio:.3f}", flush=True
            )
        rows.append(row)
    if options.keep:
        title = f"{Path(options.files[0]).name}, estimated for measured"
        records.keep("plan", [records.table(title, rows)], settings={"threads": int(options.threads)})
    if wrong:
        sys.exit(f"off by more than {options.limit:.0%}: {', '.join(wrong)}")


def plan(arguments: list[str]) -> dict[str, float]:
    command = [sys.executable, "-m", "regard", "plan", *arguments, "--json"]
    began = time.monotonic()
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    print(f"        the plan itself took {time.monotonic() - began:.0f} s", flush=True)
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
    return {
        "seconds of the steps": json.loads(lines[-1])["seconds"],
        "seconds in all": seconds,
        "peak memory, MB": usage.ru_maxrss * 1024 / 1e6,
    }


if __name__ == "__main__":
    main()
