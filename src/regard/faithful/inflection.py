"""Words of a text, and whether one is another with an ending: simple rules, no dictionary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from regard.tokens import protected_pieces as protect
from regard.tokens.language_tags import primary

UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Scripts written without spaces: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han."""
JOINERS = "\u200c\u200d"
UMLAUTS = str.maketrans("äöü", "aou")


class WordUnit(NamedTuple):
    """A word, a character of a script that is written without spaces, or a sign."""

    text: str
    folded: str
    start: int
    end: int


def word_units(text: str, *, whole: bool = False) -> list[WordUnit]:
    """The units of a text; placeholders, tags and addresses are signs unless it is taken as a `whole`."""
    for piece in () if whole else protect.find(text):
        text = text[: piece.start] + "\0" * (piece.end - piece.start) + text[piece.end :]
    found = ((unicodedata.normalize("NFC", match[0]), match) for match in _pattern().finditer(text))
    return [WordUnit(word, word.casefold(), *match.span()) for word, match in found]


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    marks = _marks() + JOINERS
    return re.compile(rf"[{UNSPACED}][{marks}]*|(?:(?![{UNSPACED}])[\w{marks}])+|\S")


def _marks() -> str:
    """The combining marks of all scripts, as ranges; `re` has no name for them."""
    codes = (code for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


class Endings(NamedTuple):
    """Which endings a word may have: in English those of the plural, elsewhere up to `most` letters."""

    english: bool
    german: bool  # Haus, Häuser
    most: int

    @classmethod
    def of(cls, language: str, most: int = 3) -> Endings:
        """Those of a language by its code; an unknown one may be any."""
        code = primary(language)
        return cls(code in ("en", "eng"), code in ("de", "deu", "ger", ""), most)

    def fit(self, wanted: Sequence[WordUnit], words: Sequence[WordUnit], *, exact: bool) -> bool:
        """Whether the first of some words are those that are wanted, apart from endings and, unless `exact`, case."""
        if len(words) < len(wanted):
            return False
        for place, (one, other) in enumerate(zip(wanted, words, strict=False)):
            stem, word = (one.text, other.text) if exact else (one.folded, other.folded)
            first = exact and place == 0 and self._same(stem[:1].upper() + stem[1:], word)  # of a sentence
            if not first and not self._same(stem, word):
                return False
        return True

    def _same(self, stem: str, word: str) -> bool:
        if stem == word:
            return True
        if not stem[-1:].isalpha() or len(stem) < _least(stem) or not word.isalpha():
            return False
        if self.english:
            return word in (f"{stem}s", f"{stem}es") or (stem[-1] == "y" and word == f"{stem[:-1]}ies")
        if len(word) > len(stem) + self.most:
            return False
        return word.startswith(stem) or (self.german and word.translate(UMLAUTS).startswith(stem.translate(UMLAUTS)))

    def stems(self, word: str) -> Iterator[str]:
        """What a word may be with an ending taken off, itself first."""
        yield word
        if self.english and word.endswith("ies"):
            yield f"{word[:-3]}y"
        for length in range(1, min(self.most, len(word) - 1) + 1):
            yield word[:-length]


def _least(stem: str) -> int:
    """Letters that a word must have to take an ending; a letter of Korean is a syllable."""
    return 2 if "\uac00" <= stem[-1] <= "\ud7a3" else 3
