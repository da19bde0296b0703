"""Synthetic pairs: text, and a model's translation of it.

synthetic/pairs.tsv    source, tab, target
synthetic/state.json   the number of sentences, and a report once all are translated
synthetic/shards/      finished shards until then (jobs/resumable_shards.py)
"""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import ClassVar

from regard.atomic_files import write_text
from regard.decoding.model_loading import load_as
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Translator
from regard.errors import DataError
from regard.files.corpus import clean, read_pairs
from regard.files.corpus_report import Report
from regard.files.formats import plain_text as plain
from regard.files.formats.format_by_suffix import PAIRED, require_plain, suffix
from regard.files.remote_files import as_path
from regard.jobs.bulk_translation import model_files
from regard.jobs.resumable_shards import Executor, MakeShard, ResumableRun, ShardInput, ShardOutput, Work
from regard.preparation.task_preparation import TrainingRequest
from regard.settings import DataSettings
from regard.tokens.clean_text import CONTROL, tidy
from regard.tokens.text_pairs import Location, Pair
from regard.training.events import Event, Stage

SYNTHETIC = "synthetic"
"""The folder, and the tag before a source that a model wrote (Caswell et al., 2019)."""
PAIRS, STATE, SHARDS = "pairs.tsv", "state.json", "shards"

CHUNK = 1000
"""Sentences in a shard: an interruption loses at most one shard."""
PIECE = 64
"""Sentences between two reports of progress."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


@dataclass
class SyntheticState:
    """The number of sentences to translate, and a report on their translations."""

    texts: int
    done: int = 0  # all or none
    report: Report = field(default_factory=lambda: Report(unit="translations"))

    @property
    def complete(self) -> bool:
        return self.done == self.texts

    def lines(self) -> list[str]:
        """Returns the report for people, a line for each fault."""
        return [f"{self.done:,} sentences translated, {self.report.kept:,} kept", *self.report.lines()[1:]]

    def save(self, folder: Path) -> None:
        write_text(folder / STATE, json.dumps(asdict(self), ensure_ascii=False))

    @classmethod
    def load(cls, folder: Path) -> SyntheticState | None:
        """Returns the saved state, if there is one."""
        if not (folder / STATE).exists():
            return None
        values = json.loads((folder / STATE).read_text(encoding="utf-8"))
        return cls(values["texts"], values["done"], Report(**values["report"]))


@dataclass(frozen=True, kw_only=True)
class TranslateSentences(Work):
    """Makes pairs of sentences and their translations; the lines are JSON: text, file and line."""

    device: str
    back: bool  # the translations are the sources of the pairs
    max_characters: int
    without_effect: ClassVar[frozenset[str]] = frozenset({"path", "device"})

    def files(self) -> dict[str, Path]:
        return model_files(Path(self.path))

    def start(self) -> MakeShard:
        return self.start_with(load_as(Translator, self.path, self.device))

    def start_with(self, translator: Translator) -> MakeShard:
        """Returns the function that makes a shard with a model that is loaded."""

        def make(shard: ShardInput) -> Iterator[int | ShardOutput]:
            sentences = [json.loads(line) for line in shard.lines()]
            translations: dict[int, Translation] = {}
            for piece in split_by_length([text for text, *_ in sentences], translator):
                outputs = translator.translate([sentences[i][0] for i in piece], alternatives=0)
                translations.update(zip(piece, outputs, strict=True))
                yield len(translations)
            rows, faults = [], []
            for i, (text, *where) in enumerate(sentences):
                fault = find_fault(text, translations[i], self.max_characters) if i in translations else TOO_LONG
                if fault:
                    faults.append([fault, *where])
                    continue
                pair = text, tidy(translations[i].text)
                rows.append("\t".join(reversed(pair) if self.back else pair) + "\n")
            yield ShardOutput("".join(rows).encode(), {"kept": len(rows), "faults": faults})

        return make


TOO_LONG = "too long for the model"


def translate_sentences(
    folder: Path,
    sentences: Iterable[Pair],
    state: SyntheticState,
    work: TranslateSentences,
    stop: threading.Event,
    executor: Executor | None = None,
    stage: str = "translating",
) -> Iterator[Event]:
    """Translates the sources of `sentences` into `folder`; a stopped run continues with the same result."""
    lines = (json.dumps([pair.source, pair.where.path, pair.where.line], ensure_ascii=False) for pair in sentences)
    run = ResumableRun(folder / SHARDS, work, "tsv")
    yield Stage(stage, 0, state.texts)
    with closing(run.run(lines, CHUNK, executor)) as steps:
        while not stop.is_set() and (step := next(steps, None)):
            yield Stage(stage, step.done, state.texts)
    if stop.is_set():
        return
    report = Report(unit="translations", read=sum(shard.lines for shard in run.shards), kept=run.total("kept"))
    if report.read != state.texts:
        raise DataError(f"{state.texts - report.read:,} sentences have disappeared: start over with --overwrite")
    for shard in run.shards:
        for fault, path, line in shard.about["faults"]:
            report.drop(fault, Location(path, line))
    run.join(folder / PAIRS)
    state.done, state.report = report.read, report
    state.save(folder)
    shutil.rmtree(folder / SHARDS)


def split_by_length(texts: Sequence[str], translator: Translator) -> Iterator[list[int]]:
    """Yields the numbers of the texts that the model can take, the longest first, those of similar length together."""
    lengths = [len(ids) for ids in translator.source.encode_batch(texts)]
    longest = translator.settings.model.max_length - 1
    order = sorted((i for i, length in enumerate(lengths) if length <= longest), key=lambda i: -lengths[i])
    for start in range(0, len(order), PIECE):
        yield order[start : start + PIECE]


def find_fault(text: str, translation: Translation, max_characters: int) -> str | None:
    """Returns why a translation is useless for training, if it is."""
    translated = tidy(translation.text)
    shorter, longer = sorted((len(text), len(translated)))
    if not translated:
        return "the translation is empty"
    if not translation.finished:
        return "the translation does not end"
    if CONTROL.search(translated) or REPLACEMENT in set(translated) - set(text):
        return "invalid characters in the translation"
    if longer > max_characters:
        return "the translation is longer than data.max_characters"
    if longer > 9 * shorter + 20:  # 9 is the ratio that Moses cleans by; short texts may differ more
        return "far longer or shorter than its translation"
    return None


def read_sentences(request: TrainingRequest, data: DataSettings, report: Report) -> Iterator[Pair]:
    """Yields the cleaned sentences to translate, each as the source of a pair: lines of text, or a corpus's sources."""
    files = [as_path(name) for name in request.texts or request.files]
    if request.texts or is_text(files):
        report.unit = "sentences"
        return clean(_lines(files, data, report), data, report)
    return clean(read_pairs(files, data, report), data, report)


def is_text(files: Sequence[Path]) -> bool:
    """Reports whether the files are one file of text, and not a corpus of pairs."""
    return len(files) == 1 and suffix(files[0]) not in PAIRED


def _lines(files: Sequence[Path], data: DataSettings, report: Report) -> Iterator[Pair]:
    for path in files:
        require_plain(path, f"give text, a sentence a line, or pairs ({', '.join(PAIRED)})")
        for text, where in plain.texts(path, data, report):
            if text.strip():
                yield Pair(text, text, where)
            else:
                report.drop("blank", where)
