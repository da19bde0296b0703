"""Prepares corpora and trains models from files: `train`, `resume` and `distill`."""
