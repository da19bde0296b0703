"""One way to work through very many lines: in shards, none of which is made twice.

FOLDER/
  00000.txt    the output of the first shard; each kind of work has its suffix
  00000.json   written after it: its key, its checksum and facts about it

The key is a digest of the settings, the number of the shard and its lines. A later run reuses each shard whose key and
checksum are right, and makes the others again. An executor makes the shards: `ThisProcess`, `WorkerProcesses`, which
replaces processes that die (worker_processes.py), or `RayCluster` (ray_cluster.py).
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
"""Workers that may die over a shard before the run ends with an error."""


class ShardInput(NamedTuple):
    """The lines of one shard."""

    number: int
    first: int  # number of its first line, counted from 1
    data: bytes  # in UTF-8, each line with its line end

    def lines(self) -> Iterator[str]:
        return (line[:-1].decode() for line in BytesIO(self.data))


class ShardOutput(NamedTuple):
    """The result of one shard: the content of a file, and facts about it in JSON."""

    data: bytes
    about: dict[str, Any]


Message = tuple[dict[str, Any], bytes]
"""Values in JSON and bytes, which processes and machines exchange."""
MakeShard = Callable[[ShardInput], Iterator[int | ShardOutput]]
"""Yields the number of lines done so far, as often as it likes, and finally the output."""


@dataclass(frozen=True, kw_only=True)
class Work(ABC):
    """One kind of work on lines, with its settings in JSON values, so that any process can start it."""

    path: str  # the folder that it reads
    digest: str = ""  # of what it reads there; computed unless it is given
    without_effect: ClassVar[frozenset[str]] = frozenset({"path"})
    """Fields that do not change an output."""
    line_for_line: ClassVar[bool] = False
    """Each line gives one line of output; another number is an error."""

    def __post_init__(self) -> None:
        if not self.digest:
            object.__setattr__(self, "digest", digest_files(self.files()))

    @property
    def key(self) -> str:
        """Returns a digest of all settings that an output depends on."""
        values = {name: value for name, value in asdict(self).items() if name not in self.without_effect}
        return blake2b(json.dumps(values, sort_keys=True).encode(), digest_size=12).hexdigest()

    @abstractmethod
    def files(self) -> dict[str, Path]:
        """Returns the files that `start` reads, by name; a machine without them gets copies."""

    @abstractmethod
    def start(self) -> MakeShard:
        """Loads the files, and returns the function that makes a shard."""


class ShardMaker:
    """Makes shards in a worker, whose work starts with the first of them; outputs and errors become messages."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self._make: MakeShard | None = None

    def make(self, shard: ShardInput) -> Message:
        """Returns the output of a shard, or an error of the user's, as a message."""
        try:
            self._make = self._make or self.work.start()
            *_, output = self._make(shard)
        except RegardError as error:
            return {"error": str(error), "kind": type(error).__name__}, b""
        assert isinstance(output, ShardOutput)
        return {"about": output.about}, output.data


def output_in(message: Message) -> ShardOutput:
    """Returns the output in the message of a worker; raises the error in it."""
    about, data = message
    if "error" in about:
        raise getattr(errors, about["kind"], RegardError)(about["error"])
    return ShardOutput(data, about["about"])


class Executor(Protocol):
    """Makes shards in any order, each until it is done."""

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
        """Yields pairs: the number of a shard, and its lines done so far or its output."""


class ThisProcess:
    """Makes one shard after another in this process."""

    def __init__(self, make: MakeShard | None = None) -> None:
        self.make = make  # already started

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, int | ShardOutput], None, None]:
        make = self.make
        for shard in shards:
            make = make or work.start()
            yield from ((shard.number, step) for step in make(shard))


def make_in_threads(
    make: Callable[[ShardInput], ShardOutput], shards: Iterable[ShardInput], count: int, stop: Callable[[], None]
) -> Generator[tuple[int, ShardOutput], None, None]:
    """Makes `count` shards at the same time, each in a thread that waits for a worker; reads one shard more than that.

    When no more outputs are needed, `stop` ends what the threads wait for.
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
    """Removes the first finished shards from `waiting`, and yields outputs before it raises an error."""
    done, _ = wait(waiting, return_when=FIRST_COMPLETED)
    for future in sorted(done, key=lambda future: future.exception() is not None):
        yield waiting.pop(future), future.result()


@dataclass(frozen=True)
class SavedShard:
    """An output in the folder."""

    path: Path
    lines: int
    checksum: int  # CRC-32 of the file
    about: dict[str, Any]


@dataclass(frozen=True)
class LinesDone:
    """The progress of a run, in lines."""

    done: int
    reused: int  # of these, done by an earlier run


class ResumableRun:
    """One run through the lines, and the shards that are complete."""

    def __init__(self, folder: Path, work: Work, suffix: str) -> None:
        self.folder, self.work, self.suffix = folder, work, suffix
        self.complete: dict[int, SavedShard] = {}
        self.reused: set[int] = set()
        self.damaged: list[str] = []  # files that were not as written, and are made again
        self._missing: dict[int, tuple[str, int]] = {}  # keys and lines of the shards being made

    def run(
        self, lines: Iterable[str], size: int, executor: Executor | None = None
    ) -> Generator[LinesDone, None, None]:
        """Makes the shards of `size` lines that are missing, and yields how far it is."""
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
        """Returns the sum of a number that outputs have among their facts."""
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
        """Returns a shard that an earlier run completed, if it has this key and is undamaged."""
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
        """Writes an output, and then the record that makes it reusable."""
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
    """Returns the error for a shard whose workers all died."""
    last = shard.first + shard.data.count(b"\n") - 1
    return DataError(
        f"shard {shard.number} (lines {shard.first:,} to {last:,}): its worker ended {TRIES} times ({how}). Finished "
        "shards are kept: run the command again with fewer workers, each of which needs memory"
    )


def digest_files(files: Mapping[str, Path]) -> str:
    """Returns a digest of the names and contents of files."""
    digest = blake2b(digest_size=12)
    for name, path in files.items():
        digest.update(name.encode() + b"\0")
        with path.open("rb") as file:
            while part := file.read(1 << 20):
                digest.update(part)
    return digest.hexdigest()
