"""Translates so that all protected pieces of a text, and no others, stand in its translation, whatever the model does.

What the model makes is taken if it is right; else it is put right, searched for anew with the pieces required, or put
together from translations of what stands between them; and if all that fails, the text stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Literal, Protocol

from regard.decoding.hypotheses import Constraints
from regard.decoding.translator import Translation
from regard.errors import InputError
from regard.faithful.repair_translation import SourceLine, repair
from regard.tokens.protected_pieces import counts, find

if TYPE_CHECKING:
    from regard.faithful.glossary import Glossary
    from regard.settings import DecodingSettings
    from regard.tokens.directions import Direction
    from regard.tokens.slot_tokens import CutText
    from regard.tokens.tokenizer import Tokenizer

TOGETHER = 500
"""Texts that are translated at once."""

How = Literal["model", "repaired", "safe"]
"""How a translation came about: as the model made it, put right, or not at all: it is the source."""


@dataclass(frozen=True)
class Job:
    """A text to translate, and the literal strings in it that are protected beside what `protect.find` finds."""

    text: str
    marks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Result:
    """A translation with exactly the protected pieces of its source."""

    text: str
    translation: Translation | None  # what the model thought of it; none where it was not asked, or could not be
    how: How
    flags: tuple[str, ...] = ()  # what a person has to look at

    @property
    def confidence(self) -> float | None:
        return None if self.translation is None else self.translation.confidence


class TextTranslator(Protocol):
    """What `Faithful` needs of a translator."""

    @property
    def target(self) -> Tokenizer: ...

    def direction(self, source: str | None = None, target: str | None = None, *, zero_shot: bool = False) -> Direction:
        """Refuses languages that the model does not know."""

    def decoding(self, options: dict[str, Any]) -> DecodingSettings:
        """Refuses options that are not known."""

    def translate(self, texts: Sequence[str | CutText], **options: Any) -> list[Translation]:
        """Returns the translations of texts, in their order."""


class Faithful:
    """Translates with one model and keeps what must be kept."""

    def __init__(self, translator: TextTranslator, *, numbers: bool = False) -> None:
        """With `numbers`, numbers with units are kept as well."""
        self.translator, self.numbers = translator, numbers

    def translate(self, jobs: Iterable[Job], **options: Any) -> Iterator[Result]:
        """The translations of any number of texts, in their order; the options are those of `Translator.translate`."""
        direction = {name: options[name] for name in ("source", "target", "zero_shot") if name in options}
        others = {name: value for name, value in options.items() if name not in (*direction, "constrain", "glossary")}
        self.translator.direction(**direction)  # a bad option is refused before any text is read
        self.translator.decoding(others)
        waiting = iter(jobs)
        while chunk := list(islice(waiting, TOGETHER)):
            texts = [_Text(job, self.numbers) for job in chunk]
            rows = [row for text in texts for row in text.rows if row.made is None]
            self._try_model(rows, options)
            self._try_constrained([row for row in rows if row.made is None and row.line.cut.pieces], options)
            self._try_parts([row for row in rows if row.made is None and row.line.cut.pieces], options)
            yield from (text.result(options.get("glossary")) for text in texts)

    def translate_stream(self, texts: Iterable[str], **options: Any) -> Generator[Translation, None, None]:
        """The same of plain texts, as `Translator.translate_stream` gives it."""
        for result in self.translate(map(Job, texts), **options):
            yield replace(result.translation or NOTHING, text=result.text)

    def _try_model(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        asked = [row.line.cut if row.line.cut.pieces else row.line.cut.text for row in rows]
        for row, found in zip(rows, self._ask(asked, options), strict=True):
            if found is not None:
                row.take(found.text, found, "model")

    def _try_constrained(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        """Searches for an output that has all the pieces."""
        asked = options.get("constrain") or (lambda _: None)
        required = {cut.text: self._required(cut, asked(cut.text)) for cut in (row.line.cut for row in rows)}
        more = {**options, "temperature": 0.0, "constrain": required.get}
        for row, found in zip(rows, self._ask([row.line.cut for row in rows], more), strict=True):
            if found is not None:
                row.take(found.text, found, "repaired", "placeholders put in by a second search")

    def _required(self, cut: CutText, others: Constraints | None) -> Constraints:
        """The pieces of a text as tokens, slots if there are any, beside what else is required."""
        target = self.translator.target
        slots = {number: token for token, number in target.slots.items()}
        items = list((others or Constraints()).required)
        for number, piece in enumerate(cut.pieces, 1):
            spelt = {tuple(target.encode_batch([piece])[0]), tuple(target.encode_continuation(piece))} - {()}
            if number in slots or spelt:
                items.append(((slots[number],),) if number in slots else tuple(sorted(spelt)))
        return replace(others or Constraints(), required=tuple(items))

    def _try_parts(self, rows: Sequence[_Row], options: dict[str, Any]) -> None:
        """Translates what stands between the pieces, and joins all in the order of the source."""
        parts = [part for row in rows for part in row.parts]
        found = dict(zip(parts, self._ask(parts, options), strict=True))
        for row in rows:
            made = [found[part] for part in row.parts]
            if all(each is not None for each in made):
                texts = {part: each.text for part, each in zip(row.parts, made, strict=True) if each is not None}
                row.take(row.joined(texts), row.translation, "repaired", "translated in parts between placeholders")

    def _ask(self, texts: Sequence[str | CutText], options: dict[str, Any]) -> list[Translation | None]:
        """What the translator makes of some texts; none of one that it refuses."""
        try:
            return list(self.translator.translate(texts, **options)) if texts else []
        except InputError:
            return [None] if len(texts) == 1 else [self._ask([text], options)[0] for text in texts]


class _Row:
    """A line of a text on its way."""

    def __init__(self, before: str, line: SourceLine, after: str) -> None:
        self.before, self.line, self.after = before, line, after  # white space, and the end of the line
        self.made: str | None = None if line.has_words else line.text
        self.translation: Translation | None = None
        self.how: How = "model"
        self.flags: tuple[str, ...] = ()

    def take(self, text: str, translation: Translation | None, how: How, *flags: str) -> None:
        """Takes a translation if it is right, or can be put right."""
        made = repair(text, self.line)
        self.translation = self.translation or translation
        if made and self.line.holds(made):
            if how == "model" and self._moved(text, made):
                how, flags = "repaired", ("placeholders taken out or put in order",)
            self.made, self.translation, self.how, self.flags = made, translation, how, flags

    def _moved(self, text: str, made: str) -> bool:
        """Whether pieces had to be moved or taken out; mnemonics always are put in."""
        before, after = ([p.text for p in self.line.find(each) if p.kind != "mnemonic"] for each in (text, made))
        return before != after

    @property
    def parts(self) -> list[str]:
        """What stands between the pieces and has words."""
        return [text.strip() for text in self.line.cut.texts if any(map(str.isalpha, text))]

    def joined(self, made: dict[str, str]) -> str:
        """The line with these translations of its parts; no part has a piece of its own."""
        texts = []
        for text in self.line.cut.texts:
            core = text.strip()
            found = repair(made[core], SourceLine(core)) if core in made else core
            start = len(text) - len(text.lstrip())
            texts.append(text if not core else text[:start] + found + text[len(text.rstrip()) :])
        return replace(self.line.cut, texts=tuple(texts)).text


class _Text:
    """A text in lines; a line break inside of a piece does not count."""

    def __init__(self, job: Job, numbers: bool) -> None:
        self.job, self.numbers = job, numbers
        self.rows = []
        inside = {
            place for piece in find(job.text, job.marks, numbers=numbers) for place in range(piece.start + 1, piece.end)
        }
        start = 0
        for match in re.finditer(r"\r\n?|\n|\Z", job.text):
            if match.start() in inside:
                continue
            text = job.text[start : match.start()]
            core = text.strip()
            before = text[: len(text) - len(text.lstrip())] if core else text
            after = text[len(text.rstrip()) :] if core else ""
            self.rows.append(_Row(before, SourceLine(core, job.marks, numbers), after + match[0]))
            start = match.end()

    def result(self, glossary: Glossary | None) -> Result:
        """The translation, and what became of the terms of a glossary in it."""
        found = self._result()
        if glossary is None:
            return found
        outcomes = tuple(glossary.check(self.job.text, found.text))
        faults = (str(outcome) for outcome in outcomes if outcome.state != "placed")
        translation = replace(found.translation or NOTHING, text=found.text, glossary=outcomes)
        return replace(found, translation=translation, flags=(*found.flags, *faults))

    def _result(self) -> Result:
        """The translation of all lines, if all are translated and together they have the pieces of the text."""
        found = [row.translation for row in self.rows if row.translation is not None]
        text = "".join(row.before + (row.made or "") + row.after for row in self.rows)
        translation = _merged(text, found) if found else None
        wanted = counts(self.job.text, self.job.marks, numbers=self.numbers)
        if any(row.made is None for row in self.rows) or counts(text, self.job.marks, numbers=self.numbers) != wanted:
            why = "placeholders could not be kept" if wanted else "the model gave nothing of use"
            return Result(self.job.text, translation, "safe", (f"not translated: {why}",))
        how: How = "repaired" if any(row.how == "repaired" for row in self.rows) else "model"
        flags = dict.fromkeys(flag for row in self.rows for flag in row.flags)
        return Result(text, translation, how, tuple(flags))


NOTHING = Translation("", 0.0, 0.0, (), (), finished=True)
"""What a model thinks of a text in which there is nothing to translate."""


def _merged(text: str, found: Sequence[Translation]) -> Translation:
    """What the model thought of all lines of a text."""
    if len(found) == 1:
        return replace(found[0], text=text, alternatives=())  # they are not checked
    trust = [each.confidence for each in found if each.confidence is not None]
    return Translation(
        text=text,
        score=sum(each.score for each in found) / len(found),
        log_probability=sum(each.log_probability for each in found),
        tokens=tuple(token for each in found for token in each.tokens),
        token_log_probabilities=tuple(value for each in found for value in each.token_log_probabilities),
        finished=all(each.finished for each in found),
        confidence=min(trust, default=None),
    )
