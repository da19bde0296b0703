"""Trains the glass model, which is small enough to show all its numbers on a screen, but knows what "it" stands for.

The package contains the trained model in GLASS. `python -m regard.demo.train_glass_model FOLDER` trains it again, in a
few minutes on one core.
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
from regard.demo import GLASS
from regard.demo.bilingual_phrases import Sentence, build_sentence, noun_phrase, predicate
from regard.demo.bilingual_words import ADJECTIVES, NOUNS
from regard.demo.possible_actions import ACTIONS
from regard.demo.pronoun_sentences import FRAMES
from regard.demo.sentence_generator import EXAMPLES, HELD_OUT, SentenceSplits, write_pairs
from regard.model_folder import CARD, TRAINING
from regard.preparation.train_and_resume import train

SETTINGS_FILE = Path(__file__).with_name("glass_model.toml")

ABOUT = """
## What it is
A model to look into with `regard look`, not to translate with. It knows a small part of the language of `regard demo`:
{train:,} sentences about eight animals, what they cross, enter or leave, and why. As in the demo, the test sentences
hold a noun and an adjective that training never shows together, such as "animal" with "tired" and "street" with "wide".
`history/` has the weights as they were in the course of training. `make glass` trains it.
"""


def train_glass_model(folder: Path) -> None:
    """Trains the model in a folder, and removes the files that only training needs."""
    splits = generate_glass_splits()
    with tempfile.TemporaryDirectory() as place:
        files = [write_pairs(Path(place) / f"{name}.tsv", getattr(splits, name)) for name in ("train", "dev", "test")]
        for _ in train(files[:1], folder, dev=files[1:2], test=files[2:], settings_file=SETTINGS_FILE, overwrite=True):
            pass
    shutil.rmtree(folder / TRAINING)
    card = (folder / CARD).read_text(encoding="utf-8")
    write_text(folder / CARD, card + ABOUT.format(train=len(splits.train)))


def generate_glass_splits() -> SentenceSplits:
    """Generates all sentences of a small part of the grammar; the test set has word pairs that training lacks.

    The test set begins with the first two EXAMPLES, the animal that is too tired and the street that is too wide.
    """
    sentences = [sentence for _, sentence in sorted({each.source: each for each in _combine()}.items())]
    Random(0).shuffle(sentences)
    sentences.sort(key=lambda each: EXAMPLES.index(each.source) if each.source in EXAMPLES else len(EXAMPLES))
    held = [each for each in sentences if each.pronoun and each.pairs[-1] in HELD_OUT]
    shown = [each for each in sentences if HELD_OUT.isdisjoint(each.pairs)]
    return SentenceSplits(train=shown[300:], dev=shown[:300], test=held[:500])


_NOUNS = "animal dog horse bear cow goat turtle mouse street road bridge tunnel river lake forest field garden park"
_REASONS = "tired sick weak hungry afraid curious brave wide narrow long deep dark dangerous quiet empty"
_VERBS = ("cross", "enter", "leave")
_FRAMES = ("didn't because", "can't because", "did because", "wanted but")


def _combine() -> Iterator[Sentence]:
    """Yields sentences about an action with its reason, and descriptions of nouns."""
    phrases = {name: noun_phrase("the", NOUNS[name], False) for name in _NOUNS.split()}
    for action, name, about_actor in product(ACTIONS["reasoned"], _FRAMES, (True, False)):
        for actor, thing in product(action.actors, action.objects) if action.verb.english in _VERBS else ():
            if actor.name in phrases and thing.name in phrases:
                for reason in FRAMES[name].possible_reasons(action, actor, thing, about_actor):
                    for degree in FRAMES[name].possible_degrees(reason) if reason.english in _REASONS.split() else ():
                        parts = phrases[actor.name], phrases[thing.name], about_actor, reason, degree
                        yield FRAMES[name].build(action, *parts)
    for (name, phrase), word, tense in product(phrases.items(), _REASONS.split(), ("present", "past")):
        if name in ADJECTIVES[word].fits:
            yield build_sentence("description", phrase, predicate(phrase, ADJECTIVES[word], tense))


if __name__ == "__main__":
    train_glass_model(Path(sys.argv[1]) if len(sys.argv) > 1 else GLASS)
