"""Tensors in, tensors out: the Transformer, which knows nothing of text or files."""
