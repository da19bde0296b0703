"""Prepares running text for the tasks write and fill: converts files to a stream of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import ClassVar

from regard.errors import DataError
from regard.files.corpus_report import Report
from regard.files.formats.running_text import DocumentPart, read
from regard.files.remote_files import as_path
from regard.preparation.task_preparation import Preparation, SendEvent, TrainingRequest
from regard.tokens.token_streams import write_stream
from regard.tokens.tokenizer import MOST_CHARACTERS, Tokenizer
from regard.training.events import Stage

MANY_DOCUMENTS = 50
"""Minimum number of documents to hold out whole documents as the dev set instead of the end of the text."""

MAX_HELD_OUT = 1_000_000
"""Maximum size of the dev set in characters."""

Split = Callable[[Iterator[DocumentPart]], Iterator[tuple[DocumentPart, bool]]]
"""A function that yields each part, with True if it is held out."""


class TextPreparation(Preparation):
    """Prepares text for the tasks write and fill."""

    starts_from: ClassVar = {"write": ("write",), "fill": ("fill", "embed", "classify")}

    def __init__(self, new: Path, request: TrainingRequest, send: SendEvent) -> None:
        super().__init__(new, request, send)
        self.files = [as_path(name) for name in request.files]
        self.split: Split = lambda parts: ((part, False) for part in parts)

    def run(self) -> None:
        report, characters = self.check()
        if not self.request.dev:
            characters -= self.split_off(report, characters)
        self.choose_settings(characters)
        tokenizer = self.write_vocabulary(lambda: first_texts(self.select("learning the vocabulary", held_out=False)))
        sets = {"train": self.select("encoding", held_out=False)}
        for name, files in self.request.held_out.items():
            sets[name] = read([as_path(file) for file in files], self.data, Report())
        sets.setdefault("dev", self.select("encoding", held_out=True))
        tokens = {name: self.encode(name, parts, tokenizer) for name, parts in sets.items()}
        self.note(f"train: {tokens['train']:,} tokens; dev: {tokens['dev']:,} tokens")
        self.write_about(tokens["train"], report, {name: n for name, n in tokens.items() if name != "train"})

    def parts(self, stage: str, report: Report | None = None) -> Iterator[DocumentPart]:
        """Yields the whole corpus, and sends the progress."""
        characters_read = 0
        for number, part in enumerate(read(self.files, self.data, report or Report())):
            characters_read += len(part.text)
            if number % 20 == 0:
                self.send(Stage(stage, characters_read))
            yield part

    def select(self, stage: str, *, held_out: bool) -> Iterator[DocumentPart]:
        """Yields either the parts that are held out as the dev set, or the others."""
        return (part for part, dev in self.split(self.parts(stage)) if dev == held_out)

    def check(self) -> tuple[Report, int]:
        """Reads the whole corpus once; returns a report on the documents, and the number of characters."""
        report = Report(unit="documents")
        characters = sum(len(part.text) for part in self.parts("reading", report))
        if not characters:
            raise DataError(f"no text in {' and '.join(map(str, self.files))}")
        self.note(f"train: {characters:,} characters in {report.kept:,} document{'s' * (report.kept != 1)}")
        for line in report.lines()[1:]:
            self.note(f"train: {line}")
        return report, characters

    def split_off(self, report: Report, characters: int) -> int:
        """Holds out some documents as the dev set or, if there are few, the end of the text; returns its size."""
        size, what = 0, "whole documents"
        if report.kept >= MANY_DOCUMENTS:
            self.split = split_by_document(min(characters // 20, MAX_HELD_OUT) / characters)
            size = self.held_out_size()
        if not 0 < size < characters // 4:  # with few, equal or very uneven documents, chance may select none or all
            self.split, what = split_by_end(characters - min(characters // 10, MAX_HELD_OUT)), "the end of the text"
            size = self.held_out_size()
        if not 0 < size < characters:
            raise DataError("there is too little text to hold out a dev set: specify one with --dev")
        self.note(f"dev: {size:,} characters held out: {what}")
        return size

    def held_out_size(self) -> int:
        return sum(len(part.text) for part in self.select("splitting off a dev set", held_out=True))

    def encode(self, name: str, parts: Iterator[DocumentPart], tokenizer: Tokenizer) -> int:
        """Writes the tokens of a set; for the task write, documents are surrounded by begin and end tokens."""
        specials, writes = tokenizer.specials, self.settings.task == "write"
        ends = writes and specials.begin != specials.end

        def encoded() -> Iterator[tuple[list[int], bool, int]]:
            open_document = False
            for part in parts:
                if part.begins:
                    if open_document and ends:
                        yield [specials.end], False, 0
                    open_document = True
                    ids = tokenizer.encode_batch([part.text])[0]
                    yield [specials.begin, *ids] if writes else ids, True, len(part.text)
                else:
                    yield tokenizer.encode_continuation(part.text), False, len(part.text)
            if open_document and ends:
                yield [specials.end], False, 0

        count = write_stream(self.new / name, encoded(), tokenizer.size)
        if count < 3:
            raise DataError(f"{name}: there is too little text")
        return count


def first_texts(parts: Iterator[DocumentPart], most: int = MOST_CHARACTERS) -> Iterator[str]:
    """Yields the texts of the first parts, at most `most` characters in total."""
    size = 0
    for part in parts:
        size += len(part.text)
        if size > most:
            return
        yield part.text


def split_by_document(share: float) -> Split:
    """Returns a split that holds out about this share of the documents; the choice is deterministic."""

    def split(parts: Iterator[DocumentPart]) -> Iterator[tuple[DocumentPart, bool]]:
        dev = False
        for part in parts:
            if part.begins:
                dev = int.from_bytes(blake2b(part.text.encode(), digest_size=8).digest(), "big") < share * 2**64
            yield part, dev

    return split


def split_by_end(limit: int) -> Split:
    """Returns a split that holds out everything from the first line or document after `limit` characters."""

    def split(parts: Iterator[DocumentPart]) -> Iterator[tuple[DocumentPart, bool]]:
        characters_read, dev = 0, False
        for part in parts:
            room, characters_read = limit - characters_read, characters_read + len(part.text)
            dev = dev or (part.begins and room <= 0)
            cut = -1 if dev or characters_read <= limit else part.text.find("\n", max(0, room))
            if cut < 0:
                yield part, dev
                continue
            dev = True
            if part.text[:cut].strip():
                yield replace(part, text=part.text[:cut]), False
            yield replace(part, text=part.text[cut:].lstrip("\n"), begins=True), True

    return split
