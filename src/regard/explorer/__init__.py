"""Looks into a model: one sentence, every number on its way, and what happens when some of them change."""
