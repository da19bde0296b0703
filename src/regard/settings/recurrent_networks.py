"""Checks the settings of recurrent networks, which exist to be compared with the Transformer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from regard.errors import SettingsError

if TYPE_CHECKING:
    from regard.settings import Settings


def require_supported(settings: Settings) -> None:
    """Raises SettingsError for settings that recurrent networks do not support."""
    model, training = settings.model, settings.training
    if model.width % 2:
        raise SettingsError(f"model.kind = {model.kind} needs an even model.width, not {model.width}")
    unsupported = {
        f"task = {settings.task}": settings.task != "translate",
        "training.recompute": training.recompute,
        "training.adapters": training.adapters > 0,
        "training.parallel = fsdp": training.parallel == "fsdp",
    }
    for setting, is_used in unsupported.items():
        if is_used:
            raise SettingsError(
                f"model.kind = {model.kind} does not support {setting}: leave it out, or set model.kind to transformer"
            )


def describe_shape(settings: Settings) -> str:
    """Returns a one-line description of the network's size."""
    model = settings.model
    attention = f"attention of {model.heads} heads" if model.attends else "no attention"
    return f"{settings.layers} layers of {model.kind.upper()}, width {model.width}, {attention}"
