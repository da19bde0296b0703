"""Implements the Transformer on tensors alone, without text or files."""
