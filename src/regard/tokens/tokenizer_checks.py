"""Rejects tokenizers that would exhaust memory or time, because model folders may come from untrusted sources."""

from __future__ import annotations

import ctypes
import json
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import tokenizers

from regard.errors import InputError, ModelError

T = TypeVar("T")

MOST_GROWTH = 1_000
"""Maximum factor by which the rules of a tokenizer together may lengthen a text."""
MOST_PIECES = 10_000_000
"""Maximum id of a piece, because `tokenizers` allocates memory for all lower ids; large vocabularies have a million."""
LONGEST_WORD = 10_000
"""Maximum length in characters of a word that is split into pieces, because WordPiece takes quadratic time."""
STEPS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")
NESTED = re.compile(r"[+*}][?+]?\)+(?:[+*]|\{\d*,\d*\})")
"""Matches nested repetitions in a regular expression, such as (a+)+, which can take exponential time."""


def parse_tokenizer(content: Any, path: Path) -> tokenizers.Tokenizer:
    """Restores a tokenizer from its JSON; raises ModelError if it is damaged or its rules exceed a limit."""
    if fault := _fault(content):
        raise ModelError(f"{path}: unsafe tokenizer: {fault}")
    try:
        return call_silently(lambda: tokenizers.Tokenizer.from_str(json.dumps(content)))
    except BaseException as error:
        if not is_failure(error):
            raise
        raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None


def call_silently(function: Callable[[], T]) -> T:
    """Calls a function of tokenizers in a thread without standard error, where a panic prints lines of its own.

    On Linux, a thread can have its own table of open files, so other threads keep their standard error, and no line of
    theirs is lost. On other systems, and in sandboxes that forbid this, the lines of a panic are printed.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _leave_open_files()
            results.append(function())
        except BaseException as error:  # noqa: BLE001 (it is raised in the calling thread)
            failures.append(error)

    thread = threading.Thread(target=run, name="tokenizers", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]


def _leave_open_files() -> None:
    """Gives the current thread its own table of open files, with nothing but /dev/null as its standard streams."""
    if sys.platform == "linux":
        first, last, unshare = ctypes.c_uint(0), ctypes.c_uint(2**32 - 1), ctypes.c_uint(CLOSE_RANGE_UNSHARE)
        if ctypes.CDLL(None).syscall(CLOSE_RANGE, first, last, unshare) == 0:
            for _ in range(3):
                os.open(os.devnull, os.O_RDWR)


CLOSE_RANGE, CLOSE_RANGE_UNSHARE = 436, 2
"""A system call of Linux 5.9 and its option: first copy the table of open files, then close all files in the copy."""


def is_failure(error: BaseException) -> bool:
    """Reports whether an error can come from tokenizers: an Exception, or a Rust panic, which is not an Exception."""
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
                return f"the regular expression {expression[:40]!r} nests repetitions, which can take exponential time"
    if isinstance(content, dict) and isinstance(model := content.get("model"), dict):
        numbers = model["vocab"].values() if isinstance(model.get("vocab"), dict) else []
        if any(isinstance(number, int) and number > MOST_PIECES for number in numbers):
            return f"a piece has an id above {MOST_PIECES:,}"
        longest = model.get("max_input_chars_per_word")
        if isinstance(longest, int) and longest > LONGEST_WORD:
            return f"it splits words of up to {longest:,} characters, which takes quadratic time"
    if growth > MOST_GROWTH:
        return f"its rules can make a text more than {MOST_GROWTH:,} times longer"
    padding = content.get("padding") if isinstance(content, dict) else None
    lengths = re.findall(r"\d{6,}", json.dumps(padding)) if padding else []
    return f"it pads texts to {lengths[0]} tokens" if lengths else ""


@contextmanager
def tokenizer_errors() -> Iterator[None]:
    """Converts a failure of tokenizers in the block, such as a rule that does not fit the text, to an InputError."""
    try:
        yield
    except BaseException as error:  # tokenizers raises plain Exception, or a Rust panic
        if type(error) is not Exception and type(error).__name__ != "PanicException":
            raise
        raise InputError(
            "this model's tokenizer cannot process this text: shorten the text, or convert the model again"
        ) from None
