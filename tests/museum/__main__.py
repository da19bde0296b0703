"""Writes docs/museum.md: python -m tests.museum."""

from __future__ import annotations

from tests.museum.exhibits import page
from tests.museum.test_museum import PAGE

PAGE.write_text(page(), encoding="utf-8")
