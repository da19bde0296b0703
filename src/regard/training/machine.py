"""What training asks of the machine before it starts."""

from __future__ import annotations

import ctypes
import os
import sys

import torch

from regard.errors import SettingsError
from regard.settings import TrainingSettings


def set_up_machine(training: TrainingSettings, device: torch.device, processes: int = 1) -> None:
    """Threads, which so many processes share, and what the precision asks of the device."""
    if training.precision == "float16" and device.type == "cpu":
        raise SettingsError("training.precision = float16 needs a GPU: use bfloat16 or float32")
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
