"""The Transformer as three models: `EncoderDecoder`, `Encoder` (BERT) and `Decoder` (GPT).

Shapes use the same letters throughout `model/`:
    B batch   T query positions   S key positions   D width of the residual stream
    H heads   G key and value heads   K width of one head   V vocabulary
Masks are boolean: true where a position may be seen. `keep` is true for tokens and false for padding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from regard.model.attention import Bias, Cache, causal_mask, mask_bias
from regard.model.dropout import Dropout
from regard.model.layers import ACTIVATIONS, Layer, build_norm, initialize, recompute
from regard.model.linear import Linear
from regard.model.observe import see
from regard.model.positions import RotaryPositions, build_positions
from regard.settings import ModelSettings


class EncoderDecoder(nn.Module):
    """A Transformer that reads a source text and generates a target text (Vaswani et al., 2017)."""

    def __init__(self, settings: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.source_embedding = Embedding(settings, source_vocabulary)
        self.target_embedding = Embedding(settings, target_vocabulary)
        self.encoder = Stack(settings, settings.encoder_layers)
        self.decoder = Stack(settings, settings.decoder_layers, cross=True)
        self.logits = Linear(settings.width, target_vocabulary, settings.output_bias)
        tie_tables(settings, self.source_embedding, self.target_embedding, self.logits)
        initialize(self, settings)

    def forward(self, source: Tensor, target: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] and [B, T] tokens -> [B, T, V] logits of the token that follows each of the target."""
        return see("logits", self.logits(self.states(source, target, keep)), "batch position token")

    def states(self, source: Tensor, target: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] and [B, T] tokens -> [B, T, D], the decoder's last states, before the logits."""
        return self.decode(target, self.encode(source, keep), keep)

    def encode(self, source: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] tokens -> [B, S, D] memory; keep [B, S] may be None if there is no padding."""
        x = self.source_embedding(source)
        return self.encoder(x, padding_bias(keep, x))

    def decode(self, target: Tensor, memory: Tensor, keep: Tensor | None, cache: Cache | None = None) -> Tensor:
        """[B, T] tokens -> [B, T, D] states; with a cache, `target` contains only the tokens after the cached ones."""
        start = cache.length if cache else 0
        x = self.target_embedding(target, start)
        return self.decoder(x, causal_bias(x, start), memory, padding_bias(keep, x), cache)

    def new_cache(self) -> Cache:
        return Cache(self.settings.decoder_layers)


class Encoder(nn.Module):
    """A Transformer that sees the whole text at once, to fill gaps or to classify (BERT; Devlin et al., 2019).

    `fills` adds a head that predicts masked tokens; `labels` is the number of classes of a classification head.
    """

    def __init__(self, settings: ModelSettings, vocabulary: int, *, fills: bool = False, labels: int = 0) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocabulary)
        self.encoder = Stack(settings, settings.encoder_layers)
        self.pooler = Pooler(settings) if settings.pooler in ("tanh", "relu") else None
        self.fill = FillHead(settings, vocabulary) if fills else None
        self.follows = nn.Linear(settings.width, 2) if settings.next_sentence else None
        self.label = nn.Linear(settings.width, labels) if labels else None
        if self.fill is not None and settings.tie in ("all", "output"):
            self.fill.logits.weight = self.embedding.tokens.weight
        initialize(self, settings)

    def forward(self, tokens: Tensor, keep: Tensor | None, segments: Tensor | None = None) -> Tensor:
        """[B, T] tokens -> [B, T, D] states."""
        x = self.embedding(tokens, segments=segments)
        return self.encoder(x, padding_bias(keep, x))

    def pool(self, states: Tensor, keep: Tensor | None) -> Tensor:
        """[B, T, D] states -> [B, D], one vector per text."""
        if self.settings.pooler == "mean":
            return mean_state(states, keep)
        return states[:, 0] if self.pooler is None else self.pooler(states[:, 0])


class Decoder(nn.Module):
    """A Transformer that continues a text from left to right (GPT; Radford et al., 2018)."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        self.embedding = Embedding(settings, vocabulary)
        self.decoder = Stack(settings, settings.decoder_layers)
        self.logits = Linear(settings.width, vocabulary, settings.output_bias)
        if settings.tie in ("all", "output"):
            self.logits.weight = self.embedding.tokens.weight
        initialize(self, settings)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """[B, T] tokens -> [B, T, V] logits of the token that follows each."""
        return see("logits", self.logits(self.states(tokens, cache)), "batch position token")

    def states(self, tokens: Tensor, cache: Cache | None = None, documents: Tensor | None = None) -> Tensor:
        """[B, T] tokens -> [B, T, D], the last states, before the logits.

        With a cache, `tokens` contains only the tokens after the cached ones. If a row contains several documents,
        `documents` [B, T] is the document number of each token, and no token sees another document.
        """
        start = cache.length if cache else 0
        x = self.embedding(tokens, start)
        bias: Bias = causal_bias(x, start) if documents is None else document_bias(documents, x)
        return self.decoder(x, bias, cache=cache)

    def new_cache(self) -> Cache:
        return Cache(self.settings.decoder_layers)


