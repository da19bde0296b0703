"""Runs trained models: searches for outputs, and turns text into text, labels or vectors."""
