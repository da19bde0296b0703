"""Memory of preparing and training, against the size of the corpus: `python benchmarks/memory.py --pairs 2000000`.

Makes corpora of invented words with a Zipf distribution, trains a few steps on each in a process of its own,
and prints time and peak memory. The larger corpus must not need much more than the small one.
"""

import argparse
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 60_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2_000_000, help="size of the large corpus")
    parser.add_argument("--limit", type=float, default=1.5, help="GB that the large one may take")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for pairs in (options.pairs // 20, options.pairs):
            files = write_corpus(Path(folder), pairs)
            seconds, peak = train(files, Path(folder) / f"run-{pairs}")
            size = sum(file.stat().st_size for file in files) / 2**20
            print(f"{pairs:>10,} pairs ({size:,.0f} MiB): {seconds:.0f} s, peak memory {peak:.2f} GB", flush=True)
    if peak > options.limit:
        sys.exit(f"more than {options.limit} GB")


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Sentences of 3 to 25 invented words, and as their translation the same words spelt backwards."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    files = [folder / "train.en", folder / "train.xx"]
    with files[0].open("w") as source, files[1].open("w") as target:
        for _ in range(0, pairs, 10_000):
            stream = iter(dice.choices(words, weights, k=10_000 * 25))
            for _ in range(min(10_000, pairs)):
                sentence = [next(stream) for _ in range(dice.randint(3, 25))]
                source.write(" ".join(sentence) + "\n")
                target.write(" ".join(word[::-1] for word in sentence) + "\n")
    return files


def train(files: list[Path], output: Path) -> tuple[float, float]:
    """Seconds and peak memory in GB of preparing and twenty steps."""
    settings = {"training.steps": 20, "training.evaluate_every": 20, "training.evaluate_pairs": 20, "preset": "tiny"}
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    began = time.monotonic()
    command = [sys.executable, "-m", "regard", "train", *map(str, files), "-o", str(output), *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit("training failed")
    assert usage.ru_maxrss <= resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return time.monotonic() - began, usage.ru_maxrss / 1e6


if __name__ == "__main__":
    main()
