"""Regard: a Transformer that you train on your own text, run anywhere, and look into."""

from __future__ import annotations

__version__ = "0.1.0"
