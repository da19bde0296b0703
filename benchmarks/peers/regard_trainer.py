"""regard: its own trainer and its own batches, on the ids that every system gets."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.peers.timed_steps import Counts, Job, StepTimer
from regard.settings import ModelSettings, Settings, TrainingSettings
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Specials
from regard.training import loop
from regard.training.batches import Batch, Examples, PairBatch, write_examples
from regard.training.events import Progress
from regard.training.loop import LocalBatch, train_model
from regard.training.run import TrainingRun, open_run


def main() -> None:
    job = Job.from_command_line()
    timer, prepared = StepTimer(job), prepare(job)
    train(prepared, timer)
    timer.report("regard", "torch", weights=prepared.model.parameters())


def prepare(job: Job) -> TrainingRun:
    """Makes a prepared folder as `regard train` does, but with the ids of the job instead of a tokenizer."""
    folder, (sources, targets) = Path(job.scratch) / "run", job.sentences()
    for name in ("train", "dev"):
        write_examples(folder / "training" / name, zip(sources, targets, strict=True), job.vocabulary_size)
    # a batch's budget counts padding and the longer side; raise it until batches have the requested size
    plan = Examples(folder / "training" / "train").plan(job.target_tokens, job.seed, 0)
    labels = sum(len(target) + 1 for target in targets)
    budget = round(job.target_tokens * job.target_tokens / (labels / len(plan)))
    return open_prepared(folder, settings(job, budget), job.vocabulary_size, {"examples": len(sources)})


def open_prepared(folder: Path, chosen: Settings, vocabulary_size: int, about: dict[str, Any]) -> TrainingRun:
    """Opens a folder with prepared ids, whose vocabulary is nothing but a size."""
    (folder / "model.toml").write_text(dump(chosen), encoding="utf-8")
    about = {"preset": "as asked", "reason": "as asked", "held_out": {"dev": 0}, **about}
    (folder / "training" / "about.json").write_text(json.dumps(about), encoding="utf-8")
    sizes = SimpleNamespace(size=vocabulary_size, specials=Specials())
    vocabularies: Any = SimpleNamespace(source=sizes, target=sizes)
    return open_run(folder, vocabularies=vocabularies)


def settings(job: Job, batch_tokens: int) -> Settings:
    shape: dict[str, Any] = {"width": job.width, "hidden": job.feed_forward, "heads": job.heads}
    shape |= {"encoder_layers": job.layers, "decoder_layers": job.layers, "dropout": job.dropout}
    how: dict[str, Any] = {"batch_tokens": batch_tokens, "label_smoothing": job.label_smoothing, "seed": job.seed}
    how |= {"threads": job.threads, "device": "cpu", "precision": job.options.get("precision", "float32")}
    endless: dict[str, Any] = {"steps": 1_000_000, "evaluate_every": 1_000_000}
    return Settings(model=ModelSettings(**shape), training=TrainingSettings(**how, **endless))


def train(prepared: TrainingRun, timer: StepTimer) -> None:
    """Trains in the real loop, and counts and times its batches."""
    seen: list[Batch] = []
    next_batches = loop.next_batches

    def watched(prepared: TrainingRun) -> list[LocalBatch]:
        shares = next_batches(prepared)
        seen.extend(share.batch for share in shares)
        return shares

    setattr(loop, "next_batches", watched)  # noqa: B010
    for event in train_model(prepared):
        if isinstance(event, Progress):
            timer.at_step(event.step)
            if event.step == timer.job.warmup:
                seen.clear()
            if timer.seconds:
                break
    for batch in seen:
        assert isinstance(batch, PairBatch)
        timer.add(count(batch))


def count(batch: PairBatch) -> Counts:
    rows, positions = len(batch), batch.inputs.numel() + batch.labels.numel()
    source, labels = batch.seen - batch.tokens, batch.tokens
    return Counts(source - rows, labels, positions, positions - source - labels)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
