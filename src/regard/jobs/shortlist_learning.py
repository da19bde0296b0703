"""Learns the shortlist of a model folder: the target tokens that each source token is likely to be translated to.

Estimates the lexical probabilities of IBM model 1 (Brown et al., 1993) over subwords, by a few rounds of expectation
maximization. Memory is limited to MOST_PAIRS pairs, evenly spaced in the corpus, and MOST_ENTRIES pairs of tokens.
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

from regard.decoding.token_shortlist import Shortlist, fingerprint
from regard.errors import DataError, InputError
from regard.files.corpus import read_pairs
from regard.files.corpus_report import Report
from regard.jobs.corpus_encoding import encode_pairs
from regard.model_folder import SHORTLIST, TOKENIZER, TRAINING, check_folder, read_settings
from regard.model_manifest import write_listed
from regard.settings import Settings
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Examples

COMMON, EACH = 100, 100
"""Default number of tokens allowed for every source, and for each source token."""
MOST_PAIRS = 300_000
MOST_ENTRIES = 8_000_000
"""Maximum number of token pairs, which take about 200 MB; beyond it, the rarest pairs are dropped."""
BLOCK = 2_000
ROUNDS = 4
MEASURED_PAIRS = 1_000
"""Number of pairs on which the coverage of the lists is measured."""

Integers = NDArray[np.int64]
TokenIds = Sequence[int] | NDArray[np.integer]
ReportProgress = Callable[[int, int], None]
"""A callback that gets the amount of work done, and the total amount."""


@dataclass(frozen=True)
class LearntShortlist:
    """The size of a newly learned shortlist, and its coverage."""

    pairs: int
    length: float  # average number of tokens allowed for a sentence
    covered: float  # share of target tokens that the lists of their sources allow
    held_out: bool  # whether the coverage was measured on the dev set


def learn_shortlist(
    folder: Path | str,
    files: Sequence[Path | str] = (),
    *,
    common: int = COMMON,
    each: int = EACH,
    progress: ReportProgress | None = None,
) -> LearntShortlist:
    """Learns and writes the shortlist of a model folder, from its training pairs or from other files of pairs."""
    folder, named = Path(folder), [Path(file) for file in files]
    check_folder(folder)
    settings = read_settings(folder)
    if settings.task != "translate":
        raise InputError(f"{folder}: has the task {settings.task}, but only translators have shortlists")
    if common < 0 or each < 1:
        raise InputError("`each` must be at least 1 and `common` at least 0")
    vocabularies = Vocabularies.load(folder / TOKENIZER)
    train, dev = (_encode(named, settings, vocabularies), None) if named else _load_pairs(folder)
    if not len(train.lengths):
        where = " and ".join(map(str, named)) or folder / TRAINING
        raise DataError(f"{where}: there are no pairs to learn a shortlist from")
    lists = _make_lists(train, vocabularies, common, each, progress or (lambda _done, _total: None))
    arrays = {name: np.array(getattr(lists, name)) for name in ("common", "starts", "tokens")}
    about = {"vocabulary": fingerprint(folder), "pairs": str(len(train.lengths))}
    write_listed(folder, SHORTLIST, lambda path: save_file(arrays, path, about))
    return _measure(lists, train, dev)


class _Pairs(NamedTuple):
    """The concatenated tokens of all pairs, in which each source is followed by its target."""

    tokens: Integers
    lengths: Integers  # [N, 2]

    def each(self) -> Iterator[tuple[Integers, Integers]]:
        ends = np.cumsum(self.lengths.sum(1))
        for (source, target), end in zip(self.lengths.tolist(), ends.tolist(), strict=True):
            yield self.tokens[end - source - target : end - target], self.tokens[end - target : end]


def _gather(pairs: Iterable[tuple[TokenIds, TokenIds]]) -> _Pairs:
    tokens, lengths = [np.empty(0, np.int64)], []
    for source, target in pairs:
        tokens += [np.asarray(source, np.int64), np.asarray(target, np.int64)]
        lengths.append((len(source), len(target)))
    return _Pairs(np.concatenate(tokens), np.array(lengths, np.int64).reshape(-1, 2))


def _load_pairs(folder: Path) -> tuple[_Pairs, _Pairs]:
    """Loads the training pairs and the dev set of a model."""
    if not (folder / TRAINING / "train").is_dir():
        raise InputError(f"{folder}: no longer has {TRAINING}/: also specify the files that it was trained on")
    train, dev = (Examples(folder / TRAINING / name) for name in ("train", "dev"))
    return _load_spaced(train), _load_spaced(dev)


def _load_spaced(examples: Examples) -> _Pairs:
    rows = range(0, len(examples), -(-len(examples) // MOST_PAIRS) or 1)
    return _gather(examples.pair(row) for row in rows)


def _encode(files: Sequence[Path], settings: Settings, vocabularies: Vocabularies) -> _Pairs:
    """Reads and encodes pairs; whenever there are too many, drops every second one."""
    pairs, every, number = read_pairs(list(files), settings.data, Report()), 1, 0
    kept: list[tuple[list[int], list[int]]] = []
    while chunk := list(islice(pairs, BLOCK)):
        wanted = [pair for i, pair in enumerate(chunk, number) if i % every == 0]
        number += len(chunk)
        kept += zip(*encode_pairs(wanted, vocabularies), strict=True)
        if len(kept) > MOST_PAIRS:
            kept, every = kept[::2], 2 * every
    return _gather(kept)


def _make_lists(
    pairs: _Pairs, vocabularies: Vocabularies, common: int, each: int, progress: ReportProgress
) -> Shortlist:
    """Lists for each source token its most probable target tokens, and those with the same spelling."""
    source, target = vocabularies.source, vocabularies.target
    keys, probabilities = learn_lexicon(pairs, source.size, target.size, progress)
    order = np.lexsort((keys, -probabilities, keys // target.size))
    owners, likely = keys[order] // target.size, keys[order] % target.size
    firsts = np.searchsorted(owners, np.arange(source.size + 1))
    spelt = _match_spelling(source, target)
    tokens, starts = array("i"), array("q", [0])
    for token in range(source.size):
        row = likely[firsts[token] : min(firsts[token] + each, firsts[token + 1])].tolist()
        tokens.extend(sorted({*row, *spelt[token]}))
        starts.append(len(tokens))
    counts = np.bincount(np.concatenate([t for _, t in pairs.each()]), minlength=target.size)
    often = np.argsort(-counts, kind="stable")[:common]
    always = {target.specials.end, *target.specials.never_generated, *often[counts[often] > 0].tolist()}
    return Shortlist(array("i", sorted(always)), starts, tokens)


def _match_spelling(source: Tokenizer, target: Tokenizer) -> list[list[int]]:
    """Lists for each source token the target tokens with the same spelling, which names and numbers need."""
    known: dict[str, list[int]] = {}
    for token, piece in enumerate(target.pieces(range(target.size))):
        known.setdefault(piece, []).append(token)
    return [known.get(piece, []) for piece in source.pieces(range(source.size))]


def learn_lexicon(
    pairs: _Pairs, sources: int, targets: int, progress: ReportProgress
) -> tuple[Integers, NDArray[np.float64]]:
    """Returns token pairs as sorted numbers (source * targets + target), and p(target | source) for each pair."""
    blocks = -(-len(pairs.lengths) // BLOCK)
    keys, counts, done = np.empty(0, np.int64), np.empty(0, np.int64), 0
    for cells in _blocks(pairs, sources, targets):
        new, times = np.unique(cells.keys, return_counts=True)
        keys, where = np.unique(np.concatenate([keys, new]), return_inverse=True)
        counts = np.bincount(where, np.concatenate([counts, times]), len(keys)).astype(np.int64)
        if len(keys) > MOST_ENTRIES:
            often = np.sort(np.argpartition(-counts, MOST_ENTRIES // 2)[: MOST_ENTRIES // 2])
            keys, counts = keys[often], counts[often]
        progress(done := done + 1, blocks * (ROUNDS + 1))
    probabilities = np.ones(len(keys))
    for _ in range(ROUNDS):
        expected = np.zeros(len(keys))
        for cells in _blocks(pairs, sources, targets):
            places = np.minimum(np.searchsorted(keys, cells.keys), len(keys) - 1)
            weights = np.where(keys[places] == cells.keys, probabilities[places], 0.0)
            sums = np.repeat(np.add.reduceat(weights, cells.firsts), np.diff(cells.firsts, append=len(weights)))
            shares = np.divide(weights, sums, out=np.zeros_like(weights), where=sums > 0)
            expected += np.bincount(places, shares, len(keys))
            progress(done := done + 1, blocks * (ROUNDS + 1))
        totals = np.bincount(keys // targets, expected, sources + 1)
        probabilities = expected / np.maximum(totals, 1e-300)[keys // targets]
    real = keys // targets < sources
    return keys[real], probabilities[real]


class _Cells(NamedTuple):
    """Pairs of each target token with each token of its source, and with the empty token, number `sources`."""

    keys: Integers
    firsts: Integers  # index of the first pair of each target token


def _blocks(pairs: _Pairs, sources: int, targets: int) -> Iterator[_Cells]:
    ends = np.cumsum(pairs.lengths.sum(1))
    for start in range(0, len(pairs.lengths), BLOCK):
        lengths = pairs.lengths[start : start + BLOCK]
        lengths, behind = lengths[lengths[:, 1] > 0], ends[start : start + BLOCK][lengths[:, 1] > 0]
        if not len(lengths):
            continue
        wide = np.repeat(lengths[:, 0] + 1, lengths[:, 1])  # number of pairs of each target token
        firsts = np.cumsum(wide) - wide
        pair = np.repeat(np.arange(len(lengths)), lengths[:, 1])
        begin = (behind - lengths.sum(1))[pair]  # start of the source of each target token
        inside = np.arange(len(pair)) - (np.cumsum(lengths[:, 1]) - lengths[:, 1])[pair]
        written = pairs.tokens[(behind - lengths[:, 1])[pair] + inside]
        place = np.arange(wide.sum()) - np.repeat(firsts, wide)
        none = place == np.repeat(wide - 1, wide)
        read = pairs.tokens[np.where(none, 0, np.repeat(begin, wide) + place)]
        yield _Cells(np.where(none, sources, read) * targets + np.repeat(written, wide), firsts)


def _measure(lists: Shortlist, train: _Pairs, dev: _Pairs | None) -> LearntShortlist:
    """Measures the coverage on the dev set, or on the training pairs without a dev set."""
    measured = dev if dev is not None and len(dev.lengths) else train
    tokens = covered = length = pairs = 0
    for source, target in islice(measured.each(), MEASURED_PAIRS):
        allowed = lists.allowed_tokens(source.tolist())
        pairs, length, tokens = pairs + 1, length + len(allowed), tokens + len(target)
        covered += sum(token in allowed for token in target.tolist())
    return LearntShortlist(len(train.lengths), length / pairs, covered / max(1, tokens), measured is dev)
