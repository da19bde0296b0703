"""Memory of preparing and training, against the size of the corpus: `python benchmarks/memory.py --pairs 2000000`.

Makes two corpora of generated words with a Zipf distribution, or of the pairs of two files (`--files one.en one.de`),
repeated with another number at their ends each time. Trains some steps on each in a process of its own, and reports for
each phase its time and the peak memory of all processes together, of which the system takes back mapped files when it
needs room; then the peak of each process, as the system counts it. The large corpus must not need much more than the
small one.

`--copies 77` trains on 77 copies of the tokens of the large corpus: steps on very many pairs without their preparation.
"""

import contextlib
import json
import random
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables

SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 60_000
DIFFERENT = 500_000
"""Invented pairs; beyond this number they repeat."""
DEV = 20


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--pairs", type=int, default=2_000_000, help="size of the large corpus")
    parser.add_argument("--small", type=int, help="size of the small corpus (a twentieth; 0: none)")
    parser.add_argument("--copies", type=int, default=1, help="copies of the large corpus's tokens to train on (1)")
    parser.add_argument(
        "--files", nargs=2, type=Path, metavar="FILE", help="two files to repeat, one sentence per line"
    )
    parser.add_argument("--limit", type=float, default=1.5, help="limit in GB for the large corpus")
    parser.add_argument("--steps", type=int, default=20, help="training steps")
    parser.add_argument("--threads", type=int, help="threads of training, and processes that tokenize (all processors)")
    parser.add_argument("--folder", type=Path, help="folder for corpora and runs (the folder for temporary files)")
    options = parser.parse_args()
    small = options.pairs // 20 if options.small is None else options.small
    rows: list[tables.Row] = []
    for pairs, copies in [(small, 1)] * bool(small) + [(options.pairs, options.copies)]:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            files = write_corpus(Path(folder), pairs, options.files)
            size = sum(file.stat().st_size for file in files) / 2**20
            print(f"{pairs:,} pairs, {size:,.0f} MiB of text", flush=True)
            peak, phases = train(files, Path(folder) / "run", options.steps, options.threads, copies)
            rows += [{"pairs": pairs * copies, "text MiB": round(size), **phase} for phase in phases]
    table = tables.build(f"{options.pairs * options.copies:,} pairs", rows)
    settings = {"steps": options.steps, "threads": options.threads, "copies": options.copies}
    records.publish(options.keep, "memory", [table], settings=settings)
    if peak > options.limit:
        sys.exit(f"more than {options.limit} GB")


def write_corpus(folder: Path, pairs: int, repeated: list[Path] | None) -> list[Path]:
    """Writes `pairs` pairs, and the first of them as dev set."""
    different = list(islice(read_pairs(repeated) if repeated else invent_pairs(), pairs))
    files = [folder / "train.en", folder / "train.xx"]
    with files[0].open("w", encoding="utf-8") as source, files[1].open("w", encoding="utf-8") as target:
        for start in range(0, pairs, len(different)):
            number = f" {start // len(different)}\n" if start else "\n"
            some = different[: pairs - start]
            source.writelines(left + number for left, _ in some)
            target.writelines(right + number for _, right in some)
    for side, file in enumerate(files):
        lines = [f"{pair[side]}\n" for pair in different[:DEV]]
        file.with_name(f"dev{file.suffix}").write_text("".join(lines), encoding="utf-8")
    return files


def read_pairs(files: list[Path]) -> Iterator[tuple[str, str]]:
    """Returns the pairs of two files."""
    sides = [file.read_text(encoding="utf-8").removesuffix("\n").split("\n") for file in files]
    return zip(*sides, strict=True)


