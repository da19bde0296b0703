"""Translations that keep placeholders, use the terms of a glossary, and reuse earlier translations."""
