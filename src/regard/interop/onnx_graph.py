"""ONNX graphs written node by node, each part after the module of its name in `model/`."""

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
"""Bytes of weights in one file: protobuf ends at 2 GB, so that more go into a file beside it."""
HIDDEN = -1e9
"""Added to the score of what may not be looked at: its weight is exactly 0, and a row of such scores stays finite."""


class Graph:
    """A graph under construction: `graph("MatMul", a, b)` adds a node and returns the name of its result."""

    def __init__(self) -> None:
        self.nodes: list[tuple[str, list[str], list[str], dict[str, Any]]] = []
        self.tensors: dict[str, NDArray[Any]] = {}
        self.tables: dict[int, str] = {}  # parameters that are used in two places, by address
        self.inputs: dict[str, tuple[type, list[Any]]] = {}
        self.outputs: dict[str, list[Any]] = {}

    def __call__(self, operation: str, *inputs: str, results: int = 1, **attributes: Any) -> Any:
        names = [f"{operation}_{len(self.nodes)}{'abc'[i] if results > 1 else ''}" for i in range(results)]
        self.nodes.append((operation, list(inputs), names, attributes))
        return names if results > 1 else names[0]

    def input(self, name: str, kind: type, shape: list[Any]) -> str:
        """Declares an input; axes with a name may be of any length."""
        self.inputs[name] = (kind, shape)
        return name

    def output(self, name: str, value: str, shape: list[Any]) -> None:
        """Gives a result the name by which it is asked for."""
        self.nodes.append(("Identity", [value], [name], {}))
        self.outputs[name] = shape

    def constant(self, value: Any, kind: type = np.float32) -> str:
        """Adds a constant: weights, or whole numbers with `kind` np.int64."""
        array = value.detach().float().numpy() if isinstance(value, Tensor) else np.array(value, kind)
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
        """Writes the graph and checks what was written."""
        kinds: dict[type, int] = {
            np.float32: onnx.TensorProto.FLOAT,
            np.int64: onnx.TensorProto.INT64,
            bool: onnx.TensorProto.BOOL,
        }
        value = onnx.helper.make_tensor_value_info
        graph = onnx.helper.make_graph(
            [onnx.helper.make_node(kind, inputs, names, **more) for kind, inputs, names, more in self.nodes],
            path.stem,
            [value(name, kinds[kind], shape) for name, (kind, shape) in self.inputs.items()],
            [value(name, onnx.TensorProto.FLOAT, shape) for name, shape in self.outputs.items()],
            [onnx.numpy_helper.from_array(array, name) for name, array in self.tensors.items()],
        )
        opsets = [onnx.helper.make_opsetid("", OPSET)]
        version = onnx.helper.find_min_ir_version_for(opsets)
        about = {"producer_name": "regard", "producer_version": __version__, "ir_version": version}
        model = onnx.helper.make_model(graph, opset_imports=opsets, **about)
        large = sum(array.nbytes for array in self.tensors.values()) > LARGEST
        onnx.save_model(model, str(path), save_as_external_data=large, location=f"{path.name}.data")
        onnx.checker.check_model(str(path), full_check=True)


class NewPositions:
    """The positions [T] of the new tokens, and their rotary angles."""

    def __init__(self, graph: Graph, settings: ModelSettings, length: str, before: str | None = None) -> None:
        self.graph, self.settings = graph, settings
        zero, one = graph.constant(0, np.int64), graph.constant(1, np.int64)
        total = length if before is None else graph("Add", before, length)
        self.here = graph("Range", before or zero, total, one)
        self.all = graph("Range", zero, total, one)
        self.turn: tuple[str, str] | None = None
        if settings.positions == "rotary":
            width = settings.head_width
            speeds = settings.rotary_base ** (-torch.arange(0, width, 2).float() / width)
            steps = graph("Unsqueeze", graph("Cast", self.here, to=1), graph.constant([1], np.int64))
            angles = graph("Mul", steps, graph.constant(speeds))  # [T, K / 2]
            self.turn = graph("Cos", angles), graph("Sin", angles)

    def rotate(self, x: str) -> str:
        """[B, H, T, K] -> [B, H, T, K]"""
        if self.turn is None:
            return x
        graph, (cos, sin) = self.graph, self.turn
        left, right = graph("Split", x, results=2, axis=-1, num_outputs=2)
        turned = graph("Sub", graph("Mul", left, cos), graph("Mul", right, sin))
        other = graph("Add", graph("Mul", right, cos), graph("Mul", left, sin))
        return str(graph("Concat", turned, other, axis=-1))


