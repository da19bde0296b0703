"""How fast a server is, model by model: `python benchmarks/serving.py MODEL ... --texts test.en`.

Runs `regard bench serve` for each model folder, one after the other, and keeps what it says. Exits with 1 if an answer
was lost, refused or other than the offline one.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records

MIB = 2**20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path, metavar="MODEL")
    parser.add_argument("--texts", type=Path, help="a sentence a line")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=30.0)
    records.add_keep(parser)
    options = parser.parse_args()
    flags = ["--clients", str(options.clients), "--seconds", str(options.seconds), "--json"]
    flags += ["--texts", str(options.texts)] if options.texts else []
    rows, failed = [], 0
    for model in options.models:
        command = [sys.executable, "-m", "regard", "bench", "serve", str(model), *flags]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        if not done.stdout:
            return done.returncode  # what is wrong is told
        rows.append(row(model.name, json.loads(done.stdout)))
        failed |= done.returncode
        print("; ".join(f"{name}: {value}" for name, value in rows[-1].items()), flush=True)
    if options.keep:
        keep(rows, options.clients, options.seconds)
    return failed


def row(name: str, found: dict[str, Any]) -> records.Row:
    one, many = found["one"], found["many"]
    made: records.Row = {"model": name, "offline, sentences/s": round(found["offline"], 1)}
    for who, seen in (("one client", one), (many["who"], many)):
        made[f"{who}, sentences/s"] = round(seen["rate"], 1)
        made |= {f"{who}, {key} ms": round(seen[key]) for key in ("p50", "p99") if seen[key] is not None}
    made |= {f"{many['who']} ÷ offline": round(many["rate"] / found["offline"], 2)} if found["offline"] else {}
    made |= {f"{many['who']} ÷ one": round(many["rate"] / one["rate"], 2)} if one["rate"] else {}
    made |= {"requests": many["answers"], "failed": one["errors"] + many["errors"], "other answers": many["differ"]}
    return made | {f"server, MiB {when}": round(found[f"memory_{when}"] / MIB) for when in ("before", "after")}


def keep(rows: list[records.Row], clients: int, seconds: float) -> None:
    speeds = [head for head in rows[0] if head.endswith("sentences/s")]
    bars = {"names": ["model"], "values": speeds, "unit": "sentences a second: longer is better"}
    title = ", ".join(str(each["model"]) for each in rows)
    records.keep("serving", [records.table(title, rows, "", bars)], settings={"clients": clients, "seconds": seconds})


if __name__ == "__main__":
    sys.exit(main())
