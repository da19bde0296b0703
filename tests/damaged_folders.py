"""Damages model folders at random: each is refused in one line, or gives exactly the answers of the undamaged folder.

python -m tests.damaged_folders --inputs 10000    (make damage; a short run is one of the tests)

Each input is one damage to one file, or two swapped files, in a copy of one of several folders. A process of its own
opens the copy: a crash, and more than 2 seconds of computing, end that process and are reported.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any

import regard
from regard.decoding.translator import Translator
from regard.decoding.verify_model_folder import find_faults
from regard.decoding.writer import Writer
from regard.errors import RegardError
from regard.faithful import translation_memory
from regard.interop.int8_folder import quantize_folder
from regard.jobs.shortlist_learning import learn_shortlist
from regard.model_folder import CONFIDENCE, MEMORY
from regard.model_manifest import write_manifest
from regard.serving.served_models import read_examples
from tests.interop.toys import settings_of, write_foreign, write_model
from tests.training.corpora import SMALL, write_reversals

SECONDS, WAITING = 2.0, 60.0
"""Seconds of computing that an input may cost, and seconds after which a process that does not compute is ended."""
MEMORY_BYTES = 4 << 30
TEXTS = ["1 2 3", "A cat reads.", "7 7 0 4"]
WAYS = ("native", "torch", "verify")
"""A folder is opened with one of the two engines, or checked first by `regard verify`."""

Answers = list[Any]
Outcome = tuple[str, str, float]  # refused, same, wrong or crash; a message; seconds of computing


def build_folders(place: Path) -> None:
    """Writes a model of each kind to `place/KIND`, and another model of the same shape to `place/KIND.other`."""
    corpus = write_reversals(place, 300)
    for suffix, seed in (("", 1), (".other", 2)):
        folder = place / f"translator{suffix}"
        extras = {"data.memory": "on", "training.history": 2, "training.seed": seed}
        for _ in regard.train(corpus, folder, overrides={**SMALL, **extras}):
            pass
        learn_shortlist(folder)
        quantize_folder(folder, place / f"int8{suffix}")
        write_manifest(write_foreign(place / f"writer{suffix}"))
        for task in ("classify", "fill"):
            write_manifest(write_model(place / f"{task}{suffix}", settings_of(task), seed))
    for path in corpus:
        path.unlink()
    for folder in kinds(place).values():  # the native engine packs its weights when it first opens a folder
        find_answers(folder, "native", shortlist=False)


def kinds(place: Path) -> dict[str, Path]:
    """Returns the folders that are damaged."""
    return {path.name: path for path in sorted(place.iterdir()) if path.suffix != ".other"}


def find_answers(folder: Path, way: str, *, shortlist: bool) -> Answers:
    """Opens a folder and returns its answers to a few texts, with all their numbers."""
    if way == "verify" and (faults := find_faults(folder)):
        raise RegardError(faults[0])
    engine = "torch" if way == "torch" else "auto"
    model = regard.load(folder, "cpu", engine=engine, threads=1, shortlist=shortlist)
    read_examples(folder)  # a server compares them; they do not change answers
    if isinstance(model, Translator):
        memory = None
        if (folder / MEMORY).exists():  # as --memory auto does
            memory = sorted(translation_memory.open_recorded(folder).targets.items())
        return [*model.translate(TEXTS, beam=2, alternatives=1), memory]
    if isinstance(model, Writer):
        return list(model.write(TEXTS, max_tokens=5, temperature=0.0, beam=2))
    if isinstance(model, regard.Classifier):
        return list(model.classify(TEXTS))
    return list(model.fill("A [MASK].")) if isinstance(model, regard.Filler) else []


def find_difference(answers: Answers, expected: Answers, folder: Path) -> str:
    """Compares answers; a folder may lose its curve of confidence and its translation memory, which are optional."""
    if len(answers) == len(expected) == len(TEXTS) + 1:
        if not (folder / CONFIDENCE).exists():
            expected = [replace_confidence(each) for each in expected[:-1]] + expected[-1:]
        if not (folder / MEMORY).exists():
            expected = [*expected[:-1], None]
    pairs = zip_longest(map(repr, answers), map(repr, expected))
    return "; ".join(f"{answer} instead of {right}" for answer, right in pairs if answer != right)


def replace_confidence(translation: regard.Translation) -> regard.Translation:
    others = tuple(replace_confidence(each) for each in translation.alternatives)
    return regard.Translation(**{**vars(translation), "confidence": None, "alternatives": others})


def flip_bits(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice([1, 1, 1, 8, 64])):
        changed[random.randrange(len(changed))] ^= 1 << random.randrange(8)
    return bytes(changed)


def cut(content: bytes, random: Random) -> bytes:
    return content[: random.choice([0, 1, len(content) - 1, random.randrange(len(content))])]


def lengthen(content: bytes, random: Random) -> bytes:
    return content + random.choice([b"\0", b"\n", b"}", random.randbytes(100), content])


def overwrite_block(content: bytes, random: Random) -> bytes:
    start, size = random.randrange(len(content)), random.choice([4, 64, 4096])
    return content[:start] + random.choice([bytes(size), random.randbytes(size)]) + content[start + size :]


def move_block(content: bytes, random: Random) -> bytes:
    start, size, target = random.randrange(len(content)), random.randrange(1, 200), random.randrange(len(content))
    block, rest = content[start : start + size], content[:start] + content[start + size :]
    return rest[:target] + block + rest[target:]


def edit_word(content: bytes, random: Random) -> bytes:
    """Replaces a word or number of TOML, JSON or a header of safetensors, as an editor would: it stays well-formed."""
    header = 8 + int.from_bytes(content[:8], "little")
    text = content[8:header] if 8 < header < len(content) else content
    words = list(re.finditer(rb"[\w.+-]+", text[:1_000_000]))
    if not words:
        return b"0"
    word = random.choice(words)
    values = [b"0", b"-1", b"1e9", b"true", b"null", b'"x"', b"99999999", b"[]", random.choice(words)[0]]
    if word[0].isdigit():
        values += [b"%d" % (int(word[0]) + step) for step in (-1, 1, 1)] * 3
    edited = text[: word.start()] + random.choice(values) + text[word.end() :]
    return edited if text is content else len(edited).to_bytes(8, "little") + edited + content[header:]


def drop_line(content: bytes, random: Random) -> bytes:
    lines = content.split(b"\n")
    del lines[random.randrange(len(lines))]
    return b"\n".join(lines)


CHANGES: Sequence[Callable[[bytes, Random], bytes]] = (
    *(flip_bits, flip_bits, cut, lengthen, overwrite_block, move_block, edit_word, edit_word, drop_line),
)


def damage(folder: Path, other: Path, random: Random) -> str:
    """Damages a file of a folder, and returns what was done; half of the time, the file keeps its time."""
    entry = random.choice(sorted(folder.iterdir()))
    path = entry if entry.is_file() else random.choice(sorted(each for each in entry.rglob("*") if each.is_file()))
    name, content, times = path.relative_to(folder), path.read_bytes(), path.stat()
    kept = random.random() < 0.5
    way = random.randrange(len(CHANGES) + 3)
    if way < len(CHANGES) and content:
        done = f"{CHANGES[way].__name__} {name}"
        path.write_bytes(CHANGES[way](content, random))
    elif way == len(CHANGES):
        path.unlink()
        return f"remove {name}"
    elif way == len(CHANGES) + 1 and (other / name).is_file():
        done = f"take {name} from another model"
        path.write_bytes((other / name).read_bytes())
    else:
        second = random.choice(sorted(each for each in folder.iterdir() if each.is_file()))
        done = f"swap {name} and {second.name}"
        path.write_bytes(second.read_bytes())
        second.write_bytes(content)
    if kept:
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return f"{done}{', same time' * kept}"


def examine(place: Path, number: int, expected: dict[Any, Answers]) -> tuple[str, Outcome]:
    """Damages a copy of one of the folders, opens it, and returns what was done and what came of it."""
    random = Random(number)
    kind, way, shortlist = random.choice(sorted(kinds(place))), random.choice(WAYS), random.random() < 0.5
    original, folder = place / kind, place.with_name("copy") / kind
    shortlist = shortlist and kind in ("translator", "int8")
    if (kind, way, shortlist) not in expected:
        expected[kind, way, shortlist] = find_answers(original, way, shortlist=shortlist)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original, folder)
    done = f"{number}: {kind}, {way}{', shortlist' * shortlist}: {damage(folder, place / f'{kind}.other', random)}"
    began = time.process_time()
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # the signal ends the process, whatever it is doing
    try:
        answers = find_answers(folder, way, shortlist=shortlist)
        message = find_difference(answers, expected[kind, way, shortlist], folder)
        outcome = "wrong" if message else "same"
    except RegardError as error:
        message = str(error)
        outcome = "several lines" if "\n" in message else "refused"
    except BaseException as error:  # noqa: BLE001 (also a panic of Rust)
        outcome, message = "crash", f"{type(error).__name__}: {error}"
    signal.setitimer(signal.ITIMER_PROF, 0)
    return done, (outcome, message, time.process_time() - began)


def work(connection: Connection, place: Path, numbers: Sequence[int]) -> None:
    """Examines inputs one after the other; announces each before and reports it afterwards."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl+C ends the run, and is no crash of a folder
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    expected: dict[Any, Answers] = {}
    for number in numbers:
        connection.send(number)
        connection.send(examine(place, number, expected))


