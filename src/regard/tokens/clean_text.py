"""Normalizes texts as a model reads them, and matches the characters that it cannot read."""

from __future__ import annotations

import re
import unicodedata

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode's category Cc; `tidy` has already replaced tabs
SURROGATE = re.compile("[\ud800-\udfff]")  # half a surrogate pair


def tidy(text: str) -> str:
    """Returns a text as a model sees it: characters composed (NFC), tabs as spaces, outer white space removed."""
    return unicodedata.normalize("NFC", text).replace("\t", " ").strip()
