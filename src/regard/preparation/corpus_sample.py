"""Creates small samples of corpora, which are used to measure the cost of training."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from regard.errors import DataError
from regard.files.corpus import clean, read_pairs
from regard.files.corpus_report import Report, require_kept
from regard.files.formats import running_text as running
from regard.settings import DataSettings

MOST_PAIRS, MOST_CHARACTERS, DEV = 50_000, 3_000_000, 200
SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
WORDS = 30_000
TOKENS_A_WORD = 1.6
"""Average number of tokens per invented word, with a vocabulary of a few thousand tokens."""


@dataclass(frozen=True)
class Sample:
    """Files with a sample of a corpus, and the sizes of both."""

    train: list[Path]
    dev: list[Path]
    size: int  # size of the sample in pairs or characters
    whole: int  # size of the corpus in pairs or characters
    tokens: int | None = None  # number of tokens in the corpus, if known


def sample_pairs(files: list[Path], data: DataSettings, folder: Path) -> Sample:
    """Samples every n-th pair of a corpus, which is read once; n doubles whenever the sample becomes too large."""
    report, rows, step = Report(), list[str](), 1
    for number, pair in enumerate(clean(read_pairs(files, data, report), data, report)):
        if number % step == 0:
            rows.append(f"{pair.source}\t{pair.target}\n")
            if len(rows) > MOST_PAIRS:
                del rows[1::2]
                step *= 2
    require_kept(report, files)
    if len(rows) < 2:
        raise DataError(f"{' and '.join(map(str, files))}: too few pairs for an estimate, which needs at least 2")
    return _write_sample(rows, folder, "tsv", report.kept)


def sample_texts(files: list[Path], data: DataSettings, folder: Path) -> Sample:
    """Samples the beginning of running text, but reads all of it to determine its size."""
    rows, whole, size = list[str](), 0, 0
    for part in running.read(files, data, Report()):
        whole += len(part.text)
        if size < MOST_CHARACTERS:
            rows += [line + "\n" for line in part.text.split("\n") if line.strip()]
            size += len(part.text)
    if not rows:
        raise DataError(f"{' and '.join(map(str, files))}: contains no text")
    return _write_sample(rows, folder, "txt", whole, sum(map(len, rows)))


def invented_pairs(pairs: int, tokens: int, folder: Path) -> Sample:
    """Generates a corpus of a given size: random words, and the same words spelled backwards as targets."""
    mean = tokens / pairs / 2 / TOKENS_A_WORD
    sentences = islice(_sentences(mean), min(pairs, MOST_PAIRS // 2))
    rows = [f"{' '.join(words)}\t{' '.join(word[::-1] for word in words)}\n" for words in sentences]
    return _write_sample(rows, folder, "tsv", pairs, tokens=tokens)


def invented_texts(tokens: int, folder: Path) -> Sample:
    """Generates random running text of a given size."""
    rows = [" ".join(row) + ".\n" for row in islice(_sentences(15), 30_000)]
    size = sum(map(len, rows))
    return _write_sample(rows, folder, "txt", size, size, tokens)


def _sentences(mean: float) -> Iterable[list[str]]:
    """Yields random sentences of about `mean` words, which follow a Zipf distribution."""
    dice = random.Random(0)
    words = ["".join(dice.choices(SYLLABLES, k=dice.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 3) for rank in range(WORDS)]
    pool = dice.choices(words, weights, k=200_000)
    while True:
        length = max(1, round(dice.gauss(mean, mean / 3)))
        start = dice.randrange(len(pool) - length) if length < len(pool) else 0
        yield pool[start : start + length]


def _write_sample(
    rows: list[str], folder: Path, form: str, whole: int, size: int | None = None, tokens: int | None = None
) -> Sample:
    dev_rows = min(DEV, len(rows) // 2)
    train, dev = folder / f"sample.{form}", folder / f"dev.{form}"
    dev.write_text("".join(rows[:dev_rows]), encoding="utf-8", newline="\n")
    train.write_text("".join(rows[dev_rows:]), encoding="utf-8", newline="\n")
    return Sample([train], [dev], size or len(rows), whole, tokens)
