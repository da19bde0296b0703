"""Language codes as clients write them, old and new, in any spelling, and the English names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

NEWER = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Codes that clients have been using, and what they are called now; both are understood."""


def public(code: str) -> str:
    """Returns the code that clients see for a model's language: pt-BR for pt_BR, zh-Hans for zh."""
    plain = code.replace("_", "-")
    return NEWER.get(plain.lower(), plain)


def find(asked: str, known: Iterable[str]) -> str | None:
    """Returns the language that a client means, or None: de if de-AT is not known, pt-BR for pt."""
    wanted, there = public(asked.strip()).lower(), {public(code).lower(): code for code in known}
    if wanted in there:
        return there[wanted]
    alike = (code for name, code in there.items() if wanted.startswith(f"{name}-") or name.startswith(f"{wanted}-"))
    return next(alike, None)


def name(code: str) -> str:
    """Returns the English name of a language, or its code if the name is not known."""
    shown = public(code)
    return NAMES.get(shown.lower()) or NAMES.get(shown.partition("-")[0].lower()) or shown


def read_names() -> dict[str, str]:
    """Returns the English names of languages by code."""
    lines = Path(__file__).with_name("language_names.txt").read_text(encoding="utf-8").splitlines()
    return {code: name for code, _, name in (line.partition(" ") for line in lines)}


NAMES = read_names()
