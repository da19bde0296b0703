"""regard: its own trainer and its own batches, on the ids that every system gets."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from benchmarks.peers.meter import Counts, Job, Meter
from regard.settings import ModelSettings, Settings, TrainingSettings
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Specials
from regard.training import loop
from regard.training.batches import Examples, PairBatch, write_examples
from regard.training.events import Progress
from regard.training.loop import Share, train_model
from regard.training.run import TrainingRun, open_run
from regard.training.tasks.task import Batch


def main() -> None:
    job = Job.from_command_line()
    meter = Meter(job)
    prepared = prepare(job)
    run(prepared, job, meter)
    meter.report("regard", "torch", weights=prepared.model.parameters())


def prepare(job: Job) -> TrainingRun:
    """A prepared folder as `regard train` makes it, but with the ids of the job instead of a tokenizer."""
    folder = Path(job.scratch) / "run"
    for name in ("train", "dev"):
        pairs = zip(*job.sentences(), strict=True)
        write_examples(folder / "training" / name, pairs, job.vocabulary_size)
    (folder / "model.toml").write_text(dump(settings(job, job.target_tokens)), encoding="utf-8")
    about = {"preset": "as asked", "reason": "as asked", "examples": len(job.sentences()[0]), "held_out": {"dev": 0}}
    (folder / "training" / "about.json").write_text(json.dumps(about), encoding="utf-8")
    # a batch's budget counts padding and the longer side; raise it until an average batch holds as much as asked
    plan = Examples(folder / "training" / "train").plan(job.target_tokens, job.seed, 0)
    labels = sum(len(target) + 1 for target in job.sentences()[1])
    budget = round(job.target_tokens * job.target_tokens / (labels / len(plan)))
    (folder / "model.toml").write_text(dump(settings(job, budget)), encoding="utf-8")
    sizes = SimpleNamespace(size=job.vocabulary_size, specials=Specials())
    vocabularies: Any = SimpleNamespace(source=sizes, target=sizes)
    return open_run(folder, vocabularies=vocabularies)


def settings(job: Job, batch_tokens: int) -> Settings:
    return Settings(
        model=ModelSettings(
            width=job.width,
            hidden=job.feed_forward,
            heads=job.heads,
            encoder_layers=job.layers,
            decoder_layers=job.layers,
            dropout=job.dropout,
        ),
        training=TrainingSettings(
            batch_tokens=batch_tokens,
            label_smoothing=job.label_smoothing,
            steps=1_000_000,
            evaluate_every=1_000_000,
            threads=job.threads,
            seed=job.seed,
            device="cpu",
            precision=job.options.get("precision", "float32"),
        ),
    )


def run(prepared: TrainingRun, job: Job, meter: Meter) -> None:
    """Makes updates in the training loop and meters their batches."""
    seen: list[Batch] = []
    next_batches = loop.next_batches

    def watched(prepared: TrainingRun) -> list[Share]:
        shares = next_batches(prepared)
        seen.extend(share.batch for share in shares)
        return shares

    setattr(loop, "next_batches", watched)  # noqa: B010
    for event in train_model(prepared):
        if not isinstance(event, Progress):
            continue
        if event.step == job.warmup:
            seen.clear()
            meter.start()
        if event.step == job.warmup + job.steps:
            for batch in seen:
                assert isinstance(batch, PairBatch)
                meter.add(count(batch))
            meter.stop()
            return


def count(batch: PairBatch) -> Counts:
    rows, positions = len(batch.source), batch.source.numel() + batch.labels.numel()
    source, labels = (int(size) for size in batch.sizes)
    return Counts(source - rows, labels, positions, positions - source - labels)


if __name__ == "__main__":
    torch.manual_seed(0)
    main()
