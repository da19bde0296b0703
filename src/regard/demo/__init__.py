"""The demo: the English-French grammar with which `regard demo` trains, and the small example model `glass`."""

from pathlib import Path

GLASS = Path(__file__).with_name("glass_model")  # the model that `regard look` opens by default
