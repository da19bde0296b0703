"""Disturbs training in all known ways, and records the results: see docs/faults.md."""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from tests.faults.faults import KINDS, Bench, line_of, read_log, table

DOCS = Path(__file__).parents[2] / "docs"
LOG, PAGE = DOCS / "faults.jsonl", DOCS / "faults.md"
BEGIN, END = "<!-- the table, by python -m tests.faults -->\n", "<!-- its end -->\n"
KILLS = {"killed_alone": 100, "killed_together": 100}
OTHERS = {"replaced": 5, "preempted": 5, "told_to_end": 20, "second_process": 5}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--kinds", default=",".join(KINDS), help="which faults, with commas between (all)")
    parser.add_argument("--times", type=int, default=0, help="of each (what docs/faults.md says)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, default=LOG, help="where every fault is written down (docs/faults.jsonl)")
    parser.add_argument("--add", action="store_true", help="to the log that is there")
    arguments = parser.parse_args()
    if not arguments.add:
        arguments.log.write_text("", encoding="utf-8")
    with tempfile.TemporaryDirectory() as root:
        bench = Bench(Path(root) / "bench", arguments.seed)
        Path(root).chmod(0o755)
        for kind in arguments.kinds.split(","):
            began = time.monotonic()
            count = arguments.times or KILLS.get(kind) or OTHERS.get(kind) or 10
            for outcome in KINDS[kind](bench, count):
                with arguments.log.open("a", encoding="utf-8") as file:
                    file.write(line_of(outcome) + "\n")
                if not outcome.continued or outcome.lost:
                    print(f"!! {outcome}", flush=True)
            print(f"{kind}: {count} in {time.monotonic() - began:.0f} s", flush=True)
    outcomes = read_log(arguments.log)
    print(table(outcomes))
    if arguments.log == LOG:
        write_page(table(outcomes))


def write_page(new: str) -> None:
    """Puts the table into the page."""
    text = PAGE.read_text(encoding="utf-8")
    before, rest = text.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{new}\n{END}{rest.split(END)[1]}", encoding="utf-8")


if __name__ == "__main__":
    main()
