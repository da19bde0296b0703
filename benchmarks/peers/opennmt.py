# mypy: ignore-errors
"""OpenNMT-py: its `onmt_train`, on its own dynamic iterator."""

import contextlib
import json
import warnings

import torch
from onmt import train_single
from onmt.bin.train import _get_parser, train

from benchmarks.peers.meter import Counts, Finished, Job, Meter

# Its batch_size bounds sentences x longest side with begin and end, padding included. With this factor an
# average batch holds the number of real target tokens that is asked for, by bucket (262,144: its default).
BATCH_SIZE_PER_TARGET_TOKEN = {262_144: 1.1, 29_000: 1.2}
FLAGS = [
    "--share_vocab",
    "--share_embeddings",
    "--share_decoder_embeddings",
    "--position_encoding",
    "--param_init_glorot",
    "--add_qkvbias",
    "--add_ffnbias",
]
PAD = 1  # <unk>, <blank>, <s>, </s> come first in its vocabulary


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch.cuda.amp's old names, a line per step
    meter = Meter(job)
    models = watch(meter)
    options = [f"--{name}={value}" for name, value in settings(job).items()]
    with contextlib.suppress(Finished):
        train(_get_parser().parse_args(options + FLAGS))
    meter.report("OpenNMT-py", "torch", weights=models[0].parameters())


def watch(meter: Meter) -> list[torch.nn.Module]:
    """Hook the names under which its training script finds the model and the batches."""
    models = []
    build_model = train_single.build_model
    build_batches = train_single.build_dynamic_dataset_iter

    def model(*arguments, **keywords):
        models.append(build_model(*arguments, **keywords))
        return models[0]

    def batches(*arguments, **keywords):
        iterator = build_batches(*arguments, **keywords)
        return None if iterator is None else meter.watch(iterator, count)

    train_single.build_model = model
    train_single.build_dynamic_dataset_iter = batches
    return models


def count(item) -> Counts:
    batch, _ = item
    source, labels = batch["src"][:, :, 0], batch["tgt"][:, 1:, 0]
    source_tokens, target_tokens = int(batch["srclen"].sum()), int((labels != PAD).sum())
    positions = source.numel() + labels.numel()
    return Counts(source_tokens, target_tokens, positions, positions - source_tokens - target_tokens)


def settings(job: Job) -> dict[str, object]:
    bucket = job.options.get("bucket_size", 262_144)
    return {
        "data": json.dumps({"multi30k": {"path_src": job.source, "path_tgt": job.target}}),
        "save_model": f"{job.scratch}/model",
        "src_vocab": job.vocabulary,
        "src_vocab_size": job.vocabulary_size,
        "tgt_vocab_size": job.vocabulary_size,
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "enc_layers": job.layers,
        "dec_layers": job.layers,
        "hidden_size": job.width,
        "word_vec_size": job.width,
        "transformer_ff": job.feed_forward,
        "heads": job.heads,
        "dropout": job.dropout,
        "attention_dropout": 0.0,
        "label_smoothing": job.label_smoothing,
        "optim": "adam",
        "adam_beta2": 0.98,
        "learning_rate": 2.0,
        "decay_method": "noam",
        "warmup_steps": 4000,
        "batch_type": "tokens",
        "batch_size": round(job.target_tokens * BATCH_SIZE_PER_TARGET_TOKEN[bucket]),
        "bucket_size": bucket,
        "normalization": "tokens",
        "num_workers": 0,  # two worker processes (the default) would take the trainer's two cores
        "seed": job.seed,
    }


if __name__ == "__main__":
    main()
