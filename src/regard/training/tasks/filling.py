"""Trains models that fill gaps in text, by predicting masked tokens (BERT; Devlin et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.fill_classify_embed import Filler
from regard.decoding.writer import perplexity
from regard.errors import SettingsError
from regard.model.transformer import Encoder
from regard.settings import Settings
from regard.tokens.token_streams import Stream
from regard.tokens.tokenizer import Vocabularies
from regard.training.batch_order import plan_texts
from regard.training.batches import IGNORE, Batch, Rows, padded, padding_mask
from regard.training.losses import Loss, token_loss
from regard.training.tasks.task import EXAMPLES, Assessment, Task
from regard.weights import Contents, Model

HIDDEN, RANDOM = 0.8, 0.1
"""Shares of the tokens to predict that are masked, and that are replaced by a random token; the rest stay visible."""


@dataclass(frozen=True)
class GapBatch(Batch):
    """Texts with gaps; the labels are the original tokens at the gaps."""

    segments: Tensor  # [B, T]
    follows: Tensor | None  # [B] 0 if the second text follows the first, 1 if it is a random text
    gaps: float  # mean number of gaps per text in the whole batch


class FillingTraining(Task):
    """Trains an encoder on pieces of documents, with newly chosen gaps in each update."""

    unit = "tokens"
    metrics = ("loss", "accuracy")
    shown_scores = ("accuracy",)

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Stream(work / "train"), Stream(work / "dev")
        if self.specials.mask is None:
            raise SettingsError("this model's vocabulary has no mask token, so the model cannot learn to fill gaps")
        self.mask, tokenizer = self.specials.mask, vocabularies.target
        self.room = settings.model.max_length - 2 - (self.specials.between if settings.model.next_sentence else 0)
        whole_words = settings.training.whole_words
        self.words = (np.array(tokenizer.continues()), np.array(tokenizer.can_continue())) if whole_words else None
        special = {*self.specials.never_generated, self.specials.end}
        self.ordinary = np.array([i for i in range(tokenizer.size) if i not in special])

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Returns batches of pieces of similar length that contain every token once; a row is (start, length)."""
        training = self.settings.training
        random = np.random.default_rng([training.seed, epoch])
        pieces = self.train.pieces(self.room, random)
        return [pieces[rows] for rows in plan_texts(pieces[:, 1], training.batch_tokens, random)]

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.hide(self.train, rows, np.random.default_rng([self.settings.training.seed, 1, update]))

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """Takes rows from the whole batch, so that the gaps do not depend on the number of processes."""
        return self.batch(rows, update).share(part, parts)

    def dev_batches(self) -> Iterator[GapBatch]:
        return self.batches_of(self.dev)

    def batches_of(self, stream: Stream) -> Iterator[GapBatch]:
        """Yields a held-out stream with gaps that are always the same."""
        random = np.random.default_rng(0)
        pieces = stream.pieces(self.room, None)
        for rows in plan_texts(pieces[:, 1], self.settings.training.batch_tokens, np.random.default_rng(0)):
            yield self.hide(stream, pieces[rows], random)

    def hide(self, stream: Stream, pieces: Rows, random: np.random.Generator) -> GapBatch:
        """[N, 2] starts and lengths of pieces of a stream -> a batch of these pieces with gaps."""
        texts, segments, follows = [], [], []
        for start, size in pieces:
            first = stream.tokens[start : start + size]
            second, other = first[:0], 0
            if self.settings.model.next_sentence and size > 1:
                cut = int(random.integers(1, size))
                first, second, other = first[:cut], first[cut:], int(random.integers(0, 2))
                if other:
                    start = int(random.integers(0, max(1, len(stream) - len(second))))
                    second = stream.tokens[start : start + len(second)]
            ids, kinds = self.specials.join(first.tolist(), second.tolist())
            texts.append(ids)
            segments.append(kinds)
            follows.append(other)
        inputs, keep = padded(texts, self.specials.pad), padding_mask([len(ids) for ids in texts])
        labels = torch.from_numpy(self.choose_gaps(inputs.numpy(), keep, random))
        verdicts = torch.tensor(follows) if self.settings.model.next_sentence else None
        gaps = int((labels != IGNORE).sum()) / len(labels)
        return GapBatch(inputs, labels, keep, padded(segments, 0), verdicts, gaps).to(self.device)

    def choose_gaps(self, inputs: Rows, keep: Tensor | None, random: np.random.Generator) -> Rows:
        """Replaces tokens in `inputs` by gaps; returns the original tokens as labels."""
        able = (inputs != self.specials.begin) & (inputs != self.specials.end)
        if keep is not None:
            able &= keep.numpy()
        chances = random.random(inputs.shape)
        if self.words is not None:  # all tokens of a word use the random number of its first token
            inside, open_ended = (each[inputs] & able for each in self.words)
            first = ~inside
            first[:, 1:] |= ~open_ended[:, :-1]
            place = np.maximum.accumulate(np.where(first, np.arange(inputs.shape[1]), 0), axis=1)
            chances = np.take_along_axis(chances, place, 1)
        chosen = able & (chances < self.settings.training.masked)
        for row in np.flatnonzero(~chosen.any(1) & able.any(1)):  # every text needs a gap to learn from
            chosen[row, random.choice(np.flatnonzero(able[row]))] = True
        labels = np.where(chosen, inputs, IGNORE)
        fate = random.random(inputs.shape)
        inputs[chosen & (fate < HIDDEN)] = self.mask
        replaced = chosen & (fate >= HIDDEN) & (fate < HIDDEN + RANDOM)
        inputs[replaced] = random.choice(self.ordinary, int(replaced.sum()))
        return labels

    def loss(self, model: Model, batch: GapBatch, smoothing: float) -> Loss:
        """Returns the loss at the gaps, plus that of the next-sentence prediction if the model has one."""
        assert isinstance(model, Encoder)
        assert model.fill is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        hidden = batch.labels != IGNORE
        loss = token_loss(model.fill.transform(states[hidden]), model.fill.logits, batch.labels[hidden], smoothing)
        if batch.follows is None or model.follows is None:
            return loss
        verdicts = model.follows(model.pool(states, batch.keep)).float()
        verdict_loss = F.cross_entropy(verdicts, batch.follows, reduction="sum")  # weighs as much as all gaps of a text
        return Loss(loss.total + verdict_loss * batch.gaps, loss.surprise, loss.tokens)

    @torch.inference_mode()
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Returns the accuracy at the gaps, and one text with gaps."""
        first = next(self.dev_batches())
        sample = self.show(first, self.predict(contents.model, first), number % len(first))
        return {"accuracy": self.accuracy(contents.model, self.dev)}, sample

    def accuracy(self, model: Model, stream: Stream) -> float:
        """Returns the percentage of gaps for which the most probable token is correct."""
        right = count = 0
        for batch in self.batches_of(stream):
            predictions = self.predict(model, batch)
            right += int((predictions == batch.labels[batch.labels != IGNORE]).sum())
            count += len(predictions)
        return 100 * right / max(1, count)

    def predict(self, model: Model, batch: GapBatch) -> Tensor:
        assert isinstance(model, Encoder)
        assert model.fill is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        return model.fill(states[batch.labels != IGNORE]).argmax(-1)

    def show(self, batch: GapBatch, predictions: Tensor, row: int) -> list[tuple[str, str]]:
        """Returns one text of a batch three times: with gaps, as filled by the model, and in the original."""
        hidden, vocabulary, shown = batch.labels != IGNORE, self.vocabularies.target, slice(1, 40)
        filled = batch.inputs.clone()
        filled[hidden] = predictions
        right = torch.where(hidden, batch.labels, batch.inputs)
        pieces = vocabulary.pieces(batch.inputs[row, shown].tolist())
        gaps = zip(hidden[row, shown].tolist(), pieces, strict=True)
        text = "".join("[…]" if gap else piece.replace("▁", " ") for gap, piece in gaps).strip()
        texts = (vocabulary.decode(ids[row, shown].tolist()) for ids in (filled, right))
        return [("text", text), *zip(("model", "right"), texts, strict=True)]

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns texts whose middle word is `[MASK]`, and these texts as filled by the model."""
        pieces, filler = self.dev.pieces(self.room, None)[:EXAMPLES], Filler(contents)
        decode = self.vocabularies.target.decode
        texts = [decode(self.dev.tokens[start : start + min(size, 24)].tolist()).split() for start, size in pieces]
        masked = [" ".join([*words[: len(words) // 2], "[MASK]", *words[len(words) // 2 + 1 :]]) for words in texts]
        return [(text, filler(text)) for text in masked]

    @torch.inference_mode()
    def report(self, contents: Contents, name: str) -> list[str]:
        stream = Stream(self.work / name)
        losses = [self.loss(contents.model, batch, 0.0) for batch in self.batches_of(stream)]
        surprise, count = sum(loss.surprise for loss in losses), sum(loss.tokens for loss in losses)
        how = f"{count:,} hidden tokens, {self.settings.training.masked:.0%} of all, drawn with seed 0"
        return [
            f"perplexity {perplexity(surprise / max(1, count)):.2f} per hidden token ({how})",
            f"accuracy {self.accuracy(contents.model, stream):.2f} % of the hidden tokens",
        ]