def invent_pairs() -> Iterator[tuple[str, str]]:
    """Yields sentences of 3 to 25 generated words; their translation is the same words spelt backwards."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    for _ in range(0, DIFFERENT, 10_000):
        stream = iter(dice.choices(words, weights, k=10_000 * 25))
        for _ in range(10_000):
            sentence = [next(stream) for _ in range(dice.randint(3, 25))]
            yield " ".join(sentence), " ".join(word[::-1] for word in sentence)


def train(
    files: list[Path], output: Path, steps: int, threads: int | None, copies: int
) -> tuple[float, list[tables.Row]]:
    """Trains; returns the GB that all processes held together at most, and a row for each phase."""
    dev = [str(file.with_name(f"dev{file.suffix}")) for file in files]
    command = [sys.executable, "-m", "regard", "train"]
    given = [*map(str, files), "-o", str(output), "--preset", "tiny", "--dev", *dev]
    given += ["--training.subword_sampling", "0", *(["--training.threads", str(threads)] if threads else [])]
    if copies == 1:
        return watch([*command, *given, *length(steps)])
    before, preparing = watch([*command, *given, *length(1)])
    pairs = copy_shards(output / "training" / "train", copies)
    print(f"{pairs:,} pairs, the same {copies} times", flush=True)
    peak, phases = watch([*command, "--resume", str(output), *length(steps + 1)])
    return max(before, peak), preparing + phases


def length(steps: int) -> list[str]:
    return ["--training.steps", str(steps), "--training.evaluate_every", str(steps)]


def copy_shards(folder: Path, copies: int) -> int:
    """Enlarges a corpus by copies of its files; returns its number of pairs."""
    about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
    shards = []
    for number in range(copies * len(about["shards"])):
        shard = about["shards"][number % len(about["shards"])]
        shards.append({**shard, "file": f"{number:05d}.bin"})
        if shard["file"] != shards[-1]["file"]:
            shutil.copyfile(folder / shard["file"], folder / shards[-1]["file"])
    about |= {"shards": shards, "pairs": copies * about["pairs"]}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return int(about["pairs"])


def watch(command: list[str]) -> tuple[float, list[tables.Row]]:
    """Runs a training and looks at its memory five times a second.

    Returns the GB that its processes held together at most, and a row for each phase that its output names.
    """
    rows, names, peaks, held = list[tables.Row](), ["starting"], dict[int, float](), 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        threading.Thread(target=collect_phases, args=(process.stdout, names), daemon=True).start()
        while process.poll() is None:
            if not rows or rows[-1]["what"] != names[-1]:
                rows.append({"what": names[-1], "seconds": 0.0, "peak GB": 0.0, "mapped files, GB": 0.0})
                began = time.monotonic()
            sizes = memory_of(process.pid)
            now, mapped = (sum(each[name] for each in sizes.values()) for name in ("RssAnon", "RssFile"))
            peaks |= {pid: each["VmHWM"] for pid, each in sizes.items()}
            held, rows[-1]["seconds"] = max(held, now), time.monotonic() - began
            rows[-1]["peak GB"] = max(rows[-1]["peak GB"], now)
            rows[-1]["mapped files, GB"] = max(rows[-1]["mapped files, GB"], mapped)
            time.sleep(0.2)
    if process.returncode:
        sys.exit("training failed")
    for number, peak in enumerate(peaks.values()):
        print(
            f"  peak of {f'process {number} that it started' if number else 'the command'}: {peak:.2f} GB", flush=True
        )
    places = {"seconds": 0, "peak GB": 2, "mapped files, GB": 2}
    return held, [row | {name: tables.rounded(row[name], places[name]) for name in places} for row in rows]


def memory_of(root: int) -> dict[int, dict[str, float]]:
    """Returns the GB that a process and those that it started hold, have mapped of files, and held at most."""
    found = {}
    for pid, status in program.process_tree(root).items():
        with contextlib.suppress(KeyError):  # a process that ends has no memory
            found[pid] = {name: int(status[name].split()[0]) * 1024 / 1e9 for name in ("RssAnon", "RssFile", "VmHWM")}
    return found


def collect_phases(lines: IO[str], names: list[str]) -> None:
    """Appends each phase that the output of a training begins."""
    for line in lines:
        if line.endswith(" ...\n"):
            names.append(line.removesuffix(" ...\n"))
        elif line.startswith(("Training on", "Training from step")):
            names.append("steps")
        elif line.startswith("dev at step"):
            names.append("the last scores")


if __name__ == "__main__":
    main()
