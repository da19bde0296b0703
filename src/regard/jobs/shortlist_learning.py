"""Learns which target tokens each source token is likely to become: the shortlist of a model folder.

Lexical probabilities of IBM's model 1 (Brown et al., 1993), by a few rounds of expectation maximisation over subwords.
Memory is bounded: so many pairs, evenly spaced in the corpus, and so many pairs of tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from regard.atomic_files import write_atomically
from regard.decoding.token_shortlist import Shortlist, fingerprint
from regard.errors import DataError, InputError
from regard.files.corpus import read_pairs
from regard.jobs.corpus_encoding import encode_pairs
from regard.model_folder import SHORTLIST, TOKENIZER, TRAINING, check_folder, read_settings
from regard.settings import Settings
from regard.tokens.corpus_report import Report
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Examples

COMMON, EACH = 100, 100
"""Tokens that are on every list, and those of each source token."""
MOST_PAIRS = 300_000
MOST_ENTRIES = 8_000_000
"""Pairs of tokens that are kept; of more, the rarest are forgotten. About 200 MB."""
BLOCK = 2_000
ROUNDS = 4
LOOKED_AT = 1_000
"""Pairs on which it is measured how much the lists cover."""

Ids = NDArray[np.int64]
Side = Sequence[int] | NDArray[np.integer]
Tell = Callable[[int, int], None]
"""Told how much of the work is done, and how much there is."""


@dataclass(frozen=True)
class Learnt:
    """What has become of a corpus."""

    pairs: int
    length: float  # tokens that may be written for a sentence, on average
    covered: float  # share of the tokens of targets that are on the lists of their sources
    held_out: bool  # whether that was measured on the dev set


def learn_shortlist(
    folder: Path | str,
    files: Sequence[Path | str] = (),
    *,
    common: int = COMMON,
    each: int = EACH,
    tell: Tell | None = None,
) -> Learnt:
    """Writes the shortlist of a model folder, learnt from the pairs it was trained on, or from these files."""
    folder, named = Path(folder), [Path(file) for file in files]
    check_folder(folder)
    settings = read_settings(folder)
    if settings.task != "translate":
        raise InputError(f"{folder}: is a model to {settings.task}, which has no shortlist")
    if common < 0 or each < 1:
        raise InputError("a shortlist needs one token at least of each source token, and no less than none in common")
    vocabularies = Vocabularies.load(folder / TOKENIZER)
    train, dev = (_encoded(named, settings, vocabularies), None) if named else _trained(folder)
    if not len(train.lengths):
        raise DataError("there are no pairs to learn a shortlist from")
    lists = _lists(train, vocabularies, common, each, tell or (lambda _done, _all: None))
    arrays = {name: np.array(getattr(lists, name)) for name in ("common", "starts", "tokens")}
    about = {"vocabulary": fingerprint(folder), "pairs": str(len(train.lengths))}
    write_atomically(folder / SHORTLIST, lambda path: save_file(arrays, path, about))
    return _measured(lists, train, dev)


class _Pairs(NamedTuple):
    """Tokens end to end, a source and its target after each other."""

    tokens: Ids
    lengths: Ids  # [N, 2]

    def each(self) -> Iterator[tuple[Ids, Ids]]:
        ends = np.cumsum(self.lengths.sum(1))
        for (source, target), end in zip(self.lengths.tolist(), ends.tolist(), strict=True):
            yield self.tokens[end - source - target : end - target], self.tokens[end - target : end]


def _gather(pairs: Iterable[tuple[Side, Side]]) -> _Pairs:
    tokens, lengths = [np.empty(0, np.int64)], []
    for source, target in pairs:
        tokens += [np.asarray(source, np.int64), np.asarray(target, np.int64)]
        lengths.append((len(source), len(target)))
    return _Pairs(np.concatenate(tokens), np.array(lengths, np.int64).reshape(-1, 2))


def _trained(folder: Path) -> tuple[_Pairs, _Pairs]:
    """What a model was trained on, and its dev set."""
    if not (folder / TRAINING / "train").is_dir():
        raise InputError(f"{folder}: its {TRAINING}/ is gone: name the files that it was trained on, too")
    train, dev = (Examples(folder / TRAINING / name) for name in ("train", "dev"))
    return _spaced(train), _spaced(dev)


def _spaced(examples: Examples) -> _Pairs:
    """All pairs, or as many as are wanted, evenly spaced."""
    rows = range(0, len(examples), -(-len(examples) // MOST_PAIRS) or 1)
    return _gather(examples.pair(row) for row in rows)


def _encoded(files: Sequence[Path], settings: Settings, vocabularies: Vocabularies) -> _Pairs:
    """The pairs of some files; of too many, every second is forgotten again and again."""
    pairs, every, number = read_pairs(list(files), settings.data, Report()), 1, 0
    kept: list[tuple[list[int], list[int]]] = []
    while chunk := list(islice(pairs, BLOCK)):
        wanted = [pair for i, pair in enumerate(chunk, number) if i % every == 0]
        number += len(chunk)
        kept += zip(*encode_pairs(wanted, vocabularies), strict=True)
        if len(kept) > MOST_PAIRS:
            kept, every = kept[::2], 2 * every
    return _gather(kept)


def _lists(pairs: _Pairs, vocabularies: Vocabularies, common: int, each: int, tell: Tell) -> Shortlist:
    """For every source token those that it most probably becomes, and the one that is spelt the same."""
    source, target = vocabularies.source, vocabularies.target
    keys, probabilities = lexicon(pairs, source.size, target.size, tell)
    order = np.lexsort((keys, -probabilities, keys // target.size))
    owners, found = keys[order] // target.size, keys[order] % target.size
    firsts = np.searchsorted(owners, np.arange(source.size + 1))
    spelt = _by_spelling(source, target)
    tokens, starts = array("i"), array("q", [0])
    for token in range(source.size):
        row = found[firsts[token] : min(firsts[token] + each, firsts[token + 1])].tolist()
        tokens.extend(sorted({*row, *spelt[token]}))
        starts.append(len(tokens))
    counts = np.bincount(np.concatenate([t for _, t in pairs.each()]), minlength=target.size)
    often = np.argsort(-counts, kind="stable")[:common]
    always = {target.specials.end, *target.specials.never_generated, *often[counts[often] > 0].tolist()}
    return Shortlist(array("i", sorted(always)), starts, tokens)


def _by_spelling(source: Tokenizer, target: Tokenizer) -> list[list[int]]:
    """For each source token those of the target that are spelt like it: names and numbers stay what they are."""
    known: dict[str, list[int]] = {}
    for token, piece in enumerate(target.pieces(range(target.size))):
        known.setdefault(piece, []).append(token)
    return [known.get(piece, []) for piece in source.pieces(range(source.size))]


def lexicon(pairs: _Pairs, sources: int, targets: int, tell: Tell) -> tuple[Ids, NDArray[np.float64]]:
    """(source token * targets + target token), rising, and the probability of that target token given the source's."""
    blocks = -(-len(pairs.lengths) // BLOCK)
    keys, counts, done = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for cells in _blocks(pairs, sources, targets):
        new, times = np.unique(cells.keys, return_counts=True)
        keys, where = np.unique(np.concatenate([keys, new]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([counts, times]), len(keys)).astype(np.int64)
        if len(keys) > MOST_ENTRIES:
            often = np.sort(np.argpartition(-counts, MOST_ENTRIES // 2)[: MOST_ENTRIES // 2])
            keys, counts = keys[often], counts[often]
        tell(done := done + 1, blocks * (ROUNDS + 1))
    probabilities = np.ones(len(keys))
    for _ in range(ROUNDS):
        expected = np.zeros(len(keys))
        for cells in _blocks(pairs, sources, targets):
            places = np.minimum(np.searchsorted(keys, cells.keys), len(keys) - 1)
            weights = np.where(keys[places] == cells.keys, probabilities[places], 0.0)
            sums = np.repeat(np.add.reduceat(weights, cells.firsts), np.diff(cells.firsts, append=len(weights)))
            shares = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
            expected += np.bincount(places, shares, len(keys))
            tell(done := done + 1, blocks * (ROUNDS + 1))
        totals = np.bincount(keys // targets, expected, sources + 1)
        probabilities = expected / np.maximum(totals, 1e-300)[keys // targets]
    real = keys // targets < sources
    return keys[real], probabilities[real]


class _Cells(NamedTuple):
    """Every target token of some pairs beside every token of its source, and beside none: source number `sources`."""

    keys: Ids
    firsts: Ids  # where each target token begins


def _blocks(pairs: _Pairs, sources: int, targets: int) -> Iterator[_Cells]:
    ends = np.cumsum(pairs.lengths.sum(1))
    for start in range(0, len(pairs.lengths), BLOCK):
        lengths = pairs.lengths[start : start + BLOCK]
        lengths, behind = lengths[lengths[:, 1] > 0], ends[start : start + BLOCK][lengths[:, 1] > 0]
        if not len(lengths):
            continue
        wide = np.repeat(lengths[:, 0] + 1, lengths[:, 1])  # cells of each target token
        firsts = np.cumsum(wide) - wide
        pair = np.repeat(np.arange(len(lengths)), lengths[:, 1])
        begin = (behind - lengths.sum(1))[pair]  # of the source, for each target token
        inside = np.arange(len(pair)) - (np.cumsum(lengths[:, 1]) - lengths[:, 1])[pair]
        written = pairs.tokens[(behind - lengths[:, 1])[pair] + inside]
        place = np.arange(wide.sum()) - np.repeat(firsts, wide)
        none = place == np.repeat(wide - 1, wide)
        read = pairs.tokens[np.where(none, 0, np.repeat(begin, wide) + place)]
        yield _Cells(np.where(none, sources, read) * targets + np.repeat(written, wide), firsts)


def _measured(lists: Shortlist, train: _Pairs, dev: _Pairs | None) -> Learnt:
    looked_at = dev if dev is not None and len(dev.lengths) else train
    tokens = covered = length = pairs = 0
    for source, target in islice(looked_at.each(), LOOKED_AT):
        allowed = lists.of(source.tolist())
        pairs, length, tokens = pairs + 1, length + len(allowed), tokens + len(target)
        covered += sum(token in allowed for token in target.tolist())
    return Learnt(len(train.lengths), length / pairs, covered / max(1, tokens), looked_at is dev)
