"""Processes large numbers of lines in shards, so that an interrupted run can resume.

FOLDER/
  00000.txt    output of the first shard; the suffix depends on the kind of work
  00000.json   written after the output: its key, its checksum and facts about it

The key is a digest of the settings, the shard's number and its lines. A later run reuses each shard whose key and
checksum match, and processes the others again. An executor processes the shards: `ThisProcess`, `WorkerProcesses`,
which replaces processes that die (worker_processes.py), or `RayCluster` (ray_cluster.py).
"""

from __future__ import annotations

import json
import shutil
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import asdict, dataclass
from hashlib import blake2b
from io import BytesIO
from itertools import count, islice
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from regard import errors
from regard.atomic_files import write_atomically, write_text
from regard.errors import DataError, ModelError, RegardError
from regard.tokens.token_shards import checksum

TRIES = 3
"""Number of workers that may die while processing a shard before the run fails."""


class ShardInput(NamedTuple):
    """The lines of one shard."""

    number: int
    first: int  # line number of the first line, counted from 1
    data: bytes  # UTF-8; each line ends with a line break

    def lines(self) -> Iterator[str]:
        return (line[:-1].decode() for line in BytesIO(self.data))


class ShardOutput(NamedTuple):
    """The result of one shard: the content of its file, and facts about it as JSON values."""

    data: bytes
    about: dict[str, Any]


Message = tuple[dict[str, Any], bytes]
"""JSON values and bytes, which processes and machines exchange."""
MakeShard = Callable[[ShardInput], Iterator[int | ShardOutput]]
"""A function that yields the number of lines done so far, any number of times, and finally the output."""


@dataclass(frozen=True, kw_only=True)
class Work(ABC):
    """A kind of work on lines; its settings are JSON values, so that any process can start it."""

    path: str  # folder of input files
    digest: str = ""  # digest of the input files; computed by default
    without_effect: ClassVar[frozenset[str]] = frozenset({"path"})
    """Fields that do not affect outputs."""
    line_for_line: ClassVar[bool] = False
    """Whether each line must produce exactly one line of output."""

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", digest_files(self.files()))

    @property
    def key(self) -> str:
        """The digest of all settings that affect outputs."""
        values = {name: value for name, value in asdict(self).items() if name not in self.without_effect}
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=12).hexdigest()

    @abstractmethod
    def files(self) -> dict[str, Path]:
        """Returns the input files by name; machines without them get copies."""

    @abstractmethod
    def start(self) -> MakeShard:
        """Loads the input files, and returns the function that processes a shard."""


class ShardMaker:
    """Processes shards in a worker, and converts outputs and errors to messages."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._make: MakeShard | None = None

    def make(self, shard: ShardInput) -> Message:
        """Returns the output of a shard, or a RegardError, as a message."""
        try:
            self._make = self._make or self.work.start()
            *_, output = self._make(shard)
        except RegardError as error:
            return {"error": str(error), "kind": type(error).__name__}, b""
        assert isinstance(output, ShardOutput)
        return {"about": output.about}, output.data


def output_in(message: Message) -> ShardOutput:
    """Returns the output in a worker's message, or raises the error in it."""
    about, data = message
    if "error" in about:
        raise getattr(errors, about["kind"], RegardError)(about["error"])
    return ShardOutput(data, about["about"])


class Executor(Protocol):
    """Processes shards in any order."""

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
        """Yields pairs of a shard's number and either its number of lines done so far or its output."""


class ThisProcess:
    """Processes one shard after another in this process."""

    def __init__(self, make: MakeShard | None = None) -> None:
        self.make = make  # None: start the work when needed

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
        make = self.make
        for shard in shards:
            make = make or work.start()
            yield from ((shard.number, step) for step in make(shard))


def make_in_threads(
    make: Callable[[ShardInput], ShardOutput], shards: Iterable[ShardInput], count: int, stop: Callable[[], None]
) -> Generator[tuple[int, ShardOutput], None, None]:
    """Processes `count` shards at a time, each in a thread that waits for a worker; reads one shard ahead.

    When no more outputs are needed, calls `stop`, which must end the workers that the threads wait for.
    """
    threads, waiting = ThreadPoolExecutor(count), dict[Future[ShardOutput], int]()
    try:
        for shard in shards:
            waiting[threads.submit(make, shard)] = shard.number
            if len(waiting) > count:
                yield from _first_outputs(waiting)
        while waiting:
            yield from _first_outputs(waiting)
    finally:
        stop()
        threads.shutdown(cancel_futures=True)


def _first_outputs(waiting: dict[Future[ShardOutput], int]) -> Iterator[tuple[int, ShardOutput]]:
    """Waits for the next finished shards and removes them from `waiting`; yields outputs before raising an error."""
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in sorted(done, key=lambda future: future.exception() is not None):
        yield waiting.pop(future), future.result()


