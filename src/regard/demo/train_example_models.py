"""Trains the example models that come with Regard, which `regard look` offers.

    python -m regard.demo.train_example_models                  # all of them, into the package
    python -m regard.demo.train_example_models chinese -o runs  # one of them, into the folder runs

Each takes a few minutes on one core. Data, initial weights and order of the data follow from seeds.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from regard.atomic_files import write_text
from regard.demo.chinese_sentences import generate_chinese_splits
from regard.demo.example_models import EXAMPLE_MODELS, FOLDER
from regard.demo.sentence_generator import generate_splits
from regard.model_folder import CARD, HISTORY, TRAINING, WEIGHTS
from regard.preparation.train_and_resume import train
from regard.weights import read_tensors, write_tensors, write_weights

NAMES = tuple(name for name, each in EXAMPLE_MODELS.items() if each.folder.parent == FOLDER)
"""The example models without the glass model, which `make glass` trains."""

ABOUT = """
## What it is
{about}

It is one of the models that `regard look` offers, to look into and not to work with. `make models` trains it.
"""


DESCRIPTIONS = {
    "pronouns": "The translator that `regard demo` trains, from English to French, with weights in float16. In the "
    "encoder's last layer, a head attends from “it” to the noun that it stands for. In another training it may be "
    "another head.",
    "chinese": "A translator from Chinese to English. Its sentences come from a small grammar with measure words, 很, "
    "了, 在 and 吗. Where several translations are right, training has all of them.",
    "gaps": "A BERT that fills gaps. It has read the English sentences of `regard demo`.",
    "writer": "A GPT that continues a text. It has read the English sentences of `regard demo`.",
}


def train_example_model(name: str, folder: Path) -> None:
    """Trains a model into a folder."""
    with tempfile.TemporaryDirectory() as place:
        train_file, dev, test = write_corpus(name, Path(place))
        for _ in train(train_file, folder, dev=dev, test=test, settings_file=settings_of(name), overwrite=True):
            pass
    finish_folder(name, folder)


def settings_of(name: str) -> Path:
    """Returns the settings file of a model; "pronouns" is the model that `regard demo` trains."""
    return FOLDER.with_name("demo_model.toml") if name == "pronouns" else FOLDER / f"{name}.toml"


def finish_folder(name: str, folder: Path) -> None:
    """Makes a trained folder small, and says on the card what the model is.

    Removes what only training needs and the snapshot that equals the weights; stores the large weights in float16.
    """
    shutil.rmtree(folder / TRAINING)
    snapshots = sorted((folder / HISTORY).glob("*.safetensors"))
    for path in snapshots[:-1] if name == "chinese" else []:
        tensors, about = read_tensors(path)
        write_tensors(path, {key: tensor.half() for key, tensor in tensors.items()}, about)
    for path in snapshots[-1:] if name == "chinese" else snapshots:
        path.unlink()
    if name == "pronouns":
        (folder / HISTORY).rmdir()
        write_weights(folder, {key: tensor.half() for key, tensor in read_tensors(folder / WEIGHTS)[0].items()})
    card = (folder / CARD).read_text(encoding="utf-8")
    write_text(folder / CARD, card + ABOUT.format(about=DESCRIPTIONS[name]))


def write_corpus(name: str, folder: Path) -> list[Path]:
    """Writes the sentences that a model learns from, for training, validation and testing."""
    files = []
    for part, pairs in generate_corpus(name).items():
        texts = ["\t".join(pair) for pair in pairs] if name in ("pronouns", "chinese") else [pair[0] for pair in pairs]
        files.append(folder / f"{part}.{'tsv' if name in ('pronouns', 'chinese') else 'txt'}")
        files[-1].write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="\n")
    return files


def generate_corpus(name: str) -> dict[str, list[tuple[str, str]]]:
    """Generates the pairs for a model; BERT and GPT read the English of the demo's sentences."""
    if name == "chinese":
        parts = zip(("train", "dev", "test"), generate_chinese_splits(), strict=True)
        return {part: [(each.source, each.target) for each in sentences] for part, sentences in parts}
    splits = generate_splits() if name == "pronouns" else generate_splits(30_000, 400, 1_000)
    return {part: [(each.source, each.target) for each in getattr(splits, part)] for part in ("train", "dev", "test")}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m regard.demo.train_example_models")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} (all of them)")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=FOLDER,
        help="folder to save the models in (default: the one inside the package)",
    )
    chosen = parser.parse_args(arguments)
    for name in chosen.names or NAMES:
        if name not in NAMES:
            parser.error(f"unknown model {name!r}: choose from {', '.join(NAMES)}")
        train_example_model(name, chosen.output / name)


if __name__ == "__main__":
    main()
