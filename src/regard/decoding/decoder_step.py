"""Computes the log-probabilities of the next token with a model, step by step with cached keys and values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam_search import Choose, sample_tokens
from regard.decoding.read_ahead import end_if_unwanted
from regard.decoding.search_interface import random_source
from regard.model.recurrent import SequenceToSequence
from regard.model.transformer import Decoder
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials


class NextToken:
    """Converts logits to log-probabilities, excludes special tokens and penalizes repeated tokens."""

    def __init__(self, specials: Specials, repetition_penalty: float = 1.0, keep: Tensor | None = None) -> None:
        self.never_generated = specials.never_generated
        self.repetition_penalty = repetition_penalty
        self.keep = keep  # [N, V] tokens allowed in an output; None: all
        self.previous: Tensor | None = None  # [N, L] all tokens so far

    def __call__(self, logits: Tensor, tokens: Tensor) -> Tensor:
        """Logits [N, V] and the last tokens [N, T] -> log-probabilities [N, V]."""
        logits = logits.float()
        if self.repetition_penalty != 1.0:  # Keskar et al. (2019)
            self.previous = tokens if self.previous is None else torch.cat([self.previous, tokens], 1)
            values = logits.gather(1, self.previous)
            values = torch.where(values < 0, values * self.repetition_penalty, values / self.repetition_penalty)
            logits = logits.scatter(1, self.previous, values)
        if self.keep is not None:
            logits = logits.masked_fill(~self.keep, -torch.inf)
        scores = logits.log_softmax(-1)
        scores[:, self.never_generated] = -torch.inf
        return scores

    def select(self, rows: Tensor) -> None:
        if self.previous is not None:
            self.previous = self.previous[rows]
        if self.keep is not None:
            self.keep = self.keep[rows]


class TranslationStep:
    """Runs an encoder-decoder step by step on a batch of sources."""

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
        self.cache: Any = model.new_cache()

    def start(self) -> Tensor:
        return self._next(torch.full((len(self.memory), 1), self.begin, device=self.device))

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
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
    """Runs a decoder step by step on a batch of texts with equal numbers of tokens.

    When the model's maximum length is reached, it forgets the older half of the text and reads the rest again.
    """

    def __init__(self, model: Decoder, texts: Sequence[Sequence[int]], after: NextToken) -> None:
        self.model, self.after = model, after
        self.device = next(model.parameters()).device
        self.tokens = torch.tensor([list(ids) for ids in texts], device=self.device)
        self.cache = model.new_cache()
        self.longest = model.settings.max_length

    def start(self) -> Tensor:
        return self._next(self.tokens)

    def advance(self, tokens: Tensor, rows: Tensor, _sentences: Tensor | None) -> Tensor:
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


def sampler(sources: Sequence[Sequence[int]], rows: int, settings: DecodingSettings) -> Choose:
    """Returns a function that samples tokens with random numbers that depend only on the text and the seed."""
    randoms = [random_source(ids, number, settings) for ids in sources for number in range(rows)]

    def choose(scores: Tensor) -> Tensor:
        numbers = torch.tensor([each.random() for each in randoms], dtype=torch.float64)
        options: dict[str, Any] = {name: getattr(settings, name) for name in ("temperature", "top_k", "top_p", "min_p")}
        return sample_tokens(scores.cpu(), numbers, **options)

    return choose
