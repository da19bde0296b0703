# mypy: ignore-errors
"""Eole: its `eole train`, on its own dynamic iterator."""

import contextlib

import torch
from eole import train_single
from eole.bin.run.train import train
from eole.config.run import TrainConfig

from benchmarks.peers.meter import Counts, Finished, Job, Meter

# Its batch_size bounds sentences x longest side with begin and end, padding included. With this factor an
# average batch holds the number of real target tokens that is asked for, by bucket (262,144: its default).
BATCH_SIZE_PER_TARGET_TOKEN = {262_144: 1.1, 29_000: 1.2}


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    meter = Meter(job)
    seen = watch(meter)
    with contextlib.suppress(Finished):
        train(TrainConfig(**settings(job)))
    meter.report("eole", "torch", weights=seen["model"].parameters())


def watch(meter: Meter) -> dict[str, object]:
    """Hook the names under which its training script builds the trainer and the batches."""
    seen = {}
    build_trainer = train_single.build_trainer
    build_batches = train_single.build_dynamic_dataset_iter

    def trainer(config, device, model, vocabularies, *arguments, **keywords):
        seen["model"] = model
        seen["pad"] = vocabularies["tgt"][vocabularies["specials"]["pad_token"]]
        return build_trainer(config, device, model, vocabularies, *arguments, **keywords)

    def batches(*arguments, **keywords):
        iterator = build_batches(*arguments, **keywords)
        return None if iterator is None else meter.watch(iterator, lambda item: count(item[0], seen["pad"]))

    train_single.build_trainer = trainer
    train_single.build_dynamic_dataset_iter = batches
    return seen


def count(batch, pad: int) -> Counts:
    source, labels = batch["src"], batch["tgt"][:, 1:]
    source_tokens, target_tokens = int(batch["srclen"].sum()), int((labels != pad).sum())
    positions = source.numel() + labels.numel()
    return Counts(source_tokens, target_tokens, positions, positions - source_tokens - target_tokens)


def settings(job: Job) -> dict[str, object]:
    bucket = job.options.get("bucket_size", 262_144)
    return {
        "seed": job.seed,
        "data": {"multi30k": {"path_src": job.source, "path_tgt": job.target, "transforms": []}},
        "src_vocab": job.vocabulary,
        "src_vocab_size": job.vocabulary_size,
        "tgt_vocab_size": job.vocabulary_size,
        "share_vocab": True,
        "model": {
            "architecture": "transformer",
            "layers": job.layers,
            "hidden_size": job.width,
            "transformer_ff": job.feed_forward,
            "heads": job.heads,
            "embeddings": {"word_vec_size": job.width, "position_encoding_type": "SinusoidalInterleaved"},
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "add_qkvbias": True,
            "add_ffnbias": True,
        },
        "training": {
            "model_path": f"{job.scratch}/model",
            "dropout": [job.dropout],
            "attention_dropout": [0.0],
            "label_smoothing": job.label_smoothing,
            "optim": "adam",
            "adam_beta2": 0.98,
            "learning_rate": 2.0,
            "decay_method": "noam",
            "warmup_steps": 4000,
            "param_init_method": "xavier_uniform",
            "batch_type": "tokens",
            "batch_size": round(job.target_tokens * BATCH_SIZE_PER_TARGET_TOKEN[bucket]),
            "bucket_size": bucket,
            "normalization": "tokens",
            "num_workers": 0,  # two worker processes (the default) would take the trainer's two cores
            "compute_dtype": "fp32",
        },
    }


if __name__ == "__main__":
    main()
