# mypy: ignore-errors
"""Marian, as pymarian has it: its own trainer in a process of its own, whose log reports every update."""

import os
import re
import sys
from pathlib import Path

import _pymarian
import numpy as np
import torch

from benchmarks.peers.timed_steps import Counts, Job, StepTimer

UPDATE = re.compile(r" Up\. (\d+) : .* \* [\d,]+ @ ([\d,]+) after ")
# Its mini-batch-words bounds labels without padding; batches at the end of a sorted block are smaller.
BATCH_WORDS_PER_TARGET_TOKEN = 1.05


def main() -> None:
    job = Job.from_command_line()
    timer = StepTimer(job)
    vocabulary = "</s>\n<unk>\n" + Path(job.vocabulary).read_text(encoding="utf-8")
    Path(job.scratch, "vocabulary.txt").write_text(vocabulary, encoding="utf-8")
    settings = job.settings("marian", batch_words=round(job.target_tokens * BATCH_WORDS_PER_TARGET_TOKEN))
    log, written = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(written, sys.stderr.fileno())
        _pymarian.Trainer(" ".join(f"--{name} {value}" for name, value in settings.items())).train()
        os._exit(0)
    os.close(written)
    watch(log, job, timer)
    _, status, used = os.wait4(child, 0)
    if status:
        raise SystemExit(f"marian ended with status {status}")
    timer.peak_rss_mib = used.ru_maxrss / 1024
    with np.load(f"{job.scratch}/model.npz") as model:
        weights = [torch.from_numpy(model[name]) for name in model.files if not name.startswith("special:")]
    timer.report("pymarian", weights=[torch.nn.Parameter(each) for each in weights])


def watch(log: int, job: Job, timer: StepTimer) -> None:
    """Times the updates by the lines that end them.

    A line has the labels of an update but not its source tokens, so each update gets the corpus's ratio of source
    tokens to labels. Blocks of random sentences are sorted and cut: every update is a fair sample.
    """
    sources, targets = job.sentences()
    ratio = sum(map(len, sources)) / sum(len(target) + 1 for target in targets)
    with os.fdopen(log, encoding="utf-8") as lines:
        for line in lines:
            sys.stderr.write(line)
            if found := UPDATE.search(line):
                update, labels = int(found[1]), int(found[2].replace(",", ""))
                if timer.running:
                    timer.add(Counts(round(ratio * labels), labels, 0, 0))
                timer.at_step(update)


if __name__ == "__main__":
    main()
