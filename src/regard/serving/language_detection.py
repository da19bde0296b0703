"""Detects the language of a text with the n-gram model of py3langid, which covers about 80 languages."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

from regard.serving.language_codes import NAMES, public

if TYPE_CHECKING:
    from py3langid.langid import LanguageIdentifier

MAX_CHARACTERS = 2_000
"""Maximum number of characters used for detection; more would not change the result."""
LIBRARY_CODES = {"nb": ("no",), "iw": ("he",), "fil": ("tl",), "zh": ("zh", "yue", "wuu")}
"""Languages whose codes differ in the library; it separates varieties of Chinese that most models do not."""
CHARSETS = {"zh-hans": "gb2312", "zh-hant": "big5"}
"""Character encodings that cover simplified and traditional Chinese."""


def detect(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Returns `languages`, most probable first, each with a confidence from 0 to 100.

    The confidence is relative to all languages that can be detected, not only to `languages`.
    """
    text = text[:MAX_CHARACTERS]
    shares = dict(load_identifier().rank(text)) if any(map(str.isalpha, text)) else {}
    found = [(code, round(100 * _share(public(code).lower(), shares, text), 1)) for code in languages]
    return sorted(found, key=lambda each: -each[1])


@lru_cache(maxsize=1)
def load_identifier() -> LanguageIdentifier:
    """Loads the detection model, which takes two seconds on the first call."""
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
    known = {name for code in NAMES for name in LIBRARY_CODES.get(code, (code,))} | set(LIBRARY_CODES["zh"])
    identifier.set_languages(known.intersection(identifier.labels))
    return identifier


def _share(code: str, shares: dict[str, float], text: str) -> float:
    """Returns the probability of a language; for Chinese, multiplied by the share of letters in its script."""
    base = code.partition("-")[0]
    share = sum(shares.get(each, 0.0) for each in LIBRARY_CODES.get(base, (base,)))
    if share and code in CHARSETS:
        letters = [letter for letter in text if letter.isalpha()]
        share *= sum(bool(letter.encode(CHARSETS[code], "ignore")) for letter in letters) / len(letters)
    return share
