"""Processes large amounts of text in resumable shards, and learns shortlists."""