@dataclass(frozen=True)
class SavedShard:
    """The output of a shard in the folder."""

    path: Path
    lines: int
    checksum: int  # CRC-32 of the file
    about: dict[str, Any]


@dataclass(frozen=True)
class LinesDone:
    """The progress of a run, in lines."""

    done: int
    reused: int  # how many of these an earlier run has done


class ResumableRun:
    """A run over all lines, which tracks the shards that are complete."""

    def __init__(self, folder: Path, work: Work, suffix: str) -> None:
        self.folder, self.work, self.suffix = folder, work, suffix
        self.complete: dict[int, SavedShard] = {}
        self.reused: set[int] = set()
        self.damaged: list[str] = []  # files with a wrong checksum, whose shards are processed again
        self._missing: dict[int, tuple[str, int]] = {}  # keys and numbers of lines of the shards in progress

    def run(
        self, lines: Iterable[str], size: int, executor: Executor | None = None
    ) -> Generator[LinesDone, None, None]:
        """Processes the missing shards of `size` lines each, and yields the progress."""
        self.folder.mkdir(parents=True, exist_ok=True)
        begun: dict[int, int] = {}
        with closing((executor or ThisProcess()).run(self.work, self._find_missing(lines, size))) as steps:
            for number, step in steps:
                if isinstance(step, ShardOutput):
                    self._save(number, step)
                    begun.pop(number, None)
                else:
                    begun[number] = step
                yield self._lines_done(sum(begun.values()))
        yield self._lines_done(0)

    @property
    def shards(self) -> list[SavedShard]:
        """The complete shards in the order of their lines."""
        return [self.complete[number] for number in sorted(self.complete)]

    def total(self, fact: str) -> int:
        """Returns the sum of a numeric fact over all shards."""
        return sum(shard.about[fact] for shard in self.shards)

    def join(self, path: Path) -> None:
        """Writes all outputs into one file, in the order of their lines."""

        def write(temporary: Path) -> None:
            with temporary.open("wb") as file:
                for shard in self.shards:
                    with shard.path.open("rb") as output:
                        shutil.copyfileobj(output, file)

        write_atomically(path, write)

    def _lines_done(self, begun: int) -> LinesDone:
        done = sum(shard.lines for shard in self.complete.values())
        return LinesDone(done + begun, sum(self.complete[number].lines for number in self.reused))

    def _find_missing(self, lines: Iterable[str], size: int) -> Iterator[ShardInput]:
        stream, settings_key = iter(lines), self.work.key
        for number in count():
            data = b"".join(f"{line}\n".encode() for line in islice(stream, size))
            if not data:
                return
            settings = blake2b(f"{number} {settings_key}".encode(), digest_size=32).digest()
            key, length = blake2b(data, digest_size=16, key=settings).hexdigest(), data.count(b"\n")
            saved = self._find(number, key, length)
            if saved is None:
                self._missing[number] = key, length
                yield ShardInput(number, number * size + 1, data)
            else:
                self.complete[number] = saved
                self.reused.add(number)

    def _find(self, number: int, key: str, lines: int) -> SavedShard | None:
        """Returns a shard from an earlier run if it has this key and is undamaged."""
        path = self._path(number)
        try:
            record = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
            saved = SavedShard(path, lines, record["checksum"], record["about"])
            if record["key"] != key:
                return None
        except (OSError, ValueError, KeyError, TypeError):
            return None
        if not path.is_file() or checksum(path) != saved.checksum:
            self.damaged.append(path.name)
            return None
        return saved

    def _save(self, number: int, output: ShardOutput) -> None:
        """Writes an output, followed by the record that makes it reusable."""
        key, lines = self._missing.pop(number)
        written = output.data.count(b"\n")
        if self.work.line_for_line and written != lines:
            raise ModelError(f"shard {number} has {written:,} lines instead of {lines:,}: please report this bug")
        path = self._path(number)
        saved = SavedShard(path, lines, zlib.crc32(output.data), output.about)
        path.with_suffix(".json").unlink(missing_ok=True)
        write_atomically(path, lambda temporary: temporary.write_bytes(output.data))
        record = {"key": key, "checksum": saved.checksum, "about": saved.about}
        write_text(path.with_suffix(".json"), json.dumps(record, ensure_ascii=False))
        self.complete[number] = saved

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05d}.{self.suffix}"


def lost_workers(shard: ShardInput, how: str) -> DataError:
    last = shard.first + shard.data.count(b"\n") - 1
    return DataError(
        f"shard {shard.number} (lines {shard.first:,} to {last:,}): its worker died {TRIES} times ({how}). Finished "
        "shards are kept: run the command again with fewer workers, which need less memory"
    )


def digest_files(files: Mapping[str, Path]) -> str:
    digest = blake2b(digest_size=12)
    for name, path in files.items():
        digest.update(name.encode() + b"\0")
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()
