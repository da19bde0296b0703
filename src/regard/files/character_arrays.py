"""Stores many texts as one array of code points, to find kinds of characters without a loop over the texts."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import cache

import numpy as np
from numpy.typing import NDArray

CONTROL, INVISIBLE, REPLACED, DIGIT, PIECES, FIRST, FOLLOWING, SUSPECT = (1 << bit for bit in range(8))
"""Bit flags for the kinds of characters in a text."""

INVISIBLES = "\u00ad\u200b\u2060\u2061\u2062\u2063\u2064\ufeff"
"""Invisible characters such as the soft hyphen; joiners and direction marks are excluded, as some scripts need them."""

FOLLOWERS = "€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
"""The characters of Windows-1252 at the code points where Latin-1 has control characters."""

BASIC, ALL = 0x10000, 0x110000


class Characters:
    """The lengths and code points of texts, and the kinds of characters in each."""

    def __init__(self, texts: Sequence[str]) -> None:
        self.lengths = np.fromiter(map(len, texts), np.int64, len(texts))
        joined = " ".join(texts) + " "  # with a space after each text, because reduceat needs non-empty parts
        self.codes = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), np.uint32)
        self.starts = np.cumsum(self.lengths + 1) - self.lengths - 1
        kinds = np.take(_kinds(), self.codes)
        kinds[:-1] |= (kinds[:-1] << 1 & kinds[1:] & FOLLOWING) << 1  # SUSPECT: FIRST before FOLLOWING
        self.kinds: NDArray[np.uint8] = np.bitwise_or.reduceat(kinds, self.starts) if len(texts) else kinds

    def letters(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """Returns all letters in lower case with a 0 between words, and the position at which each text begins."""
        folded = np.take(_folded(), self.codes)
        keep = folded != 0
        keep[1:] |= folded[:-1] != 0
        keep[self.starts] = True  # so that no text is empty
        return folded[keep], (np.cumsum(keep) - 1)[self.starts]


@cache
def _kinds() -> NDArray[np.uint8]:
    """Returns a table of the kinds of all code points."""
    table = np.zeros(ALL, np.uint8)
    table[:0x20] |= CONTROL
    table[0x7F:0xA0] |= CONTROL
    table[[code for code in range(BASIC) if chr(code).isdecimal()]] |= DIGIT
    table[0xC2:0xF0] |= FIRST  # the first byte of a UTF-8 character, read as Windows-1252
    table[0x80:0xC0] |= FOLLOWING  # the other bytes of a UTF-8 character
    for bit, characters in (
        (INVISIBLE, INVISIBLES),
        (FOLLOWING, FOLLOWERS),
        (REPLACED, "\ufffd"),
        (PIECES, "%{$[</@"),  # characters that occur in placeholders, tags and addresses
    ):
        table[[ord(character) for character in characters]] |= bit
    return table


@cache
def _folded() -> NDArray[np.uint32]:
    """Returns a table of the lower-case forms of all letters, with 0 for other characters."""
    table = np.zeros(ALL, np.uint32)
    table[:BASIC] = [
        ord(chr(code).lower()[0]) if unicodedata.category(chr(code))[0] in "LM" else 0 for code in range(BASIC)
    ]
    for start, end in ((0x10000, 0x1D000), (0x20000, 0x40000)):  # rare scripts and ideographs, without emoji
        table[start:end] = np.arange(start, end)
    return table
