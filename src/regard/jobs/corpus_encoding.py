"""Encodes sentence pairs as shards of tokens, in several processes (see resumable_shards.py)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

from regard.jobs.resumable_shards import (
    Executor,
    MakeShard,
    ResumableRun,
    ShardInput,
    ShardOutput,
    ThisProcess,
    Work,
)
from regard.jobs.worker_processes import WorkerProcesses
from regard.model_folder import TOKENIZER
from regard.tokens.placeholder_slots import slot_pair
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.token_shards import Shard, pack_shard, token_type, write_index
from regard.tokens.tokenizer import Vocabularies

if TYPE_CHECKING:
    import numpy as np

SMALLEST, MOST_SHARDS = 1 << 17, 500
"""Minimum number of pairs per shard, and maximum number of shards, which is limited by the open files of a process."""
CHUNK = 5000
"""Number of pairs to encode at a time."""
NOWHERE = Location("", 0)


@dataclass(frozen=True, kw_only=True)
class EncodePairs(Work):
    """Encodes sentence pairs with a vocabulary."""

    longest: int  # maximum number of tokens per side; longer pairs are left out
    seed: int | None  # seed for random slot numbers; None: number slots in the order of the text
    version: int = 2  # version of the shards

    def files(self) -> dict[str, Path]:
        return {TOKENIZER: Path(self.path) / TOKENIZER}

    def start(self) -> MakeShard:
        return self.start_with(Vocabularies.load(Path(self.path) / TOKENIZER))

    def start_with(self, vocabularies: Vocabularies) -> MakeShard:
        return lambda shard: encode_shard(shard, vocabularies, self.longest, self.seed)


def encode_corpus(
    folder: Path,
    pairs: Iterable[Pair],
    total: int,
    work: EncodePairs,
    vocabularies: Vocabularies,
    processes: int,
    size: int = SMALLEST,
) -> ResumableRun:
    """Writes the shards of about `total` pairs to `folder`; encodes a corpus of a single shard in this process."""
    size = max(size, -(-total // MOST_SHARDS))
    alone = total <= size or processes < 2
    executor: Executor = ThisProcess(work.start_with(vocabularies)) if alone else WorkerProcesses(processes)
    run = ResumableRun(folder, work, "bin")
    for _ in run.run(map(pack_pair, pairs), size, executor):
        pass
    shards = [Shard(file=each.path.name, checksum=each.checksum, **each.about) for each in run.shards]
    write_index(folder, shards, pair_type(vocabularies))
    return run


def pack_pair(pair: Pair) -> str:
    """Joins tags, source and target by tabs; cleaned text contains neither tabs nor line breaks."""
    return f"{' '.join(pair.tags)}\t{pair.source}\t{pair.target}"


def unpack_pair(line: str) -> Pair:
    tags, source, target = line.split("\t")
    return Pair(source, target, NOWHERE, tuple(tags.split()))


def encode_shard(
    shard: ShardInput, vocabularies: Vocabularies, longest: int, seed: int | None
) -> Iterator[int | ShardOutput]:
    """Encodes the pairs of a shard; leaves out and counts pairs with more than `longest` tokens on a side."""
    left_out = 0

    def fitting() -> Iterator[tuple[list[int], list[int]]]:
        nonlocal left_out
        dice = None if seed is None else Random(seed + (shard.number << 32))
        pairs, tags = map(unpack_pair, shard.lines()), vocabularies.source.tags
        while chunk := list(islice(pairs, CHUNK)):
            sources, targets = encode_pairs(chunk, vocabularies, dice)
            for pair, source, target in zip(chunk, sources, targets, strict=True):
                tagged = [*map(tags.__getitem__, pair.tags), *source]
                if max(len(tagged), len(target)) <= longest:
                    yield tagged, target
                else:
                    left_out += 1

    data, count, tokens = pack_shard(fitting(), pair_type(vocabularies))
    yield ShardOutput(data, {"pairs": count, "tokens": tokens, "left_out": left_out})


def encode_pairs(
    pairs: Sequence[Pair], vocabularies: Vocabularies, dice: Random | None = None
) -> tuple[list[list[int]], list[list[int]]]:
    """Returns the tokens of both sides; if the vocabularies have slots, they replace pieces that both sides share."""
    source, target = vocabularies.source, vocabularies.target
    sources = source.encode_batch([pair.source for pair in pairs])
    targets = target.encode_batch([pair.target for pair in pairs])
    if source.slots and target.slots:
        for number, pair in enumerate(pairs):
            left, right = slot_pair(pair.source, pair.target, dice)
            if (left.texts, right.texts) != ((pair.source,), (pair.target,)):
                sources[number], targets[number] = source.encode_slotted(left), target.encode_slotted(right)
    return sources, targets


def pair_type(vocabularies: Vocabularies) -> np.dtype[Any]:
    """Returns the smallest integer type for the tokens of both sides."""
    return token_type(max(vocabularies.source.size, vocabularies.target.size))
