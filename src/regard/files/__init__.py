"""Reads and writes corpora and documents in many file formats, and checks corpora for faults."""
