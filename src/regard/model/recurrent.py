"""Recurrent translators for comparison with the Transformer: LSTM or GRU, with or without attention.

Shapes use the letters of `transformer.py`. P is the number of vectors in a layer's state: 2 for an LSTM (hidden state
and cell), 1 for a GRU.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

from regard.model.attention import Attention, KeyValues
from regard.model.dropout import Dropout
from regard.model.layers import initialize
from regard.model.linear import Linear
from regard.model.observe import see
from regard.model.transformer import Embedding, EncoderDecoder, padding_bias, tie_tables
from regard.settings import ModelSettings


class Recurrent(nn.Module):
    """A recurrent network that reads a source in both directions and generates a target (Sutskever et al., 2014).

    The encoder's last states initialize the decoder's states. With attention, the decoder also attends to all states of
    the encoder (Bahdanau et al., 2015), with its current top state as the query (Luong et al., 2015).
    """

    def __init__(self, settings: ModelSettings, source_vocabulary: int, target_vocabulary: int) -> None:
        super().__init__()
        self.settings = settings
        width, ordered = settings.width, replace(settings, positions="none")  # recurrence makes positions unnecessary
        self.source_embedding = Embedding(ordered, source_vocabulary)
        self.target_embedding = Embedding(ordered, target_vocabulary)
        self.encoder = Chain(settings, settings.encoder_layers, both_ways=True)
        self.decoder = Chain(settings, settings.decoder_layers)
        self.bridge = Linear(width, settings.decoder_layers * self.decoder.parts * width)
        self.attention = Attention(settings) if settings.attends else None
        self.join = Linear(2 * width, width) if settings.attends else None
        self.logits = Linear(width, target_vocabulary, settings.output_bias)
        tie_tables(settings, self.source_embedding, self.target_embedding, self.logits)
        initialize(self, settings)
        open_forget_gates(self)

    def forward(self, source: Tensor, target: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] and [B, T] tokens -> [B, T, V] logits of the token that follows each of the target."""
        return see("logits", self.logits(self.states(source, target, keep)), "batch position token")

    def states(self, source: Tensor, target: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] and [B, T] tokens -> [B, T, D], the decoder's last states, before the logits."""
        return self.decode(target, self.encode(source, keep), keep)

    def encode(self, source: Tensor, keep: Tensor | None) -> Tensor:
        """[B, S] tokens -> [B, S, D] memory; keep [B, S] may be None if there is no padding."""
        memory, _ = self.encoder(self.source_embedding(source), keep=keep)
        return memory

    def decode(
        self, target: Tensor, memory: Tensor, keep: Tensor | None, cache: RecurrentCache | None = None
    ) -> Tensor:
        """[B, T] tokens -> [B, T, D] states; with a cache, `target` contains only the tokens after the cached ones."""
        cache = cache or self.new_cache()
        before = cache.states or self.first_states(memory, keep)
        x, cache.states = self.decoder(self.target_embedding(target), before)
        if self.attention is not None and self.join is not None:
            context = self.attention(x, memory, padding_bias(keep, memory), cache.memory)
            x = self.join(torch.cat([x, context], -1)).tanh()
        return see("states", x, "batch position width")

    def first_states(self, memory: Tensor, keep: Tensor | None) -> list[Tensor]:
        """[B, S, D] memory -> [P, B, D] initial state of each decoder layer, from both directions' last states."""
        rows = torch.arange(len(memory), device=memory.device)
        last = torch.full_like(rows, memory.shape[1] - 1) if keep is None else _lengths(keep) - 1
        forward, backward = memory.chunk(2, -1)
        ends = torch.cat([forward[rows, last], backward[:, 0]], -1)
        states = self.bridge(ends).tanh().unflatten(-1, (len(self.decoder.layers), self.decoder.parts, -1))
        return [states[:, layer].transpose(0, 1).contiguous() for layer in range(states.shape[1])]

    def new_cache(self) -> RecurrentCache:
        return RecurrentCache()


SequenceToSequence = EncoderDecoder | Recurrent
"""A model that reads one text and generates another."""


class RecurrentCache:
    """The states [P, B, D] of the decoder layers after a step, and the memory's keys and values for attention."""

    def __init__(self) -> None:
        self.states: list[Tensor] = []
        self.memory = KeyValues(fixed=True)

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Keeps these hypotheses in this order, and the memory of these sentences (None: all)."""
        self.states = [state[:, rows] for state in self.states]
        if sentences is not None:
            self.memory.select(sentences)


class Chain(nn.Module):
    """A stack of recurrent layers; all but the first have a residual connection (Wu et al., 2016)."""

    def __init__(self, settings: ModelSettings, layers: int, *, both_ways: bool = False) -> None:
        super().__init__()
        kind = nn.LSTM if settings.kind == "lstm" else nn.GRU
        width, half = settings.width, settings.width // 2 if both_ways else settings.width
        self.layers = nn.ModuleList(kind(width, half, batch_first=True, bidirectional=both_ways) for _ in range(layers))
        self.parts = 2 if settings.kind == "lstm" else 1
        self.dropout = Dropout(settings.dropout)

    def forward(
        self, x: Tensor, before: Sequence[Tensor] | None = None, keep: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """[B, T, D] and initial states [P, B, D] of each layer (None: zeros) -> [B, T, D] and final states."""
        after = []
        for i, layer in enumerate(self.layers):
            y, state = _run(layer, x, before[i] if before else None, keep)
            x = self.dropout(y) if i == 0 else x + self.dropout(y)
            after.append(state)
        return x, after


def _run(layer: nn.Module, x: Tensor, state: Tensor | None, keep: Tensor | None) -> tuple[Tensor, Tensor]:
    """[B, T, D] -> [B, T, D] and the last state [P, B, D] of one layer, which does not see the padding."""
    packed: Tensor | PackedSequence = x
    if keep is not None:
        packed = pack_padded_sequence(x, _lengths(keep).cpu(), batch_first=True, enforce_sorted=False)
    if isinstance(layer, nn.LSTM):
        y, parts = layer(packed, None if state is None else state.split(1))
        last = torch.cat(parts)
    else:
        y, last = layer(packed, state)
    return (y if keep is None else pad_packed_sequence(y, batch_first=True, total_length=x.shape[1])[0]), last


def _lengths(keep: Tensor) -> Tensor:
    """keep [B, S] -> [B], the number of tokens in each row; an empty row counts as one token."""
    return keep.sum(1).clamp(min=1)


def open_forget_gates(model: nn.Module) -> None:
    """Sets the forget gates' biases to 1, so that new LSTMs remember their inputs (Jozefowicz et al., 2015)."""
    for module in model.modules():
        if isinstance(module, nn.LSTM):
            for name, parameter in module.named_parameters():
                if name.startswith("bias_ih"):  # order of the gates: input, forget, cell, output
                    nn.init.ones_(parameter.detach().chunk(4)[1])
