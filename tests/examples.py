"""How many examples a property is tried with."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

EXAMPLES = 25
"""Where a test asks for no other number; more in the profile `random`, which `make slow` uses."""


def examples(count: int, **more: Any) -> settings:
    """Decorates a test that needs `count` examples, fewer or more than others; a larger profile multiplies them."""
    return settings(max_examples=count * settings().max_examples // EXAMPLES, **more)
