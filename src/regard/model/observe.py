"""Records every intermediate value of a model run by name, with named axes, without changing the result.

    with regard.observe(translator.model) as trace:
        translator("A dog runs.")
    trace["decoder.layers.0.cross_attention.weights"].axes   # ("batch", "head", "query:target", "key:source")

The model calls `see` on each value worth recording; outside `observe` this costs one variable lookup. Values can also
be replaced, and the run continues with the replacement:

    with regard.observe(model, {"decoder.layers.0.cross_attention.context": silence_head_3}) as trace:
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import NamedTuple

from torch import Tensor, nn

from regard.argument_checks import require
from regard.model.kernels.compute_mode import computing, mode


class Seen(NamedTuple):
    """A recorded tensor and the names of its axes."""

    tensor: Tensor
    axes: tuple[str, ...]


Edit = Callable[[Tensor], Tensor]
"""A function that takes a recorded tensor and returns its replacement, of the same shape."""


@dataclass(eq=False, repr=False)
class Trace(dict[str, Seen]):
    """The recorded values of one run; keys are the dotted name of a module followed by the name of the value."""

    edits: Mapping[str, Edit] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)  # names of the running modules, innermost last
    two_texts: bool = False  # true for an encoder-decoder (source and target), false for BERT and GPT
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)  # file and line of code that computed each value

    def __repr__(self) -> str:
        names = ", ".join([*list(self)[:3], *["..."] * (len(self) > 3)])
        return f"<Trace of {len(self)} tensors: {names or 'nothing has run'}>"

    def record(self, name: str, tensor: Tensor, axes: tuple[str, ...], caller: FrameType | None = None) -> None:
        """Stores a value and the line of code that computed it."""
        caller = caller or sys._getframe(1)
        self.lines[name] = caller.f_code.co_filename, caller.f_lineno
        self[name] = Seen(tensor.detach(), axes)

    def full_axes(self, place: str, axes: str) -> tuple[str, ...]:
        """Adds to each axis the text it belongs to: in cross-attention, `key` becomes `key:source`."""
        here = "text" if not self.two_texts else "source" if place.startswith(("encoder", "source")) else "target"
        there = "source" if "cross_attention" in place else here
        texts = {"query": here, "position": here, "key": there}
        return tuple(f"{axis}:{texts[axis]}" if axis in texts else axis for axis in axes.split())


def is_observed() -> bool:
    """Reports whether the current run is observed, so that values which only an observer needs must be computed."""
    return mode().trace is not None


def has_edits() -> bool:
    """Reports whether the observer of the current run replaces values."""
    trace = mode().trace
    return trace is not None and bool(trace.edits)


def see(name: str, tensor: Tensor, axes: str) -> Tensor:
    """Records `tensor` under the running module's name if the run is observed; returns it or its replacement."""
    trace = mode().trace
    if trace is not None:
        place = trace.places[-1] if trace.places else ""
        full = f"{place}.{name}".lstrip(".")
        if full in trace.edits:
            tensor = trace.edits[full](tensor)
        trace.record(full, tensor, trace.full_axes(place, axes), sys._getframe(1))
    return tensor


@contextmanager
def observe(model: nn.Module, edits: Mapping[str, Edit] | None = None) -> Iterator[Trace]:
    """Records the runs of a PyTorch model inside the block; a second run overwrites the first.

        >>> translator = regard.load_as(regard.Translator, "runs/en-de")
        >>> with regard.observe(translator.model) as trace:
        ...     print(translator("A dog runs."))
        >>> trace["decoder.layers.0.cross_attention.weights"].axes
        ('batch', 'head', 'query:target', 'key:source')

    A translator or writer runs the model once per generated token, so the trace contains the last of these runs.
    `edits` maps names of values to functions that compute their replacements.
    """
    require(model, nn.Module, "observe", "a PyTorch model, such as translator.model")
    require(edits, (Mapping, type(None)), "edits", "a dict from tensor names to functions")
    for name, edit in (edits or {}).items():
        require(edit, Callable, f"the edit of {name}", "a function of a tensor")  # type: ignore[arg-type]
    two_texts = any(name.endswith("cross_attention") for name, _ in model.named_modules())
    trace = Trace(edits=edits or {}, two_texts=two_texts)

    def enter(name: str) -> None:
        if mode().trace is trace:
            trace.places.append(name)

    def leave(*_: object) -> None:
        if mode().trace is trace:
            trace.places.pop()

    handles = []
    for name, module in model.named_modules():
        handles.append(module.register_forward_pre_hook(lambda *_, name=name: enter(name)))
        handles.append(module.register_forward_hook(leave, always_call=True))
    try:
        with computing(trace=trace):
            yield trace
    finally:
        for handle in handles:
            handle.remove()
