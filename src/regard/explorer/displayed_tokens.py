"""Turns texts into tokens for display, with the characters that each covers and the word that it belongs to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from regard.decoding.fill_classify_embed import MASKED, shorten
from regard.errors import InputError
from regard.tokens.clean_text import tidy
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Tokenizer

CharacterSpan = tuple[int, int] | None


@dataclass(frozen=True)
class Token:
    """A token as the page shows it; `start` and `end` are characters of the text, `word` is -1 for special tokens."""

    id: int
    text: str
    display: str
    start: int | None = None
    end: int | None = None
    word: int = -1
    special: bool = False


@dataclass(frozen=True)
class InputTokens:
    """The tokens of a text that a model reads."""

    tokens: list[Token]
    segments: list[int] | None = None
    firsts: list[int] = field(default_factory=list)  # the first token of each word that is labelled
    warnings: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def reordered(self, order: Sequence[int] | None) -> InputTokens:
        """Returns the tokens in another order, if one is given: the first is the one at position order[0]."""
        if order is None:
            return self
        if len(order) != len(self.tokens):
            raise InputError(f"order: has {len(order)} numbers, but the text has {len(self.tokens)} tokens")
        segments = None if self.segments is None else [self.segments[place] for place in order]
        firsts = [list(order).index(place) for place in self.firsts]
        return replace(self, tokens=[self.tokens[place] for place in order], segments=segments, firsts=firsts)


class Lexicon:
    """A tokenizer with the display form of each token."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        special = tokenizer.specials
        self.special = {*special.never_generated, special.end}

    @cached_property
    def _inner(self) -> tuple[list[bool], list[bool]]:
        return self.tokenizer.continues(), self.tokenizer.can_continue()

    def specials(self) -> dict[str, int | None]:
        """Returns the ids of special tokens."""
        own = self.tokenizer.specials
        names = ("pad", "begin", "end", "unknown", "mask")
        return {name: getattr(own, name) for name in names}

    def show(self, token: int) -> dict[str, Any]:
        """Returns the id, the text and the display form of a token."""
        return {"id": token, "text": self.tokenizer.decode([token]), "display": self.display(token)}

    def display(self, token: int) -> str:
        return self.tokenizer.pieces([token])[0]

    def tokens(self, ids: Sequence[int], spans: Iterable[CharacterSpan] | None = None) -> list[Token]:
        """Returns tokens with numbered words, and with their characters if these are known."""
        spans = [None] * len(ids) if spans is None else list(spans)
        continues, can_continue = self._inner
        word, before, found = -1, None, []
        for token, span in zip(ids, spans, strict=True):
            start, end = span or (None, None)
            special = token in self.special
            if not special and (
                before is None or before in self.special or not (continues[token] and can_continue[before])
            ):
                word += 1
            shown = self.show(token)
            found.append(Token(**shown, start=start, end=end, word=-1 if special else word, special=special))
            before = token
        return found

    def cut(self, text: str, *, rest: bool = False, offset: int = 0) -> tuple[list[int], list[CharacterSpan]]:
        """Returns the ids of a text and their characters; `rest` means that the text continues another one."""
        if rest and not isinstance(self.tokenizer, ImportedTokenizer):
            ids = self.tokenizer.encode_continuation(text) if text else []
            offsets = self.tokenizer._offsets(ids, text)
        else:
            encoding = self.tokenizer.encode(text)
            ids, offsets = encoding.ids, encoding.offsets
        return ids, [(start + offset, end + offset) for start, end in offsets]


def source_tokens(lexicon: Lexicon, text: str, most: int, tags: Sequence[str] = ()) -> tuple[str, InputTokens]:
    """Returns the line that a translator reads, cleaned as in translation, and its tokens with tags and end."""
    warnings = []
    lines = [line for line in map(tidy, text.splitlines()) if line]
    if not lines:
        raise InputError("text: is empty; type a text to translate")
    if len(lines) > 1:
        warnings.append(f"the text has {len(lines)} lines; they are joined into one")
    line = " ".join(lines)
    ids, spans = lexicon.cut(line)
    ids, spans = [*(lexicon.tokenizer.tags[tag] for tag in tags), *ids], [*(None for _ in tags), *spans]
    if len(ids) + 1 > most:
        warnings.append(f"the text has {len(ids) + 1} tokens: only the first {most} are shown")
    ids, spans = ids[: most - 1], spans[: most - 1]
    return line, InputTokens(lexicon.tokens([*ids, lexicon.tokenizer.specials.end], [*spans, None]), warnings=warnings)


