"""Lays the weights of a model out as the C++ engine reads them, in one file that is mapped into memory.

The order of the parts is that of model.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from regard.decoding.native.compiled_library import MAGIC
from regard.decoding.native.int8_matrices import dequantized, quantize
from regard.settings import ModelSettings

Array = NDArray[Any]
PANEL, ALIGNMENT = 16, 64
WORTH_SCREENING = 2**19
"""Weights of an output layer from which on the float32 of a translator is screened in int8: fewer stay in the cache."""
WORTH_FIXED = 2**24
"""Weights of a model from which on they have three bytes each: so many are waited for, fewer are in the cache."""
LARGEST = 2**23 - 1
"""Integer of three bytes."""
MOST = float(np.finfo(np.float32).max)
ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4, "swiglu": 4}


def pack(weights: Mapping[str, Array], model: ModelSettings, file: BinaryIO, *, decoder_only: bool, int8: bool) -> None:
    """Writes the file, array by array; `weights` are by the names of weights.safetensors."""
    header = _header(weights, model, decoder_only=decoder_only, int8=int8)
    file.write(MAGIC + bytes(8) + header)
    for part in _Parts(weights, model, decoder_only=decoder_only, int8=int8):
        file.write(bytes(-file.tell() % ALIGNMENT))
        file.write(part.tobytes())
    size = file.tell()
    file.seek(len(MAGIC))
    file.write(struct.pack("<q", size))


def _header(weights: Mapping[str, Array], model: ModelSettings, *, decoder_only: bool, int8: bool) -> bytes:
    names = _Names(model, decoder_only=decoder_only)
    integers = [
        decoder_only,
        model.width,
        model.heads,
        model.query_groups,
        model.head_width,
        model.head_value_width,
        model.hidden,
        0 if decoder_only else model.encoder_layers,
        model.decoder_layers,
        model.norm == "pre",
        model.norm_kind == "rms",
        ACTIVATIONS[model.activation],
        model.activation == "swiglu",
        model.positions == "rotary",
        model.positions not in ("rotary", "none"),
        0 if decoder_only else len(weights[names.source]),
        len(weights[names.target]),
        int8,
        model.embedding_norm,
        names.source == names.target,
        names.target == names.output,
        model.max_length,
        _screened(weights[names.output], decoder_only=decoder_only, int8=int8),
        _fixed(weights, int8=int8),
    ]
    scale = model.width**0.5 if model.scale_embedding else 1.0
    return struct.pack(f"<{len(integers)}i3f", *map(int, integers), model.norm_epsilon, model.rotary_base, scale)


def _screened(output: Array, *, decoder_only: bool, int8: bool) -> bool:
    return not decoder_only and (int8 or output.size >= WORTH_SCREENING)


def _fixed(weights: Mapping[str, Array], *, int8: bool) -> bool:
    return not int8 and sum(array.size for array in weights.values()) >= WORTH_FIXED


class _Names:
    """The tables of tokens: which are one, a file has once."""

    def __init__(self, model: ModelSettings, *, decoder_only: bool) -> None:
        self.target = "embedding.tokens.weight"
        self.source = "source_embedding.tokens.weight"
        if not decoder_only:
            self.target = self.source if model.tie in ("all", "inputs") else "target_embedding.tokens.weight"
        self.output = self.target if model.tie in ("all", "output") else "logits.weight"


class _Parts:
    """The arrays of the file, in its order."""

    def __init__(self, weights: Mapping[str, Array], model: ModelSettings, *, decoder_only: bool, int8: bool) -> None:
        names = _Names(model, decoder_only=decoder_only)
        self.weights, self.model, self.decoder_only, self.int8 = dict(weights), model, decoder_only, int8
        if int8 and not decoder_only:  # as `regard quantize` stores them, so that both ways give the same integers
            for name in {names.source, names.target, names.output}:
                self.weights[name] = dequantized(*quantize(weights[name], np.int16))
        self.fixed = _fixed(weights, int8=int8)

    def __iter__(self) -> Iterator[Array]:
        model, names = self.model, _Names(self.model, decoder_only=self.decoder_only)
        target = "embedding" if self.decoder_only else "target_embedding"
        yield from self._table(names.output, "logits.bias")
        if not self.decoder_only:
            yield self._lines(names.output)
            if _screened(self.weights[names.output], decoder_only=self.decoder_only, int8=self.int8):
                yield from self._screen(names.output)
        if names.target != names.output:
            yield from self._looked_up(names.target)
        yield from self._positions(target)
        if not self.decoder_only:
            yield from self._positions("source_embedding")
            if names.source != names.target:
                yield from self._looked_up(names.source)
            if model.embedding_norm:
                yield from self._norm("source_embedding.norm")
            for i in range(model.encoder_layers):
                yield from self._layer(f"encoder.layers.{i}", cross=False)
            if model.norm == "pre":
                yield from self._norm("encoder.norm")
            attentions = [f"decoder.layers.{i}.cross_attention" for i in range(model.decoder_layers)]
            yield from self._linear(*(f"{name}.{part}" for name in attentions for part in ("key", "value")))
        if model.embedding_norm:
            yield from self._norm(f"{target}.norm")
        for i in range(model.decoder_layers):
            yield from self._layer(f"decoder.layers.{i}", cross=not self.decoder_only)
        if model.norm == "pre":
            yield from self._norm("decoder.norm")

    def _layer(self, name: str, *, cross: bool) -> Iterator[Array]:
        yield from self._norm(f"{name}.self_residual.norm")
        yield from self._linear(*(f"{name}.self_attention.{part}" for part in ("query", "key", "value")))
        yield from self._linear(f"{name}.self_attention.output")
        if cross:
            yield from self._norm(f"{name}.cross_residual.norm")
            yield from self._linear(f"{name}.cross_attention.query")
            yield from self._linear(f"{name}.cross_attention.output")
        yield from self._norm(f"{name}.feed_forward_residual.norm")
        gates = ("gate", "rise") if self.model.activation == "swiglu" else ("rise",)
        yield from self._linear(*(f"{name}.feed_forward.{part}" for part in gates), padded=len(gates) > 1)
        yield from self._linear(f"{name}.feed_forward.fall")

    def _linear(self, *names: str, padded: bool = False) -> Iterator[Array]:
        """Some linear maps of one input as one; `padded`: each to whole panels."""
        matrices, biases = [], []
        for name in names:
            matrix = self.weights[f"{name}.weight"]
            bias = self._bias(matrix, f"{name}.bias")
            rest = -len(matrix) % PANEL if padded else 0
            matrices.append(np.pad(matrix, ((0, rest), (0, 0))))
            biases.append(np.pad(bias, (0, rest)))
        return self._matrix(np.concatenate(matrices), np.concatenate(biases))

    def _table(self, name: str, bias: str | None = None) -> Iterator[Array]:
        matrix = self.weights[name]
        return self._matrix(matrix, self._bias(matrix, bias or ""))

    def _bias(self, matrix: Array, name: str) -> Array:
        return self.weights.get(name, np.zeros(len(matrix), np.float32))

    def _looked_up(self, name: str) -> Iterator[Array]:
        """A table that nothing is multiplied with."""
        if self.int8 and not self.decoder_only:
            yield quantize(self.weights[name])[1]
            yield self._lines(name)
        else:
            yield from self._table(name)

    def _lines(self, name: str) -> Array:
        """[N, padded K]: a table row by row, in float32, or where the rest is int8, two bytes a number."""
        matrix = quantize(self.weights[name], np.int16)[0] if self.int8 else self.weights[name].astype(np.float32)
        return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % PANEL)))

    def _matrix(self, matrix: Array, bias: Array) -> Iterator[Array]:
        """[N, K] in panels of 16 rows (see kernels.h), and what belongs to it."""
        return self._panels(matrix, bias, int8=self.int8)

    def _screen(self, name: str) -> Iterator[Array]:
        """A table in int8, unless it is there, how far a row of it is from the truth at most, and how long it is."""
        matrix = self.weights[name].astype(np.float32)
        known = matrix if np.isfinite(matrix).all() else np.zeros_like(matrix)
        if not self.int8:
            yield from self._panels(known, self._bias(matrix, "logits.bias"), int8=True)
        integers, scales = quantize(known)
        near = integers * scales[:, None].astype(np.float64)
        most = [np.linalg.norm(each, axis=1).max() if known is matrix else MOST for each in (matrix - near, near)]
        yield np.array(most).clip(max=MOST).astype(np.float32)

    def _panels(self, matrix: Array, bias: Array, *, int8: bool) -> Iterator[Array]:
        rows, rest = matrix.shape[0], -matrix.shape[0] % PANEL
        if int8:
            integers, scales = quantize(matrix)
            integers = np.pad(integers, ((0, rest), (0, -matrix.shape[1] % 4)))
            panels = integers.reshape(-1, PANEL, integers.shape[1] // 4, 4)
            yield np.ascontiguousarray(panels.transpose(0, 2, 1, 3))
            yield np.pad(scales, (0, rest))
            yield integers.sum(1, dtype=np.int32)
        elif self.fixed:
            thrice, scales = fixed_point(matrix)
            panels = np.pad(thrice, ((0, rest), (0, 0), (0, 0))).reshape(-1, PANEL, *thrice.shape[1:])
            yield np.ascontiguousarray(panels.transpose(0, 2, 1, 3))
            yield np.pad(scales, (0, rest))
        else:
            padded = np.pad(matrix.astype(np.float32), ((0, rest), (0, 0)))
            yield np.ascontiguousarray(padded.reshape(-1, PANEL, matrix.shape[1]).transpose(0, 2, 1))
        yield np.pad(bias.astype(np.float32), (0, rows + rest - len(bias)))

    def _norm(self, name: str) -> Iterator[Array]:
        gain = self.weights[f"{name}.weight"]
        for vector in (gain, self.weights.get(f"{name}.bias", np.zeros_like(gain))):
            yield np.pad(vector.astype(np.float32), (0, -len(vector) % PANEL))

    def _positions(self, name: str) -> Iterator[Array]:
        """[max_length, padded width]"""
        kind, width = self.model.positions, self.model.width
        if kind in ("rotary", "none"):
            return
        if kind == "learned":
            table = self.weights[f"{name}.positions.table"].astype(np.float32)
        else:
            table = sinusoids(self.model.max_length, width, halves=kind == "sinusoidal-halves")
        yield np.pad(table, ((0, 0), (0, -width % PANEL)))


def fixed_point(matrix: Array) -> tuple[Array, Array]:
    """[N, K] -> three bytes a number [N, K, 3], the lowest first, and scales [N]: the largest of a row becomes LARGEST.

    They are read as the upper bytes of 32 bits, hence the 256. A row that has something other than numbers is none.
    """
    exact = matrix.astype(np.float64)
    most = np.abs(exact).max(1)
    scales = (most / LARGEST / 256).astype(np.float32)
    scales[scales == 0] = 1
    with np.errstate(invalid="ignore"):
        integers = np.nan_to_num(np.rint(exact / scales[:, None] / 256)).clip(-LARGEST, LARGEST).astype("<i4")
    scales[~np.isfinite(scales)] = np.nan
    return integers.view(np.uint8).reshape(*matrix.shape, 4)[..., :3], scales


def sinusoids(length: int, width: int, *, halves: bool) -> Array:
    """[T, D], the numbers of model/positions.py, without torch."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = [np.sin(angles), np.cos(angles)]
    return (np.concatenate(waves, -1) if halves else np.stack(waves, -1).reshape(length, width)).astype(np.float32)
