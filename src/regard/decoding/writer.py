"""Continues text with a trained model, piece by piece or at once, and says how probable it finds a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from regard.decoding.hypothesis import Hypothesis, length_penalty
from regard.decoding.search import beam_search, follow, generate, highest
from regard.decoding.step import NextToken, WritingStep, lucky
from regard.decoding.translator import with_options
from regard.errors import InputError
from regard.model.transformer import Decoder
from regard.settings import DecodingSettings
from regard.weights import Contents


@dataclass(frozen=True)
class Writing:
    """A continuation of a text and what the model thought of it."""

    text: str  # without the prompt
    log_probability: float
    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]  # one for each token, and for the end if it was reached
    finished: str  # why it ended: "end" (the model's own), "stop" (a stop string) or "length"
    alternatives: tuple[Writing, ...] = ()


@dataclass(frozen=True)
class Scored:
    """How probable a model finds a text, token by token."""

    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]
    characters: int

    @property
    def surprise(self) -> float:
        """Nats, over all tokens."""
        return -sum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """Per token."""
        return math.exp(min(700.0, self.surprise / max(1, len(self.tokens))))


class Writer:
    """Writes with one model: `writer("Once upon a time")`."""

    def __init__(self, contents: Contents) -> None:
        assert isinstance(contents.model, Decoder)
        self.settings, self.model = contents.settings, contents.model
        self.vocabulary = contents.vocabularies.target

    def __call__(self, prompt: str = "", **options: Any) -> str:
        """The continuation of a text; `options` are those of `DecodingSettings`, and `stop`."""
        return self.write([prompt], **options)[0].text

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        """The model's own decoding settings with these options on top."""
        return with_options(self.settings.decoding, options)

    def write(self, prompts: Iterable[str], stop: Sequence[str] = (), **options: Any) -> list[Writing]:
        """Continuations of some texts, in their order; texts of equally many tokens are written together."""
        settings = self.decoding(options)
        if isinstance(prompts, str):
            raise InputError("write takes several texts: for one, call the writer itself or put it in a list")
        rows = [self.prompt(text) for text in prompts]
        groups: dict[int, list[int]] = {}
        for number, row in enumerate(rows):
            groups.setdefault(len(row), []).append(number)
        found: dict[int, Writing] = {}
        most = settings.alternatives + 1 if settings.temperature else settings.beam
        for length, members in groups.items():
            size = max(1, settings.batch_tokens // ((length + settings.max_tokens) * most))
            for start in range(0, len(members), size):
                batch = members[start : start + size]
                written = self._write_batch([rows[i] for i in batch], stop, settings)
                found.update(zip(batch, written, strict=True))
        return [found[i] for i in range(len(rows))]

    def stream(self, prompt: str = "", stop: Sequence[str] = (), **options: Any) -> Iterator[str]:
        """The continuation of one text piece by piece, as the tokens come: greedy, or drawn."""
        settings = self.decoding(options)
        row = self.prompt(prompt)
        choose = lucky([row], 1, settings) if settings.temperature else highest
        tokens: list[int] = []
        said = 0
        before = self.vocabulary.decode(row)
        for token in self._tokens(self._step([row], settings), choose):
            if token == self.vocabulary.specials.end:
                break
            tokens.append(token)
            text = self._text(row, tokens, before)
            cut = first_stop(text, stop)
            if cut is not None:
                yield text[said:cut]
                return
            safe = len(text) - held_back(text, stop)
            if safe > said and not text.endswith("\N{REPLACEMENT CHARACTER}"):
                yield text[said:safe]
                said = safe
            if len(tokens) >= settings.max_tokens:
                break
        yield self._text(row, tokens, before)[said:]

    @torch.inference_mode()
    def _tokens(self, step: WritingStep, choose: Any) -> Iterator[int]:
        for (token,), _ in generate(step, 1, choose):
            yield token

    def prompt(self, text: str) -> list[int]:
        """The ids that the model reads before it writes; an empty text begins with the begin alone."""
        specials, ids = self.vocabulary.specials, self.vocabulary.encode_batch([text])[0]
        return [specials.begin, *ids] if specials.prompt or not ids else ids

    def _step(self, rows: Sequence[Sequence[int]], settings: DecodingSettings) -> WritingStep:
        after = NextToken(self.vocabulary.specials, settings.repetition_penalty)
        return WritingStep(self.model, [row[-self.settings.model.max_length + 1 :] for row in rows], after)

    @torch.inference_mode()
    def _write_batch(
        self, rows: Sequence[Sequence[int]], stop: Sequence[str], settings: DecodingSettings
    ) -> list[Writing]:
        step, limits, end = self._step(rows, settings), [settings.max_tokens] * len(rows), self.vocabulary.specials.end
        penalty, count = length_penalty(settings.penalty, settings.length_penalty), settings.alternatives + 1
        before = [self.vocabulary.decode(row) for row in rows]

        def stopped(number: int, tokens: Sequence[int]) -> bool:
            return bool(stop) and first_stop(self._text(rows[number], tokens, before[number]), stop) is not None

        if settings.temperature:
            choose = lucky(rows, count, settings)
            found = follow(step, limits, end=end, penalty=penalty, choose=choose, rows=count, enough=stopped)
        elif settings.beam == 1:
            found = follow(step, limits, end=end, penalty=penalty, choose=highest, enough=stopped)
        else:
            found = beam_search(step, limits, end=end, width=settings.beam, penalty=penalty, patience=settings.patience, best=count)
        return [self._joined(row, hypotheses, stop) for row, hypotheses in zip(rows, found, strict=True)]

    def _joined(self, row: Sequence[int], hypotheses: Sequence[Hypothesis], stop: Sequence[str]) -> Writing:
        before = self.vocabulary.decode(row)
        best, *others = (self._writing(row, before, h, stop) for h in hypotheses)
        return replace(best, alternatives=tuple(others))

    def _writing(self, row: Sequence[int], before: str, found: Hypothesis, stop: Sequence[str]) -> Writing:
        tokens, values = list(found.tokens), found.log_probabilities
        text, why = self._text(row, tokens, before), "end" if found.finished else "length"
        cut = first_stop(text, stop)
        if cut is not None:
            text, why = text[:cut], "stop"
            kept = next(n for n in range(len(tokens) + 1) if len(self._text(row, tokens[:n], before)) >= cut)
            tokens, values = tokens[:kept], values[:kept]
        return Writing(text, sum(values), tuple(self.vocabulary.pieces(tokens)), tuple(values), why)

    def _text(self, row: Sequence[int], tokens: Sequence[int], before: str) -> str:
        """What the tokens add to the text before them: the space between two words belongs to the second."""
        return self.vocabulary.decode([*row, *tokens])[len(before) :]

    @torch.inference_mode()
    def score(self, text: str) -> Scored:
        """How probable the text is, each token after those before it; the first is not scored where none is before it.

        A text longer than the model's positions is read in windows that overlap by half.
        """
        ids = self.vocabulary.encode_batch([text])[0]
        row = [self.vocabulary.specials.begin, *ids] if self.vocabulary.specials.prompt else ids
        if len(row) < 2:
            raise InputError("give a text of at least two tokens to score")
        device = next(self.model.parameters()).device
        values: list[float] = []
        for start, fresh, end in windows(len(row), self.settings.model.max_length):
            part = torch.tensor([row[start:end]], device=device)
            scores = self._log_probabilities(part)
            values += scores[fresh - start - 1 :].tolist()
        return Scored(tuple(self.vocabulary.pieces(row[1:])), tuple(values), len(text))

    def _log_probabilities(self, tokens: Tensor) -> Tensor:
        """[1, T] -> [T - 1], of each token but the first."""
        logits = self.model(tokens[:, :-1]).float()
        return logits[0].log_softmax(-1).gather(1, tokens[0, 1:, None]).squeeze(1)


def windows(length: int, longest: int) -> Iterator[tuple[int, int, int]]:
    """(start, first that is scored, end) of windows over a text, so that each token but the first is scored once."""
    fresh, end = 1, min(length, longest + 1)
    start = 0
    while fresh < length:
        yield start, fresh, end
        fresh = end
        end = min(length, end + max(1, longest // 2))
        start = max(0, end - longest - 1)


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins."""
    places = [place for each in stop if each and (place := text.find(each)) >= 0]
    return min(places, default=None)


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end could be the beginning of a stop string."""
    lengths = (n for each in stop for n in range(min(len(each), len(text)), 0, -1) if text.endswith(each[:n]))
    return max(lengths, default=0)
