"""Turns text into token ids and back, and keeps token ids on disk."""
