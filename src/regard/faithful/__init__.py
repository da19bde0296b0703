"""Keeps placeholders in translations, enforces glossaries, and reuses translations from a translation memory."""
