"""Trains a GPT on random ids: `python -m benchmarks.peers.gpt SYSTEM JOB` in a folder with ids.bin.

JOB is one JSON object, the fields of `GptJob`; the last line of output is one JSON object with the `seconds` of the
timed steps. The Python of a peer imports nothing of regard.
"""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.timed_steps import read_settings


@dataclass(frozen=True)
class GptJob:
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
    nanogpt: str  # a clone of nanoGPT

    @property
    def last_step(self) -> int:
        return self.warmup + self.steps

    def settings(self, system: str) -> dict[str, Any]:
        more = {"last_step": self.last_step, "hidden": 4 * self.width, "batch_tokens": self.rows * self.length}
        settings: dict[str, Any] = read_settings("gpt", asdict(self) | more)[system]
        return settings


def run_regard(job: GptJob) -> float:
    """Trains in the trainer's own loop, as `regard train --task write` runs it."""
    from benchmarks.peers.regard_trainer import open_prepared
    from regard.preparation.chosen_settings import resolve
    from regard.tokens.token_streams import write_stream
    from regard.training.events import Progress
    from regard.training.loop import train_model

    folder, ids = Path.cwd() / "run", np.fromfile("ids.bin", np.uint16).tolist()
    write_stream(folder / "training" / "train", [(ids, True, len(ids))], job.vocabulary)
    write_stream(folder / "training" / "dev", [(ids[:1000], True, 1000)], job.vocabulary)
    about = {"preset": "auto", "examples": len(ids), "held_out": {"dev": 1000}}
    moments = []
    for event in train_model(open_prepared(folder, resolve(job.settings("regard")), job.vocabulary, about)):
        if isinstance(event, Progress):
            moments.append(time.perf_counter())
            if event.step == job.last_step:
                break
    return moments[job.last_step - 1] - moments[job.warmup - 1]


def run_nanogpt(job: GptJob) -> float:
    """Runs nanoGPT's train.py as it is; the times are those that it prints."""
    for name in ("train.py", "model.py", "configurator.py"):
        shutil.copy(Path(job.nanogpt) / name, name)
    data = Path("data/ids")
    data.mkdir(parents=True)
    for name in ("train.bin", "val.bin"):
        shutil.copy("ids.bin", data / name)
    (data / "meta.pkl").write_bytes(pickle.dumps({"vocab_size": job.vocabulary}))
    command = [sys.executable, "train.py", *(f"--{name}={value}" for name, value in job.settings("nanogpt").items())]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    times = [float(found) for found in re.findall(r"^iter \d+: .* time ([\d.]+)ms", done.stdout, re.MULTILINE)]
    return sum(times[job.warmup : job.last_step]) / 1000


def run_huggingface(job: GptJob) -> float:
    """Trains Hugging Face's GPT-2 with its Trainer."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    import torch
    import transformers

    torch.set_num_threads(job.threads)
    ids = np.fromfile("ids.bin", np.uint16).astype(np.int64)
    rows = ids[: len(ids) // job.length * job.length].reshape(-1, job.length)
    settings, moments = job.settings("huggingface"), list[float]()

    class Clock(transformers.TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            moments.append(time.perf_counter())

    transformers.Trainer(
        model=transformers.GPT2LMHeadModel(transformers.GPT2Config(**settings["model"])),
        args=transformers.TrainingArguments(**settings["training"]),
        train_dataset=[{"input_ids": torch.from_numpy(row), "labels": torch.from_numpy(row)} for row in rows],
        callbacks=[Clock()],
    ).train()
    return moments[job.last_step - 1] - moments[job.warmup - 1]


if __name__ == "__main__":
    run = {"regard": run_regard, "nanogpt": run_nanogpt, "huggingface": run_huggingface}[sys.argv[1]]
    print(json.dumps({"seconds": run(GptJob(**json.loads(sys.argv[2])))}))
