"""Converts text to token ids and back, and stores token ids on disk."""
