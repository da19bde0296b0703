"""A Regard model as ONNX graphs, which onnxruntime and others run without PyTorch, in browsers and on phones too.

The graphs are written node by node (`graph.py`), which takes a moment and needs no tracer. Letters of shapes are those
of `model/transformer.py`, with L layers and P tokens before the new ones; B, T, S and P may be of any length, P also 0.
    translate   encoder.onnx   tokens [B, S], keep [B, S] -> memory [B, S, D], cross_keys, cross_values [L, B, G, S, K]
                decoder.onnx   tokens [B, T], keep [B, S], cross_keys, cross_values, past_keys, past_values
                               [L, B, G, P, K] -> logits [B, T, V], keys, values [L, B, G, P + T, K]
    write       decoder.onnx   tokens, past_keys, past_values -> logits, keys, values
    others      encoder.onnx   tokens [B, T], keep, segments -> states [B, T, D], embedding [B, D], and what the heads
                               say: fill_logits [B, T, V], label_logits [B, C] or [B, T, C], follows_logits [B, 2]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from regard.atomic_files import write_text
from regard.interop.export_folder import (
    README,
    TOKENIZERS,
    layers_of,
    require,
    tag_notes,
    whole_folder,
    write_tokenizers,
)
from regard.interop.onnx_graph import (
    AttentionState,
    Graph,
    NewPositions,
    activate,
    embed,
    length_of,
    linear,
    norm,
    split_heads,
    stack,
)
from regard.model.transformer import Decoder, Encoder, EncoderDecoder
from regard.settings import EmbeddingSettings, ModelSettings, Settings
from regard.tokens.directions import format_directions, targets_of
from regard.weights import Contents, read_folder, transformer_of

GRAPHS = ("encoder.onnx", "decoder.onnx")
FILES = (*GRAPHS, *(f"{name}.data" for name in GRAPHS), *TOKENIZERS, README)


def export_model(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> list[str]:
    """Writes the model of a Regard folder as ONNX graphs; returns what the user should know of them."""
    folder, output = Path(folder), Path(output)
    onnx = require("onnx", "onnx")
    contents = read_folder(folder)
    with whole_folder(output, folder, FILES, overwrite=overwrite) as place, torch.no_grad():
        for name, graph in build_graphs(contents).items():
            graph.write(onnx, place / name)
        names = write_tokenizers(place, contents.vocabularies)
        write_text(place / README, page(contents, *names))
    return tag_notes(contents.settings)


def build_graphs(contents: Contents) -> dict[str, Graph]:
    """Builds the graphs of a model, by file name."""
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
    keep = graph.input("keep", bool, ["batch", "source"])
    place = NewPositions(graph, settings, length_of(graph, tokens))
    memory = stack(
        graph, model.encoder, embed(graph, model.source_embedding, tokens, place), AttentionState(place, keep)
    )
    graph.output("memory", memory, ["batch", "source", settings.width])
    attentions = [layer.cross_attention for layer in layers_of(model.decoder) if layer.cross_attention is not None]
    keys = [split_heads(graph, linear(graph, each.key, memory), each.groups) for each in attentions]
    values = [split_heads(graph, linear(graph, each.value, memory), each.groups) for each in attentions]
    output_cache(graph, "cross_", keys, values, settings, "source")
    return graph


def target_graph(model: EncoderDecoder | Decoder) -> Graph:
    """Builds a decoder that takes the cached keys and values and returns them with those of the new tokens."""
    graph, settings = Graph(), model.settings
    tokens = graph.input("tokens", np.int64, ["batch", "new"])
    translates = isinstance(model, EncoderDecoder)
    keep = graph.input("keep", bool, ["batch", "source"]) if translates else None
    cross = input_cache(graph, "cross_", settings, "source") if translates else None
    past = input_cache(graph, "past_", settings, "past")
    place = NewPositions(graph, settings, length_of(graph, tokens), length_of(graph, past[0], 3))
    sight = AttentionState(place, keep, past, cross)
    x = embed(graph, model.target_embedding if isinstance(model, EncoderDecoder) else model.embedding, tokens, place)
    logits = linear(graph, model.logits, stack(graph, model.decoder, x, sight))
    graph.output("logits", logits, ["batch", "new", model.logits.out_features])
    output_cache(graph, "", sight.keys, sight.values, settings, "total")
    return graph


def reader_graph(model: Encoder, settings: Settings) -> Graph:
    """Builds an encoder with all its heads, and with the vector of a text as the model's settings define it."""
    graph, shape = Graph(), settings.model
    tokens = graph.input("tokens", np.int64, ["batch", "length"])
    keep = graph.input("keep", bool, ["batch", "length"])
    segments = graph.input("segments", np.int64, ["batch", "length"]) if model.embedding.segments else None
    place = NewPositions(graph, shape, length_of(graph, tokens))
    x = embed(graph, model.embedding, tokens, place, segments)
    states = stack(graph, model.encoder, x, AttentionState(place, keep))
    graph.output("states", states, ["batch", "length", shape.width])
    graph.output("embedding", text_vector(graph, states, keep, settings), ["batch", shape.width])
    if shape.pooler == "mean":
        plain = EmbeddingSettings(pooling="mean", normalize=False)
        whole = text_vector(graph, states, keep, replace(settings, embedding=plain))
    else:
        whole = graph("Gather", states, graph.constant(0, np.int64), axis=1)
    if model.pooler is not None:
        whole = graph("Tanh" if shape.pooler == "tanh" else "Relu", linear(graph, model.pooler.dense, whole))
    if model.fill is not None:
        x = norm(graph, model.fill.norm, activate(graph, shape, linear(graph, model.fill.dense, states)))
        logits = linear(graph, model.fill.logits, x)
        graph.output("fill_logits", logits, ["batch", "length", model.fill.logits.out_features])
    if model.label is not None:
        words = settings.data.carrier == "word"
        axes = ["batch", "length"] if words else ["batch"]
        logits = linear(graph, model.label, states if words else whole)
        graph.output("label_logits", logits, [*axes, model.label.out_features])
    if model.follows is not None:
        graph.output("follows_logits", linear(graph, model.follows, whole), ["batch", 2])
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
    widths = {"keys": settings.head_width, "values": settings.head_value_width}
    for kind, parts in (("keys", keys), ("values", values)):
        layers = [graph("Unsqueeze", part, graph.constant([0], np.int64)) for part in parts]
        graph.output(f"{name}{kind}", graph("Concat", *layers, axis=0), [*axes, widths[kind]])


