"""Small models in complete folders, with random weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard.atomic_files import write_text
from regard.model.transformer import EncoderDecoder
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS
from regard.settings import DataSettings, DecodingSettings, ModelSettings, Settings, TokenizerSettings
from regard.settings.option_fields import dump
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies
from regard.weights import build_model, parameters, write_tensors

PAIRS = [
    ("A dog runs.", "Ein Hund läuft."),
    ("She reads a book, and it rains.", "Sie liest ein Buch, und es regnet."),
    ("The cat sleeps under the table.", "Die Katze schläft unter dem Tisch."),
    ("Two children play in the garden.", "Zwei Kinder spielen im Garten."),
]
TEXTS = [source for source, _ in PAIRS]
SHAPE: dict[str, Any] = {
    "width": 16,
    "heads": 2,
    "hidden": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "max_length": 40,
}


def write_model(folder: Path, *directions: str, seed: int = 0, task: Any = "translate", **decoding: Any) -> Path:
    """Writes a model of these directions; a model of one direction has no tags."""
    source, target = directions[0].split("-") if directions else (DataSettings.source, DataSettings.target)
    several = directions if len(directions) > 1 else ()
    tags = tuple(dict.fromkeys(name.split("-")[1] for name in several))
    settings = Settings(
        task=task,
        data=DataSettings(source=source, target=target, directions=several),
        tokenizer=TokenizerSettings(vocabulary=320, tags=tags),
        model=ModelSettings(**SHAPE, output_bias=True),
        decoding=DecodingSettings(**{"beam": 3, **decoding}),
    )
    pairs = [Pair(*texts, Location("corpus", 1)) for texts in PAIRS]
    vocabularies = Vocabularies.train(lambda: pairs, settings.tokenizer)
    torch.manual_seed(seed)
    model = build_model(settings, vocabularies)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.mul_(2.0)  # so that outputs differ
        if isinstance(model, EncoderDecoder):
            model.logits.bias[vocabularies.target.specials.end] += 3.0  # and end soon
    write_text(folder / SETTINGS, dump(settings))
    write_text(folder / TOKENIZER, vocabularies.to_json())
    write_tensors(folder / WEIGHTS, parameters(model))
    return folder
