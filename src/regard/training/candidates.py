"""What a model makes of the sources that it has learnt from, and how far each translation is from what people wrote.

A folder of shards (`shards.py`) with an entry for each training pair: the tokens of its translations, each with an
end, end to end; and for each the loss of BLEU, in units of 1 / `UNIT`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from regard.decoding.consensus import likeness, spaced
from regard.decoding.engine import load_as
from regard.decoding.hypothesis import Hypothesis
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.folder import WEIGHTS, write_text
from regard.settings import TrainingSettings
from regard.text.tokenizer import Specials, Tokenizer
from regard.training.batches import IGNORE, Examples, PairBatch
from regard.training.events import Stage
from regard.training.shards import Shard, Shards, name_of, open_whole, token_type, write_index, write_shard
from regard.training.task import Tell

CANDIDATES = "candidates"
SEVERAL = 8
"""Translations of a source: those that a beam as wide finds."""
UNIT = 60_000

Found = list[tuple[list[int], float]]
"""Tokens, the end included, and the loss of BLEU, of each translation of a source."""


class Candidates:
    """The translations of each training pair."""

    def __init__(self, folder: Path, specials: Specials) -> None:
        self.shards, self.specials = Shards(folder), specials

    def __len__(self) -> int:
        return len(self.shards)

    def of(self, row: int) -> Found:
        """Those of one pair."""
        tokens, costs = self.shards.pair(row)
        ends = np.flatnonzero(tokens == self.specials.end) + 1
        starts = [0, *ends.tolist()][:-1]
        cut = (tokens[start:end].tolist() for start, end in zip(starts, ends.tolist(), strict=True))
        return [(made, cost / UNIT) for made, cost in zip(cut, costs.tolist(), strict=True)]

    def batch(self, pairs: PairBatch, rows: Sequence[int]) -> RiskBatch:
        return RiskBatch(pairs, [self.of(int(row)) for row in rows], self.specials)


@dataclass(frozen=True)
class RiskBatch:
    """Pairs, and what a model has made of their sources."""

    pairs: PairBatch
    found: list[Found]
    specials: Specials

    @property
    def tokens(self) -> int:
        return self.pairs.tokens

    @property
    def seen(self) -> int:
        return self.pairs.seen + sum(len(tokens) for found in self.found for tokens, _ in found)

    def __len__(self) -> int:
        return len(self.pairs)

    def share(self, part: int, parts: int) -> RiskBatch:
        return RiskBatch(self.pairs.share(part, parts), self.found[part::parts], self.specials)

    @cached_property
    def made(self) -> Made:
        """All translations side by side, where there are two of a source or more: else there is nothing to choose."""
        owners = [number for number, found in enumerate(self.found) if len(found) > 1]
        rows = [each for owner in owners for each in self.found[owner]]
        counts, lengths = [len(self.found[owner]) for owner in owners], [len(tokens) for tokens, _ in rows]
        longest = max(lengths, default=0)
        labels = np.full((len(rows), longest), IGNORE, np.int64)
        target = np.full((len(rows), longest), self.specials.pad, np.int64)
        target[:, :1] = self.specials.begin
        for i, (tokens, _) in enumerate(rows):
            labels[i, : len(tokens)], target[i, 1 : len(tokens)] = tokens, tokens[:-1]
        device, asked = self.pairs.source.device, torch.tensor(owners, dtype=torch.long)
        weights = (self.pairs.labels != IGNORE).sum(1).float()[asked.to(device)]
        return Made(
            target=torch.from_numpy(target).to(device),
            labels=torch.from_numpy(labels).to(device),
            owners=asked.repeat_interleave(torch.tensor(counts, dtype=torch.long)).to(device),
            costs=torch.tensor([cost for _, cost in rows], device=device),
            lengths=torch.tensor(lengths, dtype=torch.long, device=device),
            weights=weights,
            counts=counts,
        )


@dataclass(frozen=True)
class Made:
    """Translations of the sources of a batch, those of one source after the other."""

    target: Tensor  # [C, T], what the decoder reads
    labels: Tensor  # [C, T], what it is asked for
    owners: Tensor  # [C], the row of the source
    costs: Tensor  # [C], the loss of BLEU
    lengths: Tensor  # [C], tokens, the end included
    weights: Tensor  # [B], tokens of the target of each source that has translations
    counts: list[int]  # [B], how many it has


def require_candidates(work: Path) -> None:
    """Refuses to learn from the risk of translations that nobody has made."""
    if not (work / CANDIDATES).exists():
        raise SettingsError(
            "training.risk needs a model that has translated the training text: train anew, with it and with --from"
        )


def make_candidates(work: Path, start: Path, training: TrainingSettings, tell: Tell) -> None:
    """What the model in the folder `start` makes of the training pairs in `work`."""
    translator = load_as(Translator, start, training.device, threads=training.threads)
    find_candidates(work / CANDIDATES, Examples(work / "train"), translator, start / WEIGHTS, tell)


def find_candidates(folder: Path, train: Examples, translator: Translator, origin: Path, tell: Tell) -> None:
    """Translates the sources of all training pairs; what a killed preparation has made is used again.

    `origin` is the file of the translator's weights, which tells its translations from those of others.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dtype, size = token_type(max(translator.target.size, UNIT + 1)), max(SHARD, -(-len(train) // MOST))
    key = blake2b(origin.read_bytes(), digest_size=16).hexdigest()
    shards = []
    for number, first in enumerate(range(0, len(train), size)):
        rows, path = range(first, min(first + size, len(train))), folder / name_of(number)
        wanted = f"{key} {digest(train, rows)}"
        shard = known(path, wanted)
        if shard is None or open_whole(path, shard, dtype) is None:
            entries = list(translated(train, rows, translator, tell))
            shard = write_shard(path, entries, dtype)
            write_text(path.with_suffix(".json"), json.dumps({"key": wanted, "shard": asdict(shard)}))
        shards.append(shard)
    tell(Stage(DOING, len(train), len(train)))
    write_index(folder, shards, dtype)


