"""The explorer, which shows every tensor that a model computes for a text, and the effect of changing some of them."""
