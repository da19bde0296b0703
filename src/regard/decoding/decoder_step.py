"""One step of a model for the search: log-probabilities of what comes next, with keys and values remembered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam_search import Choose, draw
from regard.decoding.hypotheses import die_for
from regard.decoding.prefetch import end_if_unwanted
from regard.model.recurrent import SequenceToSequence
from regard.model.transformer import Decoder
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials


class NextToken:
    """Logits to log-probabilities: what is part of no text is left out, what was said before made less likely."""

    def __init__(self, specials: Specials, repetition_penalty: float = 1.0, keep: Tensor | None = None) -> None:
        self.never_generated = specials.never_generated
        self.repetition_penalty = repetition_penalty
        self.keep = keep  # [N, V], what may be written at all; none: everything
        self.said: Tensor | None = None  # [N, L], all tokens so far

    def __call__(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """[N, V] logits, and the tokens [N, T] that were added last -> [N, V] log-probabilities."""
        logits = logits.float()
        if self.repetition_penalty != 1.0:  # Keskar et al. (2019)
            self.said = tokens if self.said is None else torch.cat([self.said, tokens], 1)
            found = logits.gather(1, self.said)
            found = torch.where(found < 0, found * self.repetition_penalty, found / self.repetition_penalty)
            logits = logits.scatter(1, self.said, found)
        if self.keep is not None:
            logits = logits.masked_fill(~self.keep, -torch.inf)
        scores = logits.log_softmax(-1)
        scores[:, self.never_generated] = -torch.inf
        return scores

    def select(self, rows: Tensor) -> None:
        if self.said is not None:
            self.said = self.said[rows]
        if self.keep is not None:
            self.keep = self.keep[rows]


class TranslationStep:
    """Steps an encoder-decoder through a batch of sources."""

    def __init__(
        self, model: SequenceToSequence, sources: Sequence[Sequence[int]], specials: Specials, after: NextToken
    ) -> None:
        self.model, self.after, self.begin = model, after, specials.begin
        self.device = next(model.parameters()).device
        longest = max(map(len, sources)) + 1
        rows = [[*ids, specials.end, *[specials.pad] * (longest - len(ids) - 1)] for ids in sources]
        lengths = torch.tensor([len(ids) + 1 for ids in sources], device=self.device)
        keep = torch.arange(longest, device=self.device) < lengths[:, None]
        self.keep: Tensor | None = None if bool(keep.all()) else keep
        self.memory = model.encode(torch.tensor(rows, device=self.device), self.keep)
        self.cache: Any = model.new_cache()  # of the kind that this model takes

    def start(self) -> Tensor:
        """[B, V] log-probabilities of the first token."""
        return self._next(torch.full((len(self.memory), 1), self.begin, device=self.device))

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
        """Appends tokens [N] to these rows of the last step -> [N, V] log-probabilities of what follows."""
        rows, sentences = rows.to(self.device), None if sentences is None else sentences.to(self.device)
        self.cache.select(rows, sentences)
        self.after.select(rows)
        if sentences is not None:
            self.memory = self.memory[sentences]
            self.keep = None if self.keep is None else self.keep[sentences]
        return self._next(tokens.to(self.device)[:, None])

    def _next(self, tokens: Tensor) -> Tensor:
        end_if_unwanted()
        states = self.model.decode(tokens, self.memory, self.keep, self.cache)
        return self.after(self.model.logits(states[:, -1]), tokens)


class WritingStep:
    """Steps a decoder through a batch of texts that have equally many tokens so far.

    A model has seen so many positions and no more: when they are used up, the older half of the text is
    forgotten, and what is left is read again.
    """

    def __init__(self, model: Decoder, texts: Sequence[Sequence[int]], after: NextToken) -> None:
        self.model, self.after = model, after
        self.device = next(model.parameters()).device
        self.tokens = torch.tensor([list(ids) for ids in texts], device=self.device)
        self.cache = model.new_cache()
        self.longest = model.settings.max_length

    def start(self) -> Tensor:
        """[B, V] log-probabilities of the first token that follows."""
        return self._next(self.tokens)

    def advance(self, tokens: Tensor, rows: Tensor, _sentences: Tensor | None) -> Tensor:
        """Appends tokens [N] to these rows of the last step -> [N, V] log-probabilities of what follows."""
        rows, tokens = rows.to(self.device), tokens.to(self.device)[:, None]
        self.cache.select(rows)
        self.after.select(rows)
        self.tokens = torch.cat([self.tokens[rows], tokens], 1)
        return self._next(tokens)

    def _next(self, tokens: Tensor) -> Tensor:
        new = tokens
        if self.cache.length + tokens.shape[1] > self.longest:
            self.cache = self.model.new_cache()
            tokens = self.tokens[:, -max(1, self.longest // 2) :]
        states = self.model.states(tokens, self.cache)
        return self.after(self.model.logits(states[:, -1]), new)


def lucky(sources: Sequence[Sequence[int]], rows: int, settings: DecodingSettings) -> Choose:
    """Draws tokens, each text with the luck of its own."""
    dice = [die_for(ids, number, settings) for ids in sources for number in range(rows)]

    def choose(scores: Tensor) -> Tensor:
        luck = torch.tensor([die.random() for die in dice], dtype=torch.float64)
        return draw(
            scores.cpu(),
            luck,
            temperature=settings.temperature,
            top_k=settings.top_k,
            top_p=settings.top_p,
            min_p=settings.min_p,
        )

    return choose
