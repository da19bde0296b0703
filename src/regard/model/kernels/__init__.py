"""Faster implementations of parts of the model, each tested against the readable PyTorch code."""