class AttentionState:
    """The attention mask, and the keys and values of all layers: the cached ones and the new ones."""

    def __init__(
        self,
        place: NewPositions,
        keep: str | None,
        past: tuple[str, str] | None = None,
        cross: tuple[str, str] | None = None,
    ) -> None:
        graph = place.graph
        self.place, self.past, self.cross = place, past, cross
        self.keys: list[str] = []
        self.values: list[str] = []
        padding = keep and graph("Unsqueeze", keep, graph.constant([1, 2], np.int64))  # [B, 1, 1, S]
        self.memory = padding and self.bias(padding)
        if past is None:
            self.own = self.memory
        else:
            now = graph("Unsqueeze", place.here, graph.constant([1], np.int64))
            self.own = self.bias(graph("LessOrEqual", place.all, now))  # [T, P + T]

    def bias(self, mask: str) -> str:
        """Adds the mask that is added to the scores: 0 for visible positions."""
        graph = self.place.graph
        return str(graph("Where", mask, graph.constant(0.0), graph.constant(HIDDEN)))


def embed(graph: Graph, embedding: Embedding, tokens: str, place: NewPositions, segments: str | None = None) -> str:
    """[B, T] -> [B, T, D]"""
    settings = place.settings
    x = graph("Gather", graph.table(embedding.tokens.weight), tokens)
    if embedding.scale != 1.0:
        x = graph("Mul", x, graph.constant(embedding.scale))
    if embedding.positions is not None:
        table = embedding.positions.table
        if settings.positions != "learned":
            table = sine_table(settings)
        x = graph("Add", x, graph("Gather", graph.constant(table), place.here))
    if embedding.segments is not None:
        table = embedding.segments.weight
        row = graph.constant(table[0]) if segments is None else graph("Gather", graph.constant(table), segments)
        x = graph("Add", x, row)
    return norm(graph, embedding.norm, x)


def stack(graph: Graph, module: Stack, x: str, sight: AttentionState) -> str:
    """[B, T, D] -> [B, T, D]"""
    settings = sight.place.settings
    for number, layer in enumerate(layers_of(module)):
        y = add_norm_before(graph, layer.self_residual, x)
        x = add_residual(graph, layer.self_residual, x, self_attention(graph, layer.self_attention, y, sight, number))
        if layer.cross_attention is not None and layer.cross_residual is not None:
            y = add_norm_before(graph, layer.cross_residual, x)
            x = add_residual(
                graph, layer.cross_residual, x, cross_attention(graph, layer.cross_attention, y, sight, number)
            )
        y = add_norm_before(graph, layer.feed_forward_residual, x)
        x = add_residual(graph, layer.feed_forward_residual, x, feed_forward(graph, layer.feed_forward, y, settings))
    return norm(graph, module.norm, x)


def add_norm_before(graph: Graph, residual: Residual, x: str) -> str:
    """Adds the nodes of the norm before a sublayer, if there is one."""
    return norm(graph, residual.norm, x) if residual.pre else x


def add_residual(graph: Graph, residual: Residual, x: str, y: str) -> str:
    """Adds the nodes of a residual sum and the norm after it, if there is one."""
    x = graph("Add", x, y)
    return x if residual.pre else norm(graph, residual.norm, x)


def self_attention(graph: Graph, attention: Attention, x: str, sight: AttentionState, number: int) -> str:
    query = sight.place.rotate(split_heads(graph, linear(graph, attention.query, x), attention.heads))
    key = sight.place.rotate(split_heads(graph, linear(graph, attention.key, x), attention.groups))
    value = split_heads(graph, linear(graph, attention.value, x), attention.groups)
    if sight.past is not None:
        layer = graph.constant(number, np.int64)
        key, value = (
            graph("Concat", graph("Gather", all_layers, layer, axis=0), new, axis=2)
            for all_layers, new in zip(sight.past, (key, value), strict=True)
        )
        sight.keys.append(key)
        sight.values.append(value)
    return attend(graph, attention, query, key, value, sight.own)


