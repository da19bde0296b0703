# mypy: ignore-errors
"""OpenNMT-py and Eole, its successor: `onmt_train` and `eole train`, on their own dynamic iterator.

`python -m benchmarks.peers.opennmt JOB` runs the one of the two that this Python has.
"""

import contextlib
import importlib
import importlib.util
import warnings

import torch

from benchmarks.peers.timed_steps import Counts, Finished, Job, StepTimer

EOLE = importlib.util.find_spec("eole") is not None
# The batch_size bounds sentences x longest side with begin and end, padding included. With this factor an
# average batch holds the number of real target tokens that is asked for, by bucket (262,144: the default).
BATCH_SIZE_PER_TARGET_TOKEN = {262_144: 1.1, 29_000: 1.2}
OPENNMT_PAD = 1  # <unk>, <blank>, <s>, </s> come first in OpenNMT-py's vocabulary


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch.cuda.amp's old names, a line per step
    timer = StepTimer(job)
    seen = watch(timer)
    bucket = job.options.get("bucket_size", 262_144)
    size = round(job.target_tokens * BATCH_SIZE_PER_TARGET_TOKEN[bucket])
    settings = job.settings("eole" if EOLE else "opennmt", bucket=bucket, batch_size=size)
    with contextlib.suppress(Finished):
        if EOLE:
            config = importlib.import_module("eole.config.run").TrainConfig(**settings)
            importlib.import_module("eole.bin.run.train").train(config)
        else:
            train = importlib.import_module("onmt.bin.train")
            flags = [f"--{name}" if value is True else f"--{name}={value}" for name, value in settings.items()]
            train.train(train._get_parser().parse_args(flags))
    timer.report("eole" if EOLE else "OpenNMT-py", "torch", weights=seen["model"].parameters())


def watch(timer: StepTimer) -> dict[str, object]:
    """Replaces the names under which the training script builds its trainer and its batches."""
    script = importlib.import_module("eole.train_single" if EOLE else "onmt.train_single")
    seen = {"pad": OPENNMT_PAD}
    build_model, build_trainer = (getattr(script, name, None) for name in ("build_model", "build_trainer"))
    build_batches = script.build_dynamic_dataset_iter

    def model(*arguments, **keywords):
        seen["model"] = build_model(*arguments, **keywords)
        return seen["model"]

    def trainer(config, device, model, vocabularies, *arguments, **keywords):
        seen["model"] = model
        seen["pad"] = vocabularies["tgt"][vocabularies["specials"]["pad_token"]]
        return build_trainer(config, device, model, vocabularies, *arguments, **keywords)

    def batches(*arguments, **keywords):
        iterator = build_batches(*arguments, **keywords)
        return None if iterator is None else timer.watch(iterator, lambda item: count(item[0], seen["pad"]))

    script.build_dynamic_dataset_iter = batches
    if EOLE:
        script.build_trainer = trainer
    else:
        script.build_model = model
    return seen


def count(batch, pad: int) -> Counts:
    source, labels = batch["src"], batch["tgt"][:, 1:]
    if not EOLE:  # its tensors have an axis of features
        source, labels = source[:, :, 0], labels[:, :, 0]
    source_tokens, target_tokens = int(batch["srclen"].sum()), int((labels != pad).sum())
    positions = source.numel() + labels.numel()
    return Counts(source_tokens, target_tokens, positions, positions - source_tokens - target_tokens)


if __name__ == "__main__":
    main()