def text_vector(graph: Graph, states: str, keep: str, settings: Settings) -> str:
    """[B, T, D] -> [B, D]: the mean over what is not padding or the first state, of length 1 if so set."""
    if settings.embedding.pooling == "mean":
        axis = graph.constant([1], np.int64)
        shares = graph("Unsqueeze", graph("Cast", keep, to=1), graph.constant([2], np.int64))  # 1: float32
        total = graph("ReduceSum", graph("Mul", states, shares), axis, keepdims=0)
        vector = graph("Div", total, graph("ReduceSum", shares, axis, keepdims=0))
    else:
        vector = graph("Gather", states, graph.constant(0, np.int64), axis=1)
    if not settings.embedding.normalize:
        return str(vector)
    length = graph("ReduceL2", vector, graph.constant([-1], np.int64), keepdims=1)
    return str(graph("Div", vector, graph("Max", length, graph.constant(1e-12))))


# How to run it


def page(contents: Contents, source: str, target: str) -> str:
    """Returns the text of README.md in the exported folder."""
    settings, specials = contents.settings, contents.vocabularies.target.specials
    shape = settings.model
    title = {"translate": format_directions(settings.data), "write": "a writer"}
    snippet = {"translate": TRANSLATE, "write": WRITE}.get(settings.task, READ)
    axes = f"{shape.decoder_layers}, len(texts), {shape.query_groups}, 0"
    values = {
        "TAG": "".join(f'source.token_to_id("<tag:{name}>"), ' for name in targets_of(settings.data)[:1]),
        "SOURCE": source,
        "TARGET": target,
        "LENGTH": shape.max_length,
        "NEVER": specials.never_generated,
        "PREFIX": [specials.begin] if specials.prompt else [],
        "PAD": specials.pad,
        "BEGIN": specials.begin,
        "END": specials.end,
        "KEYS": f"({axes}, {shape.head_width})",
        "VALUES": f"({axes}, {shape.head_value_width})",
        "SEGMENTS": ', "segments": np.zeros_like(tokens)' if shape.segments else "",
    }
    for name, value in values.items():
        snippet = snippet.replace(f"${name}", str(value))
    return f"# {title.get(settings.task, 'an encoder')}, for ONNX\n\n{INTRODUCTION}```python\n{snippet}```\n"


