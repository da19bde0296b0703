"""The glass model: so small that every number of it fits on a screen, and yet it knows what "it" is.

It comes with the package, in GLASS. `python -m regard.demo.glass FOLDER` trains it anew, in a few minutes on one core.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from random import Random

from regard.atomic_files import write_text
from regard.demo.coreference import (
    CANT_BECAUSE,
    DID_BECAUSE,
    DIDNT_BECAUSE,
    WANTED_BUT,
    build_sentence,
    degrees,
    reasons,
)
from regard.demo.grammar import EXAMPLES, HELD_OUT, Splits, sentence_of, write_pairs
from regard.demo.lexicon import ADJECTIVES, NOUNS, Noun
from regard.demo.phrases import Draft, Phrase, finish, noun_phrase, predicate
from regard.demo.scenes import SCENES
from regard.model_folder import CARD, TRAINING
from regard.preparation.train_and_resume import train

GLASS = Path(__file__).with_name("glass_model")

SETTINGS = {
    "preset": "tiny",
    "data.source": "en",
    "data.target": "fr",
    "tokenizer.kind": "unigram",  # which keeps whole words and little else
    "tokenizer.vocabulary": 450,
    "model.width": 16,
    "model.heads": 2,
    "model.hidden": 32,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.norm": "post",
    "model.positions": "sinusoidal",
    "model.norm_kind": "layer",
    "model.embedding_norm": False,
    "model.activation": "relu",
    "model.max_length": 64,
    "model.dropout": 0.0,
    "training.steps": 8000,
    "training.batch_tokens": 1024,
    "training.optimizer": "adam",
    "training.betas": (0.9, 0.98),
    "training.weight_decay": 0.0,
    "training.dropout_warmup": 0.0,
    "training.precision": "float32",
    "training.learning_rate": 0.005,
    "training.warmup": 1000,
    "training.schedule": "linear",
    "training.label_smoothing": 0.0,
    "training.evaluate_every": 8000,
    "training.evaluate_pairs": 20,
    "training.patience": 0,
    "training.average": 1,
    "training.ema": 0.0,
    "training.subword_sampling": 0.0,
    "training.history": 4,
    "training.threads": 1,
    "training.device": "cpu",
}

ABOUT = """
## What it is
A model to look into with `regard look`, not to translate with. It knows a small part of the language of `regard demo`:
{train:,} sentences about eight animals, what they cross, enter or leave, and why. As in the demo, the test sentences
hold a noun and an adjective that training never shows together, such as "animal" with "tired" and "street" with "wide".
`history/` has the weights as they were in the course of training. `make glass` trains it.
"""


def train_glass(folder: Path) -> None:
    """Trains the model into a folder, and takes away what only training needs."""
    sentences = glass_splits()
    with tempfile.TemporaryDirectory() as place:
        files = [
            write_pairs(Path(place) / f"{name}.tsv", getattr(sentences, name)) for name in ("train", "dev", "test")
        ]
        for _ in train(files[:1], folder, dev=files[1:2], test=files[2:], overrides=SETTINGS, overwrite=True):
            pass
    shutil.rmtree(folder / TRAINING)
    card = (folder / CARD).read_text(encoding="utf-8")
    write_text(folder / CARD, card + ABOUT.format(train=len(sentences.train)))


def glass_splits() -> Splits:
    """All sentences of a small part of the language; as in the demo, test holds pairs of words that training does not.

    Test opens with the first two of the EXAMPLES, the animal that is too tired and the street that is too wide.
    """
    drafts = [draft for _, draft in sorted({draft.source: draft for draft in _drafts()}.items())]
    Random(0).shuffle(drafts)
    drafts.sort(key=lambda draft: EXAMPLES.index(draft.source) if draft.source in EXAMPLES else len(EXAMPLES))
    held = [sentence_of(draft) for draft in drafts if draft.pronoun and draft.pairs[-1] in HELD_OUT]
    shown = [sentence_of(draft) for draft in drafts if not any(pair in HELD_OUT for pair in draft.pairs)]
    return Splits(train=shown[300:], dev=shown[:300], test=held[:500])


_NOUNS = "animal dog horse bear cow goat turtle mouse street road bridge tunnel river lake forest field garden park"
_REASONS = "tired sick weak hungry afraid curious brave wide narrow long deep dark dangerous quiet empty"
_VERBS = ("cross", "enter", "leave")
_FRAMES = (DIDNT_BECAUSE, CANT_BECAUSE, DID_BECAUSE, WANTED_BUT)


def _drafts() -> Iterator[Draft]:
    """Who did what to what, or did not, and why; and what is how."""
    known = {name: NOUNS[name] for name in _NOUNS.split()}
    for scene, frame, about_subject in product(SCENES, _FRAMES, (True, False)):
        for subject, thing in product(scene.subjects, scene.things) if scene.verb.english in _VERBS else ():
            if subject.name not in known or thing.name not in known:
                continue
            for reason in reasons(scene, frame, subject, thing, about_subject):
                for degree in degrees(frame, reason) if reason.english in _REASONS.split() else ():
                    yield build_sentence(scene.verb, frame, _the(subject), _the(thing), about_subject, reason, degree)
    for noun, word, tense in product(known.values(), _REASONS.split(), ("present", "past")):
        if noun.name in ADJECTIVES[word].fits:
            yield finish("description", _the(noun), predicate(_the(noun), ADJECTIVES[word], tense))


def _the(noun: Noun) -> Phrase:
    return noun_phrase("the", noun, False)


if __name__ == "__main__":
    train_glass(Path(sys.argv[1]) if len(sys.argv) > 1 else GLASS)
