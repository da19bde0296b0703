"""Exports models as ONNX graphs, which onnxruntime and other programs run without PyTorch, also in browsers.

The graphs are written node by node (`onnx_graph.py`), which takes a moment and needs no tracer. Letters of shapes are
those of `model/transformer.py`, with L layers and P cached tokens. B, T, S and P may be of any length, P also 0.
    translate   encoder.onnx   tokens [B, S], keep [B, S] -> memory [B, S, D], cross_keys, cross_values [L, B, G, S, K]
                decoder.onnx   tokens [B, T], keep [B, S], cross_keys, cross_values, past_keys, past_values
                               [L, B, G, P, K] -> logits [B, T, V], keys, values [L, B, G, P + T, K]
    write       decoder.onnx   tokens, past_keys, past_values -> logits, keys, values
    others      encoder.onnx   tokens [B, T], keep, segments -> states [B, T, D], embedding [B, D], and the outputs of
                               heads: fill_logits [B, T, V], label_logits [B, C] or [B, T, C], follows_logits [B, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.interop.export_folder import (
    README,
    TOKENIZERS,
    layers_of,
    require,
    tag_notes,
    whole_folder,
    write_companions,
)
from regard.interop.onnx_graph import DecodingState, Graph, activate, embed, linear, norm, project, stack
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import ModelSettings, Settings
from regard.tokens.language_directions import targets_of
from regard.weights import Contents, read_folder, transformer_of

GRAPHS = ("encoder.onnx", "decoder.onnx")
FILES = (*GRAPHS, *(f"{name}.data" for name in GRAPHS), *TOKENIZERS, README)


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Converts a model folder of Regard to ONNX graphs; returns notes for the user."""
    folder, output = Path(folder), Path(output)
    onnx = require("onnx", "onnx")
    contents = read_folder(folder)
    with whole_folder(output, folder, FILES, overwrite=overwrite) as place, torch.no_grad():
        for name, graph in build_graphs(contents).items():
            graph.write(onnx, place / name)
        write_companions(place, "onnx", contents, _example_values(contents))
    return tag_notes(contents.settings)


def _example_values(contents: Contents) -> dict[str, Any]:
    """Returns the values for the example in README.md."""
    shape, specials = contents.settings.model, contents.vocabularies.target.specials
    axes = f"{shape.decoder_layers}, len(texts), {shape.query_groups}, 0"
    tags = [f'source.token_to_id("<tag:{name}>"), ' for name in targets_of(contents.settings.data)]
    return {
        "TAG": "".join(tags[:1]),
        "NEVER": specials.never_generated,
        "PREFIX": [specials.begin] if specials.prompt else [],
        "PAD": specials.pad,
        "KEYS": f"({axes}, {shape.head_width})",
        "VALUES": f"({axes}, {shape.head_value_width})",
        "SEGMENTS": ', "segments": np.zeros_like(tokens)' if shape.segments else "",
    }


def build_graphs(contents: Contents) -> dict[str, Graph]:
    """Builds the graphs of a model, keyed by file name."""
    model, settings = transformer_of(contents, "regard export"), contents.settings
    if isinstance(model, EncoderDecoder):
        return {"encoder.onnx": source_graph(model), "decoder.onnx": target_graph(model)}
    if isinstance(model, Decoder):
        return {"decoder.onnx": target_graph(model)}
    return {"encoder.onnx": reader_graph(model, settings)}


# Graphs


def source_graph(model: EncoderDecoder) -> Graph:
    """Builds the encoder with the cross-attention keys and values of every decoder layer."""
    graph, settings = Graph(), model.settings
    tokens = graph.input("tokens", np.int64, ["batch", "source"])
    state = DecodingState(graph, settings, tokens, graph.input("keep", bool, ["batch", "source"]))
    memory = stack(model.encoder, embed(model.source_embedding, tokens, state), state)
    graph.output("memory", memory, ["batch", "source", settings.width])
    attentions = [layer.cross_attention for layer in layers_of(model.decoder) if layer.cross_attention is not None]
    keys = [project(graph, each.key, memory, each.groups) for each in attentions]
    values = [project(graph, each.value, memory, each.groups) for each in attentions]
    output_cache(graph, "cross_", keys, values, settings, "source")
    return graph