INTRODUCTION = """Written by Regard. Run this in this folder (`pip install onnxruntime tokenizers`).

"""
TRANSLATE = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

encoder, decoder = (onnxruntime.InferenceSession(f"{name}.onnx") for name in ("encoder", "decoder"))
source, target = Tokenizer.from_file("$SOURCE"), Tokenizer.from_file("$TARGET")
texts = ["Hello!", "How are you?"]  # sentences of less than $LENGTH tokens

rows = [[$TAG*source.encode(text, add_special_tokens=False).ids, $END] for text in texts]
longest = max(map(len, rows))
tokens = np.array([row + [$PAD] * (longest - len(row)) for row in rows], np.int64)
keep = np.arange(longest) < np.array([[len(row)] for row in rows])
memory, cross_keys, cross_values = encoder.run(None, {"tokens": tokens, "keep": keep})

given = {"keep": keep, "cross_keys": cross_keys, "cross_values": cross_values}
keys, values = np.zeros($KEYS, np.float32), np.zeros($VALUES, np.float32)
new, outputs, done = np.full((len(texts), 1), $BEGIN, np.int64), [[] for _ in texts], np.zeros(len(texts), bool)
for _ in range($LENGTH):  # greedy: the most probable token, again and again
    logits, keys, values = decoder.run(None, {**given, "tokens": new, "past_keys": keys, "past_values": values})
    logits[:, -1, $NEVER] = -np.inf  # never part of a text
    new = logits[:, -1].argmax(-1)[:, None]
    done |= new[:, 0] == $END
    if done.all():
        break
    for output, token, ended in zip(outputs, new[:, 0].tolist(), done):
        if not ended:
            output.append(token)
for output in outputs:
    print(target.decode(output))
"""
WRITE = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

decoder = onnxruntime.InferenceSession("decoder.onnx")
tokenizer = Tokenizer.from_file("$TARGET")
texts = ["Once upon a time"]  # several texts must have equally many tokens

ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
new = np.array([$PREFIX + row for row in ids], np.int64)
keys, values = np.zeros($KEYS, np.float32), np.zeros($VALUES, np.float32)
for _ in range(min(50, $LENGTH - new.shape[1])):  # greedy: the most probable token, again and again
    logits, keys, values = decoder.run(None, {"tokens": new, "past_keys": keys, "past_values": values})
    logits[:, -1, $NEVER] = -np.inf  # never part of a text
    new = logits[:, -1].argmax(-1)[:, None]
    ids = [row if row[-1:] == [$END] else row + [token] for row, token in zip(ids, new[:, 0].tolist())]
    if all(row[-1:] == [$END] for row in ids):
        break
for row in ids:
    print(tokenizer.decode([token for token in row if token != $END]))
"""
READ = """import numpy as np
import onnxruntime
from tokenizers import Tokenizer

encoder = onnxruntime.InferenceSession("encoder.onnx")
tokenizer = Tokenizer.from_file("$TARGET")
texts = ["a dog", "the cat sleeps"]  # at most $LENGTH tokens

rows = [[$BEGIN, *tokenizer.encode(text, add_special_tokens=False).ids, $END] for text in texts]
longest = max(map(len, rows))
tokens = np.array([row + [$PAD] * (longest - len(row)) for row in rows], np.int64)
keep = np.arange(longest) < np.array([[len(row)] for row in rows])
found = encoder.run(None, {"tokens": tokens, "keep": keep$SEGMENTS})
for output, value in zip(encoder.get_outputs(), found):
    print(output.name, value.shape)
"""
