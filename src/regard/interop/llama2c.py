"""Models of llama2.c: a header of seven numbers, then the weights of a Llama one after the other."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.foreign_files import identify
from regard.interop import sentencepiece
from regard.interop.export_folder import whole_folder
from regard.interop.huggingface import write_card, write_model
from regard.interop.model_families import Config, build_settings
from regard.interop.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, Piece, SentencePiece
from regard.interop.tokenizer_layouts import put_around
from regard.interop.vocabulary_files import check_place, read_vocabularies
from regard.interop.weight_names import LLAMA, take
from regard.model_folder import EVERYTHING
from regard.settings import Settings
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.weights import build_model

HEADER = struct.Struct("<7i")
BEGIN, END = "<s>", "</s>"


@dataclass(frozen=True)
class Header:
    """The shape of a model; a negative vocabulary says that the output layer is not the embedding table."""

    width: int
    hidden: int
    layers: int
    heads: int
    groups: int
    vocabulary: int
    length: int

    @property
    def head(self) -> int:
        return self.width // self.heads

    @property
    def plausible(self) -> bool:
        """Returns whether these numbers can be the shape of a model."""
        sizes = (self.width, self.hidden, self.layers, self.heads, self.groups, self.length)
        return min(sizes) > 0 and self.vocabulary != 0 and self.width % self.heads == self.heads % self.groups == 0

    @property
    def bytes(self) -> int:
        """The size of the file."""
        return HEADER.size + 4 * sum(int(np.prod(shape, dtype=object)) for _, shape in self.tensors())

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names, as Llama's, and shapes in the order of the file."""
        width, inner = self.width, self.groups * self.head
        yield "embed_tokens.weight", (abs(self.vocabulary), width)
        for name, shape in (
            ("input_layernorm", (width,)),
            ("self_attn.q_proj", (width, width)),
            ("self_attn.k_proj", (inner, width)),
            ("self_attn.v_proj", (inner, width)),
            ("self_attn.o_proj", (width, width)),
            ("post_attention_layernorm", (width,)),
            ("mlp.gate_proj", (self.hidden, width)),
            ("mlp.down_proj", (width, self.hidden)),
            ("mlp.up_proj", (self.hidden, width)),
        ):
            for layer in range(self.layers):
                yield f"layers.{layer}.{name}.weight", shape
        yield "norm.weight", (width,)
        yield "rotary.cos", (self.length, self.head // 2)
        yield "rotary.sin", (self.length, self.head // 2)
        if self.vocabulary < 0:
            yield "lm_head.weight", (-self.vocabulary, width)


def import_model(
    source: Path | str, tokenizer: Path | str | None, output: Path | str, *, overwrite: bool = False
) -> list[str]:
    """Writes a .bin file of llama2.c as a Regard folder; returns what the user should know of it."""
    source, output = Path(source), Path(output)
    header = read_header(source)
    if tokenizer is None:
        raise InputError(f"{source}: a model of llama2.c has its vocabulary in another file: give it with --tokenizer")
    shared = read_tokenizer(Path(tokenizer), source, abs(header.vocabulary))
    tensors = read_weights(source, header)
    settings = read_settings(source, header)
    vocabularies = Vocabularies(shared, shared)
    with torch.device("meta"):
        model = build_model(settings, vocabularies)
    weights = take(LLAMA, tensors, model, source)
    with whole_folder(output, source, EVERYTHING, overwrite=overwrite) as place:
        card = write_card(output.name, source.name, "a model of llama2.c", weights)
        write_model(place, settings, vocabularies, weights, card)
    return []


def read_header(path: Path) -> Header:
    """Reads the shape of a model of version 0, whose file size must fit exactly; the error identifies other files."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            start = file.read(HEADER.size)
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    header = Header(*HEADER.unpack(start)) if len(start) == HEADER.size else None
    plausible = header is not None and header.plausible and header.layers <= size
    if header is not None and plausible and header.bytes == size:
        return header
    if said := identify(path):
        raise ModelError(f"{path}: {said}")
    if header is None or not plausible:
        raise ModelError(f"{path}: not a model that Regard reads: give a folder of Hugging Face or a file of llama2.c")
    raise ModelError(f"{path}: if it is a model of llama2.c, it is damaged: {size:,} bytes instead of {header.bytes:,}")


def read_weights(path: Path, header: Header) -> dict[str, Tensor]:
    """Reads the tensors of a file with this header."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    tensors, at = {}, HEADER.size
    for name, shape in header.tensors():
        values = np.frombuffer(content, "<f4", int(np.prod(shape)), at).reshape(shape)
        at += values.nbytes
        if not name.startswith("rotary."):  # computed, not learnt
            tensors[name] = torch.from_numpy(values.astype(np.float32))
    for name in tensors:
        if "q_proj" in name or "k_proj" in name:
            tensors[name] = pairs_to_halves(tensors[name], header.head)
    return tensors


def pairs_to_halves(weight: Tensor, head: int) -> Tensor:
    """Reorders rows of queries or keys: rotary pairs move from neighbouring rows to rows half a head apart."""
    return weight.view(-1, head // 2, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def read_settings(path: Path, header: Header) -> Settings:
    shape = {
        "width": header.width,
        "heads": header.heads,
        "key_value_heads": None if header.groups == header.heads else header.groups,
        "hidden": header.hidden,
        "decoder_layers": header.layers,
        "norm": "pre",
        "norm_kind": "rms",
        "norm_epsilon": 1e-5,
        "activation": "swiglu",
        "positions": "rotary",
        "max_length": header.length,
        "scale_embedding": False,
        "bias": False,
        "tie": "output" if header.vocabulary > 0 else "none",
        "dropout": 0.0,
    }
    return build_settings(Config(path, {}), {"task": "write", "model": shape})


def read_tokenizer(place: Path, source: Path, size: int) -> Tokenizer:
    """Reads the vocabulary: the files of any Llama, a SentencePiece model, or llama2.c's own tokenizer file."""
    check_place(place)
    inside = place / "tokenizer.bin"
    if place.is_dir() and inside.is_file() and not any((place / name).is_file() for name in OTHERS):
        place = inside
    if place.suffix != ".bin":
        config = Config(source, {"model_type": "llama", "vocab_size": size})
        return exactly(read_vocabularies(place, config).target, place, size)
    model = read_pieces(place, size)
    names = [piece.text for piece in model.pieces]
    tokenizer = sentencepiece.as_tokenizer(model, (model.unknown, BEGIN, END))
    put_around(tokenizer, f"{BEGIN} $A", f"{BEGIN} $A $B")
    unknown, begin, end = (names.index(text) for text in (model.unknown, BEGIN, END))
    return ImportedTokenizer(tokenizer, Specials(pad=end, begin=begin, end=end, unknown=unknown, mask=None), size)


OTHERS = ("tokenizer.json", "tokenizer.model")


def exactly(tokenizer: Tokenizer, path: Path, size: int) -> Tokenizer:
    """Returns the tokenizer if it has a piece for each id of the model."""
    pieces = tokenizer.model.get_vocab_size()
    if pieces != size:
        raise ModelError(f"{path}: has {pieces:,} pieces, and the model knows {size:,}")
    return tokenizer


def read_pieces(path: Path, size: int) -> SentencePiece:
    """Reads the pieces of a tokenizer.bin: the longest length, then a score, a length and the bytes of each."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
    pieces, at = [], 4
    try:
        for number in range(size):
            score, length = struct.unpack_from("<fi", content, at)
            text = content[at + 8 : at + 8 + length].decode("utf-8")
            at += 8 + length
            pieces.append(_piece(number, text, score))
    except (struct.error, UnicodeDecodeError):
        raise ModelError(f"{path}: damaged, or of fewer than {size:,} pieces: not a vocabulary of llama2.c") from None
    if at != len(content):
        raise ModelError(f"{path}: damaged, or of more than {size:,} pieces: not a vocabulary of llama2.c")
    return SentencePiece(tuple(pieces))


def _piece(number: int, text: str, score: float) -> Piece:
    if number < 3:
        return Piece(("<unk>", BEGIN, END)[number], score, UNKNOWN if number == 0 else CONTROL)
    kind = BYTE if re.fullmatch(r"<0x[0-9A-F]{2}>", text) else NORMAL
    return Piece(text if kind == BYTE else text.replace(" ", "▁"), score, kind)
