"""Translates texts so that each translation contains exactly the protected pieces of its source, such as placeholders.

An output of the model that violates this is repaired. If that fails, a second search is forced to contain the pieces.
If that fails too, the texts between the pieces are translated separately. As a last resort, the text is not translated.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal

from regard.decoding.read_ahead import end_if_unwanted
from regard.decoding.search_interface import Constraints
from regard.decoding.translation_results import Translation
from regard.errors import InputError
from regard.faithful.repair_translation import SourceLine, repair
from regard.tokens.protected_pieces import counts, find

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.faithful.glossary import Glossary
    from regard.tokens.placeholder_slots import CutText

TOGETHER = 500
"""Number of texts that are translated at once."""

How = Literal["model", "repaired", "memory", "safe"]
"""The origin of a translation: the model, a repaired output, a translation memory, or the unchanged source ("safe")."""


@dataclass(frozen=True)
class MarkedText:
    """A text to translate, with strings to protect in addition to the pieces that `protected_pieces.find` finds."""

    text: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class FaithfulResult:
    """A translation that contains exactly the protected pieces of its source."""

    text: str
    how: How = "model"
    confidence: float | None = None
    flags: tuple[str, ...] = ()  # notes for a reviewer
    translation: Translation | None = None  # scores of the model; None if the model did not translate the text


class Faithful:
    """Translates with one model and preserves the protected pieces of texts."""

    def __init__(
        self,
        translator: Translator,
        *,
        numbers: bool = False,
        queued: Callable[..., list[Translation]] | None = None,
    ) -> None:
        """Wraps a translator; with `numbers`, numbers with units are protected too.

        A server passes `queued`, a function that translates instead of the translator. Texts are then not searched a
        second time, because clients would have to wait too long.
        """
        self.translator, self.numbers, self.searches_again = translator, numbers, queued is None
        self.translate_texts = queued or translator.translate

    def translate(self, texts: Iterable[MarkedText], **options: Any) -> Iterator[FaithfulResult]:
        """Yields the translations of texts in order; `options` are those of `Translator.translate`."""
        direction = {name: options[name] for name in ("source", "target", "zero_shot") if name in options}
        others = {name: value for name, value in options.items() if name not in (*direction, "constrain", "glossary")}
        self.translator.direction(**direction)  # reports a bad option before reading any text
        self.translator.decoding(others)
        remaining = iter(texts)
        while chunk := [_Text(each, self.numbers) for each in islice(remaining, TOGETHER)]:
            rows = [row for text in chunk for row in text.rows if row.made is None]
            self._try_model(rows, options)
            if self.searches_again:
                self._try_constrained([row for row in rows if row.made is None and row.line.cut.pieces], options)
            self._try_parts([row for row in rows if row.made is None and row.line.cut.pieces], options)
            yield from (text.result(options.get("glossary")) for text in chunk)

    def translate_stream(self, texts: Iterable[str], **options: Any) -> Generator[Translation, None, None]:
        """Yields the translations of plain texts, like `Translator.translate_stream`."""
        for result in self.translate(map(MarkedText, texts), **options):
            yield replace(result.translation or NOTHING, text=result.text)

    def _try_model(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        texts = [row.line.cut if row.line.cut.pieces else row.line.cut.text for row in rows]
        for row, translation in zip(rows, self._translate(texts, options), strict=True):
            end_if_unwanted()
            if translation is not None:
                row.take(translation.text, translation, "model")

    def _try_constrained(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        constrain = options.get("constrain") or (lambda _: None)
        required = {cut.text: self._required(cut, constrain(cut.text)) for cut in (row.line.cut for row in rows)}
        more = {**options, "temperature": 0.0, "constrain": required.get}
        for row, translation in zip(rows, self._translate([row.line.cut for row in rows], more), strict=True):
            if translation is not None:
                row.take(translation.text, translation, "repaired", "placeholders inserted by a second search")

    def _required(self, cut: CutText, others: Constraints | None) -> Constraints:
        """Adds constraints to `others` that require all pieces of a text, as placeholder slots or as tokens."""
        target = self.translator.target
        slots = {number: token for token, number in target.slots.items()}
        items = list((others or Constraints()).required)
        for number, piece in enumerate(cut.pieces, 1):
            spelt = {tuple(target.encode_batch([piece])[0]), tuple(target.encode_continuation(piece))} - {()}
            if number in slots or spelt:
                items.append(((slots[number],),) if number in slots else tuple(sorted(spelt)))
        return replace(others or Constraints(), required=tuple(items))

    def _try_parts(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        """Translates the texts between the pieces separately, and joins them in the order of the source."""
        parts = [part for row in rows for part in row.parts]
        translations = dict(zip(parts, self._translate(parts, options), strict=True))
        texts = {part: each.text for part, each in translations.items() if each is not None}
        for row in rows:
            if texts.keys() >= set(row.parts):
                row.take(row.joined(texts), row.translation, "repaired", "translated in parts between placeholders")

    def _translate(self, texts: Sequence[str | CutText], options: dict[str, Any]) -> list[Translation | None]:
        """Returns the translations of texts, with None for each text that the translator rejects."""
        try:
            return [*self.translate_texts(texts, **options)] if texts else []
        except InputError:
            return [None] if len(texts) == 1 else [self._translate([text], options)[0] for text in texts]


class _Row:
    """A line of a text and its current translation."""

    def __init__(self, before: str, line: SourceLine, after: str) -> None:
        self.before, self.line, self.after = before, line, after  # surrounding white space and line breaks
        self.made: str | None = None if line.has_words else line.text
        self.translation: Translation | None = None
        self.how: How = "model"
        self.flags: tuple[str, ...] = ()

    def take(self, text: str, translation: Translation | None, how: How, *flags: str) -> None:
        """Accepts a translation if it contains the right pieces or can be repaired."""
        made = repair(text, self.line)
        self.translation = self.translation or translation
        if made and self.line.holds(made):
            if how == "model" and self._moved(text, made):
                how, flags = "repaired", ("placeholders removed or reordered",)
            self.made, self.translation, self.how, self.flags = made, translation, how, flags

    def _moved(self, text: str, made: str) -> bool:
        """Reports whether a repair moved or removed pieces, ignoring mnemonics, which are always inserted."""
        before, after = ([p.text for p in self.line.find(each) if p.kind != "mnemonic"] for each in (text, made))
        return before != after

    @property
    def parts(self) -> list[str]:
        """The texts between the pieces, if they contain words."""
        return [text.strip() for text in self.line.cut.texts if any(map(str.isalpha, text))]

    def joined(self, made: dict[str, str]) -> str:
        """Returns the line with its parts replaced by their translations."""
        texts = []
        for text in self.line.cut.texts:
            core = text.strip()
            translated = repair(made[core], SourceLine(core)) if core in made else core
            start = len(text) - len(text.lstrip())
            texts.append(text if not core else text[:start] + translated + text[len(text.rstrip()) :])
        return replace(self.line.cut, texts=tuple(texts)).text


class _Text:
    """A text split into lines, except within protected pieces."""

    def __init__(self, source: MarkedText, numbers: bool) -> None:
        self.source, self.numbers = source, numbers
        self.rows = []
        inside = {
            place
            for piece in find(source.text, source.marks, numbers=numbers)
            for place in range(piece.start + 1, piece.end)
        }
        start = 0
        for match in re.finditer(r"\r\n?|\n|\Z", source.text):
            if match.start() in inside:
                continue
            end_if_unwanted()
            text = source.text[start : match.start()]
            core = text.strip()
            before = text[: len(text) - len(text.lstrip())] if core else text
            after = text[len(text.rstrip()) :] if core else ""
            self.rows.append(_Row(before, SourceLine(core, source.marks, numbers), after + match[0]))
            start = match.end()

    def result(self, glossary: Glossary | None) -> FaithfulResult:
        """Returns the translation, with the outcome of each glossary term if there is a glossary."""
        result = self._result()
        if glossary is None:
            return result
        outcomes = tuple(glossary.check(self.source.text, result.text))
        faults = (str(outcome) for outcome in outcomes if outcome.state != "placed")
        translation = replace(result.translation or NOTHING, text=result.text, glossary=outcomes)
        return replace(result, translation=translation, flags=(*result.flags, *faults))

    def _result(self) -> FaithfulResult:
        """Returns the translation of all lines if it contains exactly the pieces of the text, else the source text."""
        translations = [row.translation for row in self.rows if row.translation is not None]
        text = "".join(row.before + (row.made or "") + row.after for row in self.rows)
        translation = _join_lines(text, translations) if translations else None
        confidence = translation.confidence if translation else None
        wanted = counts(self.source.text, self.source.marks, numbers=self.numbers)
        if (
            any(row.made is None for row in self.rows)
            or counts(text, self.source.marks, numbers=self.numbers) != wanted
        ):
            why = "placeholders could not be kept" if wanted else "the output of the model was unusable"
            return FaithfulResult(self.source.text, "safe", confidence, (f"not translated: {why}",), translation)
        how: How = "repaired" if any(row.how == "repaired" for row in self.rows) else "model"
        flags = dict.fromkeys(flag for row in self.rows for flag in row.flags)
        return FaithfulResult(text, how, confidence, tuple(flags), translation)


NOTHING = Translation("", 0.0, 0.0, (), (), finished=True)
"""The translation of a text without words."""


def _join_lines(text: str, lines: Sequence[Translation]) -> Translation:
    """Combines the scores of the lines of a text; drops alternatives, whose pieces have not been checked."""
    if len(lines) == 1:
        return replace(lines[0], text=text, alternatives=())
    confidences = [each.confidence for each in lines if each.confidence is not None]
    return Translation(
        text=text,
        score=sum(each.score for each in lines) / len(lines),
        log_probability=sum(each.log_probability for each in lines),
        tokens=tuple(token for each in lines for token in each.tokens),
        token_log_probabilities=tuple(value for each in lines for value in each.token_log_probabilities),
        finished=all(each.finished for each in lines),
        confidence=min(confidences, default=None),
    )
