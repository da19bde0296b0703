"""The names that computed pages can use."""

from docs.book.computing import claim
from docs.book.drawings import bars, heatmap
from docs.book.quoting import quote
from docs.book.reference import commands
from docs.book.traps import damages, sentence

__all__ = ["bars", "claim", "commands", "damages", "heatmap", "quote", "sentence"]
