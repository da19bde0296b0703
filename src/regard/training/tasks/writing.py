"""Learning to write: the next token of running text (GPT; Radford et al., 2018)."""

from __future__ import annotations

import math
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
from regard.training.batches import IGNORE, Rows
from regard.training.objectives import token_loss
from regard.training.tasks.task import Assessment, Batch, Loss, Task
from regard.weights import Contents, Model

PROMPT, SAMPLE = 8, 60  # tokens of the dev text that a sample goes on from, and tokens that it adds


@dataclass(frozen=True)
class TextBatch:
    """Windows of a text side by side."""

    inputs: Tensor  # [B, T]
    labels: Tensor  # [B, T], the token that follows each
    documents: Tensor | None  # [B, T], the document of each token; none where all of a row are of one
    tokens: int

    @property
    def seen(self) -> int:
        return self.inputs.numel()

    def __len__(self) -> int:
        return len(self.inputs)

    def share(self, part: int, parts: int) -> TextBatch:
        inputs, labels = self.inputs[part::parts], self.labels[part::parts]
        documents = None if self.documents is None else self.documents[part::parts]
        return TextBatch(inputs, labels, documents, int((labels != IGNORE).sum()))


class Writing(Task):
    """Trains a decoder on windows of a text, packed: each as long as the model can read."""

    unit = "tokens"
    prints = ("nats_per_character",)

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Stream(work / "train"), Stream(work / "dev")
        specials = vocabularies.target.specials
        self.shared_ends = specials.begin == specials.end
        self.length = min(settings.model.max_length, len(self.train) - 1)

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Every token once but for some at the ends; the windows lie elsewhere in each epoch."""
        training = self.settings.training
        random = np.random.default_rng([training.seed, epoch])
        starts = random.permutation(self.train.windows(self.length, random))
        size = max(1, training.batch_tokens // self.length)
        return [starts[i : i + size] for i in range(0, len(starts), size)]

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.cut(self.train, rows, self.length)

    def cut(self, stream: Stream, starts: Rows, length: int) -> TextBatch:
        """The windows that begin at these places."""
        tokens, numbers = stream.take(starts, length + 1), stream.document_numbers(starts, length + 1)
        labels = tokens[:, 1:].copy()
        if not self.shared_ends:  # after the end of a document there is nothing to predict
            labels[numbers[:, 1:] != numbers[:, :-1]] = IGNORE
        several = bool((numbers[:, :-1] != numbers[:, :1]).any())
        documents = torch.from_numpy(numbers[:, :-1]).to(self.device) if several else None
        inputs, following = (torch.from_numpy(array).to(self.device) for array in (tokens[:, :-1], labels))
        return TextBatch(inputs, following, documents, int((labels != IGNORE).sum()))

    def dev_batches(self) -> Iterator[Batch]:
        """Windows end to end, and what is left after the last."""
        length = min(self.length, len(self.dev) - 1)
        starts = self.dev.windows(length, None)
        size = max(1, self.settings.training.batch_tokens // length)
        for i in range(0, len(starts), size):
            yield self.cut(self.dev, starts[i : i + size], length)
        rest = int(starts[-1]) + length
        if rest < len(self.dev) - 1:
            yield self.cut(self.dev, np.array([rest]), len(self.dev) - 1 - rest)

    def loss(self, model: Model, batch: TextBatch, smoothing: float) -> Loss:
        assert isinstance(model, Decoder)
        states = model.states(batch.inputs, documents=batch.documents)
        return token_loss(states, model.logits, batch.labels, smoothing)

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """A sample that goes on from a place in the dev text."""
        last = max(1, len(self.dev) - PROMPT)
        start = int(np.random.default_rng(number).integers(0, last))
        vocabulary = self.vocabularies.target
        prompt = vocabulary.decode(int(i) for i in self.dev.tokens[start : start + PROMPT])
        text = writer_of(contents)(prompt, max_tokens=SAMPLE, temperature=0.8, seed=number)
        return Assessment({"nats_per_character": surprise / self.dev.characters}, [("prompt", prompt), ("model", text)])

    def report(self, contents: Contents, name: str) -> list[str]:
        """Perplexity, and surprise per character, which can be compared between vocabularies."""
        stream = Stream(self.work / name)
        surprise, count = stream_surprise(self, contents.model, stream)
        size = self.settings.model.max_length
        half = size - size // 2
        return [
            f"perplexity {perplexity(surprise / count):.2f} per token ({count:,} tokens of this vocabulary "
            f"of {self.vocabularies.target.size:,}; windows of {size} that overlap by {half})",
            f"{surprise / stream.characters:.4f} nats, {surprise / stream.characters / math.log(2):.4f} bits "
            f"per character ({stream.characters:,} characters)",
        ]


@torch.inference_mode()
def stream_surprise(task: Writing, model: Model, stream: Stream) -> tuple[float, int]:
    """Nats of all tokens of a stream, each predicted from at least half a window before it, and their number."""
    alike: dict[tuple[int, int], list[int]] = {}  # windows by how many tokens they have, and how many are new
    for start, fresh, end in windows(len(stream), task.length):
        alike.setdefault((fresh - start - 1, end - start - 1), []).append(start)
    surprise, count = 0.0, 0
    rows = max(1, task.settings.training.batch_tokens // task.length)
    for (known, length), starts in alike.items():
        for i in range(0, len(starts), rows):
            batch = task.cut(stream, np.array(starts[i : i + rows]), length)
            batch.labels[:, :known] = IGNORE
            loss = task.loss(model, batch, 0.0)
            surprise, count = surprise + loss.surprise, count + loss.tokens
    return surprise, count
