"""Shares the toy translator of the tests of decoding."""

from tests.decoding.conftest import folder, model, translator

__all__ = ["folder", "model", "translator"]
