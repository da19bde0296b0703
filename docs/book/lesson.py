"""The names that computed pages begin with."""

from docs.book.reference import commands, http

__all__ = ["commands", "http"]
