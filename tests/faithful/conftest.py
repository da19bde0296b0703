"""The toy translator of the tests of decoding, which the tests of faithful translation share."""

from tests.decoding.conftest import folder, model, translator

__all__ = ["folder", "model", "translator"]
