"""From corpus files to a folder that training can start from, in constant memory."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from regard.errors import DataError, ModelError, RegardError
from regard.folder import CARD, LOG, SETTINGS, TOKENIZER, TRAINING, WEIGHTS, reason, sync_folder, write_text
from regard.options import dump
from regard.settings import DataSettings, Settings, choose_preset, resolve
from regard.text.corpus import Pair, read_pairs, split
from regard.text.doctor import Report, clean, leaks, require_some
from regard.text.tokenizer import Vocabularies
from regard.training.batches import write_examples
from regard.training.events import Event, Note, Stage

NEW, REQUEST, READY, ABOUT = "training.new", "request.json", "ready", "about.json"

Tell = Callable[[Event], None]
"""Takes events as they happen."""


@dataclass(frozen=True)
class Request:
    """What the user asked for; kept, so that a run killed while preparing can start over by itself."""

    files: list[str]
    given: dict[str, Any]  # settings that the user set
    device: str  # its kind, for the choice of a preset
    dev: list[str] = field(default_factory=list)
    test: list[str] = field(default_factory=list)


def claim(output: Path, overwrite: bool) -> None:
    """Refuses a folder that holds a model, unless it may be overwritten."""
    if output.exists() and not output.is_dir():
        raise ModelError(f"{output}: is a file, not a folder")
    if not overwrite and any((output / name).exists() for name in (SETTINGS, WEIGHTS, TRAINING, f"{NEW}/{REQUEST}")):
        raise ModelError(
            f"{output}: already holds a model: go on with --resume {output}, replace it with --overwrite, "
            "or choose another folder with -o"
        )


def prepare(output: Path, request: Request, tell: Tell) -> None:
    """Fills `output`/training.new, and puts it in the place of what was there; on an error, leaves no trace."""
    made = [folder for folder in (output, *output.parents) if not folder.exists()]
    new = output / NEW
    try:
        shutil.rmtree(new, ignore_errors=True)
        write_text(new / REQUEST, json.dumps(asdict(request)))
        _Preparation(new, request, tell).run()
        write_text(new / READY, "")
    except InterruptedError:  # somebody said stop: the request stays, so that the run can be resumed
        raise
    except (RegardError, OSError) as error:
        shutil.rmtree(new, ignore_errors=True)
        with contextlib.suppress(OSError):  # a folder that is not empty stays
            for folder in made:
                folder.rmdir()
        if isinstance(error, OSError):
            raise ModelError(f"{output}: cannot be written ({reason(error)})") from None
        raise
    install(output)


def install(output: Path) -> None:
    """Replaces an old model by the prepared one; each step can be repeated after a kill."""
    new = output / NEW
    for name in (WEIGHTS, CARD, LOG):
        (output / name).unlink(missing_ok=True)
    shutil.rmtree(output / TRAINING, ignore_errors=True)
    for name in (SETTINGS, TOKENIZER):
        if (new / name).exists():
            (new / name).replace(output / name)
    new.rename(output / TRAINING)
    sync_folder(output)


def stored_request(output: Path) -> Request | None:
    """The request of a run that was killed while preparing."""
    path = output / NEW / REQUEST
    return Request(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None


class _Corpus:
    """The pairs of some files, cleaned, as often as they are asked for."""

    def __init__(self, name: str, files: Sequence[str], data: DataSettings, tell: Tell) -> None:
        self.files = [Path(path) for path in files]
        self.name, self.data, self.tell = name, data, tell
        self.report = Report()

    def read(self, doing: str, total: int | None = None) -> Iterator[Pair]:
        """All pairs, telling what they are read for."""
        self.report = Report()
        pairs = clean(read_pairs(self.files, self.data, self.report), self.data, self.report)
        for number, pair in enumerate(pairs):
            if number % 5000 == 0:
                self.tell(Stage(doing, number, total))
            yield pair

    def accept(self) -> None:
        """Refuses a corpus without a usable pair, and tells what was left out of any other."""
        require_some(self.report, self.files)
        for line in self.report.lines():
            self.tell(Note(f"{self.name}: {line}"))


class _Preparation:
    """The steps from corpus to tokens, each a pass over the files."""

    def __init__(self, new: Path, request: Request, tell: Tell) -> None:
        self.new, self.request, self.tell = new, request, tell
        self.data = resolve(request.given).data
        self.corpus = _Corpus("train", request.files, self.data, tell)
        self.belongs: Callable[[Pair], bool] = lambda _: True  # whether a pair of the corpus is trained on
        self.total = 0

    def run(self) -> None:
        held_out = self.read_held_out()
        report = self.check(held_out)
        if "dev" not in held_out:
            held_out["dev"] = self.split_off()
        preset, why = choose_preset(self.total, self.request.device)
        settings = resolve(self.request.given, preset)
        asked = self.request.given.get("preset", "auto") != "auto"
        write_text(self.new / SETTINGS, dump(settings))
        vocabularies = Vocabularies.train(lambda: self.training_pairs("learning the vocabulary"), settings.tokenizer)
        write_text(self.new / TOKENIZER, vocabularies.to_json())
        pairs = self.encode("train", self.training_pairs("encoding"), self.total, vocabularies, settings)
        self.encode("dev", iter(held_out["dev"]), len(held_out["dev"]), vocabularies, settings)
        for name, kept in held_out.items():
            lines = (json.dumps({"source": p.source, "target": p.target}, ensure_ascii=False) for p in kept)
            write_text(self.new / f"{name}.jsonl", "".join(line + "\n" for line in lines))
        about = {
            "files": [path.name for path in self.corpus.files],
            "pairs": pairs,
            "preset": settings.preset,
            "reason": "as asked" if asked else why,
            "report": report.to_dict(),
            "held_out": {name: len(kept) for name, kept in held_out.items()},
        }
        write_text(self.new / ABOUT, json.dumps(about, ensure_ascii=False))

    def read_held_out(self) -> dict[str, list[Pair]]:
        """The dev and test sets that were given; they fit into memory."""
        found = {}
        for name, files in (("dev", self.request.dev), ("test", self.request.test)):
            if files:
                corpus = _Corpus(name, files, self.data, self.tell)
                found[name] = list(corpus.read(f"reading the {name} set"))
                corpus.accept()
        return found

    def check(self, held_out: dict[str, list[Pair]]) -> Report:
        """Reads the whole corpus once: what is wrong with it, and which dev and test sentences are in it."""
        found = leaks(self.corpus.read("reading"), held_out)
        self.corpus.accept()
        self.total = self.corpus.report.kept
        for name, leak in found.items():
            if leak.leaked:
                places = ", ".join(leak.examples)
                share = f"{leak.leaked:,} of {leak.pairs:,} {name} sources are also in train"
                self.tell(Note(f"{name}: {share}, which makes its scores too good ({places})"))
        return self.corpus.report

    def split_off(self) -> list[Pair]:
        """A dev set out of the corpus."""
        held = split(self.corpus.read("splitting off a dev set", self.total), self.data.dev_pairs, self.total)
        self.belongs = lambda pair: not held.holds(pair)
        dev = [pair for pair in self.corpus.read("splitting off a dev set", self.total) if held.holds(pair)]
        self.total -= len(dev)
        self.tell(Note(f"dev: {len(dev):,} pairs split off; their sources are not in the rest"))
        return dev

    def training_pairs(self, doing: str) -> Iterator[Pair]:
        return filter(self.belongs, self.corpus.read(doing, self.total))

    def encode(
        self, name: str, pairs: Iterator[Pair], total: int, vocabularies: Vocabularies, settings: Settings
    ) -> int:
        """Writes the tokens of the pairs that the model can take; returns how many."""
        limit = settings.model.max_length - 1  # one place is for the begin or the end
        size = max(vocabularies.source.size, vocabularies.target.size)

        def encoded() -> Iterator[tuple[list[int], list[int]]]:
            while chunk := list(islice(pairs, 5000)):
                sources = vocabularies.source.encode_batch([pair.source for pair in chunk])
                targets = vocabularies.target.encode_batch([pair.target for pair in chunk])
                for both in zip(sources, targets, strict=True):
                    if max(map(len, both)) <= limit:
                        yield both

        kept = write_examples(self.new / name, encoded(), size)
        if not kept:
            raise DataError(f"{name}: every pair has more tokens than model.max_length = {settings.model.max_length}")
        if kept < total:
            over = f"more tokens than model.max_length = {settings.model.max_length}"
            self.tell(Note(f"{name}: {total - kept:,} pairs left out: {over}"))
        return kept
