"""Memory of preparing and training, against the size of the corpus: `python benchmarks/memory.py --pairs 2000000`.

Makes corpora of invented words with a Zipf distribution, trains a few steps on each in a process of its own,
and prints time and peak memory of all its processes together: what is theirs, and what they have mapped of files, which
the system takes back when it needs room. The larger corpus must not need much more than the small one.
"""

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 60_000
DIFFERENT = 500_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2_000_000, help="size of the large corpus")
    parser.add_argument("--limit", type=float, default=1.5, help="GB that the large one may take")
    parser.add_argument("--steps", type=int, default=20, help="of training")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for pairs in (options.pairs // 20, options.pairs):
            files = write_corpus(Path(folder), pairs)
            dev = [write_head(file, 20) for file in files]
            peak, size = 0.0, sum(file.stat().st_size for file in files) / 2**20
            for seconds, found, mapped, doing in train(files, dev, Path(folder) / f"run-{pairs}", options.steps):
                print(
                    f"{pairs:>10,} pairs ({size:,.0f} MiB), {doing}: {seconds:.0f} s, peak memory {found:.2f} GB, "
                    f"and {mapped:.2f} GB of files",
                    flush=True,
                )
                peak = max(peak, found)
    if peak > options.limit:
        sys.exit(f"more than {options.limit} GB")


def write_corpus(folder: Path, pairs: int) -> list[Path]:
    """Sentences of 3 to 25 invented words, and as their translation the same words spelt backwards.

    From `DIFFERENT` on they come again.
    """
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    files = [folder / "train.en", folder / "train.xx"]
    with files[0].open("w") as source, files[1].open("w") as target:
        for _ in range(0, min(pairs, DIFFERENT), 10_000):
            stream = iter(dice.choices(words, weights, k=10_000 * 25))
            for _ in range(min(10_000, pairs)):
                sentence = [next(stream) for _ in range(dice.randint(3, 25))]
                source.write(" ".join(sentence) + "\n")
                target.write(" ".join(word[::-1] for word in sentence) + "\n")
    for file in files:
        once = file.read_bytes()
        with file.open("ab") as more:
            for _ in range(1, pairs // DIFFERENT):
                more.write(once)
    return files


def write_head(file: Path, lines: int) -> Path:
    """The first lines of a file, as dev set."""
    head = file.with_name(f"dev{file.suffix}")
    with file.open("rb") as source:
        head.write_bytes(b"".join(next(source) for _ in range(lines)))
    return head


def train(files: list[Path], dev: list[Path], output: Path, steps: int) -> Iterator[tuple[float, float, float, str]]:
    """Seconds, peak memory in GB, peak of mapped files in GB, and what was done: preparing, then some steps."""
    settings = {"training.steps": steps, "training.evaluate_every": steps, "training.evaluate_pairs": 20}
    flags = [part for name, value in settings.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "regard", "train", *map(str, files), "-o", str(output), "--preset", "tiny"]
    command += ["--dev", *map(str, dev), "--training.subword_sampling", "0", *flags]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    for doing, over in (("preparing", output / "training"), (f"{steps} steps", output / "card.md")):
        began, peaks = time.monotonic(), (0.0, 0.0)
        while not over.exists() and process.poll() is None:
            peaks = max(peaks[0], (now := usage(process.pid))[0]), max(peaks[1], now[1])
            time.sleep(0.5)
        yield time.monotonic() - began, *peaks, doing
    if process.wait():
        sys.exit("training failed")


def usage(root: int) -> tuple[float, float]:
    """What a process and those that it started hold, and what they have mapped of files, in GB."""
    parents, held = {}, {}
    for path in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, KeyError, ValueError):
            lines = dict(line.split(":", 1) for line in path.read_text().splitlines())
            pid = int(path.parent.name)
            parents[pid] = int(lines["PPid"])
            held[pid] = int(lines["RssAnon"].split()[0]), int(lines["RssFile"].split()[0])
    found = [pid for pid in held if root in ancestors(pid, parents)]
    return sum(held[pid][0] for pid in found) / 1e6, sum(held[pid][1] for pid in found) / 1e6


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    """A process, what started it, and so on."""
    line = []
    while pid in parents:
        line.append(pid)
        pid = parents[pid]
    return line


if __name__ == "__main__":
    main()
