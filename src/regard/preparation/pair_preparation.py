"""Prepares sentence pairs: converts corpus files to token shards and held-out sets."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from regard.decoding.native.native_search import count_processors
from regard.errors import DataError, SettingsError
from regard.faithful import translation_memory as memory
from regard.files.corpus import clean, leaks, read_pairs, split, split_each
from regard.files.corpus_files import expand_paths
from regard.files.corpus_report import Report, require_kept
from regard.files.formats.format_by_suffix import suffix
from regard.files.formats.multilingual_texts import missing_direction
from regard.files.pair_checks import Notices
from regard.files.remote_files import as_path
from regard.jobs.corpus_encoding import EncodePairs, encode_corpus
from regard.model_folder import MEMORY
from regard.preparation.chosen_settings import resolve
from regard.preparation.synthetic_pairs import PAIRS, SYNTHETIC, SyntheticState, is_text
from regard.preparation.task_preparation import Preparation, SendEvent, TrainingRequest, report_progress
from regard.settings import DataSettings, Settings
from regard.settings.option_fields import merge
from regard.tokens.clean_text import tidy
from regard.tokens.language_directions import directions_of, targets_of
from regard.tokens.placeholder_slots import SLOTS, slot_pair
from regard.tokens.text_pairs import Pair
from regard.tokens.token_shards import WHOLE
from regard.tokens.tokenizer import Vocabularies
from regard.training.events import Note

MAX_SYNTHETIC = 4
"""Maximum number of synthetic pairs per real pair; if there are more, real pairs are repeated (Edunov et al., 2018)."""

SPLITTING = "splitting off a dev set"

MESSAGE_FILES = (".po", ".pot", ".mo", ".xlf", ".xliff", ".tmx", ".json", ".arb")
"""Suffixes of files that usually contain program messages, which have placeholders."""


class _Corpus:
    """The cleaned pairs of some files, which can be read repeatedly; `swapped` exchanges source and target."""

    def __init__(
        self, name: str, files: Sequence[str], data: DataSettings, send: SendEvent, swapped: bool = False
    ) -> None:
        self.files = [as_path(path) for path in files]
        self.name, self.send, self.swapped = name, send, swapped
        self.data = replace(data, source=data.target, target=data.source) if swapped else data
        self.report = Report()
        self.kept: Counter[str] = Counter()  # number of pairs in each direction, if there are several

    def read(self, stage: str, total: int | None = None) -> Iterator[Pair]:
        """Yields all pairs, and sends the progress."""
        self.report, self.kept = Report(), Counter()
        pairs = clean(read_pairs(self.files, self.data, self.report), self.data, self.report)
        for pair in report_progress(pairs, self.send, stage, total):
            self.kept[pair.direction] += 1
            yield Pair(pair.target, pair.source, pair.where) if self.swapped else pair

    def require_pairs(self) -> None:
        """Raises DataError if there are no usable pairs; otherwise reports which pairs were left out."""
        require_kept(self.report, self.files)
        for line in self.report.lines():
            self.send(Note(f"{self.name}: {line}"))
        for direction in self.data.directions:
            if not self.kept[direction]:
                raise missing_direction(direction, self.files)
            self.send(Note(f"{self.name}: {direction} has {self.kept[direction]:,} pairs"))


class PairPreparation(Preparation):
    """Prepares corpora for the task translate."""

    starts_from: ClassVar = {"translate": ("translate",)}

    def __init__(self, new: Path, request: TrainingRequest, send: SendEvent) -> None:
        super().__init__(new, with_tags(request), send)
        require_tags(self.settings, request)
        synthetic_file = str(new / SYNTHETIC / PAIRS)
        text_only = request.teacher is not None and is_text([as_path(name) for name in request.files])
        self.corpus = _Corpus(
            "train", [synthetic_file] if text_only else request.files, self.data, send, request.swapped
        )
        self.is_trained_on: Callable[[Pair], bool] = lambda _: True  # tests pairs of the corpus
        self.total = 0
        self.sizes: Counter[str] = Counter()  # number of training pairs in each direction
        self.repetitions = 1  # how many times an epoch repeats the corpus
        self.synthetic_corpus = _Corpus("synthetic", [synthetic_file], self.data, send) if request.synthetic else None
        self.is_unseen: Callable[[Pair], bool] = lambda _: True  # tests that synthetic pairs are in no held-out set
        self.synthetic_count = 0

    def run(self) -> None:
        held_out = self.read_held_out()
        report = self.check(held_out)
        if "dev" not in held_out:
            held_out["dev"] = self.split_off_lines() if self.data.directions else self.split_off()
        about: dict[str, Any] = {"directions": self.sizes} if self.data.directions else {}
        if self.synthetic_corpus is not None:
            about["synthetic"] = self.add_synthetic(self.synthetic_corpus, held_out)
        self.choose_settings(self.total * min(1, self.repetitions) + self.synthetic_count, **first_direction(self.data))
        vocabularies = self.write_vocabularies(self.learn)
        total = self.total * self.repetitions + self.synthetic_count
        pairs = self.encode("train", self.training_pairs("encoding"), total, vocabularies)
        self.keep_memory()
        self.encode("dev", iter(held_out["dev"]), len(held_out["dev"]), vocabularies)
        for name, kept in held_out.items():
            self.write_held_out(name, map(record_of, kept))
        self.write_about(pairs, report, {name: len(kept) for name, kept in held_out.items()}, **about)

    def choose_settings(self, size: int, **data: Any) -> Settings:
        """Chooses the settings; disables a preset's subword sampling if there are too many pairs for it."""
        settings = super().choose_settings(size, **data)
        given = without_sampling(self.request.given, size)
        if not settings.training.subword_sampling or given is self.request.given:
            return settings
        self.note(f"train: training.subword_sampling is off, because it would hold {size:,} pairs in memory")
        self.request = replace(self.request, given=given)
        return super().choose_settings(size, **data)

    def read_held_out(self) -> dict[str, list[Pair]]:
        """Reads the dev and test sets that the user provided, which must fit into memory."""
        sets = {}
        for name, files in self.request.held_out.items():
            corpus = _Corpus(name, files, self.data, self.send, self.request.swapped)
            sets[name] = list(corpus.read(f"reading the {name} set"))
            corpus.require_pairs()
        return sets

    def check(self, held_out: dict[str, list[Pair]]) -> Report:
        """Reads the whole corpus once; reports problems, and overlap with held-out sets."""
        notices = Notices()
        pairs = notices.watch(self.corpus.read("reading"))
        overlaps = leaks(in_both_directions(pairs, self.data) if self.data.directions else pairs, held_out)
        self.corpus.require_pairs()
        self.total, self.sizes = self.corpus.report.kept, self.corpus.kept
        if self.request.teacher:  # the student learns from the teacher's translations, not from the corpus
            return self.corpus.report
        if line := notices.line(self.corpus.files):
            self.note(f"train: {line}")
        for name, leak in overlaps.items():
            if leak.leaked:
                share = f"{leak.leaked:,} of {leak.pairs:,} {name} sources are also in train"
                self.note(f"{name}: {share}, so scores will be too optimistic ({', '.join(leak.examples)})")
        return self.corpus.report

    def split_off(self) -> list[Pair]:
        """Splits off a dev set, whose sources are excluded from training."""
        side = "target" if self.request.swapped else "source"  # the same dev pairs in both directions
        sources = (getattr(pair, side) for pair in self.corpus.read(SPLITTING, self.total))
        held = split(sources, self.data.dev_pairs, self.total)
        self.is_trained_on = lambda pair: not held.holds(getattr(pair, side))
        dev = [pair for pair in self.corpus.read(SPLITTING, self.total) if not self.is_trained_on(pair)]
        self.total -= len(dev)
        self.note(f"dev: {len(dev):,} pairs held out; none of their {side}s is in the rest")
        if self.synthetic_corpus and self.synthetic_corpus.files == self.corpus.files:
            self.note("dev: its targets are the teacher's, so scores measure similarity to the teacher: see --dev")
        return dev

    def split_off_lines(self) -> list[Pair]:
        """Splits off a dev set for each direction, which holds out lines in all their languages.

        Training excludes all dev sources, even where they occur as a source or target of other lines.
        """
        families = ((pair.direction, pair.family) for pair in self.corpus.read(SPLITTING, self.total))
        held = split_each(families, self.data.dev_pairs, self.sizes)
        dev = [pair for pair in self.corpus.read(SPLITTING, self.total) if held.holds(pair.family)]
        secret = {pair.source for pair in dev}
        self.is_trained_on = lambda pair: not (held.holds(pair.family) or secret & {pair.source, pair.target})
        self.sizes = Counter(pair.direction for pair in self.training_pairs(SPLITTING))
        for direction in self.data.directions:
            if not self.sizes[direction]:
                raise DataError(f"{direction}: no pairs are left after splitting off a dev set: specify one with --dev")
        lost, self.total = self.total - len(dev) - self.sizes.total(), self.sizes.total()
        self.note(f"dev: {len(dev):,} pairs held out; none of their sources is in the rest")
        if lost:
            self.note(f"train: {lost:,} pairs left out because one side is a source in the dev set")
        return dev

    def add_synthetic(self, corpus: _Corpus, held_out: dict[str, list[Pair]]) -> list[str]:
        """Counts the synthetic pairs that are in no held-out set, and chooses the mix; returns lines for the report."""
        state, request = SyntheticState.load(self.new / SYNTHETIC), self.request
        assert state is not None, "synthetic pairs must exist before the corpus is prepared"
        unseen = [pair for pairs in held_out.values() for pair in pairs]
        sources, targets = {pair.source for pair in unseen}, {pair.target for pair in unseen if request.texts}
        self.is_unseen = lambda pair: pair.source not in sources and pair.target not in targets
        self.synthetic_count = sum(map(self.is_unseen, corpus.read("reading the synthetic pairs", state.report.kept)))
        if not self.synthetic_count:
            raise DataError(f"no synthetic pairs are left to train on: {'; '.join(state.lines())}")
        lines = []
        if left := state.report.kept - self.synthetic_count:
            lines.append(f"{left:,} pairs left out: in the dev or test set")
        if request.teacher:
            self.repetitions = 0
        elif self.synthetic_count > MAX_SYNTHETIC * self.total:
            self.repetitions = math.ceil(self.synthetic_count / (MAX_SYNTHETIC * self.total))
            lines.append(f"each of the {self.total:,} real pairs is repeated {self.repetitions} times")
        if request.texts and not self.tags:
            lines.append(f"not tagged, because the vocabulary of {Path(request.start or '').name} has no such tag")
        for line in lines:
            self.note(f"synthetic: {line}")
        origin = request.teacher or request.reverse
        maker = Path(origin).name if origin else "the model in training/reverse"
        texts = ", ".join(Path(name).name for name in request.texts)
        what = f"{texts} translated back" if texts else "the sources as translated"
        return [f"{self.synthetic_count:,} synthetic pairs: {what} by {maker}", *state.lines(), *lines]

    @property
    def tags(self) -> tuple[str, ...]:
        """The tag of synthetic sources, which distinguishes them from sources written by people."""
        return (SYNTHETIC,) if self.request.texts and SYNTHETIC in self.settings.tokenizer.tags else ()

    def training_pairs(self, stage: str) -> Iterator[Pair]:
        """Yields the pairs of the corpus, repeated if necessary, followed by the synthetic pairs."""
        for _ in range(self.repetitions):
            yield from filter(self.is_trained_on, self.corpus.read(stage, self.total))
        if self.synthetic_corpus:
            pairs = filter(
                self.is_unseen, self.synthetic_corpus.read(f"{stage}: synthetic pairs", self.synthetic_count)
            )
            yield from (replace(pair, tags=self.tags) for pair in pairs)

    def keep_memory(self) -> None:
        """Writes the real pairs as a translation memory, except held-out pairs, which would inflate scores."""
        translated = any(suffix(path) in memory.KEPT for path in expand_paths(self.corpus.files))
        wanted = self.data.memory == "on" or (self.data.memory == "auto" and translated and not self.request.teacher)
        if self.request.swapped or not wanted:
            return
        pairs = read_pairs(self.corpus.files, self.data, Report(), whole=True)
        tidied = (replace(pair, source=tidy(pair.source), target=tidy(pair.target)) for pair in pairs)
        kept = (pair for pair in tidied if pair.source and pair.target and self.is_trained_on(pair))
        if left_out := memory.write(self.new / MEMORY, kept):
            self.note(f"train: {left_out:,} pairs are not in the translation memory, whose size is limited")

    def learn(self) -> Vocabularies:
        """Learns the vocabularies from the training pairs, excluding pieces that slots replace."""

        def without_pieces(pair: Pair) -> Pair:
            source, target = (" ".join(side.texts) for side in slot_pair(pair.source, pair.target))
            return replace(pair, source=source, target=target)

        def pairs() -> Iterator[Pair]:
            training_pairs = self.training_pairs("learning the vocabulary")
            return map(without_pieces, training_pairs) if SLOTS[0] in self.settings.tokenizer.tags else training_pairs

        return Vocabularies.train(pairs, self.settings.tokenizer)

    def encode(self, name: str, pairs: Iterator[Pair], total: int, vocabularies: Vocabularies) -> int:
        """Writes the tokens of the pairs that fit the model; returns their number."""
        longest = self.settings.model.max_length  # includes one position for the begin or end token
        seed = self.settings.training.seed if name == "train" else None
        work = EncodePairs(path=str(self.new), longest=longest - 1, seed=seed)
        processes = self.settings.training.threads or count_processors()
        encoded = encode_corpus(self.new / name, pairs, total, work, vocabularies, processes)
        if encoded.reused:
            self.note(f"{name}: reused {len(encoded.reused):,} of {len(encoded.shards):,} shards of an earlier run")
        for damaged in encoded.damaged:
            self.note(f"{name}: the shard {damaged} was damaged and has been encoded again")
        kept = encoded.total("pairs")
        if not kept:
            raise DataError(f"{name}: every pair has more tokens than model.max_length = {longest}")
        if left := encoded.total("left_out"):
            self.note(f"{name}: {left:,} pairs left out: more tokens than model.max_length = {longest}")
        return kept


