"""Records every intermediate value of a run by name, with named axes, without changing the result.

    with regard.observe(translator.model) as trace:
        translator("A dog runs.")
    trace["decoder.layers.0.cross_attention.weights"].axes   # ("batch", "head", "query:target", "key:source")

The model calls `see` on each value worth recording; outside `observe` that costs one read of a variable. Values can
also be replaced, and the run goes on with the replacement:

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
    """A tensor of a run and the meaning of each of its axes."""

    tensor: Tensor
    axes: tuple[str, ...]


Edit = Callable[[Tensor], Tensor]
"""Computes the replacement of a value of a run: a tensor of the same shape."""


@dataclass(eq=False, repr=False)
class Trace(dict[str, Seen]):
    """The values of one run, by the dotted name of the module and of the value in it."""

    edits: Mapping[str, Edit] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)  # the modules that are running, innermost last
    two_texts: bool = False  # an encoder-decoder has a source and a target; BERT and GPT have one text
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)  # the file and line of code that made each value

    def __repr__(self) -> str:
        names = ", ".join([*list(self)[:3], *["..."] * (len(self) > 3)])
        return f"<Trace of {len(self)} tensors: {names or 'nothing has run'}>"

    def record(self, name: str, tensor: Tensor, axes: tuple[str, ...], caller: FrameType | None = None) -> None:
        """Stores a value, and the line of code that computed it."""
        caller = caller or sys._getframe(1)
        self.lines[name] = caller.f_code.co_filename, caller.f_lineno
        self[name] = Seen(tensor.detach(), axes)

    def full_axes(self, place: str, axes: str) -> tuple[str, ...]:
        """Returns the axes with the text that they belong to: `key` in a cross-attention is `key:source`."""
        here = "text" if not self.two_texts else "source" if place.startswith(("encoder", "source")) else "target"
        there = "source" if "cross_attention" in place else here
        texts = {"query": here, "position": here, "key": there}
        return tuple(f"{axis}:{texts[axis]}" if axis in texts else axis for axis in axes.split())


def watching() -> bool:
    """Reports whether the run is observed, which makes values worth computing that only an observer needs."""
    return mode().trace is not None


def edited() -> bool:
    """Reports whether the observer also replaces values."""
    trace = mode().trace
    return trace is not None and bool(trace.edits)


def see(name: str, tensor: Tensor, axes: str) -> Tensor:
    """Records `tensor` under the running module's name if the run is observed; returns it, or its edit."""
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
    """Records the runs of a model in PyTorch inside the block; a second run overwrites the first.

        >>> translator = regard.load_as(regard.Translator, "runs/en-de")
        >>> with regard.observe(translator.model) as trace:
        ...     print(translator("A dog runs."))
        >>> trace["decoder.layers.0.cross_attention.weights"].axes
        ('batch', 'head', 'query:target', 'key:source')

    While a translator or a writer generates, each token is a run, and the trace has the last one. `edits` maps names
    of values to functions that compute their replacements.
    """
    require(model, nn.Module, "observe", "a model in PyTorch, such as translator.model")
    require(edits, (Mapping, type(None)), "edits", "functions by the names of tensors")
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
