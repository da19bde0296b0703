"""Detects the language of a text by its script and the commonest words of some forty languages.

Naive Bayes over the letters of words, learnt from the lists in common_words.txt, the commonest first: it is small, and
sure of a sentence rather than of a word. The confidence is a share among all languages known here, served or not.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from regard.serving.language_codes import public

WORDS = Path(__file__).with_name("common_words.txt")
MOST_READ = 2_000
"""Characters that are looked at: more would change nothing."""

UNSEEN = math.log(2e-4)  # a group of letters that a language's common words do not have
WHOLE = 2.0  # nats for a common word as such, beside its letters
FOREIGN = 8.0  # nats against a language without this letter, such as ř
OVERLAP = 3.0  # groups of letters overlap, so that their evidence is counted about so often
DOUBT = 0.02  # that a text is in a language not known here: nothing is quite certain


def detect(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Returns these languages, the likeliest first, each with a confidence from 0 to 100."""
    words = re.findall(r"[^\W\d_]+", unicodedata.normalize("NFC", text[:MOST_READ]).lower())
    shares = _shares(words) if words else {}
    found = [(code, round(100 * shares.get(_profile(code), 0.0), 1)) for code in languages]
    return sorted(found, key=lambda each: -each[1])


def _profile(code: str) -> str:
    """Returns the code of the profile for a language."""
    shown = public(code).lower()
    base = shown.partition("-")[0]
    return shown if shown in _profiles() else {"no": "nb", "nn": "nb", "iw": "he"}.get(base, base)


def _shares(words: Sequence[str]) -> dict[str, float]:
    """Returns how likely each known language in the script of the text is."""
    letters = Counter(_script(letter) for word in words for letter in word)
    script = _written(letters)
    written = SCRIPTS.get(script, () if script != "LATIN" else tuple(_latin()))
    known = {code: profile for code, profile in _profiles().items() if code in written}
    if len(known) < 2:
        return dict.fromkeys(written, 1 - DOUBT)
    scores = {code: _score(words, *profile) for code, profile in known.items()}
    best = max(scores.values())
    weights = {code: math.exp((score - best) / OVERLAP) for code, score in scores.items()}
    total = sum(weights.values()) / (1 - DOUBT)
    return {code: weight / total for code, weight in weights.items()}


def _written(letters: Counter[str]) -> str:
    """Returns the script of a text; a single kana makes it Japanese."""
    script = max(letters, key=lambda name: letters[name])
    return "HIRAGANA" if script in ("CJK", "KATAKANA") and letters["HIRAGANA"] + letters["KATAKANA"] > 0 else script


@lru_cache(maxsize=4096)
def _script(letter: str) -> str:
    return unicodedata.name(letter, "?").split()[0].removesuffix("-COMPATIBILITY")


def _score(words: Sequence[str], common: frozenset[str], groups: dict[str, float]) -> float:
    """Returns the evidence for a language, from n-grams and whole words."""
    total = 0.0
    for word in words:
        total += WHOLE if word in common else 0.0
        total += sum(groups.get(group, UNSEEN) - UNSEEN for group in _groups(word))
        total -= FOREIGN * sum(letter not in groups for letter in word if not letter.isascii())
    return total


def _groups(word: str) -> list[str]:
    """Returns the n-grams of one to three letters in a word, including its borders."""
    marked = f" {word} "
    return [marked[i : i + n] for n in (1, 2, 3) for i in range(len(marked) - n + 1) if marked[i : i + n] != " "]


@lru_cache(maxsize=1)
def _profiles() -> dict[str, tuple[frozenset[str], dict[str, float]]]:
    """Returns for each language its commonest words, and the log frequency of the n-grams in them."""
    found = {}
    for line in WORDS.read_text(encoding="utf-8").splitlines():
        code, *words = line.split()
        counts: Counter[str] = Counter()
        for rank, word in enumerate(words):
            for group in _groups(word):
                counts[group] += 1000 // (rank + 10)  # the commonest come first
        totals = Counter({size: sum(n for group, n in counts.items() if len(group) == size) for size in (1, 2, 3)})
        logs = {group: max(UNSEEN, math.log(count / totals[len(group)])) for group, count in counts.items()}
        found[code] = frozenset(words), logs
    return found


def _latin() -> set[str]:
    """Returns the languages in Latin script, which SCRIPTS does not list."""
    return set(_profiles()) - {code for codes in SCRIPTS.values() for code in codes}


SCRIPTS = {
    "CYRILLIC": ("ru", "uk", "bg", "be", "sr", "mk"),
    "ARABIC": ("ar", "fa", "ur"),
    "DEVANAGARI": ("hi", "mr", "ne"),
    "CJK": ("zh-hans", "zh-hant"),
    "HIRAGANA": ("ja",),
    "HANGUL": ("ko",),
    "GREEK": ("el",),
    "HEBREW": ("he",),
    "THAI": ("th",),
    "GEORGIAN": ("ka",),
    "ARMENIAN": ("hy",),
    "BENGALI": ("bn",),
    "TAMIL": ("ta",),
    "TELUGU": ("te",),
    "KANNADA": ("kn",),
    "MALAYALAM": ("ml",),
    "GUJARATI": ("gu",),
    "GURMUKHI": ("pa",),
    "SINHALA": ("si",),
    "KHMER": ("km",),
    "LAO": ("lo",),
    "MYANMAR": ("my",),
    "ETHIOPIC": ("am",),
}