def without_sampling(given: dict[str, Any], size: int) -> dict[str, Any]:
    """Disables subword sampling for large corpora, unless the user has set it.

    Subword sampling keeps the words and tokens of all pairs in memory.
    """
    training = given.get("training", {})
    if size <= WHOLE or "subword_sampling" in training:
        return given
    return {**given, "training": {**training, "subword_sampling": 0.0}}


def first_direction(data: DataSettings) -> dict[str, str]:
    """Returns the languages of the first direction, which is the default if there are several."""
    first = directions_of(data)[0]
    return {"source": first.source, "target": first.target} if data.directions else {}


def in_both_directions(pairs: Iterator[Pair], data: DataSettings) -> Iterator[Pair]:
    """Yields all pairs, and also reversed if their target language is the source of a direction."""
    sources = {direction.source for direction in directions_of(data)}
    for pair in pairs:
        yield pair
        if pair.tags[0] in sources:
            yield replace(pair, source=pair.target, target=pair.source)


def record_of(pair: Pair) -> dict[str, str]:
    direction = {"direction": pair.direction} if pair.direction else {}
    return {"source": pair.source, "target": pair.target, **direction}


def with_tags(request: TrainingRequest) -> TrainingRequest:
    """Adds tags for target languages and slots to a request, unless they come from a model to start from."""
    if request.start is not None:
        return request
    settings = resolve(request.given)
    slots = SLOTS if uses_slots(settings.data, request.files) else ()
    tags = dict.fromkeys((*targets_of(settings.data), *settings.tokenizer.tags, *slots))
    if tuple(tags) == settings.tokenizer.tags:
        return request
    return replace(request, given=merge(request.given, {"tokenizer": {"tags": list(tags)}}))


def uses_slots(data: DataSettings, files: Sequence[str]) -> bool:
    """Reports whether a model trained on these files needs slots."""
    if data.protect == "auto":
        return any(suffix(path) in MESSAGE_FILES for path in expand_paths(files))
    return data.protect == "on"


def require_tags(settings: Settings, request: TrainingRequest) -> None:
    """Raises SettingsError for tags or slots that the vocabulary lacks, and for contradictory directions."""
    tags = settings.tokenizer.tags
    missing = [name for name in targets_of(settings.data) if name not in tags]
    if missing:
        raise SettingsError(
            f"the --from model cannot learn to translate into {' and '.join(missing)}, because its vocabulary only "
            f"has {', '.join(tags) or 'no'} tags"
        )
    if settings.data.protect == "on" and not set(SLOTS) <= set(tags):
        raise SettingsError(
            "data.protect = on requires slots, which the model passed with --from does not have: remove data.protect"
        )
    if settings.data.directions and {"source", "target"} & request.given.get("data", {}).keys():
        raise SettingsError(
            "data.source and data.target name one direction, but data.directions names "
            f"{','.join(settings.data.directions)}: give one or the other"
        )
