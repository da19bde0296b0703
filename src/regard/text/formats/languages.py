"""Codes of languages as files write them: en, en-US, EN_us, zh-Hant-TW."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

CHINESE = {"zh", "zho", "chi", "cmn", "yue"}
JAPANESE = {"ja", "jpn"}
UNSPACED = CHINESE | JAPANESE | {"th", "tha", "lo", "lao", "km", "khm", "my", "mya"}
"""Languages that are written without spaces, by `primary`."""

CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_](?:[A-Za-z]{2}|[A-Za-z]{4}|\d{3})){0,2}(?:@[A-Za-z]+)?")


@lru_cache(1000)
def normal(code: str) -> str:
    """One spelling for each language, as directions name it: EN-us is en_US."""
    first, *rest = re.split("[-_]", code.strip())
    return "_".join([first.lower(), *(part.title() if len(part) == 4 else part.upper() for part in rest)])


def primary(code: str) -> str:
    """The language without script and region."""
    return normal(code).split("_")[0].split("@")[0]


@lru_cache(1000)
def fits(code: str, wanted: str) -> bool:
    """Whether a code is the wanted one, or has a region where none is named."""
    return normal(code) == normal(wanted) or primary(code) == normal(wanted)


def alike(code: str, wanted: str) -> bool:
    """Whether two codes name one language, as far as they both tell."""
    return fits(code, wanted) or fits(wanted, code)


def best(codes: Iterable[str], wanted: str) -> str | None:
    """Of some codes the one that is wanted, or else the first that fits, or else the first that is alike."""
    close = [code for code in codes if alike(code, wanted)]
    ranked = sorted(close, key=lambda code: 0 if normal(code) == normal(wanted) else 1 if fits(code, wanted) else 2)
    return ranked[0] if ranked else None