def cross_attention(graph: Graph, attention: Attention, x: str, sight: AttentionState, number: int) -> str:
    assert sight.cross is not None
    query = split_heads(graph, linear(graph, attention.query, x), attention.heads)
    layer = graph.constant(number, np.int64)
    key, value = (graph("Gather", all_layers, layer, axis=0) for all_layers in sight.cross)
    return attend(graph, attention, query, key, value, sight.memory)


def attend(graph: Graph, attention: Attention, query: str, key: str, value: str, bias: str | None) -> str:
    """[B, H, T, K] and [B, G, S, K] -> [B, T, D]"""
    width = attention.query.out_features // attention.heads
    if attention.groups < attention.heads:
        key, value = (repeat_heads(graph, part, attention) for part in (key, value))
    query = graph("Mul", query, graph.constant(1 / math.sqrt(width)))
    scores = graph("MatMul", query, graph("Transpose", key, perm=[0, 1, 3, 2]))
    weights = graph("Softmax", graph("Add", scores, bias) if bias else scores, axis=-1)
    context = graph("Transpose", graph("MatMul", weights, value), perm=[0, 2, 1, 3])
    joined = graph("Reshape", context, graph.constant([0, 0, attention.output.in_features], np.int64))
    return linear(graph, attention.output, joined)


def repeat_heads(graph: Graph, x: str, attention: Attention) -> str:
    """[B, G, S, K] -> [B, H, S, K]: each for the group of queries that it serves."""
    single = graph("Unsqueeze", x, graph.constant([2], np.int64))
    groups = graph("Concat", *[single] * (attention.heads // attention.groups), axis=2)
    parts = graph("Shape", x, start=2)
    shape = graph("Concat", graph.constant([0, attention.heads], np.int64), parts, axis=0)
    return str(graph("Reshape", groups, shape))


def split_heads(graph: Graph, x: str, heads: int) -> str:
    """[B, T, H * K] -> [B, H, T, K]"""
    parts = graph("Reshape", x, graph.constant([0, 0, heads, -1], np.int64))
    return str(graph("Transpose", parts, perm=[0, 2, 1, 3]))


def feed_forward(graph: Graph, module: FeedForward, x: str, settings: ModelSettings) -> str:
    rise = linear(graph, module.rise, x)
    if module.gate is None:
        return linear(graph, module.fall, activate(graph, settings, rise))
    return linear(graph, module.fall, graph("Mul", activate(graph, settings, linear(graph, module.gate, x)), rise))


def activate(graph: Graph, settings: ModelSettings, x: str) -> str:
    match settings.activation:
        case "relu":
            return str(graph("Relu", x))
        case "gelu":
            return str(graph("Gelu", x))
        case "gelu-tanh":
            return str(graph("Gelu", x, approximate="tanh"))
        case "silu" | "swiglu":
            return str(graph("Mul", x, graph("Sigmoid", x)))


def norm(graph: Graph, module: nn.Module, x: str) -> str:
    """Adds a LayerNorm, a RMSNorm step by step since this opset has none, or nothing."""
    if isinstance(module, nn.LayerNorm):
        weights = graph.constant(module.weight), graph.constant(module.bias)
        return str(graph("LayerNormalization", x, *weights, axis=-1, epsilon=module.eps))
    if isinstance(module, nn.RMSNorm):
        square = graph("ReduceMean", graph("Mul", x, x), graph.constant([-1], np.int64), keepdims=1)
        size = graph("Sqrt", graph("Add", square, graph.constant(module.eps)))
        return str(graph("Mul", graph("Div", x, size), graph.constant(module.weight)))
    return x


def linear(graph: Graph, module: nn.Linear, x: str) -> str:
    """[..., D] -> [..., E]; a weight that is an embedding table too is turned when the graph runs."""
    shared = graph.tables.get(module.weight.data_ptr())
    x = graph("MatMul", x, graph("Transpose", shared, perm=[1, 0]) if shared else graph.constant(module.weight.T))
    return x if module.bias is None else str(graph("Add", x, graph.constant(module.bias)))


def length_of(graph: Graph, x: str, axis: int = 1) -> str:
    return str(graph("Gather", graph("Shape", x), graph.constant(axis, np.int64)))
