from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from regard.atomic_files import write_text
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.model.transformer import EncoderDecoder
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS
from regard.settings import DataSettings, ModelSettings, Settings, TokenizerSettings
from regard.settings.option_fields import dump
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS, PAD
from regard.weights import build_model, parameters, read_folder, write_tensors

torch.set_num_threads(1)  # toys are too small to share; two threads would wait for each other

SUBJECTS = [("A dog", "Ein Hund"), ("The old woman", "Die alte Frau"), ("She", "Sie")]
VERBS = [("reads", "liest"), ("sees a cat in the garden", "sieht eine Katze im Garten"), ("sings", "singt")]
ENDS = [(".", "."), ("!", "!"), (", and it rains.", ", und es regnet."), (" at the café.", " im Café.")]
CORPUS = [
    (f"{subject[0]} {verb[0]}{end[0]}", f"{subject[1]} {verb[1]}{end[1]}")
    for subject, verb, end in product(SUBJECTS, VERBS, ENDS)
]


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder whose model has learnt enough to end its outputs, but is far from sure of them."""
    settings = Settings(
        data=DataSettings(source="en", target="de"),
        tokenizer=TokenizerSettings(vocabulary=400),
        model=ModelSettings(
            width=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=2, max_length=24, dropout=0.0
        ),
    )
    vocabularies = Vocabularies.train(
        lambda: [Pair(source, target, Location("corpus", 1)) for source, target in CORPUS], settings.tokenizer
    )
    torch.manual_seed(1)
    model = build_model(settings, vocabularies)
    assert isinstance(model, EncoderDecoder)
    learn_a_little(model, vocabularies)
    path = tmp_path_factory.mktemp("models") / "en-de"
    write_text(path / SETTINGS, dump(settings))
    write_text(path / TOKENIZER, vocabularies.to_json())
    write_tensors(path / WEIGHTS, parameters(model))
    return path


def learn_a_little(model: EncoderDecoder, vocabularies: Vocabularies) -> None:
    sources = padded([[*ids, EOS] for ids in vocabularies.source.encode_batch([source for source, _ in CORPUS])])
    targets = padded([[BOS, *ids, EOS] for ids in vocabularies.target.encode_batch([target for _, target in CORPUS])])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for _ in range(30):
        logits = model(sources, targets[:, :-1], sources != PAD)
        F.cross_entropy(logits.flatten(0, 1), targets[:, 1:].flatten(), ignore_index=PAD).backward()
        optimizer.step()
        optimizer.zero_grad()


def padded(rows: list[list[int]]) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])


@pytest.fixture(scope="session")
def model(folder: Path) -> EncoderDecoder:
    found = read_folder(folder).model
    assert isinstance(found, EncoderDecoder)
    return found


@pytest.fixture(scope="session")
def translator(folder: Path) -> Translator:
    return load_as(Translator, folder, "cpu")
