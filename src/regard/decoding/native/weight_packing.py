"""Writes the weights of a model for the native engine, as one file that ends with a checksum.

The arrays have the same order as in packed_model.h.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.decoding.native.compiled_library import MAGIC
from regard.settings import ModelSettings

Array = NDArray[Any]
PANEL, ALIGNMENT = 16, 64
STEP = 2**23
"""Number of bytes to add to the checksum at a time."""
WORTH_SCREENING = 2**19
"""Minimum number of weights in a float32 output layer to screen its rows in int8; smaller layers fit into the cache."""
WORTH_FIXED = 2**24
"""Minimum number of weights in a model to store them in three bytes each; smaller models fit into the cache."""
LARGEST = 2**23 - 1
"""Largest signed integer of three bytes."""
MOST = float(np.finfo(np.float32).max)
ACTIVATIONS = {"relu": 1, "gelu": 2, "gelu-tanh": 3, "silu": 4, "swiglu": 4}


def pack(weights: Mapping[str, Array], model: ModelSettings, path: Path, *, decoder_only: bool, int8: bool) -> None:
    """Writes a packed file; `weights` has the same names as weights.safetensors."""
    layout = _Layout(weights, model, decoder_only=decoder_only, int8=int8)
    with path.open("w+b") as file:
        file.write(MAGIC + bytes(8) + layout.header())
        for array in layout.arrays():
            file.write(bytes(-file.tell() % ALIGNMENT))
            file.write(array.tobytes())
        file.write(bytes(-file.tell() % 8))
        size = file.tell() + 16
        file.seek(len(MAGIC))
        file.write(struct.pack("<q", size))
        file.seek(0)
        checksum = checksum_of(iter(lambda: file.read(STEP), b""))
        file.write(checksum)


def checksum_of(chunks: Iterable[bytes]) -> bytes:
    """Returns the sum of all 8-byte words, and the sum of all partial sums, which C++ computes at memory speed."""
    total = sums = 0
    for chunk in chunks:
        words = np.frombuffer(chunk, "<u8")
        sums += total * len(words) + int((words * np.arange(len(words), 0, -1, dtype=np.uint64)).sum())
        total += int(words.sum())
    return struct.pack("<2Q", total % 2**64, sums % 2**64)


class _Layout:
    """The layout of a packed file."""

    def __init__(self, weights: Mapping[str, Array], model: ModelSettings, *, decoder_only: bool, int8: bool) -> None:
        self.weights, self.model, self.decoder_only, self.int8 = dict(weights), model, decoder_only, int8
        self.target = self.source = "embedding.tokens.weight"  # names of tables; equal names share one table
        if not decoder_only:
            self.source = "source_embedding.tokens.weight"
            self.target = self.source if model.tie in ("all", "inputs") else "target_embedding.tokens.weight"
        self.output = self.target if model.tie in ("all", "output") else "logits.weight"
        self.screened = not decoder_only and (int8 or weights[self.output].size >= WORTH_SCREENING)
        self.fixed = not int8 and sum(array.size for array in weights.values()) >= WORTH_FIXED
        if int8 and not decoder_only:  # round like `regard quantize`, so that both ways give the same integers
            for name in {self.source, self.target, self.output}:
                self.weights[name] = dequantized(*quantize(weights[name], np.int16))

    def header(self) -> bytes:
        model = self.model
        integers = [
            self.decoder_only,
            model.width,
            model.heads,
            model.query_groups,
            model.head_width,
            model.head_value_width,
            model.hidden,
            0 if self.decoder_only else model.encoder_layers,
            model.decoder_layers,
            model.norm == "pre",
            model.norm_kind == "rms",
            ACTIVATIONS[model.activation],
            model.activation == "swiglu",
            model.positions == "rotary",
            model.positions not in ("rotary", "none"),
            0 if self.decoder_only else len(self.weights[self.source]),
            len(self.weights[self.target]),
            self.int8,
            model.embedding_norm,
            not self.decoder_only and self.source == self.target,
            self.target == self.output,
            model.max_length,
            self.screened,
            self.fixed,
        ]
        scale = model.width**0.5 if model.scale_embedding else 1.0
        return struct.pack(f"<{len(integers)}i3f", *map(int, integers), model.norm_epsilon, model.rotary_base, scale)

    def arrays(self) -> Iterator[Array]:
        model = self.model
        target = "embedding" if self.decoder_only else "target_embedding"
        yield from self._table(self.output, "logits.bias")
        if not self.decoder_only:
            yield self._lines(self.output)
            if self.screened:
                yield from self._screen()
        if self.target != self.output:
            yield from self._looked_up(self.target)
        yield from self._positions(target)
        if not self.decoder_only:
            yield from self._positions("source_embedding")
            if self.source != self.target:
                yield from self._looked_up(self.source)
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
        """Concatenates linear layers with the same input; `padded` fills up the last panel of each."""
        matrices, biases = [], []
        for name in names:
            matrix = self.weights[f"{name}.weight"]
            bias = self._bias(matrix, f"{name}.bias")
            padding = -len(matrix) % PANEL if padded else 0
            matrices.append(np.pad(matrix, ((0, padding), (0, 0))))
            biases.append(np.pad(bias, (0, padding)))
        return self._panels(np.concatenate(matrices), np.concatenate(biases), int8=self.int8)

    def _table(self, name: str, bias: str = "") -> Iterator[Array]:
        matrix = self.weights[name]
        return self._panels(matrix, self._bias(matrix, bias), int8=self.int8)

    def _bias(self, matrix: Array, name: str) -> Array:
        return self.weights.get(name, np.zeros(len(matrix), np.float32))

    def _looked_up(self, name: str) -> Iterator[Array]:
        """Yields a table that is only used for lookups, not for products."""
        if self.int8 and not self.decoder_only:
            yield quantize(self.weights[name])[1]
            yield self._lines(name)
        else:
            yield from self._table(name)

    def _lines(self, name: str) -> Array:
        """Returns a table [N, padded K] in row order: in float32, or in int16 if the model is int8."""
        matrix = quantize(self.weights[name], np.int16)[0] if self.int8 else self.weights[name].astype(np.float32)
        return np.pad(matrix, ((0, 0), (0, -matrix.shape[1] % PANEL)))

    def _screen(self) -> Iterator[Array]:
        """Yields the output layer in int8 unless it already is, and the largest error and length of its rows."""
        matrix = self.weights[self.output].astype(np.float32)
        known = matrix if np.isfinite(matrix).all() else np.zeros_like(matrix)
        if not self.int8:
            yield from self._panels(known, self._bias(matrix, "logits.bias"), int8=True)
        integers, scales = quantize(known)
        near = integers * scales[:, None].astype(np.float64)
        most = [np.linalg.norm(each, axis=1).max() if known is matrix else MOST for each in (matrix - near, near)]
        yield np.array(most).clip(max=MOST).astype(np.float32)

    def _panels(self, matrix: Array, bias: Array, *, int8: bool) -> Iterator[Array]:
        """Yields a matrix [N, K] in panels of 16 rows (see arithmetic_kernels.h), with scales and bias."""
        padding = -len(matrix) % PANEL
        if int8:
            integers, scales = quantize(matrix)
            integers = np.pad(integers, ((0, padding), (0, -matrix.shape[1] % 4)))
            panels = integers.reshape(-1, PANEL, integers.shape[1] // 4, 4)
            yield np.ascontiguousarray(panels.transpose(0, 2, 1, 3))
            yield np.pad(scales, (0, padding))
            yield integers.sum(1, dtype=np.int32)
        elif self.fixed:
            integers, scales = fixed_point(matrix)
            panels = np.pad(integers, ((0, padding), (0, 0), (0, 0))).reshape(-1, PANEL, *integers.shape[1:])
            yield np.ascontiguousarray(panels.transpose(0, 2, 1, 3))
            yield np.pad(scales, (0, padding))
        else:
            padded = np.pad(matrix.astype(np.float32), ((0, padding), (0, 0)))
            yield np.ascontiguousarray(padded.reshape(-1, PANEL, matrix.shape[1]).transpose(0, 2, 1))
        yield np.pad(bias.astype(np.float32), (0, len(matrix) + padding - len(bias)))

    def _norm(self, name: str) -> Iterator[Array]:
        gain = self.weights[f"{name}.weight"]
        for vector in (gain, self.weights.get(f"{name}.bias", np.zeros_like(gain))):
            yield np.pad(vector.astype(np.float32), (0, -len(vector) % PANEL))

    def _positions(self, name: str) -> Iterator[Array]:
        """Yields the position table [max_length, padded width], if the model has one."""
        kind, width = self.model.positions, self.model.width
        if kind in ("rotary", "none"):
            return
        if kind == "learned":
            table = self.weights[f"{name}.positions.table"].astype(np.float32)
        else:
            table = sinusoids(self.model.max_length, width, halves=kind == "sinusoidal-halves")
        yield np.pad(table, ((0, 0), (0, -width % PANEL)))


def quantize(matrix: Array, kind: type[np.signedinteger] = np.int8) -> tuple[Array, NDArray[np.float32]]:
    """[N, K] -> integers [N, K] and scales [N]; the largest element of a row becomes the largest integer."""
    most = np.iinfo(kind).max
    scales = np.abs(matrix).max(1).astype(np.float32) / np.float32(most)
    scales[scales == 0] = 1
    return np.rint(matrix / scales[:, None]).clip(-most, most).astype(kind), scales


def dequantized(integers: Array, scales: NDArray[np.float32]) -> NDArray[np.float32]:
    return integers.astype(np.float32) * scales[:, None]


def fixed_point(matrix: Array) -> tuple[Array, Array]:
    """[N, K] -> three-byte integers [N, K, 3], lowest byte first, and scales [N]; the row maximum becomes LARGEST.

    The engine reads them as the upper bytes of 32-bit integers, hence the factor 256. The scale of a row with NaN or
    infinity is NaN.
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
    """Returns the same table [T, D] as model/positions.py, without torch."""
    angles = np.arange(length)[:, None] / 10_000 ** (np.arange(0, width, 2) / width)
    waves = [np.sin(angles), np.cos(angles)]
    return (np.concatenate(waves, -1) if halves else np.stack(waves, -1).reshape(length, width)).astype(np.float32)
