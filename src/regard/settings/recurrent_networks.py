"""The rules of recurrent networks, which are compared with the Transformer: what they need and do not support."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import SettingsError

if TYPE_CHECKING:
    from regard.settings import Settings


def require_supported(settings: Settings) -> None:
    """Refuses settings that the recurrent network which model.kind names does not support."""
    model, training = settings.model, settings.training
    if model.width % 2:
        raise SettingsError(f"a recurrent encoder reads in two directions: model.width must be even, not {model.width}")
    unsupported = {
        f"task = {settings.task}": settings.task != "translate",
        "training.recompute": training.recompute,
        "training.adapters": training.adapters > 0,
        "training.parallel = fsdp": training.parallel == "fsdp",
    }
    for setting, is_used in unsupported.items():
        if is_used:
            raise SettingsError(
                f"model.kind = {model.kind} is a recurrent translator for comparison, which does not support "
                f"{setting}: leave it out, or set model.kind to transformer"
            )


def describe_shape(settings: Settings) -> str:
    """Returns the size of the network in a few words."""
    model = settings.model
    attention = f"attention of {model.heads} heads" if model.attends else "no attention"
    return f"{settings.layers} layers of {model.kind.upper()}, width {model.width}, {attention}"
