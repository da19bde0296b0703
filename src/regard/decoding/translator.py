"""Translates texts with a trained model, in batches of similar length; results have the order of the texts."""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from regard.argument_checks import require, require_text, require_texts
from regard.decoding.confidence import Confidence
from regard.decoding.read_ahead import end_if_unwanted, prefetch
from regard.decoding.search_interface import Constraints, Hypothesis, SearchEngine
from regard.decoding.translation_results import TermSearch, TermSource, Translation
from regard.errors import InputError, ModelError
from regard.settings import DecodingSettings, Settings
from regard.settings.option_fields import build
from regard.tokens.language_directions import UNSPACED, Direction, choose_direction, format_directions, primary
from regard.tokens.placeholder_slots import CutText, slot_text
from regard.tokens.protected_pieces import find
from regard.tokens.split_long_texts import split_lines, split_text
from regard.tokens.tokenizer import Vocabularies

if TYPE_CHECKING:
    from regard.model.recurrent import SequenceToSequence

WINDOW = 2000
"""Number of texts that are sorted by length together; `translate_stream` holds three times as many in memory."""

Constrain = Callable[[str], Constraints | None]
"""A function that returns the constraints on the translation of a source text, or None."""


@dataclass(frozen=True)
class Part:
    """A part of a text that is translated as a unit: a line, or a piece of a line that is too long for the model."""

    gap: str  # white space before the part in the output
    ids: list[int]
    text: str = ""
    constraints: Constraints | None = None
    pieces: dict[int, str] = field(default_factory=dict)  # protected pieces by slot number


PartResults = list[tuple[Part, list[Hypothesis] | None]]
"""The parts of a text with their hypotheses; parts without tokens have none."""


