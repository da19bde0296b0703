"""Prepares pairs of sentences: from corpus files to token shards and held-out sets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import DataError
from regard.faithful import translation_memory as memory
from regard.files.corpus import clean, leaks, read_pairs, split, split_each
from regard.files.corpus_files import expand_paths
from regard.files.formats import format_by_suffix as files
from regard.files.formats.multilingual_texts import missing_direction
from regard.files.pair_checks import Notices
from regard.files.remote_files import as_path
from regard.jobs.corpus_encoding import EncodePairs, encode_corpus
from regard.jobs.worker_processes import count_processors
from regard.model_folder import MEMORY
from regard.preparation.synthetic_pairs import PAIRS, SYNTHETIC, SyntheticState, is_text
from regard.preparation.task_preparation import (
    Preparation,
    Request,
    Tell,
    refuse_start,
    write_held_out,
)
from regard.preparation.vocabulary_tags import (
    both_ways,
    first_direction,
    record_of,
    require_tags,
    with_tags,
)
from regard.settings import DataSettings, Settings
from regard.tokens.clean_text import tidy
from regard.tokens.corpus_report import Report, require_kept
from regard.tokens.slot_tokens import SLOTS, slot_pair
from regard.tokens.text_pairs import Pair
from regard.tokens.token_shards import WHOLE
from regard.tokens.tokenizer import Vocabularies
from regard.training.events import Note, Stage


class _Corpus:
    """The pairs of some files, cleaned, as often as they are asked for; `swapped`, what is the target is the source."""

    def __init__(self, name: str, files: Sequence[str], data: DataSettings, tell: Tell, swapped: bool = False) -> None:
        self.files = [as_path(path) for path in files]
        self.name, self.tell, self.swapped = name, tell, swapped
        self.data = replace(data, source=data.target, target=data.source) if swapped else data
        self.report = Report()
        self.kept: Counter[str] = Counter()  # pairs of each direction, where there are several

    def read(self, doing: str, total: int | None = None) -> Iterator[Pair]:
        """All pairs, telling what they are read for."""
        self.report, self.kept = Report(), Counter()
        pairs = clean(read_pairs(self.files, self.data, self.report), self.data, self.report)
        for number, pair in enumerate(pairs):
            if number % 5000 == 0:
                self.tell(Stage(doing, number, total))
            self.kept[pair.direction] += 1
            yield Pair(pair.target, pair.source, pair.where) if self.swapped else pair

    def accept(self) -> None:
        """Refuses a corpus without a usable pair, and tells what was left out of any other."""
        require_kept(self.report, self.files)
        for line in self.report.lines():
            self.tell(Note(f"{self.name}: {line}"))
        for direction in self.data.directions:
            if not self.kept[direction]:
                raise missing_direction(direction, self.files)
            self.tell(Note(f"{self.name}: {direction} has {self.kept[direction]:,} pairs"))


class PairPreparation(Preparation):
    """From files of pairs to tokens."""

    def __init__(self, new: Path, request: Request, tell: Tell) -> None:
        super().__init__(new, with_tags(request), tell)
        refuse_start(self.start, "translate", ("translate",))
        require_tags(self.settings, request)
        made = [str(new / SYNTHETIC / PAIRS)]
        alone = request.teacher is not None and is_text([as_path(name) for name in request.files])
        self.corpus = _Corpus("train", made if alone else request.files, self.data, tell, request.swapped)
        self.belongs: Callable[[Pair], bool] = lambda _: True  # whether a pair of the corpus is trained on
        self.total = 0
        self.sizes: Counter[str] = Counter()  # pairs of each direction that are trained on
        self.repeats = 1  # how often the corpus is gone through in an epoch
        self.made = _Corpus("synthetic", made, self.data, tell) if request.synthetic else None
        self.unseen: Callable[[Pair], bool] = lambda _: True  # whether a synthetic pair is trained on
        self.synthetic = 0

    def run(self) -> None:
        held_out = self.read_held_out()
        report = self.check(held_out)
        if "dev" not in held_out:
            held_out["dev"] = self.split_off()
        about: dict[str, Any] = {"directions": self.sizes} if self.data.directions else {}
        if self.made is not None:
            about["synthetic"] = self.add_synthetic(self.made, held_out)
        settings = self.choose(self.total * min(1, self.repeats) + self.synthetic, **first_direction(self.data))
        vocabularies = self.vocabularies(
            lambda: Vocabularies.train(
                lambda: map(self.without_pieces, self.training_pairs("learning the vocabulary")), settings.tokenizer
            )
        )
        total = self.total * self.repeats + self.synthetic
        pairs = self.encode("train", self.training_pairs("encoding"), total, vocabularies)
        self.keep_memory()
        self.encode("dev", iter(held_out["dev"]), len(held_out["dev"]), vocabularies)
        for name, kept in held_out.items():
            write_held_out(self.new / f"{name}.jsonl", map(record_of, kept))
        self.write_about(pairs, report, {name: len(kept) for name, kept in held_out.items()}, **about)

    def choose(self, size: int, **data: Any) -> Settings:
        """The settings for so many pairs; it is told where a preset's subword sampling is left out for their number."""
        settings = super().choose(size, **data)
        given = without_sampling(self.request.given, size)
        if not settings.training.subword_sampling or given is self.request.given:
            return settings
        self.tell(Note(f"train: without training.subword_sampling, which would hold all words of {size:,} pairs"))
        self.request = replace(self.request, given=given)
        return super().choose(size, **data)

    def read_held_out(self) -> dict[str, list[Pair]]:
        """The dev and test sets that were given; they fit into memory."""
        found = {}
        for name, given in (("dev", self.request.dev), ("test", self.request.test)):
            if given:
                corpus = _Corpus(name, given, self.data, self.tell, self.request.swapped)
                found[name] = list(corpus.read(f"reading the {name} set"))
                corpus.accept()
        return found

    def check(self, held_out: dict[str, list[Pair]]) -> Report:
        """Reads the whole corpus once: what is wrong with it, and which dev and test sentences are in it."""
        notices = Notices()
        pairs = notices.watch(self.corpus.read("reading"))
        found = leaks(both_ways(pairs, self.data) if self.data.directions else pairs, held_out)
        self.corpus.accept()
        if (line := notices.line(self.corpus.files)) and not self.request.teacher:
            self.tell(Note(f"train: {line}"))
        self.total, self.sizes = self.corpus.report.kept, self.corpus.kept
        for name, leak in found.items():
            if leak.leaked and not self.request.teacher:  # whose student does not learn from the corpus itself
                places = ", ".join(leak.examples)
                share = f"{leak.leaked:,} of {leak.pairs:,} {name} sources are also in train"
                self.tell(Note(f"{name}: {share}, which makes its scores too good ({places})"))
        return self.corpus.report

    def split_off(self) -> list[Pair]:
        """A dev set out of the corpus."""
        if self.data.directions:
            return self.split_off_lines()
        side = "target" if self.request.swapped else "source"  # the same dev pairs in both directions
        doing = "splitting off a dev set"
        sources = (getattr(pair, side) for pair in self.corpus.read(doing, self.total))
        held = split(sources, self.data.dev_pairs, self.total)
        self.belongs = lambda pair: not held.holds(getattr(pair, side))
        dev = [pair for pair in self.corpus.read(doing, self.total) if not self.belongs(pair)]
        self.total -= len(dev)
        self.tell(Note(f"dev: {len(dev):,} pairs split off; their {side}s are not in the rest"))
        if self.made and self.made.files == self.corpus.files:
            self.tell(Note("dev: its targets are the teacher's too, so scores tell how alike they are: see --dev"))
        return dev

    def split_off_lines(self) -> list[Pair]:
        """A dev set for each direction: lines are held out in all their languages.

        No sentence that is a source there is trained on, neither as a source nor, of another line, as a target.
        """
        doing = "splitting off a dev set"
        families = ((pair.direction, pair.family) for pair in self.corpus.read(doing, self.total))
        held = split_each(families, self.data.dev_pairs, self.sizes)
        dev = [pair for pair in self.corpus.read(doing, self.total) if held.holds(pair.family)]
        secret = {pair.source for pair in dev}
        self.belongs = lambda pair: not (held.holds(pair.family) or pair.source in secret or pair.target in secret)
        self.sizes = Counter(pair.direction for pair in self.training_pairs(doing))
        for direction in self.data.directions:
            if not self.sizes[direction]:
                raise DataError(f"{direction}: no pairs are left when a dev set is split off: give one with --dev")
        rest = self.sizes.total()
        self.tell(Note(f"dev: {len(dev):,} pairs split off; their sources are not in the rest"))
        if lost := self.total - len(dev) - rest:
            self.tell(Note(f"train: {lost:,} pairs left out: a source of the dev set is one of their two sides"))
        self.total = rest
        return dev

    def add_synthetic(self, made: _Corpus, held_out: dict[str, list[Pair]]) -> list[str]:
        """Counts the synthetic pairs that no held-out set has in it, and settles the shares; returns what was done."""
        state, request = SyntheticState.load(self.new / SYNTHETIC), self.request
        assert state is not None, "the pairs are made before the corpus is prepared"
        kept = [pair for pairs in held_out.values() for pair in pairs]
        sources, targets = {pair.source for pair in kept}, {pair.target for pair in kept if request.texts}
        self.unseen = lambda pair: pair.source not in sources and pair.target not in targets
        self.synthetic = sum(map(self.unseen, made.read("reading the synthetic pairs", state.report.kept)))
        if not self.synthetic:
            raise DataError(f"no synthetic pair is left to learn from: {'; '.join(state.lines())}")
        done = []
        if left := state.report.kept - self.synthetic:
            done.append(f"{left:,} pairs left out: in the dev or test set")
        if request.teacher:
            self.repeats = 0
        elif self.synthetic > MOST_SYNTHETIC * self.total:
            self.repeats = math.ceil(self.synthetic / (MOST_SYNTHETIC * self.total))
            done.append(f"each of the {self.total:,} real pairs is there {self.repeats} times, beside so many others")
        if request.texts and not self.tags:
            done.append(f"not tagged, since the vocabulary of {Path(request.start or '').name} has no tag for it")
        for line in done:
            self.tell(Note(f"synthetic: {line}"))
        origin = request.teacher or request.reverse
        maker = Path(origin).name if origin else "the model in training/reverse"
        texts = ", ".join(Path(name).name for name in request.texts)
        what = f"{texts} translated back" if texts else "the sources as translated"
        return [f"{self.synthetic:,} synthetic pairs: {what} by {maker}", *state.lines(), *done]

    @property
    def tags(self) -> tuple[str, ...]:
        """What stands before a synthetic source, so that it is not taken for what people write."""
        return (SYNTHETIC,) if self.request.texts and SYNTHETIC in self.settings.tokenizer.tags else ()

    def training_pairs(self, doing: str) -> Iterator[Pair]:
        """The corpus, as often as its share asks for, and the synthetic pairs."""
        for _ in range(self.repeats):
            yield from filter(self.belongs, self.corpus.read(doing, self.total))
        if self.made:
            pairs = filter(self.unseen, self.made.read(f"{doing}: synthetic pairs", self.synthetic))
            yield from (replace(pair, tags=self.tags) for pair in pairs)

    def keep_memory(self) -> None:
        """The real pairs as a translation memory; held-out ones are not in it, so that scores stay honest."""
        translated = any(files.suffix(path) in memory.KEPT for path in expand_paths(self.corpus.files))
        wanted = self.data.memory == "on" or (self.data.memory == "auto" and translated and not self.request.teacher)
        if self.request.swapped or not wanted:
            return
        pairs = read_pairs(self.corpus.files, self.data, Report(), whole=True)
        tidied = (replace(pair, source=tidy(pair.source), target=tidy(pair.target)) for pair in pairs)
        memory.write(self.new / MEMORY, (pair for pair in tidied if pair.source and pair.target and self.belongs(pair)))

    def without_pieces(self, pair: Pair) -> Pair:
        """A pair for the vocabulary: what slots stand for has no part in it."""
        if SLOTS[0] not in self.settings.tokenizer.tags:
            return pair
        source, target = (" ".join(side.texts) for side in slot_pair(pair.source, pair.target))
        return replace(pair, source=source, target=target)

    def encode(self, name: str, pairs: Iterator[Pair], total: int, vocabularies: Vocabularies) -> int:
        """Writes the tokens of the pairs that the model can take; returns how many."""
        longest = self.settings.model.max_length  # one place is for the begin or the end
        seed = self.settings.training.seed if name == "train" else None
        work = EncodePairs.with_vocabulary(self.new, longest - 1, seed)
        processes = self.settings.training.threads or count_processors()
        encoded = encode_corpus(self.new / name, pairs, total, work, vocabularies, processes)
        if encoded.reused:
            self.tell(Note(f"{name}: reused {encoded.reused:,} of {len(encoded.shards):,} shards of an earlier run"))
        for damaged in encoded.damaged:
            self.tell(Note(f"{name}: the shard {damaged} was damaged and has been made again"))
        if not encoded.pairs:
            raise DataError(f"{name}: every pair has more tokens than model.max_length = {longest}")
        if left := encoded.left_out:
            self.tell(Note(f"{name}: {left:,} pairs left out: more tokens than model.max_length = {longest}"))
        return encoded.pairs


def without_sampling(given: dict[str, Any], size: int) -> dict[str, Any]:
    """What the user set and, of more pairs than are planned together, no subword sampling that nobody asked for.

    It holds the words and the pieces of all pairs in memory.
    """
    training = given.get("training", {})
    if size <= WHOLE or "subword_sampling" in training:
        return given
    return {**given, "training": {**training, "subword_sampling": 0.0}}


MOST_SYNTHETIC = 4
"""Synthetic pairs beside a real one; where there are more, the real ones are repeated, as Edunov et al. (2018) do."""
