"""Files of model folders, of Regard and of other programs: damaged ones are refused in one line, or can be used."""

from __future__ import annotations

import atexit
import shutil
import struct
import tempfile
from collections.abc import Callable, Mapping
from functools import cache, partial
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import tokenizers
import torch
from tokenizers import decoders, models, pre_tokenizers

from regard.decoding.confidence import Confidence
from regard.decoding.token_shortlist import Shortlist
from regard.errors import RegardError
from regard.interop.config_reading import Config, build_settings, check_shapes, infer_type, read_settings as read_config
from regard.interop.huggingface import export_model
from regard.interop.huggingface_files import CONFIG, SAFE, read_json
from regard.interop.sentencepiece import as_tokenizer, read_sentencepiece
from regard.interop.vocabulary_files import read_vocabularies
from regard.interop.weight_conversion import import_weights
from regard.model_folder import CONFIDENCE, MANIFEST, SETTINGS, SHORTLIST, TOKENIZER, WEIGHTS, read_settings
from regard.model_manifest import read_manifest, write_manifest
from regard.settings.option_fields import dump
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials, Tokenizer, Vocabularies
from regard.untrusted_files import read_header
from regard.weights import build_model, read_tensors
from tests.fuzz.damage import damaged, with_other_settings, with_other_values
from tests.fuzz.documents import require_one_line
from tests.interop.toys import SHAPES, settings_of, write_model

TEXTS = ["", "A dog reads.", "Ünïcödé 漢字 😀 <b> </s> {1}", "a" * 300, "\r\n \t\u2028"]
SMALL: dict[str, Any] = {
    "width": 8,
    "heads": 2,
    "hidden": 12,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_length": 12,
}
ENCODER = {
    "positions": "learned",
    "segments": 2,
    "activation": "gelu",
    "embedding_norm": True,
    "scale_embedding": False,
    "pooler": "tanh",
}
PUBLISHED = {  # models that are exported, to be imported again
    "marian": ("translate", SHAPES["marian"]),
    "llama": ("write", {**SHAPES["modern"], "key_value_heads": 1}),
    "gpt2": ("write", {**SHAPES["pre-norm"], "scale_embedding": False}),
    "bert": ("fill", ENCODER),
    "labels": ("classify", ENCODER),
}


class ModelFile(NamedTuple):
    """A file that is sound, what is done with a damaged one, and how it is damaged besides its bytes."""

    content: bytes
    use: Callable[[Path], object]
    alter: Callable[[bytes, Random], bytes] = damaged


def use_settings(path: Path) -> None:
    settings = read_settings(path.parent)
    path.write_text(dump(settings))
    assert read_settings(path.parent) == settings, "read otherwise than it was written"


def use_tokenizer(path: Path) -> None:
    loaded = Vocabularies.load(path)
    for tokenizer in (loaded.source, loaded.target):
        use_vocabulary(tokenizer)


def use_vocabulary(tokenizer: Tokenizer) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        assert all(0 <= token < tokenizer.size for token in ids), "an id beyond the vocabulary"
        tokenizer.decode(ids)
        tokenizer.pieces(ids)


def use_weights(path: Path) -> None:
    shapes = read_header(path)
    tensors, _ = read_tensors(path)
    assert {name: tuple(tensor.shape) for name, tensor in tensors.items()} == shapes, "read otherwise than its header"


def use_config(path: Path, tensors: Mapping[str, torch.Tensor]) -> None:
    """Imports a model up to its vocabulary, with the tensors of the sound one."""
    config = infer_type(Config(path, read_json(path)), {**tensors})
    named = {config.family.without_prefix(name): tensor for name, tensor in tensors.items()}
    kept = {name: tensor for name, tensor in named.items() if name is not None}
    check_shapes(config, kept, path)
    settings = build_settings(path, read_config(config, kept))
    vocabulary = Vocabularies.load(sound_folder() / "translator" / TOKENIZER)
    with torch.device("meta"):
        model = build_model(settings, vocabulary)
    import_weights(config.family, kept, model, path)


def use_published_vocabulary(path: Path, folder: Path) -> None:
    """Imports the vocabulary of a model whose other files are sound."""
    config = Config(folder / CONFIG, read_json(folder / CONFIG))
    for other in folder.iterdir():
        if other.suffix == ".json" and other.name != path.name:
            (path.parent / other.name).write_bytes(other.read_bytes())
    vocabularies = read_vocabularies(path.parent, config)
    use_vocabulary(vocabularies.source)


def use_sentencepiece(path: Path) -> None:
    as_tokenizer(read_sentencepiece(path)).encode(TEXTS[2])


@cache
def sound_folder() -> Path:
    """Writes the sound models, once for each process."""
    root = Path(tempfile.mkdtemp(dir="/dev/shm" if Path("/dev/shm").is_dir() else None))  # noqa: S108
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    folder = write_model(root / "translator", settings_of("translate", **SMALL))
    Confidence(1.0, 2.0, 3).save(folder)
    write_manifest(folder)
    for name, (task, shape) in PUBLISHED.items():
        write_model(root / f"{name}.regard", settings_of(task, **{**shape, **SMALL}))
        export_model(root / f"{name}.regard", root / name)
    return root