class Translator:
    """Translates texts.

    >>> translator = regard.load_as(regard.Translator, "runs/en-de")
    >>> translator("A dog runs.")
    >>> [each.text for each in translator.translate(["A dog runs.", "Two cats sleep."], beam=5)]
    >>> "".join(translator.stream("A dog runs."))
    """

    folder: Path | None = None
    """The folder from which the model was loaded, if any."""

    def __init__(
        self, settings: Settings, vocabularies: Vocabularies, search: SearchEngine, confidence: Confidence | None = None
    ) -> None:
        self.settings, self.searcher, self.confidence = settings, search, confidence
        self.source, self.target = vocabularies.source, vocabularies.target

    def __repr__(self) -> str:
        directions = format_directions(self.settings.data)
        return f"<Translator {self.folder or 'without a folder'}: {directions}, {self.searcher!r}>"

    @property
    def model(self) -> SequenceToSequence:
        """The PyTorch model, for `regard.observe`; the native engine loads it on first use."""
        return cast("SequenceToSequence", cast(Any, self.searcher).model)

    def __call__(
        self,
        text: str,
        *,
        source: str | None = None,
        target: str | None = None,
        zero_shot: bool = False,
        **options: Any,
    ) -> str:
        """Returns the best translation of one text; `options` are those of `DecodingSettings`.

        A model with several directions needs the `target` language; with `zero_shot`, it also accepts pairs of its
        languages that it was not trained on.
        """
        require_text(text, "a translator", several="translator.translate")
        return self.translate([text], source=source, target=target, zero_shot=zero_shot, **options)[0].text

    def translate(
        self,
        texts: Iterable[str | CutText],
        *,
        source: str | None = None,
        target: str | None = None,
        zero_shot: bool = False,
        constrain: Constrain | None = None,
        glossary: TermSource | None = None,
        **options: Any,
    ) -> list[Translation]:
        """Returns the translations of texts in their order; reads all texts before translating the first one.

        `constrain` is called with each part of a text that is translated as a unit. A CutText must be a single line; a
        model with slots keeps its protected pieces unchanged. If a translation lacks a term of the `glossary` or uses a
        forbidden one, the text is translated again with the terms as constraints.
        """
        settings, into = self.decoding(options), self.direction(source, target, zero_shot=zero_shot).target
        terms = self._terms(glossary)
        windows = list(self._read_windows(texts, into, constrain))
        found = (parts for window in windows for parts in self._search_window(window, settings, terms))
        return [self.join(parts, terms) for parts in found]

    def translate_stream(
        self,
        texts: Iterable[str],
        *,
        source: str | None = None,
        target: str | None = None,
        zero_shot: bool = False,
        constrain: Constrain | None = None,
        glossary: TermSource | None = None,
        **options: Any,
    ) -> Generator[Translation, None, None]:
        """Yields the translations of any number of texts in their order, in constant memory.

        While the caller uses the last results, one thread reads the next texts and another one translates.
        """
        settings, into = self.decoding(options), self.direction(source, target, zero_shot=zero_shot).target
        read = prefetch(self._read_windows(texts, into, constrain))
        terms = self._terms(glossary)
        with closing(prefetch(self._search_windows(read, settings, terms))) as found:
            yield from (self.join(parts, terms) for parts in chain.from_iterable(found))

    def stream(
        self,
        text: str,
        *,
        source: str | None = None,
        target: str | None = None,
        zero_shot: bool = False,
        **options: Any,
    ) -> Iterator[str]:
        """Yields the translation of one text piece by piece as it is generated, greedily or by sampling."""
        require_text(text, "stream", several="translator.translate_stream")
        settings, into = self.decoding(options), self.direction(source, target, zero_shot=zero_shot).target
        for part in self._parts(text, into):
            if part.gap:
                yield part.gap
            if part.ids:
                yield from self._stream_part(part, settings)

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        return with_options(self.settings.decoding, options)

    def direction(self, source: str | None = None, target: str | None = None, *, zero_shot: bool = False) -> Direction:
        """Returns the direction to translate in; raises InputError if the model does not know it."""
        for name in (source, target):
            require(name, (str, type(None)), "a direction", "the code of a language, such as de")
        direction = choose_direction(self.settings.data, source, target, zero_shot=zero_shot)
        if self.settings.data.directions and direction.target not in self.source.tags:
            raise ModelError(f"this model's vocabulary has no tag for {direction.target}: restore its tokenizer.json")
        return direction

    def limit(self, ids: Sequence[int], settings: DecodingSettings) -> int:
        return int(min(settings.max_ratio * len(ids) + 20, self.settings.model.max_length))

    def _terms(self, glossary: TermSource | None) -> TermSearch | None:
        if glossary is None:
            return None
        require(glossary, TermSource, "glossary", "a Glossary, such as Glossary.read returns")
        return glossary.terminology(self.source, self.target)

    # Reading

    def _read_windows(
        self, texts: Iterable[str | CutText], into: str, constrain: Constrain | None
    ) -> Generator[list[list[Part]], None, None]:
        """Yields the parts of texts, one window of texts at a time; on an error, yields the texts before it first."""
        window: list[list[Part]] = []
        one = "call the translator itself, or put it in a list"
        try:
            for number, text in enumerate(require_texts(texts, "translate", one, (str, CutText)), 1):
                end_if_unwanted()
                window.append(self.read(number, text, into, constrain))
                if len(window) == WINDOW:
                    yield window
                    window = []
        except InputError:
            yield window
            raise
        yield window

    def read(self, number: int, text: str | CutText, into: str, constrain: Constrain | None = None) -> list[Part]:
        """Splits a text into parts; errors mention the `number` of the text."""
        try:
            parts = self._parts(text, into)
        except InputError as error:
            raise InputError(f"text {number}: {error}") from None
        if constrain is None:
            return parts
        require(constrain, Callable, "constrain", "a function of a text")  # type: ignore[arg-type]
        return [replace(part, constraints=constrain(part.text)) if part.ids else part for part in parts]

    def _parts(self, text: str | CutText, into: str) -> list[Part]:
        """Splits a text into lines, and lines that are too long for the model into pieces, without losing a word."""
        tags = [self.source.tags[into]] if self.settings.data.directions else []
        limit = self.settings.model.max_length - 1 - len(tags)
        parts = []
        for gap, line in split_lines(text) if isinstance(text, str) else [("", text)]:
            if not line:
                parts.append(Part(gap, []))
                continue
            ids, pieces = self._encode(line)
            rows = [Part(gap, [*tags, *ids], _text_of(line), pieces=pieces)]
            if len(ids) > limit:
                space = "" if primary(into) in UNSPACED else " "
                texts = split_text(_text_of(line), lambda text: len(self._encode(text)[0]) <= limit)
                encoded = [(text, *self._encode(text)) for text in texts]
                rows = [Part(space, [*tags, *ids], text, pieces=pieces) for text, ids, pieces in encoded]
                rows[0] = replace(rows[0], gap=gap)
            parts += rows
        return parts

    def _encode(self, line: str | CutText) -> tuple[list[int], dict[int, str]]:
        """Returns the tokens of a line and, if the model has slots, the protected pieces by slot number."""
        if not self.source.slots:
            return self.source.encode_batch([_text_of(line)])[0], {}
        if isinstance(line, str):
            line = CutText.at(line, [piece for piece in find(line) if piece.kind != "mnemonic"])
        slotted, pieces = slot_text(line)
        return self.source.encode_slotted(slotted), pieces

    # Searching

    def _search_windows(
        self, windows: Generator[list[list[Part]], None, None], settings: DecodingSettings, terms: TermSearch | None
    ) -> Generator[list[PartResults], None, None]:
        with closing(windows):
            for window in windows:
                yield self._search_window(window, settings, terms)

    def _search_window(
        self, window: list[list[Part]], settings: DecodingSettings, terms: TermSearch | None
    ) -> list[PartResults]:
        searched = [part for parts in window for part in parts if part.ids]

        def search_again(
            numbers: Sequence[int], more: Sequence[Constraints], settings: DecodingSettings
        ) -> list[list[Hypothesis]]:
            both = [one + (searched[i].constraints or Constraints()) for i, one in zip(numbers, more, strict=True)]
            return self.search([searched[i].ids for i in numbers], settings, both)

        results = self.search([part.ids for part in searched], settings, [part.constraints for part in searched])
        if terms is not None:
            results = terms.keep([part.text for part in searched], results, search_again, settings)
        remaining = iter(results)
        return [[(part, next(remaining) if part.ids else None) for part in parts] for parts in window]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        settings: DecodingSettings,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Source tokens -> the best hypotheses of each source, best first."""
        if settings.consensus:
            from regard.decoding.minimum_bayes_risk import candidate_settings, rank_by_consensus

            results = self.search(sources, candidate_settings(settings), constraints)
            return [rank_by_consensus(each, self.target.decode, settings) for each in results]
        limits = [self.limit(ids, settings) for ids in sources]
        return self.searcher.search(sources, limits, settings, None, constraints)

    def _stream_part(self, part: Part, settings: DecodingSettings) -> Iterator[str]:
        limit, tokens, written = self.limit(part.ids, settings), list[int](), ""
        for token in self.searcher.tokens(part.ids, settings):
            if token == self.target.specials.end:
                break
            tokens.append(token)
            text = self._decode(part, tokens)
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # the last character may lack bytes
                yield text[len(written) :]
                written = text
            if len(tokens) >= limit:
                break
        yield self._decode(part, tokens)[len(written) :]

    def _decode(self, part: Part, tokens: Sequence[int]) -> str:
        """Decodes the output tokens of a part, and fills its protected pieces into their slots."""
        if not self.target.slots:
            return self.target.decode(tokens)
        return self.target.decode_slotted(tokens).fill(part.pieces)

    # Joining

    def join(self, parts: PartResults, terms: TermSearch | None = None) -> Translation:
        """Joins the hypotheses of the parts of a text into its translation."""
        count = min((len(hypotheses) for _, hypotheses in parts if hypotheses), default=1)
        best, *others = (
            self._translation([(part, hypotheses[rank] if hypotheses else None) for part, hypotheses in parts])
            for rank in range(count)
        )
        distinct = {best.text: best}
        for other in others:  # if two tokenizations have the same text, keep the better one
            distinct.setdefault(other.text, other)
        outcomes = (terms.outcomes(part.text, each[0]) for part, each in parts if terms and each)
        return replace(best, alternatives=tuple(distinct.values())[1:], glossary=tuple(chain.from_iterable(outcomes)))

    def _translation(self, parts: Sequence[tuple[Part, Hypothesis | None]]) -> Translation:
        outputs = [hypothesis for _, hypothesis in parts if hypothesis]
        texts = (part.gap + (self._decode(part, h.tokens) if h else "") for part, h in parts)
        values = tuple(value for h in outputs for value in h.log_probabilities)
        read = [[*part.ids, self.source.specials.end] for part, h in parts if h and h.alignment]
        return Translation(
            text="".join(texts),
            score=sum(h.score for h in outputs) / max(1, len(outputs)),
            log_probability=sum(h.log_probability for h in outputs),
            tokens=tuple(piece for h in outputs for piece in self.target.pieces(h.tokens)),
            token_log_probabilities=values,
            finished=all(h.finished for h in outputs),
            confidence=None if self.confidence is None else self.confidence.estimate(values),
            source_tokens=tuple(self.source.pieces(list(chain.from_iterable(read)))),
            alignment=tuple(_block_diagonal([h.alignment for h in outputs if h.alignment], list(map(len, read)))),
        )


def _text_of(line: str | CutText) -> str:
    return line if isinstance(line, str) else line.text


def _block_diagonal(
    alignments: Sequence[Sequence[Sequence[float]]], widths: Sequence[int]
) -> Iterator[tuple[float, ...]]:
    """Joins the alignments of all parts into one matrix, in which no part attends to another; yields its rows."""
    for number, alignment in enumerate(alignments):
        before, after = sum(widths[:number]), sum(widths[number + 1 :])
        yield from ((*[0.0] * before, *row, *[0.0] * after) for row in alignment)


def with_options(decoding: DecodingSettings, options: dict[str, Any]) -> DecodingSettings:
    """Overrides decoding settings with these options; raises SettingsError for unknown names and invalid values.

    If the beam is smaller than the number of outputs to return, it is enlarged.
    """
    hashable = all(isinstance(value, Hashable) for value in options.values())
    return (_with_options if hashable else _with_options.__wrapped__)(decoding, **options)


@lru_cache(256, typed=True)  # programs that translate sentence by sentence pass the same options each time
def _with_options(decoding: DecodingSettings, /, **options: Any) -> DecodingSettings:
    checked = build(Settings, {"decoding": options}).decoding
    settings = replace(decoding, **{name: getattr(checked, name) for name in options})
    if settings.temperature == 0 and settings.alternatives and settings.beam <= settings.alternatives:
        settings = replace(settings, beam=settings.alternatives + 1)
    return settings
