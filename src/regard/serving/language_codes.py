"""Matches the language codes of clients with those of the models, and returns English language names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

NEWER = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
"""Older language codes and the newer ones that replace them; clients may use both."""


def public(code: str) -> str:
    """Returns the code that clients see for a language of a model: pt-BR for pt_BR, zh-Hans for zh."""
    plain = code.replace("_", "-")
    return NEWER.get(plain.lower(), plain)


def find(asked: str, known: Iterable[str]) -> str | None:
    """Returns the known language that matches the code of a client, such as de for de-AT, or pt-BR for pt, or None."""
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
    lines = Path(__file__).with_name("language_names.txt").read_text(encoding="utf-8").splitlines()
    return {code: name for code, _, name in (line.partition(" ") for line in lines)}


NAMES = read_names()
