"""Normalizes texts the way a model reads them, and finds characters that it cannot read."""

from __future__ import annotations

import re
import unicodedata

CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")  # Unicode's category Cc; the tab is gone when this is looked for
SURROGATE = re.compile("[\ud800-\udfff]")  # half a character, alone


def tidy(text: str) -> str:
    """`text` as a model sees it: composed characters (NFC), spaces for tabs, no white space around."""
    return unicodedata.normalize("NFC", text).replace("\t", " ").strip()
