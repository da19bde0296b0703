"""Training speed of a GPT: regard, nanoGPT's own train.py and Hugging Face's Trainer, in one run, as ratios.

python benchmarks/writing.py --nanogpt PATH    (PATH is a clone of github.com/karpathy/nanoGPT)

The same shape of model (GPT-2's: learned positions, LayerNorm before, tied output layer; GELU as nanoGPT has it), the
same number of tokens a step, random ids, float32, no dropout, nothing compiled. Each round runs every system in a
process of its own, one after the other; the table shows medians over the rounds. Peers run as shipped and with glibc
told to keep freed memory, which regard does by itself and any user can do.
"""

import argparse
import json
import os
import pickle
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records

ROOT = Path(__file__).resolve().parent.parent
SHAPES: dict[str, dict[str, int]] = {
    # nanoGPT's "baby GPT" for characters, and a small GPT for subwords
    "characters": {"layers": 6, "width": 384, "heads": 6, "length": 256, "vocabulary": 65, "rows": 8},
    "subwords": {"layers": 4, "width": 256, "heads": 4, "length": 256, "vocabulary": 10_000, "rows": 8},
}


@dataclass(frozen=True)
class Job:
    """One run of one system."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int
    rows: int
    steps: int
    warmup: int
    threads: int
    folder: str  # of this run's own; ids.bin is in it
    nanogpt: str

    @property
    def total(self) -> int:
        return self.warmup + self.steps


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nanogpt", required=True, type=Path, help="a clone of nanoGPT")
    parser.add_argument(
        "--huggingface",
        type=Path,
        default=ROOT / ".bench/venvs/huggingface/bin/python",
        help="a Python with transformers and accelerate (benchmarks/training.py installs one)",
    )
    parser.add_argument("--shapes", default=",".join(SHAPES))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    records.add_keep(parser)
    arguments = parser.parse_args()
    tables = []
    pythons = {"regard": sys.executable, "nanogpt": sys.executable, "huggingface": str(arguments.huggingface)}
    for name in arguments.shapes.split(","):
        speeds: dict[str, list[float]] = {}
        for _ in range(arguments.rounds):
            for system, tuned in (
                ("regard", False),
                ("nanogpt", False),
                ("huggingface", False),
                ("nanogpt", True),
                ("huggingface", True),
            ):
                speed = measure(system, pythons[system], SHAPES[name], tuned, arguments)
                speeds.setdefault(f"{system}{', malloc tuned' * tuned}", []).append(speed)
        ours = statistics.median(speeds["regard"])
        rows: list[records.Row] = []
        print(f"{name}: {SHAPES[name]}")
        for system, values in speeds.items():
            middle = statistics.median(values)
            ratio, runs = ours / middle, ", ".join(f"{value:,.0f}" for value in values)
            rows.append({"system": system, "tokens/s": records.spread(values, 0)})
            rows[-1] |= {"Regard ÷ it": round(ratio, 2)} if system != "regard" else {}
            print(f"  {system:<28} {middle:8,.0f} tokens/s   regard is {ratio:.2f} times as fast   ({runs})")
        shape = ", ".join(f"{what} {number:,}" for what, number in SHAPES[name].items())
        bars = {"names": ["system"], "values": ["tokens/s"], "unit": "tokens a second: longer is better"}
        tables.append(records.table(f"{name.capitalize()}: {shape}", rows, "", bars))
    if arguments.keep:
        settings = {key: getattr(arguments, key) for key in ("steps", "rounds", "threads")}
        records.keep("writing", tables, settings=settings)
    return 0


def measure(system: str, python: str, shape: dict[str, int], tuned: bool, arguments: argparse.Namespace) -> float:
    """Tokens a second of whole steps."""
    with tempfile.TemporaryDirectory() as folder:
        job = Job(
            **shape,
            steps=arguments.steps,
            warmup=3,
            threads=arguments.threads,
            folder=folder,
            nanogpt=str(arguments.nanogpt.resolve()),
        )
        ids = np.random.default_rng(0).integers(0, job.vocabulary, 400_000).astype(np.uint16)
        ids.tofile(Path(folder) / "ids.bin")
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": str(job.threads),
            "PYTHONPATH": str(ROOT),
            **(keep_memory() if tuned else {}),
        }
        done = subprocess.run(
            [python, "-c", f"from benchmarks.writing import run_{system} as run; run()", json.dumps(asdict(job))],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"{system} failed:\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}")
        seconds = float(done.stdout.strip().splitlines()[-1])
        return job.steps * job.rows * job.length / seconds


def keep_memory() -> dict[str, str]:
    from benchmarks.training import (
        KEEP_MEMORY,
    )  # not at the top: peers' Pythons import this file, and lack what it needs

    return KEEP_MEMORY


def read_job() -> Job:
    return Job(**json.loads(sys.argv[1]))


def run_regard() -> None:
    """The trainer's own loop, as `regard train --task write` runs it, on these ids."""
    from types import SimpleNamespace

    from regard.settings.option_fields import dump
    from regard.settings.resolution import resolve
    from regard.tokens.token_streams import write_stream
    from regard.tokens.tokenizer import Specials
    from regard.training.events import Progress
    from regard.training.loop import train_model
    from regard.training.run import open_run

    job, folder = read_job(), Path.cwd() / "run"
    ids = np.fromfile("ids.bin", np.uint16).tolist()
    write_stream(folder / "training" / "train", [(ids, True, len(ids))], job.vocabulary)
    write_stream(folder / "training" / "dev", [(ids[:1000], True, 1000)], job.vocabulary)
    shape = {
        "width": job.width,
        "hidden": 4 * job.width,
        "heads": job.heads,
        "decoder_layers": job.layers,
        "max_length": job.length,
        "dropout": 0.0,
        "activation": "gelu",
    }
    training = {"batch_tokens": job.rows * job.length, "threads": job.threads, "evaluate_every": 10**6, "steps": 10**6}
    settings = resolve({"task": "write", "model": shape, "training": training})
    (folder / "model.toml").write_text(dump(settings), encoding="utf-8")
    about = {"preset": "auto", "reason": "as asked", "examples": len(ids), "held_out": {"dev": 1000}}
    (folder / "training" / "about.json").write_text(json.dumps(about), encoding="utf-8")
    vocabulary = SimpleNamespace(size=job.vocabulary, specials=Specials())
    loaded: Any = SimpleNamespace(source=vocabulary, target=vocabulary)
    began = 0.0
    for event in train_model(open_run(folder, vocabularies=loaded)):
        if isinstance(event, Progress) and event.step == job.warmup:
            began = time.perf_counter()
        if isinstance(event, Progress) and event.step == job.total:
            print(time.perf_counter() - began)
            return


