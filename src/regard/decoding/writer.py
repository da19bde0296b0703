"""Continues text with a trained model, piece by piece or at once, and says how probable it finds a text."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.argument_checks import require_text, require_texts
from regard.decoding.hypotheses import Hypothesis, WritingSearch
from regard.decoding.translator import with_options
from regard.errors import InputError
from regard.settings import DecodingSettings, Settings
from regard.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from regard.model.transformer import Decoder


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
        return perplexity(self.surprise / max(1, len(self.tokens)))


class Writer:
    """Continues texts with one model.

    >>> writer = regard.load_as(regard.Writer, "runs/gpt")
    >>> writer("Once upon a time", max_tokens=50)
    >>> writer.write(["Once upon a time"], stop=["The end"], alternatives=2)[0].alternatives
    >>> writer.score("To be, or not to be").perplexity
    """

    folder: Path | None = None
    """The model folder, if `load` has made this."""

    def __init__(self, settings: Settings, vocabulary: Tokenizer, search: WritingSearch) -> None:
        self.settings, self.vocabulary, self.searcher = settings, vocabulary, search

    def __repr__(self) -> str:
        return f"<Writer {self.folder or 'of no folder'}: {self.searcher!r}>"

    @property
    def model(self) -> Decoder:
        """The model in PyTorch, for `regard.observe`; the native engine loads it when it is first asked for."""
        return cast("Decoder", cast(Any, self.searcher).model)

    def __call__(self, prompt: str = "", **options: Any) -> str:
        """The continuation of a text; `options` are those of `DecodingSettings`, and `stop`."""
        require_text(prompt, "a writer", several="writer.write")
        return self.write([prompt], **options)[0].text

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        """The model's own decoding settings with these options on top."""
        return with_options(self.settings.decoding, options)

    def write(self, prompts: Iterable[str], stop: str | Sequence[str] = (), **options: Any) -> list[Writing]:
        """Continuations of some texts, in their order, each up to the first of the stop strings."""
        settings, stop = self.decoding(options), stops(stop)
        texts = require_texts(prompts, "write", "call the writer itself, or put it in a list")
        rows = [self.prompt(text) for text in texts]
        before = [self.vocabulary.decode(row) for row in rows]

        def stopped(number: int, tokens: Sequence[int]) -> bool:
            return first_stop(self._text(rows[number], tokens, before[number]), stop) is not None

        limits = [settings.max_tokens] * len(rows)
        found = self.searcher.search(rows, limits, settings, stopped if any(stop) else None)
        return [self._joined(row, hypotheses, stop) for row, hypotheses in zip(rows, found, strict=True)]

    def stream(self, prompt: str = "", stop: str | Sequence[str] = (), **options: Any) -> Iterator[str]:
        """The continuation of one text piece by piece, as the tokens come: greedy, or drawn."""
        require_text(prompt, "stream")
        settings, stop = self.decoding(options), stops(stop)
        row = self.prompt(prompt)
        tokens: list[int] = []
        said = 0
        before = self.vocabulary.decode(row)
        for token in self.searcher.tokens(row, settings):
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

    def prompt(self, text: str) -> list[int]:
        """The ids that the model reads before it writes; an empty text begins with the begin alone."""
        specials, ids = self.vocabulary.specials, self.vocabulary.encode_batch([text])[0]
        return [specials.begin, *ids] if specials.prompt or not ids else ids

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

    def score(self, text: str) -> Scored:
        """How probable the text is, each token after those before it; the first is not scored where none is before it.

        A text longer than the model's positions is read in windows that overlap by half.
        """
        require_text(text, "score")
        ids = self.vocabulary.encode_batch([text])[0]
        row = [self.vocabulary.specials.begin, *ids] if self.vocabulary.specials.prompt else ids
        if len(row) < 2:
            raise InputError("give a text of at least two tokens to score")
        values: list[float] = []
        for start, fresh, end in windows(len(row), self.settings.model.max_length):
            values += self.searcher.log_probabilities(row[start:end])[fresh - start - 1 :]
        return Scored(tuple(self.vocabulary.pieces(row[1:])), tuple(values), len(text))


def perplexity(surprise: float) -> float:
    """Of so many nats a token: between how many tokens the model is undecided; finite, whatever these are."""
    return math.exp(min(700.0, surprise))


def windows(length: int, longest: int) -> Iterator[tuple[int, int, int]]:
    """(start, first that is scored, end) of windows over a text, so that each token but the first is scored once."""
    fresh, end = 1, min(length, longest + 1)
    start = 0
    while fresh < length:
        yield start, fresh, end
        fresh = end
        end = min(length, end + max(1, longest // 2))
        start = max(0, end - longest - 1)


def stops(stop: str | Sequence[str]) -> list[str]:
    """Returns the strings that end an output; one may be given alone."""
    return list(require_texts([stop] if isinstance(stop, str) else stop, "stop"))


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first of the stop strings begins."""
    places = [place for each in stop if each and (place := text.find(each)) >= 0]
    return min(places, default=None)


def held_back(text: str, stop: Sequence[str]) -> int:
    """How many characters at the end could be the beginning of a stop string."""
    lengths = (n for each in stop for n in range(min(len(each), len(text)), 0, -1) if text.endswith(each[:n]))
    return max(lengths, default=0)
