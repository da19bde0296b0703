"""Trains models that continue text, by predicting the next token (GPT; Radford et al., 2018)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.decoding.pytorch_engine import writer_of
from regard.decoding.writer import perplexity, windows
from regard.model.transformer import Decoder
from regard.settings import Settings
from regard.tokens.token_streams import Stream
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import IGNORE, Batch, Rows
from regard.training.losses import Loss, token_loss
from regard.training.tasks.task import EXAMPLES, Assessment, Task
from regard.weights import Contents, Model

PROMPT, SAMPLE = 8, 60  # length of a prompt from the dev text, and of the sample that continues it, in tokens
CONTINUED = 16  # length of an example in tokens


@dataclass(frozen=True)
class TextBatch(Batch):
    """Windows of a text; the label of each token is the next token."""

    documents: Tensor | None  # [B, T] document number of each token; None if no row contains several documents


class WritingTraining(Task):
    """Trains a decoder on windows of text of the model's maximum length."""

    unit = "tokens"
    metrics = ("loss",)
    shown_scores = ("nats_per_character",)

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Stream(work / "train"), Stream(work / "dev")
        self.length = min(settings.model.max_length, len(self.train) - 1)

    @property
    def rows(self) -> int:
        return max(1, self.settings.training.batch_tokens // self.length)

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns windows that contain every token once, except some at the ends; they differ in each epoch."""
        random = np.random.default_rng([self.settings.training.seed, epoch])
        starts = random.permutation(self.train.windows(self.length, random))
        return [starts[i : i + self.rows] for i in range(0, len(starts), self.rows)]

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.cut(self.train, rows, self.length)

    def cut(self, stream: Stream, starts: Rows, length: int) -> TextBatch:
        tokens, numbers = stream.take(starts, length + 1), stream.document_numbers(starts, length + 1)
        labels = tokens[:, 1:].copy()
        if self.specials.begin != self.specials.end:  # otherwise, one token ends a document and begins the next
            labels[numbers[:, 1:] != numbers[:, :-1]] = IGNORE
        several = bool((numbers[:, :-1] != numbers[:, :1]).any())
        documents = torch.from_numpy(numbers[:, :-1]) if several else None
        batch = TextBatch(torch.from_numpy(tokens[:, :-1]), torch.from_numpy(labels), None, documents)
        return batch.to(self.device)

    def dev_batches(self) -> Iterator[Batch]:
        """Yields consecutive windows, and then the rest of the text, which is shorter."""
        length = min(self.length, len(self.dev) - 1)
        starts = self.dev.windows(length, None)
        rows = max(1, self.settings.training.batch_tokens // length)
        for i in range(0, len(starts), rows):
            yield self.cut(self.dev, starts[i : i + rows], length)
        end = int(starts[-1]) + length
        if end < len(self.dev) - 1:
            yield self.cut(self.dev, np.array([end]), len(self.dev) - 1 - end)

    def loss(self, model: Model, batch: TextBatch, smoothing: float) -> Loss:
        assert isinstance(model, Decoder)
        states = model.states(batch.inputs, documents=batch.documents)
        return token_loss(states, model.logits, batch.labels, smoothing)

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Returns the surprise per character, and a sampled continuation of a random part of the dev text."""
        last = max(1, len(self.dev) - PROMPT)
        start = int(np.random.default_rng(number).integers(0, last))
        vocabulary = self.vocabularies.target
        prompt = vocabulary.decode(int(i) for i in self.dev.tokens[start : start + PROMPT])
        text = writer_of(contents)(prompt, max_tokens=SAMPLE, temperature=0.8, seed=number)
        return {"nats_per_character": surprise / self.dev.characters}, [("prompt", prompt), ("model", text)]

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns prompts from the dev text with greedy continuations of `CONTINUED` tokens."""
        starts = range(0, max(1, len(self.dev) - PROMPT), max(PROMPT, len(self.dev) // EXAMPLES))
        decode, write = self.vocabularies.target.decode, writer_of(contents)
        prompts = [decode(self.dev.tokens[start : start + PROMPT].tolist()) for start in starts][:EXAMPLES]
        return [(prompt, write(prompt, max_tokens=CONTINUED, temperature=0, beam=1)) for prompt in prompts]

    def report(self, contents: Contents, name: str) -> list[str]:
        """Reports perplexity, and surprise per character, which is comparable between vocabularies."""
        stream = Stream(self.work / name)
        surprise, count = stream_surprise(self, contents.model, stream)
        size = self.settings.model.max_length
        nats = surprise / stream.characters
        return [
            f"perplexity {perplexity(surprise / count):.2f} per token ({count:,} tokens of this vocabulary "
            f"of {self.vocabularies.target.size:,}; windows of {size} that overlap by {size - size // 2})",
            f"{nats:.4f} nats, {nats / math.log(2):.4f} bits per character ({stream.characters:,} characters)",
        ]


@torch.inference_mode()
def stream_surprise(task: WritingTraining, model: Model, stream: Stream) -> tuple[float, int]:
    """Returns the total surprise in nats and the number of tokens, each predicted from at least half a window."""
    starts_by_size: dict[tuple[int, int], list[int]] = defaultdict(list)  # keys: tokens already predicted, all tokens
    for start, fresh, end in windows(len(stream), task.length):
        starts_by_size[fresh - start - 1, end - start - 1].append(start)
    surprise, count = 0.0, 0
    for (known, length), starts in starts_by_size.items():
        for i in range(0, len(starts), task.rows):
            batch = task.cut(stream, np.array(starts[i : i + task.rows]), length)
            batch.labels[:, :known] = IGNORE
            loss = task.loss(model, batch, 0.0)
            surprise, count = surprise + loss.surprise, count + loss.tokens
    return surprise, count
