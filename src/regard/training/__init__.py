"""Trains a model from a prepared folder."""
