"""Pairs that a model makes: text is translated, and stands in a file beside its translation.

synthetic/pairs.tsv    source, tab, target; the file only grows
synthetic/state.json   how much of it is whole: what a kill left behind that is cut off before the file grows on
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from regard.atomic_files import write_text
from regard.decoding.translator import Translation, Translator
from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_doctor import clean
from regard.files.formats import plain_text as plain
from regard.files.formats.format_by_suffix import PAIRED, require_plain, suffix
from regard.files.remote_files import as_path
from regard.preparation.task_preparation import Request
from regard.settings import DataSettings
from regard.tokens.clean_text import CONTROL, tidy
from regard.tokens.corpus_report import Report
from regard.tokens.text_pairs import Pair
from regard.training.events import Event, Stage

SYNTHETIC = "synthetic"
"""The folder, and the tag before a source that a model wrote (Caswell et al., 2019)."""
PAIRS, STATE = "pairs.tsv", "state.json"

CHUNK = 1000
"""Sentences that are translated and saved together: what a kill costs at most."""
PIECE = 64
"""Sentences between two looks at whether to stop."""


@dataclass
class State:
    """How far the translating has come."""

    texts: int  # sentences to translate, all in all
    done: int = 0
    size: int = 0  # bytes of the pairs that are whole
    report: Report = field(default_factory=lambda: Report(unit="translations"))

    @property
    def complete(self) -> bool:
        return self.done == self.texts

    def lines(self) -> list[str]:
        """What became of the sentences, for people."""
        return [f"{self.done:,} sentences translated, {self.report.kept:,} kept", *self.report.lines()[1:]]

    def save(self, folder: Path) -> None:
        write_text(folder / STATE, json.dumps(asdict(self), ensure_ascii=False))

    @classmethod
    def load(cls, folder: Path) -> State | None:
        """What `save` wrote, if it has."""
        if not (folder / STATE).exists():
            return None
        values = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return cls(**{**values, "report": Report.from_dict(values["report"])})


@dataclass(frozen=True)
class Making:
    """What is translated, by whom, and where the pairs go."""

    folder: Path
    sentences: Callable[[], Iterator[Pair]]  # each as the source of a pair, with its place
    translator: Translator
    data: DataSettings
    back: bool  # whether the translations are the sources of the pairs

    def run(self, state: State, stop: threading.Event) -> Iterator[Event]:
        """Translates what is not translated yet; the same pairs, byte for byte, however often it was stopped."""
        doing = f"translating {'back ' if self.back else ''}by {self.model_name}"
        sentences = islice(self.sentences(), state.done, None)
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / PAIRS).open("ab") as file:
            file.truncate(state.size)
            while chunk := list(islice(sentences, CHUNK)):
                yield Stage(doing, state.done, state.texts)
                found: dict[int, Translation] = {}
                for piece in self.pieces(chunk):
                    if stop.is_set():
                        return
                    translations = self.translator.translate([chunk[i].source for i in piece], alternatives=0)
                    found.update(zip(piece, translations, strict=True))
                    yield Stage(doing, state.done + len(found), state.texts)
                self.write(file, chunk, found, state)
        if not state.complete:
            raise DataError(
                f"{state.texts - state.done:,} sentences are gone that were there: start over with --overwrite"
            )
        yield Stage(doing, state.done, state.texts)

    @property
    def model_name(self) -> str:
        data = self.translator.settings.data
        return f"{data.source} → {data.target}"

    def pieces(self, chunk: Sequence[Pair]) -> Iterator[list[int]]:
        """The numbers of the sentences that the model can take, alike lengths together."""
        lengths = [len(ids) for ids in self.translator.source.encode_batch([pair.source for pair in chunk])]
        longest = self.translator.settings.model.max_length - 1
        order = sorted((i for i, length in enumerate(lengths) if length <= longest), key=lambda i: -lengths[i])
        for start in range(0, len(order), PIECE):
            yield order[start : start + PIECE]

    def write(self, file: BinaryIO, chunk: Sequence[Pair], found: dict[int, Translation], state: State) -> None:
        """Adds the good pairs of a chunk, and then says that they are there."""
        for i, pair in enumerate(chunk):
            fault = judge(pair.source, found[i], self.data) if i in found else "too long for the model"
            if fault:
                state.report.drop(fault, pair.where)
                continue
            texts = pair.source, tidy(found[i].text)
            file.write("\t".join(reversed(texts) if self.back else texts).encode() + b"\n")
            state.report.kept += 1
        file.flush()
        os.fsync(file.fileno())
        state.done, state.size = state.done + len(chunk), file.tell()
        state.report.read = state.done
        state.save(self.folder)


def judge(text: str, translation: Translation, data: DataSettings) -> str | None:
    """Why a translation is nothing to learn from, if so."""
    found = tidy(translation.text)
    shorter, longer = sorted((len(text), len(found)))
    if not found:
        return "translated as nothing"
    if not translation.finished:
        return "the translation does not end"
    if CONTROL.search(found) or ("\N{REPLACEMENT CHARACTER}" in found and "\N{REPLACEMENT CHARACTER}" not in text):
        return "characters in the translation that are none"
    if longer > data.max_characters:
        return "the translation is longer than data.max_characters"
    if longer > 9 * shorter + 20:  # 9 is the ratio that Moses cleans by; short texts may differ more
        return "far longer or shorter than its translation"
    return None


def read_sentences(request: Request, data: DataSettings, report: Report) -> Iterator[Pair]:
    """What is to be translated, cleaned, each as the source of a pair: lines of text, or the sources of a corpus."""
    files = [as_path(name) for name in request.texts or request.files]
    if request.texts or is_text(files):
        report.unit = "sentences"
        return clean(_lines(files, data, report), data, report)
    return clean(read_pairs(files, data, report), data, report)


def is_text(files: Sequence[Path]) -> bool:
    """Whether this is one file of text, and not a corpus of pairs."""
    return len(files) == 1 and suffix(files[0]) not in PAIRED


def _lines(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    for path in files:
        require_plain(path, f"give text, a sentence a line, or pairs ({', '.join(PAIRED)})")
        for text, where in plain.texts(path, data, report):
            if text.strip():
                yield Pair(text, text, where)
            else:
                report.drop("blank", where)