def known(path: Path, key: str) -> Shard | None:
    """What was made of the same, if it was."""
    try:
        about = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        return Shard(**about["shard"]) if about["key"] == key else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def digest(train: Examples, rows: Sequence[int]) -> str:
    found = blake2b(digest_size=16)
    for row in rows:
        for side in train.pair(row):
            found.update(side.tobytes() + b"\n")
    return found.hexdigest()


def translated(
    train: Examples, rows: Sequence[int], translator: Translator, tell: Tell
) -> Iterator[tuple[list[int], list[int]]]:
    """The entries of some pairs."""
    asked = {"beam": SEVERAL, "alternatives": SEVERAL - 1, "consensus": 0, "temperature": 0.0, "alignment": False}
    settings, spell = translator.decoding(asked), speller(translator.target)
    end = translator.target.specials.end
    for start in range(0, len(rows), PIECE):
        piece = rows[start : start + PIECE]
        tell(Stage(DOING, piece[0], len(train)))
        pairs = [[side.tolist() for side in train.pair(row)] for row in piece]
        for (_, target), found in zip(pairs, translator.search([source for source, _ in pairs], settings), strict=True):
            judged = judge(found, spell(target), spell)
            tokens = [token for made, _ in judged for token in (*made.tokens, end)]
            yield tokens, [round(cost * UNIT) for _, cost in judged]


def judge(found: Sequence[Hypothesis], reference: str, spell: Speller) -> list[tuple[Hypothesis, float]]:
    """The translations that are finished, each text once, with their loss of BLEU."""
    distinct: dict[str, Hypothesis] = {}
    for each in found:
        if each.finished:
            distinct.setdefault(spell(each.tokens), each)
    if not distinct:
        return []
    cut = str.split if spaced([reference, *distinct]) else list
    alike = likeness([cut(text) for text in distinct], [cut(reference)])[:, 0].tolist()
    return [(each, 1.0 - bleu) for each, bleu in zip(distinct.values(), alike, strict=True)]


Speller = Callable[[Sequence[int]], str]


def speller(tokenizer: Tokenizer) -> Speller:
    """Tokens to text; where there are slots, with their numbers in the place of what they stand for."""
    names = {number: f"#{number}" for number in tokenizer.slots.values()}
    return lambda tokens: tokenizer.decode_slotted(tokens).fill(names)


DOING = "translating the training text"
SHARD, MOST, PIECE = 2000, 500, 200
"""Pairs whose translations are saved together, the most such files, and pairs between two looks at whether to stop."""
