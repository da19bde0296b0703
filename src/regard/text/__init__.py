"""Text in, text out: corpora, their faults, and subwords; nothing here knows of tensors."""
