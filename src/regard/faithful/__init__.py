"""Keeps what a translation must not change: placeholders, terms of a glossary, earlier translations."""
