"""The folder of the explorer's page, and its Content-Security-Policy, which prevents loading from other sites."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"
ENGINE = "engine"
"""Subfolder of `PAGE` with the scripts that run a model in the browser."""
INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


def inline_hashes(index: bytes) -> list[str]:
    """Returns the hashes of a page's inline scripts, formatted for a Content-Security-Policy header."""
    digests = (hashlib.sha256(script).digest() for script in INLINE.findall(index))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def content_policy(hashes: list[str]) -> str:
    """Returns a policy that allows a page to load its own files and to run inline scripts with these hashes."""
    scripts = " ".join(["'self'", *hashes])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
    )
