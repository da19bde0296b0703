"""Looks into a run: every intermediate by name, with named axes, while the result stays the same.

    with regard.observe(translator.model) as trace:
        translator("A dog runs.")
    trace["decoder.layers.0.cross_attention.weights"].axes   # ("batch", "head", "query:target", "key:source")

The model calls `see` wherever it has computed something worth a look; outside `observe` that costs
the reading of a variable. What is seen can be changed too, and the run goes on with the change:

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
"""What a value of a run is replaced with: a tensor of the same shape."""


@dataclass(eq=False, repr=False)
class Trace(dict[str, Seen]):
    """What was seen in one run, by the dotted name of the module and of the value in it."""

    edits: Mapping[str, Edit] = field(default_factory=dict)
    places: list[str] = field(default_factory=list)  # the modules that are running, innermost last
    two_texts: bool = False  # an encoder-decoder has a source and a target; BERT and GPT have one text
    lines: dict[str, tuple[str, int]] = field(default_factory=dict)  # the file and line of code that made each value

    def __repr__(self) -> str:
        names = ", ".join([*list(self)[:3], *["..."] * (len(self) > 3)])
        return f"<Trace of {len(self)} tensors: {names or 'nothing has run'}>"

    def record(self, name: str, tensor: Tensor, axes: tuple[str, ...], caller: FrameType | None = None) -> None:
        """Keeps a value, and the line of the code that calls this."""
        caller = caller or sys._getframe(1)
        self.lines[name] = caller.f_code.co_filename, caller.f_lineno
        self[name] = Seen(tensor.detach(), axes)

    def full_axes(self, place: str, axes: str) -> tuple[str, ...]:
        """Says of which text a position is: `key` in a cross-attention is `key:source`."""
        here = "text" if not self.two_texts else "source" if place.startswith(("encoder", "source")) else "target"
        there = "source" if "cross_attention" in place else here
        texts = {"query": here, "position": here, "key": there}
        return tuple(f"{axis}:{texts[axis]}" if axis in texts else axis for axis in axes.split())


def watching() -> bool:
    """Returns whether a run is observed, so that values that only an observer needs are worth computing."""
    return mode().trace is not None


def edited() -> bool:
    """Returns whether the observer also changes what it observes."""
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

    While a translator or a writer writes, each token is a run: the trace has the last one. `edits` maps names of values
    to functions that compute what takes their place in the run.
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
