"""Finds the parts of a model (stacks, texts and embedding tables) under the names that `observe` uses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

from torch import nn

from regard.explorer.displayed_tokens import Lexicon
from regard.explorer.request_types import LIMITS
from regard.model.attention import Attention
from regard.model.transformer import Decoder, Embedding, Encoder, EncoderDecoder, Stack
from regard.weights import Contents, parameters, transformer_of

PartType = TypeVar("PartType", bound=nn.Module)
SPECIALS = ("pad", "begin", "end", "unknown", "mask")


@dataclass(frozen=True)
class StackShape:
    """A stack of layers: its depth, the kinds of attention in each layer, and the text that it reads."""

    name: str
    layers: int
    kinds: tuple[str, ...]
    text: str
    embedding: str

    @property
    def causal(self) -> bool:
        return self.name == "decoder"

    def attentions(self) -> Iterator[str]:
        """Yields the names of all attentions, layer by layer."""
        for layer in range(self.layers):
            yield from (f"{self.name}.layers.{layer}.{kind}" for kind in self.kinds)

    def sublayers(self) -> Iterator[str]:
        """Yields the names of all sublayers in the order in which they run."""
        for layer in range(self.layers):
            yield from (f"{self.name}.layers.{layer}.{part}" for part in (*self.kinds, "feed_forward"))


class Anatomy:
    """A model and the names of its parts."""

    def __init__(self, contents: Contents) -> None:
        self.settings, self.vocabularies = contents.settings, contents.vocabularies
        self.model = transformer_of(contents, "regard look")
        self.shape = contents.settings.model
        self.task = contents.settings.task
        model, shape = self.model, self.shape
        if isinstance(model, EncoderDecoder):
            kinds = ("self_attention", "cross_attention")
            stacks = [
                StackShape("encoder", shape.encoder_layers, kinds[:1], "source", "source_embedding"),
                StackShape("decoder", shape.decoder_layers, kinds, "target", "target_embedding"),
            ]
            tokenizers = {"source": self.vocabularies.source, "target": self.vocabularies.target}
        else:
            name = "decoder" if isinstance(model, Decoder) else "encoder"
            layers = shape.decoder_layers if name == "decoder" else shape.encoder_layers
            stacks = [StackShape(name, layers, ("self_attention",), "text", "embedding")]
            tokenizers = {"text": self.vocabularies.target}
        self.stacks = {stack.name: stack for stack in stacks}
        shared = {id(each): Lexicon(each) for each in tokenizers.values()}
        self.lexicons = {text: shared[id(each)] for text, each in tokenizers.items()}

    @property
    def embeddings(self) -> dict[str, str]:
        """The names of the embedding modules, keyed by text."""
        return {stack.text: stack.embedding for stack in self.stacks.values()}

    @property
    def read(self) -> str:
        """The name of the input text: "source", or "text" if the model has only one text."""
        return "source" if "source" in self.lexicons else "text"

    @property
    def written(self) -> str:
        """The name of the output text: "target", or "text" if the model has only one text."""
        return "target" if "target" in self.lexicons else "text"

    @property
    def positions(self) -> int:
        """The maximum number of tokens in a text."""
        return min(LIMITS.tokens, self.shape.max_length)

    def part(self, name: str, kind: type[PartType]) -> PartType:
        """Returns a module of the model by name."""
        module = self.model.get_submodule(name)
        assert isinstance(module, kind)
        return module

    def stack(self, name: str) -> Stack:
        return self.part(name, Stack)

    def attention(self, site: str) -> Attention:
        return self.part(site, Attention)

    def embedding(self, text: str) -> Embedding:
        return self.part(self.embeddings[text], Embedding)

    def points(self, name: str) -> dict[str, str]:
        """Returns the points of the residual stream of a stack, with the name of the tensor at each point."""
        stack = self.stacks[name]
        after = "sum" if self.shape.norm == "pre" else "norm"
        points = {"embedding": f"{stack.embedding}.{'norm' if self.shape.embedding_norm else 'sum'}"}
        for layer in range(stack.layers):
            for part in (*(kind.removesuffix("_attention") for kind in stack.kinds), "feed_forward"):
                points[f"layers.{layer}.{part}"] = f"{name}.layers.{layer}.{part}_residual.{after}"
        return points

    def output_layer(self) -> nn.Linear | None:
        """Returns the linear layer that computes the logits of tokens or labels, or None."""
        if isinstance(self.model, Encoder):
            return self.model.fill.logits if self.model.fill is not None else self.model.label
        return self.model.logits

    def describe(self) -> dict[str, Any]:
        """Returns the description of the model for the page, without its name, checkpoints and examples."""
        shape, model = self.shape, self.model
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        tables = {text: names[id(self.embedding(text).tokens.weight)] for text in self.lexicons}
        output = self.output_layer()
        weight = None if output is None else names[id(output.weight)]
        bias = None if output is None or output.bias is None else names[id(output.bias)]
        data = self.settings.data
        return {
            "task": self.task,
            "stacks": {
                stack.name: {"layers": stack.layers, "kinds": list(stack.kinds), "text": stack.text}
                for stack in self.stacks.values()
            },
            "model": asdict(shape)
            | {
                "head_width": shape.head_width,
                "head_value_width": shape.head_value_width,
                "query_groups": shape.query_groups,
            },
            "embeddings": self.embeddings,
            "tables": tables,
            "scale": self.embedding(self.read).scale,
            "vocabulary": {text: lexicon.tokenizer.size for text, lexicon in self.lexicons.items()},
            "joint": self.vocabularies.source is self.vocabularies.target,
            "tied": {"inputs": len(set(tables.values())) < len(tables), "output": weight in tables.values()},
            "output": None if weight is None else {"weight": weight, "bias": bias},
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "weights": {name: list(tensor.shape) for name, tensor in parameters(model).items()},
            "languages": {"source": data.source, "target": data.target},
            "labels": list(data.labels),
            "carrier": data.carrier,
            "specials": {
                text: {name: getattr(lexicon.tokenizer.specials, name) for name in SPECIALS}
                for text, lexicon in self.lexicons.items()
            },
        }
