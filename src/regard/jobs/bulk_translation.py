"""Very many lines, translated in shards side by side: every line gives one line, in order, and no shard is made twice.

OUTPUT.shards/   while it goes on, beside the output
  about.json     what is translated by what: another model or other options are refused
  00000-KEY-CRC.txt   a finished shard; KEY is a digest of its source, CRC the checksum of what is in it

Whoever can do jobs does them: processes of this machine (`workers.py`) or a cluster (`cluster.py`).
"""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
import zlib
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, dataclass
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Protocol

from regard.atomic_files import write_atomically, write_text
from regard.decoding.translator import WINDOW
from regard.errors import InputError, ModelError
from regard.jobs.output_lines import rows_of
from regard.jobs.worker_processes import Message, Work, serve
from regard.model_folder import CONFIDENCE, SETTINGS, TOKENIZER, WEIGHTS, check_folder

SHARD = 5 * WINDOW
"""Lines that are translated by one process, and saved, together."""

Form = Literal["text", "scores", "json"]


@dataclass(frozen=True)
class Order:
    """How lines shall be translated; the same for all."""

    model: str
    digest: str  # of the model's files
    engine: dict[str, Any]  # as `load_as` takes it
    options: dict[str, Any]  # as `translate` takes them
    protect: bool = False
    form: Form = "text"

    @property
    def key(self) -> str:
        """What tells two orders apart whose translations may differ; where a model lies is no matter."""
        values = {name: value for name, value in asdict(self).items() if name != "model"}
        values["engine"].pop("threads")  # which changes nothing but the time
        return digest_of(json.dumps(values, sort_keys=True).encode())


class Executor(Protocol):
    """What does jobs, in any order, each until it is done."""

    def run(self, jobs: Iterable[Message]) -> Generator[Message, None, None]: ...


@dataclass(frozen=True)
class Progress:
    """How far a translation has come, in lines."""

    done: int
    there: int  # of these, what an earlier command had done


