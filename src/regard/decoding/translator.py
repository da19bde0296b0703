"""Translates with a trained model: batched by length, cached, in the order it was given."""

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
from regard.decoding.hypotheses import ConstrainedSearch, Constraints, Hypothesis, Search, side_by_side
from regard.decoding.prefetch import ahead, end_if_unwanted
from regard.errors import InputError, ModelError
from regard.settings import DecodingSettings, Settings
from regard.settings.option_fields import build
from regard.tokens.directions import Direction, choose_direction, format_directions
from regard.tokens.language_tags import UNSPACED, primary
from regard.tokens.protected_pieces import find
from regard.tokens.slot_tokens import CutText, slot_text
from regard.tokens.split_long_texts import split_lines, split_text
from regard.tokens.tokenizer import Vocabularies

if TYPE_CHECKING:  # what few ask for is imported when it is asked for: a command is to start fast
    from regard.faithful.glossary import Glossary, TermOutcome
    from regard.faithful.glossary_constraints import Terminology
    from regard.faithful.translation_memory import MemoryMatch
    from regard.model.recurrent import SequenceToSequence

WINDOW = 2000
"""Texts that are sorted by length together; `translate_stream` holds three times as many in memory."""

Constrain = Callable[[str], Constraints | None]
"""Asked with a source text: what its translation must have in it, and what it must not have."""

Alignment = tuple[tuple[float, ...], ...]
"""How much each token of an output, and its end, looked at each token of the source."""


@dataclass(frozen=True)
class Translation:
    """A translation and how probable the model finds it.

    >>> best = translator.translate(["A dog runs."], beam=4, alternatives=2)[0]
    >>> best.text, best.score, [other.text for other in best.alternatives]
    """

    text: str
    score: float  # length-normalised log-probability, by which alternatives are ranked
    log_probability: float
    tokens: tuple[str, ...] = field(repr=False)
    token_log_probabilities: tuple[float, ...] = field(repr=False)  # of each token, and of the end if it was reached
    finished: bool  # false where the length limit cut it off
    alternatives: tuple[Translation, ...] = ()
    confidence: float | None = None  # from 0 to 1: how far it can be trusted, if the model folder can tell
    matches: tuple[MemoryMatch, ...] = ()  # if a memory is asked: what is like the text there; the same text is used
    source_tokens: tuple[str, ...] = field(default=(), repr=False)  # if the alignment is asked for: what was read
    alignment: Alignment = field(default=(), repr=False)
    glossary: tuple[TermOutcome, ...] = ()  # if there is one: what became of the terms of the source


