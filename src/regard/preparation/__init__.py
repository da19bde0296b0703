"""Prepares corpora for training, and trains from files: `train`, `resume` and `distill`."""
