# mypy: ignore-errors
"""Marian, as pymarian has it: its own trainer in a process of its own, whose log tells of every update."""

import os
import re
import sys
from pathlib import Path

import _pymarian
import numpy as np
import torch

from benchmarks.peers.meter import Counts, Job, Meter

UPDATE = re.compile(r" Up\. (\d+) : .* \* [\d,]+ @ ([\d,]+) after ")
# Its mini-batch-words bounds labels without padding; batches at the end of a sorted block are smaller.
BATCH_WORDS_PER_TARGET_TOKEN = 1.05


def main() -> None:
    job = Job.from_command_line()
    meter = Meter(job)
    log, written = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(written, sys.stderr.fileno())
        _pymarian.Trainer(" ".join(f"--{name} {value}" for name, value in settings(job).items())).train()
        os._exit(0)
    os.close(written)
    watch(log, job, meter)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"marian ended with status {status}")
    meter.peak_rss_mib = used.ru_maxrss / 1024
    with np.load(f"{job.scratch}/model.npz") as model:
        weights = [torch.from_numpy(model[name]) for name in model.files if not name.startswith("special:")]
    meter.report("pymarian", weights=[torch.nn.Parameter(each) for each in weights])


def watch(log: int, job: Job, meter: Meter) -> None:
    """Time the updates by the lines that end them.

    They tell the labels of an update; of its source tokens there is no word, so that they are taken for as many a
    label as in the whole corpus. Blocks of random sentences are sorted and cut: every update is a fair sample.
    """
    sources, targets = job.sentences()
    ratio = sum(map(len, sources)) / sum(len(target) + 1 for target in targets)
    with os.fdopen(log, encoding="utf-8") as lines:
        for line in lines:
            sys.stderr.write(line)
            if found := UPDATE.search(line):
                update, labels = int(found[1]), int(found[2].replace(",", ""))
                if meter.running:
                    meter.add(Counts(round(ratio * labels), labels, 0, 0))
                if update == job.warmup:
                    meter.start()
                if update == job.warmup + job.steps:
                    meter.stop()


def settings(job: Job) -> dict[str, object]:
    vocabulary = Path(job.scratch) / "vocabulary.txt"
    vocabulary.write_text("</s>\n<unk>\n" + Path(job.vocabulary).read_text(encoding="utf-8"), encoding="utf-8")
    return {
        "type": "transformer",
        "train-sets": f"{job.source} {job.target}",
        "vocabs": f"{vocabulary} {vocabulary}",
        "model": f"{job.scratch}/model.npz",
        "tempdir": job.scratch,
        "enc-depth": job.layers,
        "dec-depth": job.layers,
        "dim-emb": job.width,
        "transformer-dim-ffn": job.feed_forward,
        "transformer-heads": job.heads,
        "transformer-dropout": job.dropout,
        "label-smoothing": job.label_smoothing,
        "tied-embeddings-all": "true",
        "optimizer-params": "0.9 0.98 1e-9",
        "lr-warmup": 4000,
        "mini-batch": 10_000,
        "mini-batch-words": round(job.target_tokens * BATCH_WORDS_PER_TARGET_TOKEN),
        "maxi-batch": 1_000,
        "max-length": 200,
        "cpu-threads": job.threads,  # a worker each, which share the labels of an update: it has no other way
        "sync-sgd": "true",
        "after-batches": job.warmup + job.steps,
        "disp-freq": 1,
        "disp-label-counts": "true",
        "seed": job.seed,
    }


if __name__ == "__main__":
    main()
