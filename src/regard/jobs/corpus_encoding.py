"""Pairs of text as shards of tokens, in processes side by side; what a killed preparation has made is used again.

A shard is made of so many pairs that follow each other, and of nothing else. Its key is a digest of their text and of
all that decides how they are cut, so that a shard which is whole, and has the key that is asked for, need not be made.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from regard.atomic_files import write_text
from regard.jobs.worker_processes import Message, Work, Workers, serve
from regard.tokens.slot_tokens import slot_pair
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.token_shards import Shard, name_of, open_whole, token_type, write_index, write_shard
from regard.tokens.tokenizer import Vocabularies

SMALLEST, MOST_SHARDS = 1 << 17, 500
"""Pairs in a shard, of which an open folder holds each: few enough for a process's open files."""


@dataclass(frozen=True)
class Cutting:
    """All that decides how a text becomes tokens."""

    vocabulary: str  # the file
    digest: str  # of that file
    longest: int  # tokens of a side
    seed: int | None  # of the slots that pieces get; none: in their order

    @classmethod
    def by(cls, path: Path, longest: int, seed: int | None) -> Cutting:
        return cls(str(path), blake2b(path.read_bytes(), digest_size=16).hexdigest(), longest, seed)


@dataclass
class Made:
    """The shards of a corpus."""

    shards: list[Shard] = field(default_factory=list)
    kept: int = 0  # shards that were there
    damaged: list[str] = field(default_factory=list)  # those that were not whole, and were made anew

    @property
    def pairs(self) -> int:
        return sum(shard.pairs for shard in self.shards)

    @property
    def left_out(self) -> int:
        """Pairs that have too many tokens."""
        return sum(shard.left_out for shard in self.shards)


class Encoder:
    """Makes shards of text."""

    def __init__(self, folder: Path, cutting: Cutting, vocabularies: Vocabularies | None = None) -> None:
        self.folder, self.cutting = folder, cutting
        self.vocabularies = vocabularies or Vocabularies.load(Path(cutting.vocabulary))
        self.dtype = token_type(max(self.vocabularies.source.size, self.vocabularies.target.size))

    def make(self, number: int, text: bytes) -> Shard:
        """Writes a shard, and beside it what it was made of."""
        left_out = 0

        def fitting() -> Iterator[tuple[list[int], list[int]]]:
            nonlocal left_out
            for both in self.tokens(number, text):
                if max(map(len, both)) <= self.cutting.longest:
                    yield both
                else:
                    left_out += 1

        shard = write_shard(self.folder / name_of(number), fitting(), self.dtype)
        shard = replace(shard, left_out=left_out)
        about = {"key": key_of(number, text, self.cutting), "shard": asdict(shard)}
        write_text(sidecar(self.folder, number), json.dumps(about))
        return shard

    def tokens(self, number: int, text: bytes) -> Iterator[tuple[list[int], list[int]]]:
        seed, tags = self.cutting.seed, self.vocabularies.source.tags
        dice = None if seed is None else Random(seed + (number << 32))
        pairs = unpack(text)
        while chunk := list(islice(pairs, 5000)):
            sources, targets = encode_pairs(chunk, self.vocabularies, dice)
            for pair, source, target in zip(chunk, sources, targets, strict=True):
                yield [*map(tags.__getitem__, pair.tags), *source], target


def encode_corpus(
    folder: Path,
    pairs: Iterable[Pair],
    total: int,
    cutting: Cutting,
    vocabularies: Vocabularies,
    processes: int,
    size: int = SMALLEST,
) -> Made:
    """Fills `folder` with the shards of a corpus of about `total` pairs; a small one is encoded in this process."""
    folder.mkdir(parents=True, exist_ok=True)
    size = max(size, -(-total // MOST_SHARDS))
    encoder, made = Encoder(folder, cutting, vocabularies), Made()
    shards: dict[int, Shard] = {}

    def missing() -> Iterator[Message]:
        for number, text in enumerate(pack(pairs, size)):
            known = known_shard(folder, number, text, encoder, made)
            if known is None:
                yield Message({"shard": number}, text)
            else:
                shards[number] = known

    if total <= size or processes < 2:
        for job in missing():
            shards[job.about["shard"]] = encoder.make(job.about["shard"], job.data)
    else:
        setup = {"folder": str(folder), "cutting": asdict(cutting)}
        workers = Workers(__name__, setup, processes, environment={"RAYON_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"})
        for answer in workers.run(missing()):
            shards[answer.about["number"]] = Shard(**answer.about["shard"])
    made.shards = [shards[number] for number in sorted(shards)]
    write_index(folder, made.shards, encoder.dtype)
    return made


def known_shard(folder: Path, number: int, text: bytes, encoder: Encoder, made: Made) -> Shard | None:
    """The shard of this text, if it was made before and is whole."""
    try:
        about = json.loads(sidecar(folder, number).read_text(encoding="utf-8"))
        shard = Shard(**about["shard"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if about.get("key") != key_of(number, text, encoder.cutting):
        return None
    if open_whole(folder / name_of(number), shard, encoder.dtype) is None:
        made.damaged.append(name_of(number))
        return None
    made.kept += 1
    return shard


def sidecar(folder: Path, number: int) -> Path:
    return (folder / name_of(number)).with_suffix(".json")


def key_of(number: int, text: bytes, cutting: Cutting) -> str:
    """What tells a shard from every other."""
    how = json.dumps([number, cutting.digest, cutting.longest, cutting.seed, FORMAT])
    return blake2b(text, digest_size=16, key=blake2b(how.encode(), digest_size=32).digest()).hexdigest()


FORMAT = 1


def pack(pairs: Iterable[Pair], size: int) -> Iterator[bytes]:
    """The texts of so many pairs at a time: tags, tab, source, tab, target; cleaned text has no tabs and line ends."""
    stream = iter(pairs)
    while lines := [f"{' '.join(p.tags)}\t{p.source}\t{p.target}\n".encode() for p in islice(stream, size)]:
        yield b"".join(lines)


def unpack(text: bytes) -> Iterator[Pair]:
    """What was packed."""
    start = 0
    while start < len(text):
        end = text.index(b"\n", start)
        tags, source, target = text[start:end].decode().split("\t")
        yield Pair(source, target, NOWHERE, tuple(tags.split()))
        start = end + 1


NOWHERE = Location("", 0)


def encode_pairs(
    pairs: Sequence[Pair], vocabularies: Vocabularies, dice: Random | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """The tokens of both sides; where the vocabulary has slots, they are in the place of the pieces in common."""
    source, target = vocabularies.source, vocabularies.target
    sources = source.encode_batch([pair.source for pair in pairs])
    targets = target.encode_batch([pair.target for pair in pairs])
    if source.slots and target.slots:
        for number, pair in enumerate(pairs):
            left, right = slot_pair(pair.source, pair.target, dice)
            if (left.texts, right.texts) != ((pair.source,), (pair.target,)):
                sources[number], targets[number] = source.encode_slotted(left), target.encode_slotted(right)
    return sources, targets


def start(setup: dict[str, Any]) -> Work:
    """What a process does."""
    encoder = Encoder(Path(setup["folder"]), Cutting(**setup["cutting"]))

    def work(job: Message) -> Message:
        number = job.about["shard"]
        return Message({"number": number, "shard": asdict(encoder.make(number, job.data))})

    return work


if __name__ == "__main__":
    serve(start)
