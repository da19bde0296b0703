"""Sets how the model computes: compiled or PyTorch kernels, bfloat16 or float32 products, dropout masks, observer.

    with computing(bfloat16=True, masks=masks_of(seed, step)):
        loss = model(tokens)

A mode applies to the current thread until its block ends.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from regard.model.kernels import fused

if TYPE_CHECKING:
    from regard.model.dropout import Masks
    from regard.model.observe import Trace


@dataclass(frozen=True)
class Mode:
    """The compute mode of a thread."""

    fused: bool = True  # use the compiled kernels where possible
    bfloat16: bool = False  # compute the products of linear layers in bfloat16, on a CPU
    masks: Masks | None = None  # source of dropout masks; None: PyTorch's random generator
    trace: Trace | None = None  # where `observe` records values


DEFAULT = Mode()
_mode = ContextVar("mode", default=DEFAULT)


def mode() -> Mode:
    return _mode.get()


@contextmanager
def computing(**changes: Any) -> Iterator[None]:
    """Changes fields of the current thread's mode within a block."""
    token = _mode.set(replace(_mode.get(), **changes))
    try:
        yield
    finally:
        _mode.reset(token)


def fused_kernels(*tensors: Tensor) -> fused.Library | None:
    """Returns the compiled kernels if the mode enables them and they support all of these tensors."""
    if _mode.get().fused and all(each.device.type == "cpu" and each.dtype == torch.float32 for each in tensors):
        return fused.library()
    return None


def fused_training_kernels(*tensors: Tensor) -> fused.Library | None:
    """Returns the compiled kernels if gradients are computed; without gradients, PyTorch is just as fast."""
    return fused_kernels(*tensors) if torch.is_grad_enabled() else None
