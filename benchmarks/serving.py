"""Speed of a server, model by model: `python benchmarks/serving.py MODEL ... --texts test.en`.

Runs `regard bench serve` for each model folder, one after the other. Exits with 1 if an answer was lost, rejected or
different from the offline one.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables

MIB = 2**20


def main() -> int:
    parser = program.argument_parser(__doc__)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--texts", type=Path, help="text file, one sentence per line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    options = parser.parse_args()
    flags = ["--clients", str(options.clients), "--seconds", str(options.seconds), "--json"]
    flags += ["--texts", str(options.texts)] if options.texts else []
    rows, failed = [], 0
    for model in options.models:
        command = [sys.executable, "-m", "regard", "bench", "serve", str(model), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            return done.returncode  # the command has printed what is wrong
        rows.append(row(model.name, json.loads(done.stdout)))
        failed |= done.returncode
    speeds = [head for head in rows[0] if head.endswith("sentences/s")]
    bars = {"names": ["model"], "values": speeds, "unit": "sentences a second: longer is better"}
    table = tables.build(", ".join(str(each["model"]) for each in rows), rows, "", bars)
    settings = {"clients": options.clients, "seconds": options.seconds}
    records.publish(options.keep, "serving", [table], settings=settings)
    return failed


def row(name: str, found: dict[str, Any]) -> tables.Row:
    one, many = found["one"], found["many"]
    cells: tables.Row = {"model": name, "offline, sentences/s": round(found["offline"], 1)}
    for who, seen in (("one client", one), (many["who"], many)):
        cells[f"{who}, sentences/s"] = round(seen["rate"], 1)
        cells |= {f"{who}, {key} ms": round(seen[key]) for key in ("p50", "p99") if seen[key] is not None}
    cells |= {f"{many['who']} ÷ offline": round(many["rate"] / found["offline"], 2)} if found["offline"] else {}
    cells |= {f"{many['who']} ÷ one": round(many["rate"] / one["rate"], 2)} if one["rate"] else {}
    cells |= {"requests": many["answers"], "failed": one["errors"] + many["errors"], "other answers": many["differ"]}
    return cells | {f"server, MiB {when}": round(found[f"memory_{when}"] / MIB) for when in ("before", "after")}


if __name__ == "__main__":
    sys.exit(main())
