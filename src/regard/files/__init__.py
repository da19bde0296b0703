"""Reads and writes corpora and documents in their own formats, and finds what is wrong with them."""
