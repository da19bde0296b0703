"""Translates many lines in shards while a worker is killed: `python benchmarks/bulk.py --lines 100000`.

Translates generated sentences with the glass model of the package: in one process, in two processes of this machine,
and by two engines on a Ray cluster (pip install 'regard[cluster]'), one of which is killed when half of the shards are
done. All outputs must be the same, byte for byte.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from regard.demo import GLASS
from regard.demo.train_glass_model import generate_glass_splits

WORKERS = {"local": b"regard.jobs.bulk_translation", "auto": b"ray::ShardActor"}  # words of their command lines


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--shard-lines", type=int, default=2000)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--ways", default="alone,local,auto", help="ways to measure")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, rows, first = Path(name), list[tables.Row](), b""
        model = shutil.copytree(GLASS, folder / "glass")
        write_lines(folder / "in.txt", options.lines)
        command = [sys.executable, "-m", "regard", "translate", str(model), str(folder / "in.txt")]
        command += ["--beam", str(options.beam), "--threads", "1"]
        for way in options.ways.split(","):
            output = folder / f"{way}.txt"
            flags = ["--cluster", way, "--workers", "2", "--shard-lines", str(options.shard_lines)]
            half = options.lines // options.shard_lines // 2
            seconds, killed = run([*command, "-o", str(output), *(flags if way != "alone" else [])], output, way, half)
            first = first or output.read_bytes()
            same = "the same" if output.read_bytes() == first else "DIFFERENT"
            speed = {"seconds": round(seconds, 1), "lines/s": round(options.lines / seconds)}
            rows.append({"way": way, **speed, "output": same, "workers killed": killed})
    bars = {"names": ["way"], "values": ["lines/s"], "unit": "lines a second: longer is better"}
    table = tables.build(f"{options.lines:,} sentences", rows, "", bars)
    records.publish(options.keep, "bulk", [table])
    if any(row["output"] != "the same" for row in rows):
        sys.exit("the outputs differ")


def write_lines(path: Path, count: int) -> None:
    """Writes sentences that the model knows, again and again."""
    sources = [sentence.source for sentence in generate_glass_splits().train]
    path.write_text("".join(f"{sources[i % len(sources)]}\n" for i in range(count)), encoding="utf-8")


def run(command: list[str], output: Path, way: str, half: int) -> tuple[float, int]:
    """Returns the seconds of a command, and how many of its workers were killed when half of the shards were done."""
    began, killed = time.monotonic(), 0
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    shards = output.with_name(f"{output.name}.shards")
    while process.poll() is None:
        time.sleep(0.02)
        if way != "alone" and not killed and len(list(shards.glob("*.txt"))) >= half:
            for pid in workers(process.pid, way)[:1]:
                os.kill(pid, signal.SIGKILL)
                killed += 1
    if process.returncode:
        sys.exit(f"{way} failed")
    return time.monotonic() - began, killed


def workers(root: int, way: str) -> list[int]:
    """Returns the translating processes that `root` started."""
    commands = {pid: Path(f"/proc/{pid}/cmdline") for pid in program.process_tree(root)}
    return [pid for pid, path in commands.items() if path.is_file() and WORKERS[way] in path.read_bytes()]


if __name__ == "__main__":
    main()
