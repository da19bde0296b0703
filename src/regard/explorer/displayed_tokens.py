"""Tokenizes texts for display; each token has its position in the text and the number of its word."""

from __future__ import annotations

import re
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
CutTokens = tuple[list[int], list[CharacterSpan]]
"""The token ids of a text, and the span of characters that each of them covers."""


@dataclass(frozen=True)
class Token:
    """A token for display; `start` and `end` are positions in the text, and `word` is -1 for special tokens."""

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
    firsts: list[int] = field(default_factory=list)  # index of the first token of each labelled word
    warnings: list[str] = field(default_factory=list)

    @property
    def ids(self) -> list[int]:
        return [token.id for token in self.tokens]

    def reordered(self, order: Sequence[int] | None) -> InputTokens:
        """Returns the tokens in the given order, in which token order[0] comes first; None keeps the order."""
        if order is None:
            return self
        if len(order) != len(self.tokens):
            raise InputError(f"order: there are {len(order)} numbers, but the text has {len(self.tokens)} tokens")
        segments = None if self.segments is None else [self.segments[place] for place in order]
        firsts = [list(order).index(place) for place in self.firsts]
        return replace(self, tokens=[self.tokens[place] for place in order], segments=segments, firsts=firsts)


class Lexicon:
    """A tokenizer, and the display forms of its tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.special = {*tokenizer.specials.never_generated, tokenizer.specials.end}

    @cached_property
    def _continuing(self) -> tuple[list[bool], list[bool]]:
        return self.tokenizer.continues(), self.tokenizer.can_continue()

    def show(self, token: int) -> dict[str, Any]:
        """Returns the id, the text and the display form of a token."""
        return {"id": token, "text": self.tokenizer.decode([token]), "display": self.display(token)}

    def display(self, token: int) -> str:
        return self.tokenizer.pieces([token])[0]

    def tokens(self, ids: Sequence[int], spans: Iterable[CharacterSpan] | None = None) -> list[Token]:
        """Returns displayed tokens with numbered words, and with their character spans if known."""
        continues, can_continue = self._continuing
        word, before, tokens = -1, None, []
        for token, span in zip(ids, spans or [None] * len(ids), strict=True):
            special, first = token in self.special, before is None or before in self.special
            if not special and (first or not (continues[token] and can_continue[before or 0])):
                word += 1
            start, end = span or (None, None)
            tokens.append(
                Token(**self.show(token), start=start, end=end, word=-1 if special else word, special=special)
            )
            before = token
        return tokens

    def cut(self, text: str, *, rest: bool = False, offset: int = 0) -> CutTokens:
        """Tokenizes a text; returns ids and character spans. `rest` means that the text continues another one."""
        if rest and not isinstance(self.tokenizer, ImportedTokenizer):
            ids = self.tokenizer.encode_continuation(text) if text else []
            offsets = self.tokenizer._offsets(ids, text)
        else:
            encoding = self.tokenizer.encode(text)
            ids, offsets = encoding.ids, encoding.offsets
        return ids, [(start + offset, end + offset) for start, end in offsets]

    def cut_gaps(self, text: str) -> CutTokens:
        """Tokenizes a text that may contain [MASK]; returns ids and character spans."""
        mask, gaps = self.tokenizer.specials.mask, [gap.span() for gap in MASKED.finditer(text)]
        if gaps and mask is None:
            raise InputError("text: the vocabulary of this model has no mask token; remove [MASK]")
        ends = [*(start for start, _ in gaps), len(text)]
        ids, spans = self.cut(text[: ends[0]]) if ends[0] else ([], [])
        for gap, end in zip(gaps, ends[1:], strict=True):
            more, more_spans = self.cut(text[gap[1] : end], rest=True, offset=gap[1])
            ids, spans = [*ids, mask or 0, *more], [*spans, gap, *more_spans]
        return ids, spans


def warn_of_length(count: int, most: int) -> list[str]:
    """Returns a warning if a text has more tokens than can be shown."""
    return [f"the text has {count} tokens: only the first {most} are shown"] if count > most else []


def source_tokens(lexicon: Lexicon, text: str, most: int, tags: Sequence[str] = ()) -> tuple[str, InputTokens]:
    """Joins the lines of a text as a translator does; returns the text and its tokens with tags and the end token."""
    lines = [line for line in map(tidy, text.splitlines()) if line]
    if not lines:
        raise InputError("text: must not be empty; type a text to translate")
    warnings = [f"the text has {len(lines)} lines; they are joined into one"] if len(lines) > 1 else []
    line, tokenizer = " ".join(lines), lexicon.tokenizer
    ids, spans = lexicon.cut(line)
    ids, spans = [*(tokenizer.tags[tag] for tag in tags), *ids], [*(None for _ in tags), *spans]
    tokens = lexicon.tokens([*ids[: most - 1], tokenizer.specials.end], [*spans[: most - 1], None])
    return line, InputTokens(tokens, warnings=[*warnings, *warn_of_length(len(ids) + 1, most)])


def prompt_tokens(lexicon: Lexicon, text: str, most: int) -> InputTokens:
    """Returns the tokens of a prompt; an empty prompt consists of the begin token only."""
    specials = lexicon.tokenizer.specials
    ids, spans = lexicon.cut(text)
    if specials.prompt or not ids:
        ids, spans = [specials.begin, *ids], [None, *spans]
    return InputTokens(lexicon.tokens(ids[:most], spans[:most]), warnings=warn_of_length(len(ids), most))


def encoder_tokens(lexicon: Lexicon, text: str, pair: str | None, most: int, *, fills: bool) -> InputTokens:
    """Returns the tokens of one or two texts with special tokens; [MASK] is a gap if `fills` is true."""
    if not text.strip():
        raise InputError("text: must not be empty; type a text")
    specials = lexicon.tokenizer.specials
    first, first_spans = lexicon.cut_gaps(text) if fills else lexicon.cut(text)
    second, second_spans = lexicon.cut(pair) if pair else ([], [])
    row = shorten(first, second, lexicon.tokenizer, most)
    whole, _ = specials.join(first, second)
    warnings = [f"the text has {len(whole)} tokens: only {len(row.ids)} are shown"] if row.shortened else []
    rest = max(0, row.segments.count(1) - 1)
    between = [None] * (specials.between - 1)
    kept = row.segments.count(0) - 2 - (len(between) if rest else 0)
    spans = [None, *first_spans[:kept], None, *((*between, *second_spans[:rest], None) if rest else ())]
    return InputTokens(lexicon.tokens(row.ids, spans), row.segments, warnings=warnings)


def word_tokens(lexicon: Lexicon, text: str, most: int) -> InputTokens:
    """Returns the tokens of a text for a model that labels words; each word is tokenized separately."""
    specials = lexicon.tokenizer.specials
    words = [(match[0], match.start()) for match in re.finditer(r"\S+", text)]
    if not words:
        raise InputError("text: must not be empty; type a text to label")
    tokens, firsts = lexicon.tokens([specials.begin]), []
    cuts = lexicon.tokenizer.encode_words([word for word, _ in words])
    for number, ((word, start), cut) in enumerate(zip(words, cuts, strict=True)):
        ids = cut or [specials.pad]
        alone, spans = lexicon.cut(word, offset=start)
        spans = spans if alone == ids else [(start, start + len(word))] * len(ids)
        firsts.append(len(tokens))
        tokens += [replace(token, word=number, special=False) for token in lexicon.tokens(ids, spans)]
    warnings = warn_of_length(len(tokens) + 1, most)
    tokens = [*tokens[: most - 1], *lexicon.tokens([specials.end])]
    return InputTokens(tokens, [0] * len(tokens), [first for first in firsts if first < most - 1], warnings)