class Bulk:
    """One file to be translated."""

    def __init__(self, output: Path, order: Order, size: int = SHARD) -> None:
        self.output, self.order, self.size = output, order, size
        self.folder = output.with_name(f"{output.name}.shards")
        self.files: dict[int, str] = {}
        self.counts: dict[int, int] = {}  # lines of each shard
        self.made: set[int] = set()  # by this command

    def run(self, lines: Iterable[str], executor: Executor) -> Iterator[Progress]:
        """Translates what is not translated yet, and puts all of it together."""
        with self.claimed():
            with contextlib.closing(executor.run(self.missing(lines))) as answers:
                for answer in answers:
                    self.keep(answer)
                    yield self.progress()
            self.join()
            yield self.progress()

    def progress(self) -> Progress:
        lines = {number: self.counts[number] for number in self.files}
        return Progress(sum(lines.values()), sum(count for number, count in lines.items() if number not in self.made))

    @contextlib.contextmanager
    def claimed(self) -> Iterator[None]:
        """The folder of the shards, if it is there for the same order, and for nobody else at the same time."""
        about = {"key": self.order.key, "lines": self.size}
        path = self.folder / "about.json"
        if path.exists():
            with contextlib.suppress(ValueError):
                if json.loads(path.read_text(encoding="utf-8")) == about:
                    about = {}
            if about:
                raise InputError(
                    f"{self.folder}: has shards of another model, of other options or of another length: go on with "
                    "the same command, or remove the folder"
                )
        elif self.folder.is_dir() and any(self.folder.iterdir()):
            raise InputError(f"{self.folder}: holds something else than shards: move it, or name another file with -o")
        else:
            write_text(path, json.dumps(about))
        with locked(self.folder):
            yield

    def missing(self, lines: Iterable[str]) -> Iterator[Message]:
        """The shards that have to be translated."""
        stream, there = iter(lines), self.shards_there()
        number = 0
        while chunk := list(islice(stream, self.size)):
            source = "".join(f"{line}\n" for line in chunk).encode()
            self.counts[number] = len(chunk)
            name = there.get((number, digest_of(source)))
            if name is not None:
                self.files[number] = name
            else:
                yield Message({"shard": number, "first": number * self.size + 1, "key": digest_of(source)}, source)
            number += 1

    def shards_there(self) -> dict[tuple[int, str], str]:
        """The whole shards by number and source; what is damaged is removed."""
        found = {}
        for path in self.folder.glob("*.txt"):
            parts = re.fullmatch(r"(\d+)-([0-9a-f]+)-([0-9a-f]{8})\.txt", path.name)
            if parts and zlib.crc32(path.read_bytes()) == int(parts[3], 16):
                found[int(parts[1]), parts[2]] = path.name
            elif parts:
                path.unlink()
        return found

    def keep(self, answer: Message) -> None:
        """Saves a shard that was translated."""
        number, data = answer.about["shard"], answer.data
        if data.count(b"\n") != self.counts[number]:
            raise ModelError(
                f"shard {number} has {data.count(bytes([10])):,} lines of {self.counts[number]:,}: a defect"
            )
        name = f"{number:05d}-{answer.about['key']}-{zlib.crc32(data):08x}.txt"
        write_atomically(self.folder / name, lambda path: path.write_bytes(data))
        self.files[number] = name
        self.made.add(number)

    def join(self) -> None:
        """Puts the shards together as the output, and removes them."""

        def write(path: Path) -> None:
            with path.open("wb") as file:
                for number in sorted(self.files):
                    with (self.folder / self.files[number]).open("rb") as shard:
                        shutil.copyfileobj(shard, file)

        write_atomically(self.output, write)
        shutil.rmtree(self.folder)


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Refuses a second command that works in the same folder, where the system can tell."""
    with (folder / "lock").open("w") as file:
        if sys.platform != "win32":
            import fcntl

            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise InputError(f"{folder}: another command is translating into it") from None
        yield


def digest_of(data: bytes) -> str:
    return blake2b(data, digest_size=12).hexdigest()


def model_files(folder: Path) -> dict[str, Path]:
    """The files of a model that decide what it says."""
    check_folder(folder)
    names = (SETTINGS, TOKENIZER, WEIGHTS, CONFIDENCE)
    return {name: folder / name for name in names if (folder / name).is_file()}


def model_digest(folder: Path) -> str:
    """What tells one model from another."""
    found = blake2b(digest_size=12)
    for name, path in model_files(folder).items():
        found.update(name.encode() + b"\0")
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                found.update(part)
    return found.hexdigest()


class Translating:
    """What does a job: a model, loaded once."""

    def __init__(self, order: Order) -> None:
        from regard.decoding.model_loading import load_as
        from regard.decoding.translator import Translator
        from regard.faithful.faithful_translation import Faithful

        translator = load_as(Translator, order.model, **order.engine)
        self.order = order
        self.stream = Faithful(translator).translate_stream if order.protect else translator.translate_stream

    def __call__(self, job: Message) -> Message:
        """The translations of the lines of a shard, each a line."""
        lines = job.data.decode().split("\n")[:-1]
        try:
            found = list(self.stream(lines, **self.order.options))
        except InputError as error:
            raise InputError(renumbered(str(error), job.about["first"])) from None
        form = self.order.form
        rows = (row for each in found for row in rows_of(0, each, scores=form == "scores", as_json=form == "json"))
        return Message(job.about, "".join(f"{row}\n" for row in rows).encode())


def renumbered(message: str, first: int) -> str:
    """What is said of text 3 of a shard as of that text of the file."""
    return re.sub(r"^text (\d+):", lambda found: f"line {int(found[1]) + first - 1}:", message)


def start(setup: dict[str, Any]) -> Work:
    return Translating(Order(**setup))


if __name__ == "__main__":
    serve(start)
