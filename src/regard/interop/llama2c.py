"""Imports models of llama2.c: files with a header of seven numbers, followed by the weights of a Llama model."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.files_of_other_programs import identify
from regard.interop.config_reading import Config, build_settings, read_settings
from regard.interop.huggingface import write_model
from regard.interop.huggingface_files import read_bytes
from regard.interop.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Piece, SentencePiece, as_tokenizer
from regard.interop.tokenizer_layouts import put_around
from regard.interop.vocabulary_files import check_exists, read_vocabularies
from regard.interop.weight_conversion import import_weights
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.weights import build_model

HEADER = struct.Struct("<7i")
RESERVED = ("<unk>", "<s>", "</s>")
"""The first pieces of every llama2.c vocabulary."""


class Header(NamedTuple):
    """The header of a llama2.c file; a negative `vocabulary` means that output layer and embedding are not tied."""

    width: int
    hidden: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    length: int

    @property
    def plausible(self) -> bool:
        """True if these numbers can be the shape of a model."""
        sizes = (self.width, self.hidden, self.layers, self.heads, self.groups, self.length)
        if min(sizes) <= 0 or self.vocabulary == 0 or self.heads % self.groups:
            return False
        return self.width % (2 * self.heads) == 0  # rotary positions rotate pairs of values

    def as_config(self) -> dict[str, Any]:
        """Returns the shape in the form of a Llama config.json."""
        return {
            "model_type": "llama",
            "hidden_size": self.width,
            "intermediate_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.groups,
            "vocab_size": abs(self.vocabulary),
            "max_position_embeddings": self.length,
            "rms_norm_eps": 1e-5,
            "tie_word_embeddings": self.vocabulary > 0,
        }

    @property
    def file_size(self) -> int:
        """The expected size of the file in bytes."""
        return HEADER.size + 4 * sum(math.prod(shape) * count for _, shape, count in self.tensors())

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], int]]:
        """Yields the Llama name, shape and number of layers of each tensor, in the order of the file."""
        width, hidden, layers, pairs = self.width, self.hidden, self.layers, self.width // self.heads // 2
        grouped = self.groups * (width // self.heads)
        yield "embed_tokens.weight", (abs(self.vocabulary), width), 1
        yield "layers.{n}.input_layernorm.weight", (width,), layers
        yield "layers.{n}.self_attn.q_proj.weight", (width, width), layers
        yield "layers.{n}.self_attn.k_proj.weight", (grouped, width), layers
        yield "layers.{n}.self_attn.v_proj.weight", (grouped, width), layers
        yield "layers.{n}.self_attn.o_proj.weight", (width, width), layers
        yield "layers.{n}.post_attention_layernorm.weight", (width,), layers
        yield "layers.{n}.mlp.gate_proj.weight", (hidden, width), layers
        yield "layers.{n}.mlp.down_proj.weight", (width, hidden), layers
        yield "layers.{n}.mlp.up_proj.weight", (hidden, width), layers
        yield "norm.weight", (width,), 1
        yield "rotary", (2, self.length, pairs), 1  # cosines and sines, which are not learned
        if self.vocabulary < 0:
            yield "lm_head.weight", (-self.vocabulary, width), 1


def import_model(
    source: Path | str, tokenizer: Path | str | None, output: Path | str, *, overwrite: bool = False
) -> list[str]:
    """Writes a .bin file of llama2.c as a Regard folder; returns notes for the user."""
    source, output = Path(source), Path(output)
    header = _read_header(source)
    if tokenizer is None:
        raise InputError(f"{source}: a llama2.c model has its vocabulary in another file: specify it with --tokenizer")
    config = Config(source, header.as_config())
    shared = _read_tokenizer(Path(tokenizer), config)
    vocabularies = Vocabularies(shared, shared)
    tensors = _read_weights(source, header)
    settings = build_settings(source, read_settings(config, tensors))
    with torch.device("meta"):
        model = build_model(settings, vocabularies)
    weights = import_weights(config.family, tensors, model, source)
    write_model(output, source, "a model of llama2.c", settings, vocabularies, weights, overwrite=overwrite)
    return []


def _read_header(path: Path) -> Header:
    """Reads the header of a model of version 0, whose file size must match; the error describes other files."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(HEADER.size)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    header = Header(*HEADER.unpack(start)) if len(start) == HEADER.size else None
    plausible = header is not None and header.plausible and header.layers <= size
    if header is not None and plausible and header.file_size == size:
        return header
    if description := identify(path):
        raise ModelError(f"{path}: {description}")
    if header is None or not plausible:
        raise ModelError(f"{path}: not a model that Regard can import: pass a Hugging Face folder or a llama2.c file")
    sizes = f"{size:,} bytes instead of {header.file_size:,}"
    raise ModelError(f"{path}: if it is a llama2.c model, it is damaged: {sizes}")