@dataclass
class DamageReport:
    """The outcomes of a run."""

    outcomes: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    slowest: tuple[float, str] = (0.0, "")  # seconds of computing, and the input that took them

    def add(self, done: str, outcome: Outcome) -> None:
        kind, message, seconds = outcome
        self.outcomes[kind] += 1
        self.slowest = max(self.slowest, (seconds, done))
        if kind not in ("refused", "same"):
            self.faults.append(f"{kind}: {done} ({message})")

    def __str__(self) -> str:
        counts = ", ".join(f"{count:,} {name}" for name, count in sorted(self.outcomes.items()))
        slowest = f"{self.slowest[0]:.2f} s ({self.slowest[1]})"
        return f"{self.outcomes.total():,} damaged folders: {counts}; slowest {slowest}"


def run(numbers: Sequence[int]) -> Iterator[DamageReport]:
    """Examines the inputs with these numbers; yields the report whenever an input is done."""
    report, context = DamageReport(), multiprocessing.get_context("spawn")
    in_memory = Path("/dev/shm")  # noqa: S108 (a folder of our own is made in it)
    with tempfile.TemporaryDirectory(dir=in_memory if in_memory.is_dir() else None) as temporary:
        place = Path(temporary) / "folders"
        place.mkdir()
        builder = context.Process(target=build_folders, args=(place,))
        builder.start()
        builder.join()
        assert builder.exitcode == 0, "the folders could not be built"
        left = list(numbers)
        while left:
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=work, args=(sender, place, left), daemon=True)
            process.start()
            sender.close()
            try:
                for done, outcome in receive(receiver, process):
                    number = left.pop(0)
                    if outcome[0] == "wrong":
                        outcome = confirm(place, number, outcome)
                    report.add(done, outcome)
                    yield report
            finally:  # an interrupted run ends the process before the folders are removed that it compares
                process.kill()
                process.join()


