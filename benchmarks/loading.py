"""Time in which PyTorch loads a model with and without a manifest: `python benchmarks/loading.py`.

Each model has two folders that differ in `manifest.json` only. They are loaded in turns, in one process, after a first
load that is not counted; the files are in the system's cache. The ratio is that of the medians.
"""

import shutil
import statistics
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

import regard
from benchmarks import program, records, tables
from regard.atomic_files import write_text
from regard.model_folder import MANIFEST, SETTINGS, TOKENIZER, WEIGHTS
from regard.settings import ModelSettings, Settings
from regard.settings.option_fields import dump
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies
from regard.weights import build_model, parameters, write_weights

SHAPES = {
    "small": ModelSettings(width=128, heads=4, hidden=512, encoder_layers=2, decoder_layers=2),
    "large": ModelSettings(width=512, heads=8, hidden=2048, encoder_layers=4, decoder_layers=4),
}


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        rows = [measure(name, Path(place), options.rounds) for name in SHAPES]
    table = tables.build("Loading with PyTorch, with and without a manifest", rows)
    records.publish(options.keep, "loading", [table], settings={"rounds": options.rounds})


def measure(name: str, place: Path, rounds: int) -> tables.Row:
    """Loads the model of a shape in turns; returns its row of the table."""
    listed, unlisted = place / name, place / f"{name} without"
    write_model(listed, SHAPES[name])
    shutil.copytree(listed, unlisted)
    (unlisted / MANIFEST).unlink()
    seconds: dict[Path, list[float]] = {listed: [], unlisted: []}
    for number in range(rounds + 1):
        for folder in (listed, unlisted) if number % 2 else (unlisted, listed):
            started = time.perf_counter()
            regard.load(folder, "cpu", engine="torch")
            seconds[folder].append(time.perf_counter() - started)
    milliseconds = {folder: [1000 * each for each in values[1:]] for folder, values in seconds.items()}
    ratio = statistics.median(milliseconds[listed]) / statistics.median(milliseconds[unlisted])
    return {
        "model": name,
        "MB": round((listed / WEIGHTS).stat().st_size / 1e6, 1),
        "with, ms": tables.spread(milliseconds[listed], 1),
        "without, ms": tables.spread(milliseconds[unlisted], 1),
        "with ÷ without": round(ratio, 3),
    }


def write_model(folder: Path, shape: ModelSettings) -> None:
    """Writes a translator with random weights, and its manifest."""
    settings = replace(Settings(), model=shape)
    pairs = [Pair("A dog reads.", "Ein Hund liest.", Location("corpus", 1))]
    vocabularies = Vocabularies.train(lambda: pairs, replace(settings.tokenizer, vocabulary=300))
    folder.mkdir()
    write_text(folder / SETTINGS, dump(settings))
    write_text(folder / TOKENIZER, vocabularies.to_json())
    write_weights(folder, parameters(build_model(settings, vocabularies)))


if __name__ == "__main__":
    main()
