# mypy: ignore-errors
"""Hugging Face transformers: Seq2SeqTrainer on a MarianMT model (post-norm, tied embeddings, sinusoids)."""

import os

os.environ["HF_HUB_OFFLINE"] = "1"  # everything is built here; read when transformers is imported

import random

import torch
from transformers import (
    DataCollatorForSeq2Seq,
    MarianConfig,
    MarianMTModel,
    PreTrainedTokenizerFast,
    Seq2SeqTrainer,
    Seq2SeqTrainingArguments,
    TrainerCallback,
    set_seed,
)

from benchmarks.peers.meter import Counts, Job, Meter

IGNORED = -100  # the collator's padding of labels
PAD, UNKNOWN, BEGIN, END = "<pad>", "<unk>", "<s>", "</s>"


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    set_seed(job.seed)
    meter = Meter(job)
    model = MarianMTModel(config(job))
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_file=job.tokenizer, pad_token=PAD, unk_token=UNKNOWN, bos_token=BEGIN, eos_token=END
    )
    trainer = MeteredTrainer(
        model=model,
        args=arguments(job),
        train_dataset=features(job),
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        callbacks=[StepTimer(meter)],
    )
    trainer.meter = meter
    trainer.train()
    meter.report("transformers", "torch", "accelerate", weights=model.parameters())


class MeteredTrainer(Seq2SeqTrainer):
    """Seq2SeqTrainer, watched; batches come in random order, so that few steps are a fair sample."""

    meter: Meter

    def training_step(self, model, inputs, *arguments, **keywords):
        if self.meter.running:
            self.meter.add(self.count(inputs))
        return super().training_step(model, inputs, *arguments, **keywords)

    def count(self, inputs) -> Counts:
        source, labels = inputs["input_ids"], inputs["labels"]
        source_padding = int((source == self.meter.job.pad).sum())
        target_padding = int((labels == IGNORED).sum())
        source_tokens = source.numel() - source_padding - source.shape[0]  # each source ends with </s>
        target_tokens = labels.numel() - target_padding
        return Counts(source_tokens, target_tokens, source.numel() + labels.numel(), source_padding + target_padding)

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if self.meter.job.options.get("length") == "longer side":
            # What a precomputed column of lengths (length_column_name) does with the datasets package.
            sides = [(pair["input_ids"], pair["labels"]) for pair in self.train_dataset]
            sampler.lengths = [max(len(source), len(target)) for source, target in sides]
        return ShuffledBatches(sampler, self.args.train_batch_size, self.meter.job.seed)


class ShuffledBatches(torch.utils.data.Sampler):
    """The length-grouped sampler's batches, whole, in random order instead of longest to shortest."""

    def __init__(self, sampler, batch_size: int, seed: int) -> None:
        self.sampler, self.batch_size, self.random = sampler, batch_size, random.Random(seed)

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self):
        indices = list(self.sampler)
        whole = len(indices) // self.batch_size * self.batch_size
        batches = [indices[at : at + self.batch_size] for at in range(0, whole, self.batch_size)]
        self.random.shuffle(batches)
        return iter([index for batch in batches for index in batch] + indices[whole:])


class StepTimer(TrainerCallback):
    """Times from the end of the last warm-up step to the end of the last timed one: whole steps."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter

    def on_step_end(self, args, state, control, **keywords) -> None:
        if state.global_step == self.meter.job.warmup:
            self.meter.start()
        elif state.global_step == self.meter.job.warmup + self.meter.job.steps:
            self.meter.stop()


def config(job: Job) -> MarianConfig:
    return MarianConfig(
        vocab_size=job.vocabulary_size,
        d_model=job.width,
        encoder_layers=job.layers,
        decoder_layers=job.layers,
        encoder_ffn_dim=job.feed_forward,
        decoder_ffn_dim=job.feed_forward,
        encoder_attention_heads=job.heads,
        decoder_attention_heads=job.heads,
        dropout=job.dropout,
        attention_dropout=0.0,
        activation_dropout=0.0,
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        pad_token_id=job.pad,
        bos_token_id=job.begin,
        eos_token_id=job.end,
        decoder_start_token_id=job.begin,
    )


def features(job: Job) -> list[dict[str, list[int]]]:
    """What the tokenizer makes of the text: it adds </s> to both sides."""
    sources, targets = ([[*ids, job.end] for ids in side] for side in job.sentences())
    return [
        {"input_ids": source, "attention_mask": [1] * len(source), "labels": target}
        for source, target in zip(sources, targets, strict=True)
    ]


def arguments(job: Job) -> Seq2SeqTrainingArguments:
    _, target = job.sentences()
    mean_target = sum(len(sentence) + 1 for sentence in target) / len(target)
    return Seq2SeqTrainingArguments(
        output_dir=job.scratch,
        per_device_train_batch_size=round(job.target_tokens / mean_target),  # its batches count sentences
        train_sampling_strategy="group_by_length",
        label_smoothing_factor=job.label_smoothing,
        learning_rate=5e-4,
        warmup_steps=4000,
        adam_beta2=0.98,
        max_steps=job.warmup + job.steps,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=job.seed,
    )


if __name__ == "__main__":
    main()