class Stack(nn.Module):
    """A sequence of layers, followed by a norm if the layers are pre-norm."""

    def __init__(self, settings: ModelSettings, layers: int, *, cross: bool = False) -> None:
        super().__init__()
        rotary = RotaryPositions(settings) if settings.positions == "rotary" else None
        self.layers = nn.ModuleList(Layer(settings, cross=cross, rotary=rotary) for _ in range(layers))
        self.norm = build_norm(settings) if settings.norm == "pre" else nn.Identity()
        self.recomputes = False  # whether the backward pass recomputes activations instead of storing them

    def forward(
        self,
        x: Tensor,
        bias: Bias,
        memory: Tensor | None = None,
        memory_bias: Tensor | None = None,
        cache: Cache | None = None,
    ) -> Tensor:
        """[B, T, D] -> [B, T, D]"""
        for i, layer in enumerate(self.layers):
            if self.recomputes and self.training:
                x = recompute(layer, x, bias, memory, memory_bias)
            elif cache is None:
                x = layer(x, bias, memory, memory_bias)
            else:
                x = layer(x, bias, memory, memory_bias, cache.self_attention[i], cache.cross_attention[i])
        return see("states", self.norm(x), "batch position width")


class Embedding(nn.Module):
    """Token embeddings times sqrt(D), plus position encodings, plus segment embeddings."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, settings.width)
        self.scale = math.sqrt(settings.width) if settings.scale_embedding else 1.0
        self.positions = build_positions(settings)
        self.segments = nn.Embedding(settings.segments, settings.width) if settings.segments else None
        self.norm = build_norm(settings) if settings.embedding_norm else nn.Identity()
        dropout = settings.embedding_dropout
        self.dropout = Dropout(settings.dropout if dropout is None else dropout)

    def forward(self, tokens: Tensor, start: int = 0, segments: Tensor | None = None) -> Tensor:
        """[B, T] -> [B, T, D]; the first token is at position `start`."""
        axes = "batch position width"
        x = see("tokens", self.tokens(tokens) * self.scale, axes)
        if self.positions is not None:
            x = x + see("positions", self.positions(start, tokens.shape[1]), "position width")
        if self.segments is not None:
            x = x + see("segments", self.segments(torch.zeros_like(tokens) if segments is None else segments), axes)
        x = see("sum", x, axes)
        return self.dropout(x if isinstance(self.norm, nn.Identity) else see("norm", self.norm(x), axes))


class FillHead(nn.Module):
    """Predicts the masked token at each position: a dense layer, an activation, a norm, then the logits."""

    def __init__(self, settings: ModelSettings, vocabulary: int) -> None:
        super().__init__()
        self.dense = Linear(settings.width, settings.width)
        self.activation = ACTIVATIONS[settings.activation]
        self.norm = build_norm(settings)
        self.logits = Linear(settings.width, vocabulary)

    def forward(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., V]"""
        return see("logits", self.logits(self.transform(states)), "batch position token")

    def transform(self, states: Tensor) -> Tensor:
        """[..., D] -> [..., D], before the logits."""
        return self.norm(self.activation(self.dense(states)))


class Pooler(nn.Module):
    """A dense layer on the first position, whose output represents the whole text."""

    def __init__(self, settings: ModelSettings) -> None:
        super().__init__()
        self.dense = Linear(settings.width, settings.width)
        self.activation = torch.tanh if settings.pooler == "tanh" else F.relu
        self.dropout = Dropout(settings.dropout)

    def forward(self, first: Tensor) -> Tensor:
        """[B, D] -> [B, D]"""
        return self.dropout(self.activation(self.dense(first)))


def mean_state(states: Tensor, keep: Tensor | None) -> Tensor:
    """[B, T, D] and keep [B, T] -> [B, D], the mean over all tokens but the padding."""
    if keep is None:
        return states.mean(1)
    weights = keep[..., None].to(states.dtype)
    return (states * weights).sum(1) / weights.sum(1)


def tie_tables(settings: ModelSettings, source: Embedding, target: Embedding, output: nn.Linear) -> None:
    """Makes embeddings and output layer share the weights that `settings.tie` specifies."""
    if settings.tie in ("all", "inputs"):
        assert source.tokens.weight.shape == target.tokens.weight.shape, "one table needs one vocabulary"
        target.tokens = source.tokens
    if settings.tie in ("all", "output"):
        output.weight = target.tokens.weight


def padding_bias(keep: Tensor | None, x: Tensor) -> Tensor | None:
    """keep [B, S] -> [B, 1, 1, S], a bias that masks padding."""
    return None if keep is None else mask_bias(keep[:, None, None, :], x.dtype)


def causal_bias(x: Tensor, start: int) -> Bias:
    """x [B, T, D] -> [1, 1, T, S], a bias that masks later positions; None for a single position, which is the last."""
    length = x.shape[1]
    if length == 1:
        return None
    return mask_bias(causal_mask(length, start, x.device)[None, None], x.dtype) if start else "causal"


def document_bias(documents: Tensor, x: Tensor) -> Tensor:
    """[B, T] document numbers -> [B, 1, T, T], a bias that masks later positions and other documents."""
    same = documents[:, :, None] == documents[:, None, :]
    return mask_bias((same & causal_mask(x.shape[1], 0, x.device))[:, None], x.dtype)
