"""What training asks of the machine before it starts."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from typing import Literal

import torch

from regard.errors import SettingsError
from regard.settings import Settings, TrainingSettings


def settled(settings: Settings, device: torch.device) -> Settings:
    """The settings with the precision that suits the device, where it is left to us."""
    if settings.training.precision != "auto":
        return settings
    precision: Literal["bfloat16", "float32"] = "bfloat16" if multiplies_bfloat16(device) else "float32"
    return replace(settings, training=replace(settings.training, precision=precision))


def multiplies_bfloat16(device: torch.device) -> bool:
    """Whether products of bfloat16 are faster on this device than those of float32.

    A CPU with AMX is left at float32: under some virtual machines its first product would be the end of the process.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(able.get("avx512_bf16")) and not able.get("amx_tile")


def require_precision(training: TrainingSettings, device: torch.device) -> None:
    """Refuses what the device cannot do."""
    if training.precision == "float16" and device.type == "cpu":
        raise SettingsError("training.precision = float16 needs a GPU: use bfloat16 or float32")


def set_up_machine(training: TrainingSettings, device: torch.device, processes: int = 1) -> None:
    """Threads, which so many processes share, and what the precision asks of the device."""
    require_precision(training, device)
    if training.threads is not None or processes > 1:
        torch.set_num_threads(max(1, (training.threads or os.cpu_count() or 1) // processes))
    if sys.platform == "linux":
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Tells glibc to use freed memory again instead of giving it back to the system at every step."""
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((mmap_threshold, 2**25), (trim_threshold, 2**30), (top_pad, 2**26)):
        mallopt(option, value)
