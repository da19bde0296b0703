"""regard: its own trainer and its own batches, on the ids that every system gets."""

import json
from pathlib import Path
from types import SimpleNamespace

import torch

from benchmarks.peers.meter import Counts, Job, Meter
from regard.options import dump
from regard.settings import ModelSettings, Settings, TrainingSettings
from regard.text.tokenizer import Specials
from regard.training import loop
from regard.training.batches import Examples, PairBatch, write_examples
from regard.training.events import Progress
from regard.training.gradients import Share
from regard.training.loop import Trainer
from regard.training.task import Batch


def main() -> None:
    job = Job.from_command_line()
    meter = Meter(job)
    trainer = prepare(job)
    run(trainer, job, meter)
    meter.report("regard", "torch", weights=trainer.model.parameters())


def prepare(job: Job) -> Trainer:
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
    vocabularies = SimpleNamespace(load=lambda _: SimpleNamespace(source=sizes, target=sizes))
    setattr(loop, "Vocabularies", vocabularies)  # noqa: B010 (the name is not public)
    return Trainer(folder)


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


def run(trainer: Trainer, job: Job, meter: Meter) -> None:
    """Updates of the trainer's own loop, watched."""
    seen: list[Batch] = []
    next_shares = trainer.next_shares

    def watched() -> list[Share]:
        shares = next_shares()
        seen.extend(share.batch for share in shares)
        return shares

    trainer.next_shares = watched  # type: ignore[method-assign]
    for event in trainer.run():
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
