"""The thresholds of `regard check`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.settings.option_fields import Bounds, Section, at_least


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Section):
    """Thresholds from which `regard check` reports a pair; not part of a model's settings."""

    ratio: Annotated[
        float,
        "report a pair if one side is this many times longer than usual in the corpus",
        at_least(1),
    ] = 3.0
    confidence: Annotated[
        float,
        "report a text that is in the language of its translation with at least this probability",
        Bounds(0.5, 1, high_allowed=False),
    ] = 0.99
    targets: Annotated[int, "report a source with more than this many different targets", at_least(1)] = 3
