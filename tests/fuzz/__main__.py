"""Fuzzing: files with random damage are refused in one line or read, and documents are written again as they are.

python -m tests.fuzz --inputs 1000000    (make fuzz; a short run is one of the tests)
"""

from __future__ import annotations

import argparse
import gzip
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from tests.fuzz.damage import damaged, enlarged
from tests.fuzz.documents import DOCUMENTS, examine_document
from tests.fuzz.model_files import examine_model_file, model_files

SECONDS = 10.0  # of computing for one input
MEMORY = 1 << 32  # bytes of addresses for all
ROUND = 50  # inputs from each file, after which the progress is shown
LARGE_INPUTS = 5  # large inputs of documents in a round


@dataclass
class Run:
    """Goes through random inputs, and counts the outcomes."""

    folder: Path
    names: Sequence[str]
    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    slowest: float = 0.0

    def round(self, number: int, count: int) -> None:
        """Examines inputs that depend on the number of the round alone, `count` from each file."""
        for name in self.names:
            random = Random(f"{number} {name}")
            for _ in range(count):
                self.one(name, random_input(name, random))
        random = Random(number)
        documents = [name for name in self.names if name in DOCUMENTS]
        for name in random.choices(documents, k=LARGE_INPUTS) if documents else []:
            content = DOCUMENTS[name]
            if name.endswith(".gz"):
                self.one(name, gzip.compress(enlarged(gzip.decompress(content), random), 1, mtime=0))
            else:
                self.one(name, enlarged(content, random))

    def one(self, name: str, content: bytes) -> None:
        """Examines one input, which must end in time."""
        signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
        began = time.process_time()
        try:
            outcome = examine(self.folder, name, content)
        except Exception as error:
            raise AssertionError(f"{name}: {content[:2_000]!r}, {len(content):,} bytes") from error
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        self.slowest = max(self.slowest, time.process_time() - began)
        self.inputs += 1
        self.outcomes[outcome] += 1


def sample(name: str) -> bytes:
    """Returns the sound file of this name."""
    return DOCUMENTS[name] if name in DOCUMENTS else model_files()[name].content


def all_names() -> list[str]:
    return [*DOCUMENTS, *model_files()]


def random_input(name: str, random: Random, content: bytes | None = None) -> bytes:
    """Returns a damaged file."""
    content = sample(name) if content is None else content
    if name in DOCUMENTS or random.random() < 0.3:
        return damaged(content, random)
    return model_files()[name].alter(content, random)


def examine(folder: Path, name: str, content: bytes) -> str:
    """Reads a file in a folder of its own; returns whether it was refused. Other errors than Regard's are bugs."""
    if name in DOCUMENTS:
        return examine_document(folder / name, content)
    place = folder / name
    place.mkdir(exist_ok=True)
    return examine_model_file(place / name.split(".", name.count(".") - 1)[-1], content)


@contextmanager
def folder_in_memory() -> Iterator[Path]:
    in_memory = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as folder:
        yield Path(folder)


def too_slow(_number: int, _frame: object) -> None:
    raise TimeoutError(f"an input took more than {SECONDS} seconds")


def fuzz(inputs: int, first: int, show: Callable[[str], object], names: Sequence[str]) -> Run:
    """Examines some inputs, from a seed on; raises an error for the first bug."""
    before = signal.signal(signal.SIGVTALRM, too_slow)
    began = time.monotonic()
    with folder_in_memory() as folder:
        run = Run(folder, names)
        while run.inputs < inputs:
            run.round(first, min(ROUND, -(-(inputs - run.inputs) // len(names))))
            first += 1
            speed = run.inputs / (time.monotonic() - began)
            outcomes = ", ".join(f"{count:,} {name}" for name, count in sorted(run.outcomes.items()))
            show(f"{run.inputs:,} of {inputs:,} inputs: {outcomes}; {speed:,.0f} a second, slowest {run.slowest:.2f} s")
    signal.signal(signal.SIGVTALRM, before)
    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first round; other seeds give other inputs")
    parser.add_argument("--only", nargs="+", default=all_names(), metavar="NAME", help="which of the files to damage")
    arguments = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    run = fuzz(arguments.inputs, arguments.seed, lambda line: print(line, flush=True), arguments.only)
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"{run.inputs:,} inputs without a fault; {most:,} MB at most", file=sys.stderr)


if __name__ == "__main__":
    main()
