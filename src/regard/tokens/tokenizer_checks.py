"""Refuses tokenizers whose rules would exhaust memory or time: a model folder may come from a stranger."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tokenizers

from regard.errors import InputError, ModelError

MOST_GROWTH = 1_000
"""The factor by which all rules of a tokenizer together may lengthen a text, and the longest padding by 100."""
MOST_PIECES = 10_000_000
"""The largest id of a piece: `tokenizers` allocates memory for all ids below it. Large vocabularies have a million."""
LONGEST_WORD = 10_000
"""The most characters of a word that is cut into pieces: WordPiece takes quadratic time."""
STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
NESTED = re.compile(r"[+*}][?+]?\)+(?:[+*]|\{\d*,\d*\})")
"""Matches a repeated group in a regular expression that ends in a repetition: (a+)+ takes exponential time."""


def parse_tokenizer(content: Any, path: Path) -> tokenizers.Tokenizer:
    """Returns the tokenizer of a JSON object; refuses a damaged one, and rules without limits."""
    fault = _fault(content)
    if fault:
        raise ModelError(f"{path}: unsafe tokenizer: {fault}")
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(content))
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None


def is_failure(error: BaseException) -> bool:
    """Reports whether an error comes from tokenizers: an Exception, or a panic, which is another type."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def _fault(content: Any) -> str:
    growth, parts = 1, [content.get(step) for step in STEPS] if isinstance(content, dict) else []
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts += part
        elif isinstance(part, dict):
            parts += part.values()
            for text in (part.get("content"), part.get("prepend")):
                growth *= max(1, len(text)) if isinstance(text, str) else 1
            expression = part.get("Regex")
            if isinstance(expression, str) and NESTED.search(expression):
                return (
                    f"the regular expression {expression[:40]!r} repeats a repetition, which can take exponential time"
                )
    if isinstance(content, dict) and isinstance(model := content.get("model"), dict):
        numbers = model["vocab"].values() if isinstance(model.get("vocab"), dict) else []
        if any(isinstance(number, int) and number > MOST_PIECES for number in numbers):
            return f"a piece has an id above {MOST_PIECES:,}"
        longest = model.get("max_input_chars_per_word")
        if isinstance(longest, int) and longest > LONGEST_WORD:
            return f"it cuts words of {longest:,} characters, which takes quadratic time"
    if growth > MOST_GROWTH:
        return f"its rules can lengthen a text by more than {MOST_GROWTH:,} times"
    padding = content.get("padding") if isinstance(content, dict) else None
    lengths = re.findall(r"\d{6,}", json.dumps(padding)) if padding else []
    return f"it pads texts to {lengths[0]} tokens" if lengths else ""


@contextmanager
def refusing_panics() -> Iterator[None]:
    """Turns a failure of tokenizers into an error: imported rules cannot cut this text, or not in time."""
    try:
        yield
    except BaseException as error:  # tokenizers raises plain Exception, and a panic
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise InputError(
            "this model's tokenizer cannot process this text: shorten the text, or convert the model again"
        ) from None
