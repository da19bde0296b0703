"""Parses and compares language tags such as en, en-US, EN_us and zh-Hant-TW."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path

from regard.tokens.language_directions import normalize_code, primary

CODES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
TWO_LETTERS, KNOWN = CODES["two_letters"].split(), {code for codes in CODES.values() for code in codes.split()}
CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_](?:[A-Za-z]{2}|[A-Za-z]{4}|\d{3})){0,2}(?:@[A-Za-z]+)?")


def is_language(code: str) -> bool:
    """Returns whether a file suffix such as de, pt_BR or eng_Latn is a language code."""
    known = primary(code) in KNOWN or re.fullmatch(r"[a-z]{3}_[A-Z][a-z]{3}", code) is not None
    return known and CODE.fullmatch(code) is not None


@lru_cache(1000)
def matches_code(code: str, wanted: str) -> bool:
    """Returns whether a code matches the wanted one; a wanted code without a region matches any region."""
    return normalize_code(code) == normalize_code(wanted) or primary(code) == normalize_code(wanted)


def same_language(code: str, wanted: str) -> bool:
    """Returns whether two codes stand for the same language; a region that only one of them has is ignored."""
    return matches_code(code, wanted) or matches_code(wanted, code)


def best_match(codes: Iterable[str], wanted: str) -> str | None:
    """Returns the code equal to `wanted`, else the first that matches it, else the first in the same language."""
    close = [code for code in codes if same_language(code, wanted)]
    exact = [code for code in close if normalize_code(code) == normalize_code(wanted)]
    return next(iter(exact or [code for code in close if matches_code(code, wanted)] or close), None)