def run_nanogpt() -> None:
    """nanoGPT's train.py as it is, in a folder of its own; the times are those that it prints."""
    job = read_job()
    for name in ("train.py", "model.py", "configurator.py"):
        shutil.copy(Path(job.nanogpt) / name, name)
    data = Path("data/ids")
    data.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        shutil.copy("ids.bin", data / name)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": job.vocabulary}))
    options = {
        "device": "cpu",
        "compile": False,
        "dtype": "float32",
        "dataset": "ids",
        "eval_interval": 10**6,
        "eval_iters": 1,
        "log_interval": 1,
        "gradient_accumulation_steps": 1,
        "batch_size": job.rows,
        "block_size": job.length,
        "n_layer": job.layers,
        "n_head": job.heads,
        "n_embd": job.width,
        "dropout": 0.0,
        "bias": True,
        "max_iters": job.total,
    }
    command = [sys.executable, "train.py", *(f"--{name}={value}" for name, value in options.items())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    times = [float(found) for found in re.findall(r"^iter \d+: .* time ([\d.]+)ms", done.stdout, re.MULTILINE)]
    print(sum(times[job.warmup : job.total]) / 1000)


def run_huggingface() -> None:
    """Hugging Face's Trainer on its GPT-2."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    job = read_job()
    torch.set_num_threads(job.threads)
    ids = np.fromfile("ids.bin", np.uint16).astype(np.int64)
    rows = ids[: len(ids) // job.length * job.length].reshape(-1, job.length)
    data = [{"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(row)} for row in rows]
    config = transformers.GPT2Config(
        vocab_size=job.vocabulary,
        n_positions=job.length,
        n_embd=job.width,
        n_layer=job.layers,
        n_head=job.heads,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        activation_function="gelu",
        use_cache=False,
        bos_token_id=0,
        eos_token_id=0,
    )
    arguments = transformers.TrainingArguments(
        output_dir="out",
        max_steps=job.total,
        per_device_train_batch_size=job.rows,
        use_cpu=True,
        report_to=[],
        save_strategy="no",
        logging_strategy="no",
        disable_tqdm=True,
        max_grad_norm=1.0,
        weight_decay=0.1,
    )
    moments: list[float] = []

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            moments.append(time.perf_counter())

    transformers.Trainer(
        model=transformers.GPT2LMHeadModel(config), args=arguments, train_dataset=data, callbacks=[Clock()]
    ).train()
    print(moments[job.total - 1] - moments[job.warmup - 1])


if __name__ == "__main__":
    sys.exit(main())
