"""regard demo: trains a translator within minutes on invented sentences."""

from __future__ import annotations

import argparse
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.shared_flags import Verbs
from regard.cli.train import stop_on_interrupt

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.demo.bilingual_phrases import Sentence

DESCRIPTION = """Trains a translator on sentences of a built-in grammar, in which "it" becomes il or elle depending on
the noun it stands for. Tests the model on combinations of nouns and adjectives that it has never seen."""

DEFAULT = Path("runs/demo")
SETTINGS_FILE = Path(__file__).parents[1] / "demo" / "demo_model.toml"


def add(verbs: Verbs) -> None:
    about = "train a small English-French translator in minutes"
    parser = verbs.add_parser("demo", help=about, description=DESCRIPTION, run=run)
    text = f"where to write the model (default: {DEFAULT})"
    parser.add_argument("-o", "--output", type=Path, default=DEFAULT, metavar="FOLDER", help=text)
    parser.add_argument("--overwrite", action="store_true", help=f"replace the model in FOLDER (always in {DEFAULT})")


def run(arguments: argparse.Namespace) -> int:
    from regard.cli.progress_display import show_training
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator
    from regard.demo.sentence_generator import generate_splits, write_pairs
    from regard.preparation.train_and_resume import train

    folder: Path = arguments.output
    print("English to French, from a built-in grammar. For example:")
    sentences = generate_splits()
    for example in sentences.train[:3]:
        print(f"  {example.source}  ->  {example.target}")
    stop, overwrite = threading.Event(), arguments.overwrite or folder == DEFAULT
    with tempfile.TemporaryDirectory() as place:
        files = [write_pairs(Path(place) / f"{name}.tsv", getattr(sentences, name)) for name in ("train", "dev")]
        events = train(files[:1], folder, dev=files[1:], settings_file=SETTINGS_FILE, overwrite=overwrite, stop=stop)
        stop_on_interrupt(stop)
        finished = show_training(events)
    if finished is None or not finished.complete:
        print(f"Stopped. Start again with: regard demo -o {folder}")
        return 130
    translator = load_as(Translator, folder)
    _print_scores(translator, sentences.test)
    _print_examples(translator)
    print(
        f"\nThe model is in {folder}. Next steps:\n"
        f'  echo "I love the beautiful garden." | regard translate {folder}\n'
        f"  regard look {folder}     (in the browser: what each layer and head does with a sentence)\n"
        "  regard train train.en train.de -o runs/mine     (your own text, one sentence per line)\n"
        "  regard train --help                             (all settings)"
    )
    return 0


def _print_scores(translator: Translator, test: Sequence[Sentence]) -> None:
    """Prints the BLEU score and the accuracy of pronouns on the test set."""
    from regard.demo.sentence_generator import pronoun_accuracy
    from regard.evaluation.translation_scores import exact_match, score

    translations = [each.text for each in translator.translate([s.source for s in test], beam=1)]
    references = [s.target for s in test]
    bleu = score(translations, references, language="fr", resamples=0)[0]
    pronouns, right = sum(s.pronoun is not None for s in test), pronoun_accuracy(translations, test)
    print(f"\nOn {len(test):,} test sentences, each with a noun and an adjective never seen together in training:")
    print(f"  {bleu}")
    print(f"  {exact_match(translations, references):.1f} % of the sentences are exactly right")
    print(f"  {100 * right:.1f} % of {pronouns:,} pronouns are right (il, elle, ils, elles)")


def _print_examples(translator: Translator) -> None:
    from regard.demo.sentence_generator import EXAMPLES

    print("\nTranslations (=) and alternatives (~), with the log-probability per token:")
    for source, best in zip(EXAMPLES, translator.translate(EXAMPLES, beam=4, alternatives=2), strict=True):
        print(f"  {source}")
        for mark, each in zip("=~~", (best, *best.alternatives), strict=False):
            print(f"    {mark} {each.text}  ({each.log_probability / len(each.token_log_probabilities):.2f})")
