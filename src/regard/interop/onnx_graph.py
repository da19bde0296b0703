"""Builds ONNX graphs node by node; each function corresponds to a module in `model/`."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard import __version__
from regard.interop.export_folder import layers_of, sine_table
from regard.model.attention import Attention
from regard.model.layers import FeedForward, Residual
from regard.model.transformer import Embedding, Stack
from regard.settings import ModelSettings

OPSET = 20
LARGEST = 1_500_000_000
"""Maximum bytes of weights in a graph file; larger ones are stored in a second file, as protobuf is limited to 2 GB."""
MASKED = -1e9
"""Value added to the scores of masked positions, which makes their weights 0 but keeps fully masked rows finite."""


class Graph:
    """A graph under construction: `graph("MatMul", a, b)` adds a node and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.tensors: dict[str, NDArray[Any]] = {}
        self.tables: dict[int, str] = {}  # names of embedding tables by memory address
        self.inputs: dict[str, tuple[type, list[Any]]] = {}
        self.outputs: dict[str, list[Any]] = {}

    def __call__(self, operation: str, *inputs: str, **attributes: Any) -> str:
        name = f"{operation}_{len(self.nodes)}"
        self.nodes.append((operation, list(inputs), [name], attributes))
        return name

    def halves(self, x: str) -> tuple[str, str]:
        """Splits the last axis into two halves."""
        first, second = (f"Split_{len(self.nodes)}{part}" for part in "ab")
        self.nodes.append(("Split", [x], [first, second], {"axis": -1, "num_outputs": 2}))
        return first, second

    def unsqueeze(self, x: str, *axes: int) -> str:
        """Inserts axes of length 1."""
        return self("Unsqueeze", x, self.constant(list(axes)))

    def input(self, name: str, kind: type, shape: list[Any]) -> str:
        """Declares an input; axes with a name may be of any length."""
        self.inputs[name] = (kind, shape)
        return name

    def output(self, name: str, value: str, shape: list[Any]) -> None:
        """Declares a result as a named output."""
        self.nodes.append(("Identity", [value], [name], {}))
        self.outputs[name] = shape

    def constant(self, value: Any) -> str:
        """Adds a constant; weights and floats become float32, and integers int64."""
        array = value.detach().float().numpy() if isinstance(value, Tensor) else np.array(value)
        if array.dtype == np.float64:
            array = array.astype(np.float32)
        name = f"constant_{len(self.tensors)}"
        self.tensors[name] = np.ascontiguousarray(array) if array.ndim else array
        return name

    def table(self, parameter: Tensor) -> str:
        """Adds an embedding table, which is stored only once."""
        address = parameter.data_ptr()
        if address not in self.tables:
            self.tables[address] = self.constant(parameter)
        return self.tables[address]

    def write(self, onnx: Any, path: Path) -> None:
        """Writes the graph and validates the file."""
        proto, value = onnx.TensorProto, onnx.helper.make_tensor_value_info
        kinds: dict[type, int] = {np.float32: proto.FLOAT, np.int64: proto.INT64, bool: proto.BOOL}
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(kind, inputs, names, **more) for kind, inputs, names, more in self.nodes],
            path.stem,
            [value(name, kinds[kind], shape) for name, (kind, shape) in self.inputs.items()],
            [value(name, proto.FLOAT, shape) for name, shape in self.outputs.items()],
            [onnx.numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        version = onnx.helper.find_min_ir_version_for(opsets)
        producer = {"producer_name": "regard", "producer_version": __version__, "ir_version": version}
        model = onnx.helper.make_model(graph, opset_imports=opsets, **producer)
        large = sum(array.nbytes for array in self.tensors.values()) > LARGEST
        onnx.save_model(model, str(path), save_as_external_data=large, location=f"{path.name}.data")
        onnx.checker.check_model(str(path), full_check=True)


class DecodingState:
    """The positions [T] of new tokens, the masks, and the cached and new keys and values of all layers."""

    def __init__(
        self,
        graph: Graph,
        settings: ModelSettings,
        tokens: str,
        keep: str | None,
        past: tuple[str, str] | None = None,
        cross: tuple[str, str] | None = None,
    ) -> None:
        self.graph, self.settings, self.past, self.cross = graph, settings, past, cross
        self.keys: list[str] = []
        self.values: list[str] = []
        zero, one = graph.constant(0), graph.constant(1)
        length, start = length_of(graph, tokens), zero
        if past is not None:
            start = length_of(graph, past[0], 3)
            length = graph("Add", start, length)
        self.positions = graph("Range", start, length, one)
        self.source_mask = keep and self._scores(graph.unsqueeze(keep, 1, 2))  # [B, 1, 1, S]
        self.own_mask = self.source_mask
        if past is not None:
            visible = graph("LessOrEqual", graph("Range", zero, length, one), graph.unsqueeze(self.positions, 1))
            self.own_mask = self._scores(visible)  # [T, P + T]
        if settings.positions == "rotary":
            width = settings.head_width
            speeds = settings.rotary_base ** (-torch.arange(0, width, 2).float() / width)
            steps = graph.unsqueeze(graph("Cast", self.positions, to=1), 1)
            angles = graph("Mul", steps, graph.constant(speeds))  # [T, K / 2]
            self.cos, self.sin = graph("Cos", angles), graph("Sin", angles)

    def _scores(self, mask: str) -> str:
        """Converts a mask to values that are added to attention scores, 0 for visible positions."""
        return self.graph("Where", mask, self.graph.constant(0.0), self.graph.constant(MASKED))

    def rotate(self, x: str) -> str:
        """[B, H, T, K] -> [B, H, T, K]"""
        if self.settings.positions != "rotary":
            return x
        graph, (left, right) = self.graph, self.graph.halves(x)
        first = graph("Sub", graph("Mul", left, self.cos), graph("Mul", right, self.sin))
        second = graph("Add", graph("Mul", right, self.cos), graph("Mul", left, self.sin))
        return graph("Concat", first, second, axis=-1)


def embed(embedding: Embedding, tokens: str, state: DecodingState, segments: str | None = None) -> str:
    """[B, T] -> [B, T, D]"""
    graph = state.graph
    x = graph("Gather", graph.table(embedding.tokens.weight), tokens)
    if embedding.scale != 1.0:
        x = graph("Mul", x, graph.constant(embedding.scale))
    if embedding.positions is not None:
        learned = state.settings.positions == "learned"
        table = embedding.positions.table if learned else sine_table(state.settings)
        x = graph("Add", x, graph("Gather", graph.constant(table), state.positions))
    if embedding.segments is not None:
        table = embedding.segments.weight
        row = graph.constant(table[0]) if segments is None else graph("Gather", graph.constant(table), segments)
        x = graph("Add", x, row)
    return norm(graph, embedding.norm, x)


def stack(module: Stack, x: str, state: DecodingState) -> str:
    """[B, T, D] -> [B, T, D]"""
    graph = state.graph
    for number, layer in enumerate(layers_of(module)):
        y = self_attention(layer.self_attention, norm_before(graph, layer.self_residual, x), state, number)
        x = add_residual(graph, layer.self_residual, x, y)
        if layer.cross_attention is not None and layer.cross_residual is not None:
            y = cross_attention(layer.cross_attention, norm_before(graph, layer.cross_residual, x), state, number)
            x = add_residual(graph, layer.cross_residual, x, y)
        y = feed_forward(layer.feed_forward, norm_before(graph, layer.feed_forward_residual, x), state)
        x = add_residual(graph, layer.feed_forward_residual, x, y)
    return norm(graph, module.norm, x)


def norm_before(graph: Graph, residual: Residual, x: str) -> str:
    """Adds the norm before a sublayer, if there is one."""
    return norm(graph, residual.norm, x) if residual.pre else x


def add_residual(graph: Graph, residual: Residual, x: str, y: str) -> str:
    """Adds a residual sum, and the norm after it if there is one."""
    x = graph("Add", x, y)
    return x if residual.pre else norm(graph, residual.norm, x)


def self_attention(attention: Attention, x: str, state: DecodingState, number: int) -> str:
    """[B, T, D] -> [B, T, D]; joins the new keys and values to the cached ones."""
    graph = state.graph
    query = state.rotate(project(graph, attention.query, x, attention.heads))
    key = state.rotate(project(graph, attention.key, x, attention.groups))
    value = project(graph, attention.value, x, attention.groups)
    if state.past is not None:
        layer = graph.constant(number)
        key, value = (
            graph("Concat", graph("Gather", all_layers, layer, axis=0), new, axis=2)
            for all_layers, new in zip(state.past, (key, value), strict=True)
        )
        state.keys.append(key)
        state.values.append(value)
    return attend(graph, attention, query, key, value, state.own_mask)


def cross_attention(attention: Attention, x: str, state: DecodingState, number: int) -> str:
    """[B, T, D] -> [B, T, D]"""
    assert state.cross is not None
    graph = state.graph
    query, layer = project(graph, attention.query, x, attention.heads), graph.constant(number)
    key, value = (graph("Gather", all_layers, layer, axis=0) for all_layers in state.cross)
    return attend(graph, attention, query, key, value, state.source_mask)


def attend(graph: Graph, attention: Attention, query: str, key: str, value: str, mask: str | None) -> str:
    """[B, H, T, K] and [B, G, S, K] -> [B, T, D]"""
    width = attention.query.out_features // attention.heads
    if attention.groups < attention.heads:
        key, value = (repeat_heads(graph, part, attention) for part in (key, value))
    query = graph("Mul", query, graph.constant(1 / math.sqrt(width)))
    scores = graph("MatMul", query, graph("Transpose", key, perm=[0, 1, 3, 2]))
    weights = graph("Softmax", graph("Add", scores, mask) if mask else scores, axis=-1)
    context = graph("Transpose", graph("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = graph("Reshape", context, graph.constant([0, 0, attention.output.in_features]))
    return linear(graph, attention.output, joined)


def repeat_heads(graph: Graph, x: str, attention: Attention) -> str:
    """[B, G, S, K] -> [B, H, S, K], each repeated for the query heads of its group."""
    groups = graph("Concat", *[graph.unsqueeze(x, 2)] * (attention.heads // attention.groups), axis=2)
    shape = graph("Concat", graph.constant([0, attention.heads]), graph("Shape", x, start=2), axis=0)
    return graph("Reshape", groups, shape)


def project(graph: Graph, module: nn.Linear, x: str, heads: int) -> str:
    """[B, T, D] -> [B, H, T, K]"""
    parts = graph("Reshape", linear(graph, module, x), graph.constant([0, 0, heads, -1]))
    return graph("Transpose", parts, perm=[0, 2, 1, 3])


def feed_forward(module: FeedForward, x: str, state: DecodingState) -> str:
    """[B, T, D] -> [B, T, D]"""
    graph, rise = state.graph, linear(state.graph, module.rise, x)
    if module.gate is None:
        return linear(graph, module.fall, activate(graph, state.settings, rise))
    gate = activate(graph, state.settings, linear(graph, module.gate, x))
    return linear(graph, module.fall, graph("Mul", gate, rise))


def activate(graph: Graph, settings: ModelSettings, x: str) -> str:
    """Adds the activation function of these settings."""
    match settings.activation:
        case "relu":
            return graph("Relu", x)
        case "gelu":
            return graph("Gelu", x)
        case "gelu-tanh":
            return graph("Gelu", x, approximate="tanh")
        case "silu" | "swiglu":
            return graph("Mul", x, graph("Sigmoid", x))


def norm(graph: Graph, module: nn.Module, x: str) -> str:
    """Adds a LayerNorm, an RMSNorm in several nodes since this opset has none, or nothing."""
    if isinstance(module, nn.LayerNorm):
        weights = graph.constant(module.weight), graph.constant(module.bias)
        return graph("LayerNormalization", x, *weights, axis=-1, epsilon=module.eps)
    if isinstance(module, nn.RMSNorm):
        square = graph("ReduceMean", graph("Mul", x, x), graph.constant([-1]), keepdims=1)
        size = graph("Sqrt", graph("Add", square, graph.constant(module.eps)))
        return graph("Mul", graph("Div", x, size), graph.constant(module.weight))
    return x


def linear(graph: Graph, module: nn.Linear, x: str) -> str:
    """[..., D] -> [..., E]; a weight that is also an embedding table is transposed when the graph runs."""
    shared = graph.tables.get(module.weight.data_ptr())
    x = graph("MatMul", x, graph("Transpose", shared, perm=[1, 0]) if shared else graph.constant(module.weight.T))
    return x if module.bias is None else graph("Add", x, graph.constant(module.bias))


def length_of(graph: Graph, x: str, axis: int = 1) -> str:
    """Returns the length of an axis."""
    return graph("Gather", graph("Shape", x), graph.constant(axis))
