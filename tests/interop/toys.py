"""Small random models in model folders, with weights so large that no two outputs are equally probable."""

from __future__ import annotations

import re
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import tokenizers
import torch

from regard.atomic_files import write_text
from regard.model.transformer import Decoder, EncoderDecoder
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS
from regard.settings import DataSettings, EmbeddingSettings, ModelSettings, Settings, TokenizerSettings
from regard.settings.option_fields import dump
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Specials, Vocabularies
from regard.weights import Contents, build_model, parameters, read_folder, write_tensors

torch.set_num_threads(1)

SOURCES = ["A dog reads.", "The old woman sees a cat in the garden.", "She sings at the café, and it rains!", "A cat."]
TARGETS = ["Ein Hund liest.", "Die alte Frau sieht eine Katze.", "Sie singt im Café, und es regnet!", "Eine Katze."]
SHAPES: dict[str, dict[str, Any]] = {
    "paper": {},
    "pre-norm": {"norm": "pre", "activation": "gelu", "positions": "learned", "tie": "output"},
    "marian": {"positions": "sinusoidal-halves", "output_bias": True, "activation": "silu"},
    "modern": {
        "norm": "pre",
        "norm_kind": "rms",
        "activation": "swiglu",
        "positions": "rotary",
        "key_value_heads": 2,
        "bias": False,
        "tie": "output",
        "scale_embedding": False,
    },
    "the preset tiny": {
        "norm": "pre",
        "norm_kind": "rms",
        "activation": "swiglu",
        "positions": "rotary",
        "embedding_norm": True,
    },
    "one key head": {"norm_kind": "rms", "key_value_heads": 1, "tie": "inputs"},
    "no order": {"positions": "none", "activation": "gelu-tanh", "embedding_norm": True, "tie": "none"},
    "segments": {"segments": 2, "positions": "learned", "norm_epsilon": 1e-3},
    "wide keys": {"key_width": 10, "value_width": 4, "positions": "rotary", "rotary_base": 500.0},
    "wide values": {"key_width": 4, "value_width": 10, "positions": "rotary", "key_value_heads": 2},
}
SHAPE: dict[str, Any] = {
    "width": 24,
    "heads": 4,
    "hidden": 40,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "max_length": 60,
    "dropout": 0.1,
}


def settings_of(task: str, *, joint: bool = True, **shape: Any) -> Settings:
    """Settings of a toy for this task."""
    labels = ("good", "bad", "neither") if task == "classify" else ()
    carrier = shape.pop("carrier", "text")
    embedding = shape.pop("embedding", EmbeddingSettings())
    return Settings(
        task=task,  # type: ignore[arg-type]
        data=DataSettings(source="en", target="de", labels=labels, carrier=carrier),
        tokenizer=TokenizerSettings(vocabulary=330, joint=joint),
        model=ModelSettings(**{**SHAPE, **shape}),
        embedding=embedding,
    )


def write_model(path: Path, settings: Settings, seed: int = 0, vocabularies: Vocabularies | None = None) -> Path:
    """A model folder with random weights."""
    vocabularies = vocabularies or learnt(settings.tokenizer)
    torch.manual_seed(seed)
    model = build_model(settings, vocabularies)
    enlarge(model)
    write_text(path / SETTINGS, dump(settings))
    write_text(path / TOKENIZER, vocabularies.to_json())
    write_tensors(path / WEIGHTS, parameters(model))
    return path


@lru_cache
def learnt(settings: TokenizerSettings) -> Vocabularies:
    """The vocabulary of the few sentences."""
    pairs = [Pair(*texts, Location("corpus", 1)) for texts in zip(SOURCES, TARGETS, strict=True)]
    return Vocabularies.train(lambda: pairs, settings)


def enlarge(model: torch.nn.Module) -> None:
    """Weights that make a random model say different things of different texts; norms and biases are random too."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name and name.endswith("weight"):
                parameter.normal_(1.0, 0.3)
            elif parameter.dim() == 1:
                parameter.normal_(0.0, 0.3)
            else:
                parameter.normal_(0.0, 0.4)
        if isinstance(model, EncoderDecoder | Decoder):
            model.logits.weight[Specials().end] *= 3  # some outputs end, some are cut


class Talkative(Specials):
    """Special tokens that may all be said: engines that cannot leave some out are compared with this."""

    @property
    def never_generated(self) -> list[int]:
        return []


def talkative(path: Path) -> Contents:
    """A model that may say its special tokens."""
    contents = read_folder(path)
    for tokenizer in {id(t): t for t in (contents.vocabularies.source, contents.vocabularies.target)}.values():
        tokenizer.specials = Talkative()
    return contents


def write_foreign(path: Path) -> Path:
    """A writer with a vocabulary from elsewhere: fewer pieces than ids, no unknown token, no begin before a prompt."""
    model = tokenizers.Tokenizer(tokenizers.models.BPE())
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|end|>"], initial_alphabet=alphabet, show_progress=False
    )
    model.train_from_iterator(SOURCES, trainer)
    specials = Specials(pad=0, begin=0, end=0, unknown=None, mask=None, prompt=False)
    tokenizer = ImportedTokenizer(model, specials, model.get_vocab_size() + 7)
    return write_model(path, settings_of("write"), vocabularies=Vocabularies(tokenizer, tokenizer))


def run_snippet(folder: Path) -> str:
    """What the Python in the README of an exported folder prints when it runs there."""
    (code,) = re.findall(r"```python\n(.*?)```", (folder / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout
