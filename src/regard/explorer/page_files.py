"""The folder of the explorer's page, and the Content-Security-Policy that lets it load nothing from elsewhere."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path

PAGE = Path(__file__).parent / "page"
ENGINE = "engine"
"""Folder in `PAGE` of the scripts that run a model in the browser."""
INLINE = re.compile(rb"<script(?![^>]*\ssrc=)[^>]*>(.*?)</script>", re.DOTALL)


def inline_hashes(index: bytes) -> list[str]:
    """Returns the hashes of the inline scripts of a page, as a policy names them."""
    digests = (hashlib.sha256(script).digest() for script in INLINE.findall(index))
    return [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]


def content_policy(hashes: list[str]) -> str:
    """Returns the policy of a page with these inline scripts: it may load its own files, and nothing else."""
    scripts = " ".join(["'self'", *hashes])
    return (
        f"default-src 'none'; script-src {scripts}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data: blob:; connect-src 'self'; worker-src 'self'; base-uri 'none'; form-action 'none'"
    )
