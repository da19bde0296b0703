# mypy: ignore-errors
"""OpenNMT-py: its `onmt_train`, on its own dynamic iterator."""

import contextlib
import warnings

import torch
from onmt import train_single
from onmt.bin.train import _get_parser, train

from benchmarks.peers.timed_steps import Counts, Finished, Job, StepTimer

# Its batch_size bounds sentences x longest side with begin and end, padding included. With this factor an
# average batch holds the number of real target tokens that is asked for, by bucket (262,144: its default).
BATCH_SIZE_PER_TARGET_TOKEN = {262_144: 1.1, 29_000: 1.2}
PAD = 1  # <unk>, <blank>, <s>, </s> come first in its vocabulary


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch.cuda.amp's old names, a line per step
    timer = StepTimer(job)
    models = watch(timer)
    bucket = job.options.get("bucket_size", 262_144)
    size = round(job.target_tokens * BATCH_SIZE_PER_TARGET_TOKEN[bucket])
    settings = job.settings("opennmt", bucket=bucket, batch_size=size)
    flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in settings.items()]
    with contextlib.suppress(Finished):
        train(_get_parser().parse_args(flags))
    timer.report("OpenNMT-py", "torch", weights=models[0].parameters())


def watch(timer: StepTimer) -> list[torch.nn.Module]:
    """Replaces the names under which its training script finds the model and the batches."""
    models = []
    build_model, build_batches = train_single.build_model, train_single.build_dynamic_dataset_iter

    def model(*arguments, **keywords):
        models.append(build_model(*arguments, **keywords))
        return models[0]

    def batches(*arguments, **keywords):
        iterator = build_batches(*arguments, **keywords)
        return None if iterator is None else timer.watch(iterator, count)

    train_single.build_model, train_single.build_dynamic_dataset_iter = model, batches
    return models


def count(item) -> Counts:
    batch, _ = item
    source, labels = batch["src"][:, :, 0], batch["tgt"][:, 1:, 0]
    source_tokens, target_tokens = int(batch["srclen"].sum()), int((labels != PAD).sum())
    positions = source.numel() + labels.numel()
    return Counts(source_tokens, target_tokens, positions, positions - source_tokens - target_tokens)


if __name__ == "__main__":
    main()
