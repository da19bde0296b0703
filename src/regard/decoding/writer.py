"""Continues texts with a trained model, at once or as a stream, and scores texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.argument_checks import require_text, require_texts
from regard.decoding.search_interface import Hypothesis, SearchEngine
from regard.decoding.translator import with_options
from regard.errors import InputError
from regard.settings import DecodingSettings, Settings
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.model.transformer import Decoder


@dataclass(frozen=True)
class WriterOutput:
    """A continuation of a text, and its log-probability."""

    text: str  # without the prompt
    log_probability: float
    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]  # one per token, and one for the end token if it was generated
    finished: str  # "end" if the model ended the text, "stop" at a stop string, "length" at the limit
    alternatives: tuple[WriterOutput, ...] = ()


@dataclass(frozen=True)
class ScoredText:
    """The log-probabilities of the tokens of a text."""

    tokens: tuple[str, ...]
    token_log_probabilities: tuple[float, ...]
    characters: int

    @property
    def surprise(self) -> float:
        """The negative log-probability of all tokens, in nats."""
        return -sum(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        return perplexity(self.surprise / max(1, len(self.tokens)))


class Writer:
    """Continues texts.

    >>> writer = regard.load_as(regard.Writer, "runs/gpt")
    >>> writer("Once upon a time", max_tokens=50)
    >>> writer.write(["Once upon a time"], stop=["The end"], alternatives=2)[0].alternatives
    >>> writer.score("To be, or not to be").perplexity
    """

    folder: Path | None = None
    """The folder from which the model was loaded, if any."""

    def __init__(self, settings: Settings, vocabulary: Tokenizer, search: SearchEngine) -> None:
        self.settings, self.vocabulary, self.searcher = settings, vocabulary, search

    def __repr__(self) -> str:
        return f"<Writer {self.folder or 'without a folder'}: {self.searcher!r}>"

    @property
    def model(self) -> Decoder:
        """The PyTorch model, for `regard.observe`; the native engine loads it on first use."""
        return cast("Decoder", cast(Any, self.searcher).model)

    def __call__(self, prompt: str = "", **options: Any) -> str:
        """Returns the continuation of a text; `options` are those of `DecodingSettings`, and `stop`."""
        require_text(prompt, "a writer", several="writer.write")
        return self.write([prompt], **options)[0].text

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        return with_options(self.settings.decoding, options)

    def write(self, prompts: Iterable[str], stop: str | Sequence[str] = (), **options: Any) -> list[WriterOutput]:
        """Returns the continuations of texts in their order; each ends before the first stop string."""
        settings, stop = self.decoding(options), stop_strings(stop)
        texts = require_texts(prompts, "write", "call the writer itself, or put it in a list")
        rows = [self.prompt(text) for text in texts]
        before = [self.vocabulary.decode(row) for row in rows]

        def stopped(number: int, tokens: Sequence[int]) -> bool:
            return first_stop(self._text(rows[number], tokens, before[number]), stop) is not None

        limits = [settings.max_tokens] * len(rows)
        results = self.searcher.search(rows, limits, settings, stopped if any(stop) else None)
        return [self._continuation(*each, stop) for each in zip(rows, before, results, strict=True)]

    def stream(self, prompt: str = "", stop: str | Sequence[str] = (), **options: Any) -> Iterator[str]:
        """Yields the continuation of one text piece by piece as it is generated, greedily or by sampling."""
        require_text(prompt, "stream")
        settings, stop = self.decoding(options), stop_strings(stop)
        row = self.prompt(prompt)
        tokens, before, written = list[int](), self.vocabulary.decode(row), 0
        for token in self.searcher.tokens(row, settings):
            if token == self.vocabulary.specials.end:
                break
            tokens.append(token)
            text = self._text(row, tokens, before)
            cut = first_stop(text, stop)
            if cut is not None:
                yield text[written:cut]
                return
            safe = len(text) - held_back(text, stop)
            if safe > written and not text.endswith("\N{REPLACEMENT CHARACTER}"):
                yield text[written:safe]
                written = safe
            if len(tokens) >= settings.max_tokens:
                break
        yield self._text(row, tokens, before)[written:]

    def prompt(self, text: str) -> list[int]:
        """Tokenizes a prompt, preceded by the begin token if the model needs it or the text is empty."""
        specials, ids = self.vocabulary.specials, self.vocabulary.encode_batch([text])[0]
        return [specials.begin, *ids] if specials.prompt or not ids else ids

    def _continuation(
        self, row: Sequence[int], before: str, hypotheses: Sequence[Hypothesis], stop: Sequence[str]
    ) -> WriterOutput:
        best, *others = (self._output(row, before, hypothesis, stop) for hypothesis in hypotheses)
        return replace(best, alternatives=tuple(others))

    def _output(self, row: Sequence[int], before: str, hypothesis: Hypothesis, stop: Sequence[str]) -> WriterOutput:
        tokens, values = list(hypothesis.tokens), hypothesis.log_probabilities
        text, finished = self._text(row, tokens, before), "end" if hypothesis.finished else "length"
        cut = first_stop(text, stop)
        if cut is not None:
            text, finished = text[:cut], "stop"
            length = next(n for n in range(len(tokens) + 1) if len(self._text(row, tokens[:n], before)) >= cut)
            tokens, values = tokens[:length], values[:length]
        return WriterOutput(text, sum(values), tuple(self.vocabulary.pieces(tokens)), tuple(values), finished)

    def _text(self, row: Sequence[int], tokens: Sequence[int], before: str) -> str:
        """Returns the text that the tokens add to the prompt, including a space before it."""
        return self.vocabulary.decode([*row, *tokens])[len(before) :]

    def score(self, text: str) -> ScoredText:
        """Returns the log-probability of each token of a text that follows another token.

        A text that is longer than the model's maximum length is read in windows that overlap by half.
        """
        require_text(text, "score")
        ids = self.vocabulary.encode_batch([text])[0]
        row = [self.vocabulary.specials.begin, *ids] if self.vocabulary.specials.prompt else ids
        if len(row) < 2:
            raise InputError("the text is too short to score: pass at least two tokens")
        values: list[float] = []
        for start, fresh, end in windows(len(row), self.settings.model.max_length):
            values += self.searcher.log_probabilities(row[start:end])[fresh - start - 1 :]
        return ScoredText(tuple(self.vocabulary.pieces(row[1:])), tuple(values), len(text))


def perplexity(surprise: float) -> float:
    """Returns exp(`surprise`), where `surprise` is in nats per token, limited to a finite number."""
    return math.exp(min(700.0, surprise))


def windows(length: int, longest: int) -> Iterator[tuple[int, int, int]]:
    """Yields windows over a text as (start, first scored token, end); each token but the first is scored once."""
    fresh, end = 1, min(length, longest + 1)
    start = 0
    while fresh < length:
        yield start, fresh, end
        fresh = end
        end = min(length, end + max(1, longest // 2))
        start = max(0, end - longest - 1)


def stop_strings(stop: str | Sequence[str]) -> list[str]:
    return list(require_texts([stop] if isinstance(stop, str) else stop, "stop"))


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Returns the position of the first stop string, or None if the text contains none."""
    places = [place for each in stop if each and (place := text.find(each)) >= 0]
    return min(places, default=None)


def held_back(text: str, stop: Sequence[str]) -> int:
    """Returns the number of characters at the end of a text that may be the beginning of a stop string."""
    lengths = (n for each in stop for n in range(min(len(each), len(text)), 0, -1) if text.endswith(each[:n]))
    return max(lengths, default=0)