def target_graph(model: EncoderDecoder | Decoder) -> Graph:
    """Builds a decoder that takes the cached keys and values and returns them with those of the new tokens."""
    graph, settings = Graph(), model.settings
    tokens = graph.input("tokens", np.int64, ["batch", "new"])
    translates = isinstance(model, EncoderDecoder)
    keep = graph.input("keep", bool, ["batch", "source"]) if translates else None
    cross = input_cache(graph, "cross_", settings, "source") if translates else None
    state = DecodingState(graph, settings, tokens, keep, input_cache(graph, "past_", settings, "past"), cross)
    x = embed(model.target_embedding if isinstance(model, EncoderDecoder) else model.embedding, tokens, state)
    logits = linear(graph, model.logits, stack(model.decoder, x, state))
    graph.output("logits", logits, ["batch", "new", model.logits.out_features])
    output_cache(graph, "", state.keys, state.values, settings, "total")
    return graph


def reader_graph(model: Encoder, settings: Settings) -> Graph:
    """Builds an encoder with all its heads, and with the text embedding that the settings define."""
    graph, shape = Graph(), settings.model
    tokens = graph.input("tokens", np.int64, ["batch", "length"])
    keep = graph.input("keep", bool, ["batch", "length"])
    segments = graph.input("segments", np.int64, ["batch", "length"]) if model.embedding.segments else None
    state = DecodingState(graph, shape, tokens, keep)
    states = stack(model.encoder, embed(model.embedding, tokens, state, segments), state)
    graph.output("states", states, ["batch", "length", shape.width])
    vector = pool(graph, states, keep, settings.embedding.pooling)
    if settings.embedding.normalize:
        length = graph("ReduceL2", vector, graph.constant([-1]), keepdims=1)
        vector = graph("Div", vector, graph("Max", length, graph.constant(1e-12)))
    graph.output("embedding", vector, ["batch", shape.width])
    text = pool(graph, states, keep, "mean" if shape.pooler == "mean" else "first")
    if model.pooler is not None:
        text = graph("Tanh" if shape.pooler == "tanh" else "Relu", linear(graph, model.pooler.dense, text))
    if model.fill is not None:
        x = norm(graph, model.fill.norm, activate(graph, shape, linear(graph, model.fill.dense, states)))
        logits = linear(graph, model.fill.logits, x)
        graph.output("fill_logits", logits, ["batch", "length", model.fill.logits.out_features])
    if model.label is not None:
        words = settings.data.carrier == "word"
        axes = ["batch", "length"] if words else ["batch"]
        logits = linear(graph, model.label, states if words else text)
        graph.output("label_logits", logits, [*axes, model.label.out_features])
    if model.follows is not None:
        graph.output("follows_logits", linear(graph, model.follows, text), ["batch", 2])
    return graph


def input_cache(graph: Graph, name: str, settings: ModelSettings, length: str) -> tuple[str, str]:
    """Declares the keys and values of all layers as inputs."""
    axes = [settings.decoder_layers, "batch", settings.query_groups, length]
    keys = graph.input(f"{name}keys", np.float32, [*axes, settings.head_width])
    return keys, graph.input(f"{name}values", np.float32, [*axes, settings.head_value_width])


def output_cache(
    graph: Graph, name: str, keys: Sequence[str], values: Sequence[str], settings: ModelSettings, length: str
) -> None:
    """Declares the keys and values of all layers as outputs."""
    axes = [settings.decoder_layers, "batch", settings.query_groups, length]
    for kind, parts, width in (
        ("keys", keys, settings.head_width),
        ("values", values, settings.head_value_width),
    ):
        layers = [graph.unsqueeze(part, 0) for part in parts]
        graph.output(f"{name}{kind}", graph("Concat", *layers, axis=0), [*axes, width])


def pool(graph: Graph, states: str, keep: str, pooling: str) -> str:
    """[B, T, D] -> [B, D]: the mean of the states without padding, or the first state."""
    if pooling == "first":
        return graph("Gather", states, graph.constant(0), axis=1)
    axis, shares = graph.constant([1]), graph.unsqueeze(graph("Cast", keep, to=1), 2)  # 1: float32
    total = graph("ReduceSum", graph("Mul", states, shares), axis, keepdims=0)
    return graph("Div", total, graph("ReduceSum", shares, axis, keepdims=0))
