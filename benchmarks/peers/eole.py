# mypy: ignore-errors
"""Eole: its `eole train`, on its own dynamic iterator."""

import contextlib

import torch
from eole import train_single
from eole.bin.run.train import train
from eole.config.run import TrainConfig

from benchmarks.peers.timed_steps import Counts, Finished, Job, StepTimer

# Its batch_size bounds sentences x longest side with begin and end, padding included. With this factor an
# average batch holds the number of real target tokens that is asked for, by bucket (262,144: its default).
BATCH_SIZE_PER_TARGET_TOKEN = {262_144: 1.1, 29_000: 1.2}


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    timer = StepTimer(job)
    seen = watch(timer)
    bucket = job.options.get("bucket_size", 262_144)
    size = round(job.target_tokens * BATCH_SIZE_PER_TARGET_TOKEN[bucket])
    with contextlib.suppress(Finished):
        train(TrainConfig(**job.settings("eole", bucket=bucket, batch_size=size)))
    timer.report("eole", "torch", weights=seen["model"].parameters())


def watch(timer: StepTimer) -> dict[str, object]:
    """Replaces the names under which its training script builds the trainer and the batches."""
    seen = {}
    build_trainer, build_batches = train_single.build_trainer, train_single.build_dynamic_dataset_iter

    def trainer(config, device, model, vocabularies, *arguments, **keywords):
        seen["model"] = model
        seen["pad"] = vocabularies["tgt"][vocabularies["specials"]["pad_token"]]
        return build_trainer(config, device, model, vocabularies, *arguments, **keywords)

    def batches(*arguments, **keywords):
        iterator = build_batches(*arguments, **keywords)
        return None if iterator is None else timer.watch(iterator, lambda item: count(item[0], seen["pad"]))

    train_single.build_trainer, train_single.build_dynamic_dataset_iter = trainer, batches
    return seen


def count(batch, pad: int) -> Counts:
    source, labels = batch["src"], batch["tgt"][:, 1:]
    source_tokens, target_tokens = int(batch["srclen"].sum()), int((labels != pad).sum())
    positions = source.numel() + labels.numel()
    return Counts(source_tokens, target_tokens, positions, positions - source_tokens - target_tokens)


if __name__ == "__main__":
    main()
