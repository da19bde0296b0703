"""Checks and sets up the machine before training starts: precision, threads and memory."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import replace
from typing import Literal

import torch

from regard.errors import SettingsError
from regard.settings import Settings, TrainingSettings


def choose_precision(settings: Settings, device: torch.device) -> Settings:
    """Replaces the precision `auto` in the settings by the one that suits the device."""
    if settings.training.precision != "auto":
        return settings
    precision: Literal["bfloat16", "float32"] = "bfloat16" if has_fast_bfloat16(device) else "float32"
    return replace(settings, training=replace(settings.training, precision=precision))


def has_fast_bfloat16(device: torch.device) -> bool:
    """Reports whether matrix products in bfloat16 are faster than in float32 on this device.

    Returns False for CPUs with AMX, because the first AMX product kills the process on some virtual machines.
    """
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type != "cpu":
        return False
    available = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return bool(available.get("avx512_bf16")) and not available.get("amx_tile")


def require_precision(training: TrainingSettings, device: torch.device) -> None:
    if training.precision == "float16" and device.type == "cpu":
        raise SettingsError("training.precision = float16 needs a GPU: use bfloat16 or float32")


def set_up_machine(training: TrainingSettings, device: torch.device, processes: int = 1) -> None:
    """Checks the precision, divides the threads among the processes of this machine, and tunes memory use."""
    require_precision(training, device)
    if training.threads is not None or processes > 1:
        torch.set_num_threads(max(1, (training.threads or os.cpu_count() or 1) // processes))
    if sys.platform == "linux":
        keep_freed_memory()


def keep_freed_memory() -> None:
    """Makes glibc reuse freed memory instead of returning it to the system after every step."""
    mmap_threshold, trim_threshold, top_pad = -3, -1, -2
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return
    for option, value in ((mmap_threshold, 2**25), (trim_threshold, 2**30), (top_pad, 2**26)):
        mallopt(option, value)
