"""regard demo: a translator in minutes, from sentences that the package brings along."""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.setting_flags import Verbs

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.demo.bilingual_phrases import Sentence

DEFAULT = Path("runs/demo")
SETTINGS = {
    "preset": "tiny",
    "data.source": "en",
    "data.target": "fr",
    "tokenizer.vocabulary": 2000,
    "model.encoder_layers": 2,
    "model.decoder_layers": 2,
    "model.width": 128,
    "model.heads": 2,  # few enough that one of the encoder finds what "it" is (tests/explorer/pronoun_heads.py)
    "model.hidden": 256,
    "model.dropout": 0.0,
    "model.norm": "pre",
    "model.norm_kind": "layer",
    "model.embedding_norm": False,
    "model.activation": "relu",
    "model.positions": "sinusoidal",
    "training.steps": 1800,
    "training.batch_tokens": 1024,
    "training.optimizer": "adam",
    "training.betas": (0.9, 0.98),
    "training.weight_decay": 0.0,
    "training.dropout_warmup": 0.0,
    "training.precision": "float32",
    "training.learning_rate": 0.002,
    "training.warmup": 200,
    "training.schedule": "linear",
    "training.evaluate_every": 450,
    "training.evaluate_pairs": 200,
    "training.patience": 0,
    "training.average": 1,
    "training.ema": 0.0,
    "training.subword_sampling": 0.0,
    "training.history": 8,
}


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "demo",
        help="train a small English-French translator in minutes and look at it",
        description="Trains on sentences of an embedded grammar in which 'it' becomes il or elle by what it means, "
        "and tests on combinations of nouns and adjectives that it has never seen.",
        allow_abbrev=False,
    )
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT, metavar="FOLDER", help="runs/demo")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in FOLDER (runs/demo: always)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from regard.cli.train import with_interrupts
    from regard.cli.training_display import show_training
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator
    from regard.demo.sentence_generator import generate_splits, write_pairs
    from regard.preparation.train_and_resume import train

    print("English to French, from an embedded grammar. For example:")
    sentences = generate_splits()
    for example in sentences.train[:3]:
        print(f"  {example.source}  ->  {example.target}")
    stop = threading.Event()
    overwrite = arguments.overwrite or arguments.output == DEFAULT
    with tempfile.TemporaryDirectory() as folder:
        files = [write_pairs(Path(folder) / f"{name}.tsv", getattr(sentences, name)) for name in ("train", "dev")]
        events = train(files[:1], arguments.output, dev=files[1:], overrides=SETTINGS, overwrite=overwrite, stop=stop)
        with_interrupts(stop)
        finished = show_training(events)
    if not finished.complete:
        print(f"Stopped. Start over with: regard demo -o {arguments.output}")
        return 130
    translator = load_as(Translator, arguments.output)
    show_scores(translator, sentences.test)
    show_examples(translator)
    print(
        f"\nThe model is in {arguments.output}. What next:\n"
        f'  echo "I love the beautiful garden." | regard translate {arguments.output}\n'
        f"  regard look {arguments.output}     (in the browser: what every layer and head does with a sentence)\n"
        "  regard train train.en train.de -o runs/mine     (your own text, a sentence a line)\n"
        "  regard train --help                             (every setting)"
    )
    return 0


def show_scores(translator: Translator, test: Sequence[Sentence]) -> None:
    """BLEU and pronoun accuracy on sentences whose noun-adjective combinations were never seen."""
    from regard.demo.sentence_generator import pronoun_accuracy
    from regard.evaluation.translation_scores import exact_match, score

    found = [t.text for t in translator.translate([s.source for s in test], beam=1)]
    references = [s.target for s in test]
    bleu = score(found, references, language="fr", resamples=0)[0]
    pronouns = sum(s.pronoun is not None for s in test)
    print(f"\nOn {len(test):,} test sentences, each with a noun and an adjective never seen together in training:")
    print(f"  {bleu}")
    print(f"  {exact_match(found, references):.1f} % of the sentences are exactly right")
    print(f"  {100 * pronoun_accuracy(found, test):.1f} % of {pronouns:,} pronouns are right (il, elle, ils, elles)")


def show_examples(translator: Translator) -> None:
    from regard.demo.sentence_generator import EXAMPLES

    print("\nTranslations, with the runners-up and how probable the model finds them (log-probability a token):")
    for source, found in zip(EXAMPLES, translator.translate(EXAMPLES, beam=4, alternatives=2), strict=True):
        print(f"  {source}")
        for mark, each in zip("=~~", (found, *found.alternatives), strict=False):
            print(f"    {mark} {each.text}  ({each.log_probability / len(each.token_log_probabilities):.2f})")