def prompt_tokens(lexicon: Lexicon, text: str, most: int) -> InputTokens:
    """Returns the tokens of a writer's prompt; an empty prompt is the begin token alone."""
    specials = lexicon.tokenizer.specials
    ids, spans = lexicon.cut(text)
    if specials.prompt or not ids:
        ids, spans = [specials.begin, *ids], [None, *spans]
    warnings = [f"the text has {len(ids)} tokens: only the first {most} are shown"] if len(ids) > most else []
    return InputTokens(lexicon.tokens(ids[:most], spans[:most]), warnings=warnings)


def encoder_tokens(lexicon: Lexicon, text: str, pair: str | None, most: int, *, fills: bool) -> InputTokens:
    """Returns the tokens of one or two texts with begin and ends; [MASK] is a gap if the model `fills` gaps."""
    if not text.strip():
        raise InputError("text: is empty; type a text")
    first, first_spans = cut_gaps(lexicon, text) if fills else lexicon.cut(text)
    second, second_spans = lexicon.cut(pair) if pair else ([], [])
    row = shorten(first, second, lexicon.tokenizer, most)
    whole, _ = lexicon.tokenizer.specials.join(first, second)
    warnings = [f"the text has {len(whole)} tokens: only {len(row.ids)} are shown"] if row.shortened else []
    rest = max(0, row.segments.count(1) - 1)
    between = [None] * (lexicon.tokenizer.specials.between - 1)
    kept = row.segments.count(0) - 2 - (len(between) if rest else 0)
    spans = [None, *first_spans[:kept], None, *((*between, *second_spans[:rest], None) if rest else ())]
    return InputTokens(lexicon.tokens(row.ids, spans), row.segments, warnings=warnings)


def word_tokens(lexicon: Lexicon, text: str, most: int) -> InputTokens:
    """Returns the tokens of words between spaces, each tokenized by itself, for a model that labels words."""
    specials = lexicon.tokenizer.specials
    words = text.split()
    if not words:
        raise InputError("text: is empty; type a text to label")
    cuts = [tokens or [specials.pad] for tokens in lexicon.tokenizer.encode_words(words)]
    tokens, firsts, place, at = lexicon.tokens([specials.begin]), [], 1, 0
    for number, (word, ids) in enumerate(zip(words, cuts, strict=True)):
        at = text.index(word, at)
        alone, spans = lexicon.cut(word, offset=at)
        spans = spans if alone == ids else [(at, at + len(word))] * len(ids)
        tokens += [replace(t, word=number, special=False) for t in lexicon.tokens(ids, spans)]
        firsts.append(place)
        place, at = place + len(ids), at + len(word)
    end = lexicon.tokens([specials.end])
    if len(tokens) + 1 <= most:
        return InputTokens([*tokens, *end], [0] * (len(tokens) + 1), firsts)
    warning = f"the text has {len(tokens) + 1} tokens: only the first {most} are shown"
    return InputTokens([*tokens[: most - 1], *end], [0] * most, [f for f in firsts if f < most - 1], [warning])


def cut_gaps(lexicon: Lexicon, text: str) -> tuple[list[int], list[CharacterSpan]]:
    """Returns the ids of a text with [MASK] in it, as the filler reads it, and their characters."""
    mask = lexicon.tokenizer.specials.mask
    gaps = list(MASKED.finditer(text))
    if gaps and mask is None:
        raise InputError("text: this model's vocabulary has no mask token; remove [MASK]")
    bounds = [gap.span() for gap in gaps]
    starts = [*(start for start, _ in bounds), len(text)]
    ids, spans = lexicon.cut(text[: starts[0]]) if starts[0] else ([], [])
    for (start, end), until in zip(bounds, starts[1:], strict=True):
        assert mask is not None
        more, more_spans = lexicon.cut(text[end:until], rest=True, offset=end)
        ids, spans = [*ids, mask, *more], [*spans, (start, end), *more_spans]
    return ids, spans
