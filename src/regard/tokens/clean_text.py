"""Normalizes texts for a model, and matches characters that a model cannot read."""

from __future__ import annotations

import re
import unicodedata

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode category Cc; `tidy` has already replaced tabs
SURROGATE = re.compile("[\ud800-\udfff]")


def tidy(text: str) -> str:
    """Normalizes a text for a model: composes characters (NFC), replaces tabs by spaces, and strips white space."""
    return unicodedata.normalize("NFC", text).replace("\t", " ").strip()
