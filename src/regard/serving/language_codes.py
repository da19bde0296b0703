"""Languages as clients name them: codes in any spelling, two generations of them, and English names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

NEWER = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Codes that clients have been using, and what they are called now; both are understood."""


def public(code: str) -> str:
    """A model's language as clients are told it: pt_BR is pt-BR, and zh is zh-Hans."""
    plain = code.replace("_", "-")
    return NEWER.get(plain.lower(), plain)


def find(asked: str, known: Iterable[str]) -> str | None:
    """The one of these languages that a client means, if there is one: de where de-AT is not there, pt-BR for pt."""
    wanted, there = public(asked.strip()).lower(), {public(code).lower(): code for code in known}
    if wanted in there:
        return there[wanted]
    alike = (code for name, code in there.items() if wanted.startswith(f"{name}-") or name.startswith(f"{wanted}-"))
    return next(alike, None)


def name(code: str) -> str:
    """The English name of a language; its code where that is not known."""
    shown = public(code)
    return NAMES.get(shown.lower()) or NAMES.get(shown.partition("-")[0].lower()) or shown


def read_names() -> dict[str, str]:
    """Returns the English names of languages by code."""
    lines = Path(__file__).with_name("language_names.txt").read_text(encoding="utf-8").splitlines()
    return {code: name for code, _, name in (line.partition(" ") for line in lines)}


NAMES = read_names()