def confirm(place: Path, number: int, outcome: Outcome) -> Outcome:
    """Examines a folder with a wrong answer again, alone in a new process, and keeps it for a closer look."""
    kept = Path(tempfile.mkdtemp(prefix=f"damaged-{number}-"))
    shutil.copytree(place, kept / "folders")
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    process = context.Process(target=work, args=(sender, kept / "folders", [number]), daemon=True)
    process.start()
    sender.close()
    [(_, again)] = receive(receiver, process)
    return outcome[0], f"{outcome[1]}; alone: {again[0]}; {kept} has the folders", outcome[2]


def receive(receiver: Connection, process: Any) -> Iterator[tuple[str, Outcome]]:
    """Yields the outcomes that a process reports; the last one is the crash or the hang that ended it."""
    number = None
    try:
        while True:
            number = None
            if not receiver.poll(WAITING):
                process.kill()
            number = receiver.recv()
            if not receiver.poll(WAITING):
                process.kill()
            yield receiver.recv()
    except EOFError:
        process.join()
        if number is not None:
            hangs = process.exitcode in (-signal.SIGPROF, -signal.SIGKILL)
            yield f"{number}", ("hang" if hangs else "crash", f"exit code {process.exitcode}", SECONDS * hangs)
        else:
            assert process.exitcode == 0, f"the process ended with {process.exitcode} between inputs"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0, help="of the first input; other seeds give other inputs")
    arguments = parser.parse_args()
    report, ending = DamageReport(), ""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for report in run(range(arguments.seed, arguments.seed + arguments.inputs)):
            if report.outcomes.total() % 500 == 0:
                print(*report.faults, report, sep="\n", flush=True)
    except KeyboardInterrupt:
        ending = " (interrupted)"
    print(*report.faults, f"{report}{ending}", sep="\n", file=sys.stderr)
    return 1 if report.faults or ending else 0


if __name__ == "__main__":
    sys.exit(main())