def _read_weights(path: Path, header: Header) -> dict[str, Tensor]:
    content, at = read_bytes(path, None), HEADER.size
    tensors: dict[str, Tensor] = {}
    for name, shape, count in header.tensors():
        for layer in range(count):
            values = np.frombuffer(content, "<f4", math.prod(shape), at).reshape(shape)
            at += values.nbytes
            tensor = torch.from_numpy(values.astype(np.float32))
            if "q_proj" in name or "k_proj" in name:
                tensor = _pairs_to_halves(tensor, header.width // header.heads)
            tensors[name.replace("{n}", str(layer))] = tensor
    del tensors["rotary"]
    return tensors


def _pairs_to_halves(weight: Tensor, head: int) -> Tensor:
    """Reorders query or key weights, so that rotary pairs are half a head apart instead of in adjacent rows."""
    return weight.view(-1, head // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _read_tokenizer(place: Path, config: Config) -> Tokenizer:
    """Reads the vocabulary from the files of a Llama model, a SentencePiece model, or a llama2.c tokenizer file."""
    check_exists(place)
    if not any((place / name).is_file() for name in ("tokenizer.json", "tokenizer.model")):
        place = place / "tokenizer.bin" if (place / "tokenizer.bin").is_file() else place
    size: int = config["vocab_size"]
    if place.suffix != ".bin":
        tokenizer = read_vocabularies(place, config).target
        pieces = tokenizer.model.get_vocab_size()
        if pieces != size:
            raise ModelError(f"{place}: has {pieces:,} pieces, but the model's vocabulary has {size:,}")
        return tokenizer
    model = _read_pieces(place, size)
    converted = as_tokenizer(model, RESERVED)
    put_around(converted, "<s> $A", "<s> $A $B")
    unknown, begin, end = range(len(RESERVED))
    specials = Specials(pad=end, begin=begin, end=end, unknown=unknown, mask=None)
    return ImportedTokenizer(converted, specials, size)


def _read_pieces(path: Path, size: int) -> SentencePiece:
    """Reads the pieces of a tokenizer.bin: the maximum length, then score, length and bytes of each piece."""
    content, at = read_bytes(path), 4
    pieces = [Piece(text, 0.0, UNKNOWN if text == RESERVED[0] else CONTROL) for text in RESERVED]
    try:
        for number in range(size):
            score, length = struct.unpack_from("<fI", content, at)
            text = content[at + 8 : at + 8 + length].decode("utf-8")
            at += 8 + length
            if number < len(RESERVED):
                continue
            is_byte = re.fullmatch(r"<0x[0-9A-F]{2}>", text)
            pieces.append(Piece(text, score, BYTE) if is_byte else Piece(text.replace(" ", "▁"), score, NORMAL))
    except (struct.error, UnicodeDecodeError):
        raise ModelError(f"{path}: damaged, or has fewer than {size:,} pieces: not a llama2.c vocabulary") from None
    if at != len(content):
        raise ModelError(f"{path}: damaged, or has more than {size:,} pieces: not a llama2.c vocabulary")
    return SentencePiece(tuple(pieces))
