"""Prepares labelled texts, pairs of texts or words: converts files to tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import ClassVar

from regard.decoding.fill_classify_embed import shorten
from regard.errors import DataError
from regard.files.corpus import split
from regard.files.corpus_report import Report, require_kept
from regard.files.formats.labelled_texts import Labelled, read
from regard.files.remote_files import as_path
from regard.preparation.task_preparation import Preparation, report_progress
from regard.tokens.tokenizer import Tokenizer
from regard.training.batches import write_examples

MAX_LABELS = 1000


class LabelPreparation(Preparation):
    """Prepares texts for the task classify; all texts must fit into memory."""

    starts_from: ClassVar = {"classify": ("fill", "embed", "classify")}

    def run(self) -> None:
        files = {"train": self.request.files, **self.request.held_out}
        reports = {name: Report(unit="texts") for name in files}
        sets = {name: self.read(name, paths, reports[name]) for name, paths in files.items()}
        if "dev" not in sets:
            held = split((text_of(each) for each in sets["train"]), self.data.dev_pairs, len(sets["train"]))
            sets["dev"] = [each for each in sets["train"] if held.holds(text_of(each))]
            sets["train"] = [each for each in sets["train"] if not held.holds(text_of(each))]
            self.note(f"dev: {len(sets['dev']):,} texts held out; none of them is in the rest")
        labels = self.choose_labels(sets)
        self.choose_settings(len(sets["train"]), labels=labels)
        tokenizer = self.write_vocabulary(lambda: (text for each in sets["train"] for text in each.texts))
        counts = {name: self.encode(name, texts, tokenizer, labels) for name, texts in sets.items()}
        held_out = {name: texts for name, texts in sets.items() if name != "train"}
        for name, texts in held_out.items():
            self.write_held_out(name, ({"texts": each.texts, "labels": each.labels} for each in texts))
        balance = Counter(label for each in sets["train"] for label in each.labels)
        other_labels = self.start is not None and list(self.start.data.labels) != labels
        self.write_about(
            counts["train"],
            reports["train"],
            {name: len(texts) for name, texts in held_out.items()},
            balance=dict(balance),
            leave="label." if other_labels else None,  # do not copy the weights of the classification head
        )

    def read(self, name: str, files: Sequence[str], report: Report) -> list[Labelled]:
        paths = [as_path(file) for file in files]
        texts = list(report_progress(read(paths, self.data, report), self.send, f"reading the {name} set"))
        require_kept(report, paths)
        for line in report.lines():
            self.note(f"{name}: {line}")
        return texts

    def choose_labels(self, sets: dict[str, list[Labelled]]) -> list[str]:
        """Returns the labels of the training set, and reports their shares.

        Raises DataError for labels in held-out sets that the training set does not contain.
        """
        counts = Counter(label for each in sets["train"] for label in each.labels)
        if self.start is not None and self.start.task == "classify" and set(counts) <= set(self.start.data.labels):
            labels = list(self.start.data.labels)
        else:
            labels = sorted(counts)
        if len(labels) < 2:
            raise DataError(f"all texts have the label {labels[0]!r}, but a classifier needs at least two labels")
        if len(labels) > MAX_LABELS:
            raise DataError(
                f"there are {len(labels):,} different labels, but Regard supports at most {MAX_LABELS:,}: check that "
                "this is the column of labels"
            )
        for name, texts in sets.items():
            for each in texts:
                if unknown := set(each.labels) - set(labels):
                    message = f"the label {min(unknown)!r} of the {name} set is not in the training set"
                    raise DataError(message, each.where.path, each.where.line)
        shares = ", ".join(f"{label} {count / counts.total():.1%}" for label, count in counts.most_common(10))
        self.note(f"labels: {shares}" + (", ..." if len(counts) > 10 else ""))
        return labels

    def encode(self, name: str, texts: Sequence[Labelled], tokenizer: Tokenizer, labels: Sequence[str]) -> int:
        """Writes tokens and labels, and reports how many texts were truncated to fit the model."""
        numbers = {label: i for i, label in enumerate(labels)}
        longest = self.settings.model.max_length
        shortened = 0

        def encoded() -> Iterator[tuple[list[int], list[int]]]:
            nonlocal shortened
            for each in texts:
                if self.data.carrier == "word":
                    ids, marks = encode_words(each, tokenizer, numbers)
                    shortened += len(ids) > longest - 2
                    yield ids[: longest - 2], marks[: longest - 2]
                else:
                    first, second = [*tokenizer.encode_batch(list(each.texts)), []][:2]
                    row = shorten(first, second, tokenizer, longest)
                    shortened += row.shortened
                    yield row.ids, [len(row.ids) - sum(row.segments), numbers[each.labels[0]]]

        count = write_examples(self.new / name, encoded(), max(tokenizer.size, len(labels), longest + 1) + 1)
        if shortened:
            self.note(f"{name}: {shortened:,} texts are longer than {longest} tokens and were truncated")
        return count


def text_of(each: Labelled) -> str:
    return "\n".join(each.texts)


def encode_words(each: Labelled, tokenizer: Tokenizer, numbers: dict[str, int]) -> tuple[list[int], list[int]]:
    """Returns tokens of words, with a mark each: 1 + the label's number at the start of a word, 0 inside."""
    ids: list[int] = []
    marks: list[int] = []
    for word, label in zip(tokenizer.encode_words(each.texts), each.labels, strict=True):
        word = word or [tokenizer.specials.pad]
        ids += word
        marks += [numbers[label] + 1, *[0] * (len(word) - 1)]
    return ids, marks
