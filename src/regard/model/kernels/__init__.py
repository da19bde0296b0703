"""Faster ways to compute what the model says, each tested against the readable code; `mode` chooses between them."""