def imported_vocabulary(model: tokenizers.models.Model) -> bytes:
    """Returns the file of an imported vocabulary of a few pieces."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.NFKC(), tokenizers.normalizers.Replace(tokenizers.Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(), pre_tokenizers.ByteLevel()])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(" ", 1, 0)])
    specials = Specials(pad=0, begin=1, end=2, unknown=3, mask=None)
    return ImportedTokenizer(tokenizer, specials, tokenizer.get_vocab_size() + 2).to_json().encode()


def piece(text: bytes, score: float, kind: int) -> bytes:
    """Returns a piece of a SentencePiece model."""
    content = bytes([0x0A, len(text)]) + text + b"\x15" + struct.pack("<f", score) + bytes([0x18, kind])
    return bytes([0x0A, len(content)]) + content


def sentencepiece(model: int) -> bytes:
    pieces = [(b"<unk>", 0.0, 2), (b"<s>", 0.0, 3), (b"</s>", 0.0, 3), ("▁a".encode(), -1.0, 1), (b"b", -2.0, 1)]
    pieces += [(b"ab", -3.0, 1), (b"<0x41>", 0.0, 6), (b"user", 0.0, 4)]
    return (
        b"".join(piece(*each) for each in pieces) + bytes([0x12, 5, 0x18, model, 0x98, 0x02, 1]) + b"\x1a\x02\x18\x01"
    )


@cache
def model_files() -> dict[str, ModelFile]:
    """Returns all files by name; one that is published has the name of its family before its own."""
    own = sound_folder() / "translator"
    pieces = ["<pad>", "<s>", "</s>", "<unk>", *"abcdehorsAÃ¼Ġ.", "re", "rea", "##s"]
    ids = {text: number for number, text in enumerate(pieces)}
    unknown = {"unk_token": "<unk>"}
    byte_pairs = models.BPE(ids, [("r", "e"), ("re", "a")], **unknown)
    unigram = models.Unigram([(text, -float(number)) for text, number in ids.items()], 3, byte_fallback=False)
    words = models.WordPiece(ids, **unknown)
    shortlist = b'{"starts":{"dtype":"I64","shape":[2],"data_offsets":[0,16]}}'
    files = {
        SETTINGS: ModelFile((own / SETTINGS).read_bytes(), use_settings, with_other_settings),
        TOKENIZER: ModelFile((own / TOKENIZER).read_bytes(), use_tokenizer, with_other_values),
        WEIGHTS: ModelFile((own / WEIGHTS).read_bytes(), use_weights, with_other_header),
        MANIFEST: ModelFile((own / MANIFEST).read_bytes(), lambda path: read_manifest(path.parent), with_other_values),
        CONFIDENCE: ModelFile(
            (own / CONFIDENCE).read_bytes(), lambda path: Confidence.load(path.parent), with_other_values
        ),
        SHORTLIST: ModelFile(
            struct.pack("<Q", len(shortlist)) + shortlist + bytes(16),
            lambda path: Shortlist.load(path.parent),
            with_other_header,
        ),
        "unigram.spm": ModelFile(sentencepiece(1), use_sentencepiece),
        "pairs.spm": ModelFile(sentencepiece(2), use_sentencepiece),
    }
    for name, model in (("pairs", byte_pairs), ("unigram", unigram), ("words", words)):
        files[f"{name}.{TOKENIZER}"] = ModelFile(imported_vocabulary(model), use_tokenizer, with_other_values)
    for family in PUBLISHED:
        folder = sound_folder() / family
        tensors = read_tensors(folder / SAFE)[0]
        files[f"{family}.{CONFIG}"] = ModelFile(
            (folder / CONFIG).read_bytes(), partial(use_config, tensors=tensors), with_other_values
        )
        for name in (TOKENIZER, "tokenizer_config.json", "special_tokens_map.json"):
            use = partial(use_published_vocabulary, folder=folder)
            files[f"{family}.{name}"] = ModelFile((folder / name).read_bytes(), use, with_other_values)
    return files


def with_other_header(content: bytes, random: Random) -> bytes:
    """Returns a file of safetensors with other values in its header, whose length is usually right."""
    size = struct.unpack("<Q", content[:8].ljust(8, b"\0"))[0]
    if size > len(content) or random.random() < 0.2:
        return damaged(content, random)
    header = with_other_values(content[8 : 8 + size], random)
    length = len(header) if random.random() < 0.9 else random.choice([0, 1, len(header) - 1, 10**8, 2**63, 2**64 - 1])
    return struct.pack("<Q", length) + header + content[8 + size :]


def examine_model_file(path: Path, content: bytes) -> str:
    """Uses a file of a model; returns whether it was refused. Anything but a RegardError is a bug."""
    path.write_bytes(content)
    try:
        model_files()[path.parent.name].use(path)
    except RegardError as error:
        require_one_line(error)
        return "refused"
    return "read"