class Translator:
    """Translates texts with one model.

    >>> translator = regard.load_as(regard.Translator, "runs/en-de")
    >>> translator("A dog runs.")
    >>> [each.text for each in translator.translate(["A dog runs.", "Two cats sleep."], beam=5)]
    >>> "".join(translator.stream("A dog runs."))
    """

    folder: Path | None = None
    """The model folder, if `load` has made this."""

    def __init__(
        self, settings: Settings, vocabularies: Vocabularies, search: Search, confidence: Confidence | None = None
    ) -> None:
        self.settings, self.searcher, self.confidence = settings, search, confidence
        self.source, self.target = vocabularies.source, vocabularies.target

    def __repr__(self) -> str:
        return (
            f"<Translator {self.folder or 'of no folder'}: {format_directions(self.settings.data)}, {self.searcher!r}>"
        )

    @property
    def model(self) -> SequenceToSequence:
        """The model in PyTorch, for `regard.observe`; the native engine loads it when it is first asked for."""
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
        """The best translation of one text; `options` are those of `DecodingSettings`.

        A model of several directions has to be told the language to translate into, `target`; with `zero_shot`,
        it translates between two of its languages that it was not trained on as a pair.
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
        glossary: Glossary | None = None,
        **options: Any,
    ) -> list[Translation]:
        """The translations of some texts, in their order; all of them are read before any is translated.

        `constrain` is asked, for each piece of a text that is translated at once, what its translation must have in it.
        A text that is cut at its protected pieces has one line; a model with slots keeps these pieces in them.
        Where a term of the `glossary` is not as it should be, the text is translated again with it as a constraint.
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
        glossary: Glossary | None = None,
        **options: Any,
    ) -> Generator[Translation, None, None]:
        """The translations of any number of texts, in their order, in constant memory.

        One thread reads and cuts the next texts and another searches, while the caller uses what was found before.
        """
        settings, into = self.decoding(options), self.direction(source, target, zero_shot=zero_shot).target
        read = ahead(self._read_windows(texts, into, constrain))
        terms = self._terms(glossary)
        with closing(ahead(self._search_windows(read, settings, terms))) as found:
            yield from (self.join(parts, terms) for parts in chain.from_iterable(found))

    def _terms(self, glossary: Glossary | None) -> Terminology | None:
        if glossary is None:
            return None
        from regard.faithful.glossary import Glossary
        from regard.faithful.glossary_constraints import Terminology

        require(glossary, Glossary, "glossary", "a Glossary, which Glossary.read makes of a file")
        return Terminology(glossary, self.source, self.target) if glossary else None

    def stream(
        self,
        text: str,
        *,
        source: str | None = None,
        target: str | None = None,
        zero_shot: bool = False,
        **options: Any,
    ) -> Iterator[str]:
        """The translation of one text piece by piece, as the tokens come: greedy, or drawn."""
        require_text(text, "stream", several="translator.translate_stream")
        settings, into = self.decoding(options), self.direction(source, target, zero_shot=zero_shot).target
        for part in self._parts(text, into):
            if part.gap:
                yield part.gap
            if part.ids:
                yield from self._stream_part(part, settings)

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        """The model's own decoding settings with these options on top."""
        return with_options(self.settings.decoding, options)

    def direction(self, source: str | None = None, target: str | None = None, *, zero_shot: bool = False) -> Direction:
        """From which language into which, by what is said of it; what the model cannot do is refused."""
        for name in (source, target):
            require(name, (str, type(None)), "a direction", "the code of a language, such as de")
        found = choose_direction(self.settings.data, source, target, zero_shot=zero_shot)
        if self.settings.data.directions and found.target not in self.source.tags:
            raise ModelError(f"the vocabulary of this model has no tag for {found.target}: restore its tokenizer.json")
        return found

    def _read_windows(
        self, texts: Iterable[str | CutText], into: str, constrain: Constrain | None
    ) -> Generator[_Window, None, None]:
        """The parts of each text, so many texts together; those before one that is refused come first."""
        window: _Window = []
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
        """The parts of a text that are searched for, each alone; if it is refused, its number is told."""
        try:
            parts = self._parts(text, into)
        except InputError as error:
            raise InputError(f"text {number}: {error}") from None
        if constrain is None:
            return parts
        require(constrain, Callable, "constrain", "a function of a text")  # type: ignore[arg-type]
        return [replace(part, constraints=constrain(part.text)) if part.ids else part for part in parts]

    def _search_windows(
        self, windows: Generator[_Window, None, None], settings: DecodingSettings, terms: Terminology | None
    ) -> Generator[list[Found], None, None]:
        with closing(windows):
            for window in windows:
                yield self._search_window(window, settings, terms)

    def _search_window(self, window: _Window, settings: DecodingSettings, terms: Terminology | None) -> list[Found]:
        asked = [part for parts in window for part in parts if part.ids]

        def search(
            numbers: Sequence[int], more: Sequence[Constraints], how: DecodingSettings
        ) -> list[list[Hypothesis]]:
            wanted = [one + (asked[i].constraints or Constraints()) for i, one in zip(numbers, more, strict=True)]
            return self.search([asked[i].ids for i in numbers], how, wanted)

        results = self.search([part.ids for part in asked], settings, [part.constraints for part in asked])
        if terms is not None:
            results = terms.keep([part.text for part in asked], results, search, settings)
        found = iter(results)
        return [[(part, next(found) if part.ids else None) for part in parts] for parts in window]

    def search(
        self,
        sources: Sequence[Sequence[int]],
        settings: DecodingSettings,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Source tokens -> the best hypotheses of each, best first."""
        if settings.consensus:
            from regard.decoding.minimum_bayes_risk import agreed, widened

            found = self.search(sources, widened(settings), constraints)
            return [agreed(each, self.target.decode, settings) for each in found]
        limits = [self.limit(ids, settings) for ids in sources]
        if not any(constraints):
            return self.searcher.search(sources, limits, settings)
        return cast(ConstrainedSearch, self.searcher).search(sources, limits, settings, constraints=constraints)

    def _stream_part(self, part: Part, settings: DecodingSettings) -> Iterator[str]:
        limit, tokens, said = self.limit(part.ids, settings), [], ""
        for token in self.searcher.tokens(part.ids, settings):
            if token == self.target.specials.end:
                break
            tokens.append(token)
            text = self._spell(part, tokens)
            if not text.endswith("\N{REPLACEMENT CHARACTER}"):  # bytes of a character that is not whole yet
                yield text[len(said) :]
                said = text
            if len(tokens) >= limit:
                break
        yield self._spell(part, tokens)[len(said) :]

    def _spell(self, part: Part, tokens: Sequence[int]) -> str:
        """The text of the tokens that were made of a part, with its pieces in their slots."""
        if not self.target.slots:
            return self.target.decode(tokens)
        return self.target.decode_slotted(tokens).fill(part.pieces)

    def limit(self, ids: Sequence[int], settings: DecodingSettings) -> int:
        """The most tokens that an output for this source may have."""
        return int(min(settings.max_ratio * len(ids) + 20, self.settings.model.max_length))

    def _parts(self, text: str | CutText, into: str) -> list[Part]:
        """Lines, and pieces of lines that are too long for the model; never a word is left out."""
        tags = [self.source.tags[into]] if self.settings.data.directions else []
        limit = self.settings.model.max_length - 1 - len(tags)
        parts = []
        for gap, line in split_lines(text) if isinstance(text, str) else [("", text)]:
            if not line:
                parts.append(Part(gap, []))
                continue
            rows = [(line, *self._encode(line))]
            if len(rows[0][1]) > limit:
                whole = line if isinstance(line, str) else line.text
                pieces = split_text(whole, lambda piece: len(self._encode(piece)[0]) <= limit)
                rows = [(piece, *self._encode(piece)) for piece in pieces]
            joint = "" if primary(into) in UNSPACED else " "
            gaps = [gap, *[joint] * (len(rows) - 1)]
            for before, (piece, ids, held) in zip(gaps, rows, strict=True):
                parts.append(Part(before, [*tags, *ids], piece if isinstance(piece, str) else piece.text, pieces=held))
        return parts

    def _encode(self, line: str | CutText) -> tuple[list[int], dict[int, str]]:
        """The tokens of a line, and the pieces that are in its slots, if the model has any."""
        if not self.source.slots:
            return self.source.encode_batch([line if isinstance(line, str) else line.text])[0], {}
        cut = line
        if isinstance(cut, str):
            cut = CutText.at(cut, [piece for piece in find(cut) if piece.kind != "mnemonic"])
        slotted, pieces = slot_text(cut)
        return self.source.encode_slotted(slotted), pieces

    def join(self, parts: Found, terms: Terminology | None = None) -> Translation:
        """The translation of a text, of what was found for its parts."""
        ranks = min((len(found) for _, found in parts if found), default=1)
        best, *others = (
            self._translation([(part, found[rank] if found else None) for part, found in parts])
            for rank in range(ranks)
        )
        distinct = {best.text: best}
        for other in others:  # of two spellings of one text, the better stays
            distinct.setdefault(other.text, other)
        outcomes = (terms.outcomes(part.text, found[0]) for part, found in parts if terms and found)
        return replace(best, alternatives=tuple(distinct.values())[1:], glossary=tuple(chain.from_iterable(outcomes)))

    def _translation(self, parts: Sequence[tuple[Part, Hypothesis | None]]) -> Translation:
        found = [hypothesis for _, hypothesis in parts if hypothesis]
        texts = (part.gap + (self._spell(part, h.tokens) if h else "") for part, h in parts)
        values = tuple(value for h in found for value in h.log_probabilities)
        made = Translation(
            text="".join(texts),
            score=sum(h.score for h in found) / max(1, len(found)),
            log_probability=sum(h.log_probability for h in found),
            tokens=tuple(piece for h in found for piece in self.target.pieces(h.tokens)),
            token_log_probabilities=values,
            finished=all(h.finished for h in found),
            confidence=None if self.confidence is None else self.confidence.of(values),
        )
        if not any(h.alignment for h in found):
            return made
        read = [[*part.ids, self.source.specials.end] for part, h in parts if h]
        alignment = side_by_side([h.alignment for h in found], [len(ids) for ids in read])
        return replace(
            made, source_tokens=tuple(self.source.pieces([i for ids in read for i in ids])), alignment=alignment
        )


@dataclass(frozen=True)
class Part:
    """A piece of the input that is translated at once, and what stands before it in the output."""

    gap: str
    ids: list[int]
    text: str = ""
    constraints: Constraints | None = None
    pieces: dict[int, str] = field(default_factory=dict)  # in its slots


_Window = list[list[Part]]
"""The parts of some texts."""

Found = list[tuple[Part, list[Hypothesis] | None]]
"""The parts of a text, and what was found for each, if there is anything in it."""


def with_options(decoding: DecodingSettings, options: dict[str, Any]) -> DecodingSettings:
    """Decoding settings with some of them changed; a wrong name or value is refused.

    A search that shall give alternatives is at least so wide.
    """
    known = all(isinstance(value, Hashable) for value in options.values())
    return (_settled if known else _settled.__wrapped__)(decoding, **options)


@lru_cache(256, typed=True)  # who translates sentence by sentence gives the same options each time
def _settled(decoding: DecodingSettings, /, **options: Any) -> DecodingSettings:
    known = build(Settings, {"decoding": options}).decoding
    settings = replace(decoding, **{name: getattr(known, name) for name in options})
    if settings.temperature == 0 and settings.alternatives and settings.beam <= settings.alternatives:
        settings = replace(settings, beam=settings.alternatives + 1)
    return settings
