"""From where on something about a pair is told."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.settings.option_fields import Bounds, Section, at_least


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Section):
    """From where on `regard check` tells of a pair; no part of a model's settings."""

    ratio: Annotated[
        float,
        "a side that is so many times as long as the other, as lengths are in this corpus, is a fault",
        at_least(1),
    ] = 3.0
    confidence: Annotated[
        float, "how sure it must be that a side is in the language of the other", Bounds(0.5, 1, high_allowed=False)
    ] = 0.99
    targets: Annotated[int, "a source with more different targets than this is told", at_least(1)] = 3
