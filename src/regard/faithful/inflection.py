"""Splits texts into words, and compares words without their endings, by simple rules instead of a dictionary."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

from regard.tokens import protected_pieces as protect
from regard.tokens.language_directions import primary

UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3005\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\uff66-\uff9f\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces between words: Thai, Lao, Tibetan, Burmese, Khmer, kana, Han."""
JOINERS = "\u200c\u200d"
UMLAUTS = str.maketrans("äöü", "aou")


class WordUnit(NamedTuple):
    """A word, a character of a script without spaces, or a punctuation mark."""

    text: str
    folded: str
    start: int
    end: int


def word_units(text: str, *, whole: bool = False) -> list[WordUnit]:
    """Splits a text into words; placeholders, tags and addresses do not count as words unless `whole` is true."""
    for piece in () if whole else protect.find(text):
        text = text[: piece.start] + "\0" * (piece.end - piece.start) + text[piece.end :]
    words = ((unicodedata.normalize("NFC", match[0]), match) for match in _pattern().finditer(text))
    return [WordUnit(word, word.casefold(), *match.span()) for word, match in words]


@lru_cache(maxsize=1)
def _pattern() -> re.Pattern[str]:
    marks = _marks() + JOINERS
    return re.compile(rf"[{UNSPACED}][{marks}]*|(?:(?![{UNSPACED}])[\w{marks}])+|\S")


def _marks() -> str:
    """Returns the combining marks of all scripts as ranges, because `re` has no character class for them."""
    codes = (code for code in range(0x20000) if unicodedata.category(chr(code))[0] == "M")
    runs = [[code for _, code in run] for _, run in groupby(enumerate(codes), lambda pair: pair[1] - pair[0])]
    return "".join(f"{chr(run[0])}-{chr(run[-1])}" for run in runs)


class Endings(NamedTuple):
    """The endings that a word may have: plural endings in English, up to `most` letters in other languages."""

    english: bool
    german: bool  # allows umlauts, as in Haus, Häuser
    most: int

    @classmethod
    def of(cls, language: str, most: int = 3) -> Endings:
        """Returns the endings of a language; an unknown language ("") is treated like German."""
        code = primary(language)
        return cls(code in ("en", "eng"), code in ("de", "deu", "ger", ""), most)

    def fit(self, wanted: Sequence[WordUnit], words: Sequence[WordUnit], *, exact: bool) -> bool:
        """Reports whether `words` begin with the wanted words, ignoring endings and, unless `exact`, case."""
        if len(words) < len(wanted):
            return False
        for place, (one, other) in enumerate(zip(wanted, words, strict=False)):
            stem, word = (one.text, other.text) if exact else (one.folded, other.folded)
            first = exact and place == 0 and self._same(stem[:1].upper() + stem[1:], word)  # may begin a sentence
            if not first and not self._same(stem, word):
                return False
        return True

    def _same(self, stem: str, word: str) -> bool:
        if stem == word:
            return True
        if not stem[-1:].isalpha() or len(stem) < _min_letters(stem) or not word.isalpha():
            return False
        if self.english:
            return word in (f"{stem}s", f"{stem}es") or (stem[-1] == "y" and word == f"{stem[:-1]}ies")
        if len(word) > len(stem) + self.most:
            return False
        return word.startswith(stem) or (self.german and word.translate(UMLAUTS).startswith(stem.translate(UMLAUTS)))

    def stems(self, word: str) -> Iterator[str]:
        """Yields a word, and the word without each possible ending."""
        yield word
        if self.english and word.endswith("ies"):
            yield f"{word[:-3]}y"
        for length in range(1, min(self.most, len(word) - 1) + 1):
            yield word[:-length]


def _min_letters(stem: str) -> int:
    """Returns the minimum length of words that take endings; a Korean letter is a whole syllable."""
    return 2 if "\uac00" <= stem[-1] <= "\ud7a3" else 3
