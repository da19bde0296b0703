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

from benchmarks.peers.timed_steps import Counts, Job, StepTimer

IGNORED = -100  # the collator's padding of labels
SPECIALS = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}


def main() -> None:
    job = Job.from_command_line()
    torch.set_num_threads(job.threads)
    set_seed(job.seed)
    timer = StepTimer(job)
    sources, targets = ([[*ids, job.end] for ids in side] for side in job.sentences())  # as the tokenizer ends them
    settings = job.settings("huggingface", rows=round(job.target_tokens / (sum(map(len, targets)) / len(targets))))
    model = MarianMTModel(MarianConfig(**settings["model"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=job.tokenizer, **SPECIALS)
    pairs = zip(sources, targets, strict=True)
    trainer = TimedTrainer(
        model=model,
        args=Seq2SeqTrainingArguments(**settings["training"]),
        train_dataset=[{"input_ids": one, "attention_mask": [1] * len(one), "labels": other} for one, other in pairs],
        data_collator=DataCollatorForSeq2Seq(tokenizer, model=model),
        callbacks=[StepEnd(timer)],
    )
    trainer.timer = timer
    trainer.train()
    timer.report("transformers", "torch", "accelerate", weights=model.parameters())


class TimedTrainer(Seq2SeqTrainer):
    """Seq2SeqTrainer, watched; batches come in random order, so that few steps are a fair sample."""

    timer: StepTimer

    def training_step(self, model, inputs, *arguments, **keywords):
        if self.timer.running:
            self.timer.add(self.count(inputs))
        return super().training_step(model, inputs, *arguments, **keywords)

    def count(self, inputs) -> Counts:
        source, labels = inputs["input_ids"], inputs["labels"]
        source_padding = int((source == self.timer.job.pad).sum())
        target_padding = int((labels == IGNORED).sum())
        source_tokens = source.numel() - source_padding - source.shape[0]  # each source ends with </s>
        target_tokens = labels.numel() - target_padding
        return Counts(source_tokens, target_tokens, source.numel() + labels.numel(), source_padding + target_padding)

    def _get_train_sampler(self, train_dataset=None):
        sampler = super()._get_train_sampler(train_dataset)
        if self.timer.job.options.get("length") == "longer side":
            # What a precomputed column of lengths (length_column_name) does with the datasets package.
            sides = [(pair["input_ids"], pair["labels"]) for pair in self.train_dataset]
            sampler.lengths = [max(len(source), len(target)) for source, target in sides]
        return ShuffledBatches(sampler, self.args.train_batch_size, self.timer.job.seed)


class ShuffledBatches(torch.utils.data.Sampler):
    """Yields the batches of the length-grouped sampler in random order instead of longest to shortest."""

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


class StepEnd(TrainerCallback):
    """Reports the end of each step to the timer."""

    def __init__(self, timer: StepTimer) -> None:
        self.timer = timer

    def on_step_end(self, args, state, control, **keywords) -> None:
        self.timer.at_step(state.global_step)


if __name__ == "__main__":
    main()
