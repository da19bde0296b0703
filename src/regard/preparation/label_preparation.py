"""Prepares labelled texts, pairs of texts, or texts with labelled words: from files to tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from regard.decoding.fill_classify_embed import shorten
from regard.errors import DataError
from regard.files.corpus import split
from regard.files.formats.labelled_texts import Labelled, read
from regard.files.remote_files import as_path
from regard.preparation.task_preparation import (
    Preparation,
    Request,
    Tell,
    refuse_start,
    write_held_out,
)
from regard.settings import Settings
from regard.tokens.corpus_report import Report, require_kept
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import write_examples
from regard.training.events import Note, Stage

MOST_LABELS = 1000


class LabelPreparation(Preparation):
    """From files of labelled texts to tokens."""

    def __init__(self, new: Path, request: Request, tell: Tell) -> None:
        super().__init__(new, request, tell)
        refuse_start(self.start, "classify", ("fill", "embed", "classify"))

    def run(self) -> None:
        sets = {"train": self.read("train", self.request.files)}
        report = self.report
        for name, files in (("dev", self.request.dev), ("test", self.request.test)):
            if files:
                sets[name] = self.read(name, files)
        if "dev" not in sets:
            held = split((text_of(each) for each in sets["train"]), self.data.dev_pairs, len(sets["train"]))
            sets["dev"] = [each for each in sets["train"] if held.holds(text_of(each))]
            sets["train"] = [each for each in sets["train"] if not held.holds(text_of(each))]
            self.tell(Note(f"dev: {len(sets['dev']):,} texts split off; they are not in the rest"))
        labels = self.labels(sets)
        settings = self.choose(len(sets["train"]), labels=labels)
        tokenizer = self.vocabularies(lambda: learn(sets["train"], settings)).target
        kept = {name: self.encode(name, texts, tokenizer, labels) for name, texts in sets.items()}
        for name in kept.keys() - {"train"}:
            write_held_out(self.new / f"{name}.jsonl", ({"texts": e.texts, "labels": e.labels} for e in sets[name]))
        balance = Counter(label for each in sets["train"] for label in each.labels)
        held_out = {name: len(texts) for name, texts in sets.items() if name != "train"}
        others = (
            self.start is not None and list(self.start.data.labels) != labels
        )  # a head for other labels is of no use
        self.write_about(kept["train"], report, held_out, balance=dict(balance), leave="label." if others else None)

    def read(self, name: str, files: Sequence[str]) -> list[Labelled]:
        """All labelled texts of some files; they fit into memory."""
        self.report, paths, found = Report(unit="texts"), [as_path(file) for file in files], []
        for number, each in enumerate(read(paths, self.data, self.report)):
            if number % 5000 == 0:
                self.tell(Stage(f"reading the {name} set", number))
            found.append(each)
        require_kept(self.report, paths)
        for line in self.report.lines():
            self.tell(Note(f"{name}: {line}"))
        return found

    def labels(self, sets: dict[str, list[Labelled]]) -> list[str]:
        """The labels of the training set, told with their shares; one that is only held out is an error."""
        counts = Counter(label for each in sets["train"] for label in each.labels)
        if self.start is not None and self.start.task == "classify" and set(counts) <= set(self.start.data.labels):
            labels = list(self.start.data.labels)
        else:
            labels = sorted(counts)
        if len(labels) < 2:
            raise DataError(f"all texts have the label {labels[0]!r}: there is nothing to tell apart")
        if len(labels) > MOST_LABELS:
            raise DataError(
                f"{len(labels):,} different labels, at most {MOST_LABELS:,} are possible: is this the label's column?"
            )
        for name, texts in sets.items():
            for each in texts:
                if unknown := set(each.labels) - set(labels):
                    what = f"the label {min(unknown)!r} of the {name} set is not in the training set"
                    raise DataError(what, each.where.path, each.where.line)
        shares = ", ".join(f"{label} {count / counts.total():.1%}" for label, count in counts.most_common(10))
        self.tell(Note(f"labels: {shares}" + (", ..." if len(counts) > 10 else "")))
        return labels

    def encode(self, name: str, texts: Sequence[Labelled], tokenizer: Tokenizer, labels: Sequence[str]) -> int:
        """Writes tokens and labels; a text that is too long loses its end, which is told."""
        number = {label: i for i, label in enumerate(labels)}
        longest, words = self.settings.model.max_length, self.data.carrier == "word"
        shortened = 0

        def encoded() -> Iterator[tuple[list[int], list[int]]]:
            nonlocal shortened
            rows = iter(texts)
            while chunk := list(islice(rows, 2000)):
                for each in chunk:
                    if words:
                        ids, marks = encode_words(each, tokenizer, number)
                        cut = longest - 2 < len(ids)
                        yield ids[: longest - 2], marks[: longest - 2]
                    else:
                        first, second = [*tokenizer.encode_batch(list(each.texts)), []][:2]
                        row = shorten(first, second, tokenizer, longest)
                        cut = row.shortened
                        yield row.ids, [len(row.ids) - sum(row.segments), number[each.labels[0]]]
                    shortened += cut

        count = write_examples(self.new / name, encoded(), max(tokenizer.size, len(labels), longest + 1) + 1)
        if shortened:
            self.tell(Note(f"{name}: {shortened:,} texts are longer than {longest} tokens; their ends are not read"))
        return count


def text_of(each: Labelled) -> str:
    return "\n".join(each.texts)


def learn(texts: Sequence[Labelled], settings: Settings) -> Vocabularies:
    """A vocabulary from the texts."""
    tokenizer = Tokenizer.train((text for each in texts for text in each.texts), settings.tokenizer)
    return Vocabularies(tokenizer, tokenizer)


def encode_words(each: Labelled, tokenizer: Tokenizer, number: dict[str, int]) -> tuple[list[int], list[int]]:
    """The tokens of the words, and for each 1 + the number of its label, or 0 where a word goes on."""
    ids: list[int] = []
    marks: list[int] = []
    for word, label in zip(tokenizer.encode_words(each.texts), each.labels, strict=True):
        word = word or [tokenizer.specials.pad]
        ids += word
        marks += [number[label] + 1, *[0] * (len(word) - 1)]
    return ids, marks
