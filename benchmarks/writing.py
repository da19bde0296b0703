"""Training speed of a GPT: regard, nanoGPT's own train.py and Hugging Face's Trainer, in one run, as ratios.

python benchmarks/writing.py --nanogpt PATH    (PATH is a clone of github.com/karpathy/nanoGPT)

The same shape of model (GPT-2's: learned positions, LayerNorm before, tied output layer; GELU as nanoGPT has it), the
same number of tokens a step, random ids, float32, no dropout, nothing compiled. Each round runs every system in a
process of its own, one after the other; the table shows medians over the rounds. Peers run as shipped and with a glibc
that keeps freed memory, which regard arranges by itself.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from benchmarks.peers.gpt import GptJob
from benchmarks.program import BENCH, KEEP_MEMORY, ROOT

SHAPES: dict[str, dict[str, int]] = {
    # nanoGPT's "baby GPT" for characters, and a small GPT for subwords
    "characters": {"layers": 6, "width": 384, "heads": 6, "length": 256, "vocabulary": 65, "rows": 8},
    "subwords": {"layers": 4, "width": 256, "heads": 4, "length": 256, "vocabulary": 10_000, "rows": 8},
}
TURNS = [("regard", {}), ("nanogpt", {}), ("huggingface", {}), ("nanogpt", KEEP_MEMORY), ("huggingface", KEEP_MEMORY)]


def main() -> int:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--nanogpt", required=True, type=Path, help="a clone of nanoGPT")
    default = BENCH / "venvs/huggingface/bin/python"
    about = "a Python with transformers and accelerate (benchmarks/training.py installs one)"
    parser.add_argument("--huggingface", type=Path, default=default, help=about)
    parser.add_argument("--shapes", type=program.names_from(SHAPES), default=list(SHAPES), help="default: all")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    compared = [compare(name, arguments) for name in arguments.shapes]
    settings = {key: getattr(arguments, key) for key in ("steps", "rounds", "threads")}
    records.publish(arguments.keep, "writing", compared, settings=settings)
    return 0


def compare(name: str, arguments: argparse.Namespace) -> tables.Table:
    """Measures every system on one shape, in turns."""
    speeds: dict[str, list[float]] = {}
    for _ in range(arguments.rounds):
        for system, environment in TURNS:
            speed = measure(system, SHAPES[name], environment, arguments)
            speeds.setdefault(f"{system}{', malloc tuned' if environment else ''}", []).append(speed)
    ours, rows = statistics.median(speeds["regard"]), list[tables.Row]()
    for system, values in speeds.items():
        rows.append({"system": system, "tokens/s": tables.spread(values, 0)})
        if system != "regard":
            rows[-1]["Regard ÷ it"] = round(ours / statistics.median(values), 2)
    shape = ", ".join(f"{what} {number:,}" for what, number in SHAPES[name].items())
    bars = {"names": ["system"], "values": ["tokens/s"], "unit": "tokens a second: longer is better"}
    return tables.build(f"{name.capitalize()}: {shape}", rows, "", bars)


def measure(system: str, shape: dict[str, int], tuned: dict[str, str], arguments: argparse.Namespace) -> float:
    """Returns the tokens a second of whole steps."""
    python = str(arguments.huggingface) if system == "huggingface" else sys.executable
    clone = str(arguments.nanogpt.resolve())
    job = GptJob(**shape, steps=arguments.steps, warmup=3, threads=arguments.threads, nanogpt=clone)
    environment = {**os.environ, "OMP_NUM_THREADS": str(job.threads), "PYTHONPATH": str(ROOT), **tuned}
    command = [python, "-m", "benchmarks.peers.gpt", system, json.dumps(asdict(job))]
    with tempfile.TemporaryDirectory() as folder:
        ids = np.random.default_rng(0).integers(0, job.vocabulary, 400_000).astype(np.uint16)
        ids.tofile(Path(folder) / "ids.bin")
        done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{system} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
    speed = job.steps * job.rows * job.length / json.loads(done.stdout.strip().splitlines()[-1])["seconds"]
    print(f"{system}{', malloc tuned' if tuned else ''}: {speed:,.0f} tokens/s", flush=True)
    return float(speed)


if __name__ == "__main__":
    sys.exit(main())
