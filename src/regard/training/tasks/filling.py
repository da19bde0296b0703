"""Learning to fill gaps: hidden tokens of running text (BERT; Devlin et al., 2019)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from regard.decoding.writer import perplexity
from regard.errors import SettingsError
from regard.model.transformer import Encoder
from regard.settings import Settings
from regard.tokens.token_streams import Stream
from regard.tokens.tokenizer import Vocabularies
from regard.training.batch_order import in_lengths
from regard.training.batches import IGNORE, Rows
from regard.training.objectives import token_loss
from regard.training.tasks.task import Assessment, Batch, Loss, Task
from regard.weights import Contents, Model

HIDDEN, RANDOM = 0.8, 0.1
"""Of the tokens to guess, so many are hidden and so many replaced by any token; the rest stay as they are."""


@dataclass(frozen=True)
class GapBatch:
    """Texts with gaps, padded to one length."""

    inputs: Tensor  # [B, T]
    labels: Tensor  # [B, T], what is to be guessed, and `IGNORE`
    segments: Tensor  # [B, T]
    keep: Tensor | None  # [B, T]
    follows: Tensor | None  # [B]: 0 where the second text follows the first, 1 where it is another
    tokens: int
    seen: int
    gaps: float  # in a text, on the average of the whole batch

    def __len__(self) -> int:
        return len(self.inputs)

    def share(self, part: int, parts: int) -> GapBatch:
        inputs, labels, segments = (t[part::parts] for t in (self.inputs, self.labels, self.segments))
        keep, follows = (None if t is None else t[part::parts] for t in (self.keep, self.follows))
        seen = inputs.numel() if keep is None else int(keep.sum())
        return GapBatch(inputs, labels, segments, keep, follows, int((labels != IGNORE).sum()), seen, self.gaps)


class Filling(Task):
    """Trains an encoder on pieces of documents, of which some tokens are hidden, others each time."""

    unit = "tokens"
    prints = ("accuracy",)

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Stream(work / "train"), Stream(work / "dev")
        self.specials = vocabularies.target.specials
        if self.specials.mask is None:
            raise SettingsError("the vocabulary of this model has no token for a gap: it cannot learn to fill")
        self.mask = self.specials.mask
        self.room = settings.model.max_length - 2 - (self.specials.between if settings.model.next_sentence else 0)
        tokenizer, whole = vocabularies.target, settings.training.whole_words
        self.words = (np.array(tokenizer.continues()), np.array(tokenizer.can_continue())) if whole else None
        special = {*self.specials.never_generated, self.specials.end}
        self.ordinary = np.array([i for i in range(vocabularies.target.size) if i not in special])

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Every token once; pieces of like length together. A row is the start and the length of a piece."""
        training = self.settings.training
        random = np.random.default_rng([training.seed, epoch])
        pieces = self.train.pieces(self.room, random)
        batches = in_lengths(pieces[:, 1], training.batch_tokens, random)
        return [pieces[rows] for rows in batches]

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.hide(self.train, rows, np.random.default_rng([self.settings.training.seed, 1, update]))

    def share(self, rows: Rows, update: int, part: int, parts: int) -> Batch:
        """Some rows of the whole batch: which tokens are hidden does not depend on who works on them."""
        return self.batch(rows, update).share(part, parts)

    def dev_batches(self) -> Iterator[Batch]:
        random = np.random.default_rng(0)
        pieces = self.dev.pieces(self.room, None)
        for rows in in_lengths(pieces[:, 1], self.settings.training.batch_tokens, np.random.default_rng(0)):
            yield self.hide(self.dev, pieces[rows], random)

    def hide(self, stream: Stream, pieces: Rows, random: np.random.Generator) -> GapBatch:
        """These pieces of a stream, [N, 2] start and length, with gaps."""
        rows = [np.asarray(stream.tokens[start : start + size], np.int64) for start, size in pieces]
        joined, follows = [], []
        for row in rows:
            first, second, other = row, row[:0], 0
            if self.settings.model.next_sentence and len(row) > 1:
                cut = int(random.integers(1, len(row)))
                first, second, other = row[:cut], row[cut:], int(random.integers(0, 2))
                if other:
                    start = int(random.integers(0, max(1, len(stream) - len(second))))
                    second = np.asarray(stream.tokens[start : start + len(second)], np.int64)
            follows.append(other)
            joined.append(self.specials.join(first.tolist(), second.tolist()))
        longest = max(len(ids) for ids, _ in joined)
        inputs = np.full((len(rows), longest), self.specials.pad, np.int64)
        segments, keep = np.zeros_like(inputs), np.zeros(inputs.shape, bool)
        for i, (ids, kinds) in enumerate(joined):
            inputs[i, : len(ids)], segments[i, : len(ids)], keep[i, : len(ids)] = ids, kinds, True
        labels = self.choose_gaps(inputs, keep, random)
        arrays = [torch.from_numpy(array).to(self.device) for array in (inputs, labels, segments)]
        return GapBatch(
            arrays[0],
            arrays[1],
            arrays[2],
            None if keep.all() else torch.from_numpy(keep).to(self.device),
            torch.tensor(follows, device=self.device) if self.settings.model.next_sentence else None,
            int((labels != IGNORE).sum()),
            int(keep.sum()),
            int((labels != IGNORE).sum()) / len(labels),
        )

    def choose_gaps(self, inputs: Rows, keep: NDArray[np.bool_], random: np.random.Generator) -> Rows:
        """Hides tokens in `inputs`; returns the labels: what stood there."""
        able = keep & (inputs != self.specials.begin) & (inputs != self.specials.end)
        chances = random.random(inputs.shape)
        if self.words is not None:  # a token that goes on with a word shares the luck of its first one
            inside, open_ended = (each[inputs] & able for each in self.words)
            first = ~inside
            first[:, 1:] |= ~open_ended[:, :-1]
            place = np.maximum.accumulate(np.where(first, np.arange(inputs.shape[1]), 0), axis=1)
            chances = np.take_along_axis(chances, place, 1)
        chosen = able & (chances < self.settings.training.masked)
        for row in np.flatnonzero(~chosen.any(1) & able.any(1)):  # a text without a gap would teach nothing
            chosen[row, random.choice(np.flatnonzero(able[row]))] = True
        labels = np.where(chosen, inputs, IGNORE)
        fate = random.random(inputs.shape)
        inputs[chosen & (fate < HIDDEN)] = self.mask
        replaced = chosen & (fate >= HIDDEN) & (fate < HIDDEN + RANDOM)
        inputs[replaced] = random.choice(self.ordinary, int(replaced.sum()))
        return labels

    def loss(self, model: Model, batch: GapBatch, smoothing: float) -> Loss:
        """The surprise at the hidden tokens and, where the model judges pairs, at whether the second text follows."""
        assert isinstance(model, Encoder)
        assert model.fill is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        hidden = batch.labels != IGNORE
        loss = token_loss(model.fill.transform(states[hidden]), model.fill.logits, batch.labels[hidden], smoothing)
        if batch.follows is None or model.follows is None:
            return loss
        verdicts = model.follows(model.judge(states, batch.keep)).float()
        judged = F.cross_entropy(verdicts, batch.follows, reduction="sum")  # counts as much as the gaps do
        return Loss(loss.total + judged * batch.gaps, loss.surprise, loss.tokens)

    @torch.inference_mode()
    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """The share of hidden tokens that are guessed right, and a text with its gaps."""
        right = count = 0
        sample: list[tuple[str, str]] = []
        for batch in self.dev_batches():
            assert isinstance(batch, GapBatch)
            hidden, guesses = batch.labels != IGNORE, self.guess(contents.model, batch)
            right, count = right + int((guesses == batch.labels[hidden]).sum()), count + len(guesses)
            if not sample:
                sample = self.show(batch, guesses, number % len(batch.inputs))
        return Assessment({"accuracy": 100 * right / max(1, count)}, sample)

    def guess(self, model: Model, batch: GapBatch) -> Tensor:
        """The most probable token for each gap of a batch."""
        assert isinstance(model, Encoder)
        assert model.fill is not None
        states = model(batch.inputs, batch.keep, batch.segments)
        return model.fill(states[batch.labels != IGNORE]).argmax(-1)

    def show(self, batch: GapBatch, guesses: Tensor, row: int) -> list[tuple[str, str]]:
        """One text of a batch: with gaps, as the model fills them, and as it was."""
        hidden, vocabulary = batch.labels != IGNORE, self.vocabularies.target
        filled = batch.inputs.clone()
        filled[hidden] = guesses
        right = torch.where(hidden, batch.labels, batch.inputs)
        keep = slice(1, 40)
        gaps = "".join(
            "[…]" if gap else piece.replace("▁", " ")
            for gap, piece in zip(
                hidden[row, keep].tolist(), vocabulary.pieces(batch.inputs[row, keep].tolist()), strict=True
            )
        )
        texts = (vocabulary.decode(ids[row, keep].tolist()) for ids in (filled, right))
        return [("text", gaps.strip()), *zip(("model", "right"), texts, strict=True)]

    @torch.inference_mode()
    def report(self, contents: Contents, name: str) -> list[str]:
        """Perplexity and accuracy at the hidden tokens."""
        held = Filling(self.work, self.settings, self.vocabularies, self.device)
        held.dev = Stream(self.work / name)
        losses = [self.loss(contents.model, batch, 0.0) for batch in held.dev_batches()]  # type: ignore[arg-type]
        surprise, count = sum(loss.surprise for loss in losses), sum(loss.tokens for loss in losses)
        accuracy = held.assess(contents, surprise, 0).scores["accuracy"]
        how = f"{count:,} hidden tokens, {self.settings.training.masked:.0%} of all, drawn with seed 0"
        return [
            f"perplexity {perplexity(surprise / max(1, count)):.2f} per hidden token ({how})",
            f"accuracy {accuracy:.2f} % of the hidden tokens",
        ]
