"""Shortlists of output tokens: for each sentence, a few hundred tokens instead of the whole vocabulary.

A shortlist contains the likely translations of every source token and the most common tokens (Jean et al., 2015); all
other tokens get probability 0. This module never imports torch or NumPy, which would take longer than opening a model.
"""

from __future__ import annotations

import hashlib
import json
import sys
from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.errors import ModelError
from regard.model_folder import LIMITS, SHORTLIST, TOKENIZER
from regard.untrusted_files import LARGEST_TOKENIZER, read_limited

LONGEST_HEADER = 100_000
TYPES = {"common": ("i", "I32"), "starts": ("q", "I64"), "tokens": ("i", "I32")}
"""Types of the tensors in the file, in Python's `array` and in safetensors."""


@dataclass(frozen=True)
class Shortlist:
    """The target tokens that are allowed for each source token."""

    common: array[int]  # tokens allowed for every source
    starts: array[int]  # [source vocabulary + 1] start of each source token's list in `tokens`
    tokens: array[int]  # concatenated lists

    def allowed_tokens(self, source: Iterable[int]) -> set[int]:
        """Returns the tokens that are allowed in translations of these source tokens."""
        return {
            *self.common,
            *(t for token in source for t in self.tokens[self.starts[token] : self.starts[token + 1]]),
        }

    @classmethod
    def load(cls, folder: Path) -> Shortlist:
        """Reads the shortlist of a model folder; raises ModelError if it was made for another vocabulary."""
        path = folder / SHORTLIST
        again = f"make it again with regard shortlist {folder}"
        if not path.exists():
            raise ModelError(f"{folder}: has no shortlist: make one with regard shortlist {folder}")
        content = read_limited(path, LIMITS[SHORTLIST], folder)
        try:
            arrays, metadata = _tensors(content)
            shortlist, vocabulary = cls(**arrays), metadata["vocabulary"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ModelError(f"{path}: damaged ({error}): {again}") from None
        if vocabulary != fingerprint(folder):
            raise ModelError(f"{path}: was made for another vocabulary: {again}")
        return shortlist

    def check(self, source: int, target: int) -> None:
        """Raises ModelError if the lists do not match vocabularies of these sizes."""
        ids = (*self.common, *self.tokens)
        rising = all(a <= b for a, b in zip(self.starts, self.starts[1:], strict=False))
        ends = (len(self.starts), *self.starts[:1], *self.starts[-1:]) == (source + 1, 0, len(self.tokens))
        if not (rising and ends and min(ids, default=0) >= 0 and max(ids, default=0) < target):
            raise ModelError("the shortlist cannot be used: the lists do not fit the vocabulary")


def fingerprint(folder: Path) -> str:
    """Returns the hash of a folder's vocabulary, which its shortlist contains."""
    return hashlib.sha256(read_limited(folder / TOKENIZER, LARGEST_TOKENIZER, folder)).hexdigest()


def _tensors(content: bytes) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads a safetensors file without its library, which needs NumPy or PyTorch; returns arrays and metadata."""
    size = int.from_bytes(content[:8], "little")
    if size > LONGEST_HEADER:
        raise ValueError("the header is too long")
    header = json.loads(content[8 : 8 + size])
    arrays = {}
    for name, (kind, expected) in TYPES.items():
        start, end = header[name]["data_offsets"]
        numbers = array(kind)
        if header[name]["dtype"] != expected or not 0 <= start <= end <= len(content) - 8 - size:
            raise ValueError(f"{name} has another type or size")
        numbers.frombytes(content[8 + size + start : 8 + size + end])
        if sys.byteorder == "big":
            numbers.byteswap()
        arrays[name] = numbers
    return arrays, header["__metadata__"]
