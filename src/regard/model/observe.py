"""Looks into a run: every intermediate by name, with named axes, while the result stays the same.

    with observe(model) as trace:
        model(source, target, keep)
    trace["decoder.layers.0.cross_attention.weights"].axes   # ("batch", "head", "query:target", "key:source")

The model calls `see` wherever it has computed something worth a look; outside `observe` that costs
one look at a variable.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import Tensor, nn


class Seen(NamedTuple):
    """A tensor of a run and the meaning of each of its axes."""

    tensor: Tensor
    axes: tuple[str, ...]


@dataclass(eq=False, repr=False)
class Trace(dict[str, Seen]):
    """What was seen in one run, by the dotted name of the module and of the value in it."""

    places: list[str] = field(default_factory=list)  # the modules that are running, innermost last
    two_texts: bool = False  # an encoder-decoder has a source and a target; BERT and GPT have one text

    def full_axes(self, place: str, axes: str) -> tuple[str, ...]:
        """Says of which text a position is: `key` in a cross-attention is `key:source`."""
        here = "text" if not self.two_texts else "source" if place.startswith(("encoder", "source")) else "target"
        there = "source" if "cross_attention" in place else here
        texts = {"query": here, "position": here, "key": there}
        return tuple(f"{axis}:{texts[axis]}" if axis in texts else axis for axis in axes.split())


_trace: ContextVar[Trace | None] = ContextVar("trace", default=None)


def watching() -> bool:
    """Whether somebody looks, so that values nobody else needs are worth computing."""
    return _trace.get() is not None


def see(name: str, tensor: Tensor, axes: str) -> Tensor:
    """Returns `tensor` unchanged; records it under the running module's name if somebody looks."""
    trace = _trace.get()
    if trace is not None:
        place = trace.places[-1] if trace.places else ""
        trace[f"{place}.{name}".lstrip(".")] = Seen(tensor.detach(), trace.full_axes(place, axes))
    return tensor


@contextmanager
def observe(model: nn.Module) -> Iterator[Trace]:
    """Records the runs of `model` inside the block; a second run overwrites the first."""
    trace = Trace(two_texts=any(name.endswith("cross_attention") for name, _ in model.named_modules()))

    def enter(name: str) -> None:
        if _trace.get() is trace:
            trace.places.append(name)

    def leave(*_: object) -> None:
        if _trace.get() is trace:
            trace.places.pop()

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: enter(name)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    token = _trace.set(trace)
    try:
        yield trace
    finally:
        _trace.reset(token)
        for handle in handles:
            handle.remove()
