"""The demonstration: a bilingual grammar, English to French, that `regard demo` trains on, and the tiny glass model."""

from pathlib import Path

GLASS = Path(__file__).with_name("glass_model")  # the model that `regard look` opens when none is named
