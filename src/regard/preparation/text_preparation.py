"""From files of running text to a stream of tokens, to learn to write it (GPT) or to fill gaps in it (BERT)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

from regard.errors import DataError
from regard.files.formats.running_text import DocumentPart, read
from regard.files.remote_files import as_path
from regard.preparation.task_preparation import Preparation, Request, Tell, refuse_start
from regard.settings import Settings
from regard.tokens.corpus_report import Report
from regard.tokens.token_streams import write_stream
from regard.tokens.tokenizer import MOST_CHARACTERS, Tokenizer, Vocabularies
from regard.training.events import Note, Stage

MANY = 50
"""From so many documents on, whole documents are held out as dev set; else it is the end of the text."""

MOST_HELD_OUT = 1_000_000  # characters


class TextPreparation(Preparation):
    """From files of running text to a stream of tokens."""

    def __init__(self, new: Path, request: Request, tell: Tell) -> None:
        super().__init__(new, request, tell)
        allowed = ("write",) if self.settings.task == "write" else ("fill", "embed", "classify")
        refuse_start(self.start, self.settings.task, allowed)
        self.files = [as_path(name) for name in request.files]
        self.held: Callable[[Iterator[DocumentPart]], Iterator[tuple[DocumentPart, bool]]] = lambda parts: (
            (p, False) for p in parts
        )

    def run(self) -> None:
        report, characters = self.check()
        if not self.request.dev:
            characters -= self.split_off(report, characters)
        settings = self.choose(characters)
        tokenizer = self.vocabularies(lambda: self.learn(settings)).target
        sets = {"train": self.training_parts("encoding")}
        for name, files in (("dev", self.request.dev), ("test", self.request.test)):
            if files:
                sets[name] = read([as_path(file) for file in files], self.data, Report())
        if "dev" not in sets:
            sets["dev"] = (part for part, dev in self.held(self.parts("encoding")) if dev)
        tokens = {name: self.encode(name, parts, tokenizer) for name, parts in sets.items()}
        self.tell(Note(f"train: {tokens['train']:,} tokens; dev: {tokens['dev']:,} tokens"))
        self.write_about(tokens["train"], report, {name: n for name, n in tokens.items() if name != "train"})

    def parts(self, doing: str, report: Report | None = None) -> Iterator[DocumentPart]:
        """The whole corpus, telling what it is read for."""
        done = 0
        for number, part in enumerate(read(self.files, self.data, report or Report())):
            done += len(part.text)
            if number % 20 == 0:
                self.tell(Stage(doing, done))
            yield part

    def check(self) -> tuple[Report, int]:
        """Reads all once: how many documents and characters there are."""
        report = Report(unit="documents")
        characters = sum(len(part.text) for part in self.parts("reading", report))
        if not characters:
            raise DataError(f"no text in {' and '.join(map(str, self.files))}")
        self.tell(Note(f"train: {characters:,} characters in {report.kept:,} document{'s' * (report.kept != 1)}"))
        for line in report.lines()[1:]:
            self.tell(Note(f"train: {line}"))
        return report, characters

    def split_off(self, report: Report, characters: int) -> int:
        """Holds a dev set out: some documents or, where they are few, the end of the text; returns its characters."""
        size, what = 0, "whole documents"
        if report.kept >= MANY:
            self.held = by_document(min(characters // 20, MOST_HELD_OUT) / characters)
            size = self.held_out()
        if not 0 < size < characters // 4:  # few, equal or very unequal documents: luck may take none or all
            self.held, what = by_end(characters - min(characters // 10, MOST_HELD_OUT)), "the end of the text"
            size = self.held_out()
        if not 0 < size < characters:
            raise DataError("a dev set cannot be split off from so little text: give one with --dev")
        self.tell(Note(f"dev: {size:,} characters split off: {what}"))
        return size

    def held_out(self) -> int:
        """How many characters are held out."""
        return sum(len(part.text) for part, dev in self.held(self.parts("splitting off a dev set")) if dev)

    def training_parts(self, doing: str) -> Iterator[DocumentPart]:
        return (part for part, dev in self.held(self.parts(doing)) if not dev)

    def learn(self, settings: Settings) -> Vocabularies:
        """A vocabulary from the text, or from the first 60 million characters of it."""
        tokenizer = Tokenizer.train(first(self.training_parts("learning the vocabulary")), settings.tokenizer)
        return Vocabularies(tokenizer, tokenizer)

    def encode(self, name: str, parts: Iterator[DocumentPart], tokenizer: Tokenizer) -> int:
        """Writes the tokens of a set; to write, a document has a begin and an end, which the model learns too."""
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


def first(parts: Iterator[DocumentPart], most: int = MOST_CHARACTERS) -> Iterator[str]:
    """The texts of the first parts, as many as can be held."""
    held = 0
    for part in parts:
        held += len(part.text)
        if held > most:
            return
        yield part.text


def by_document(share: float) -> Callable[[Iterator[DocumentPart]], Iterator[tuple[DocumentPart, bool]]]:
    """Whether each part is held out: about this share of the documents, always the same ones."""

    def held(parts: Iterator[DocumentPart]) -> Iterator[tuple[DocumentPart, bool]]:
        dev = False
        for part in parts:
            if part.begins:
                dev = int.from_bytes(blake2b(part.text.encode(), digest_size=8).digest(), "big") < share * 2**64
            yield part, dev

    return held


def by_end(limit: int) -> Callable[[Iterator[DocumentPart]], Iterator[tuple[DocumentPart, bool]]]:
    """Whether each part is held out: what comes after so many characters, from the next line or document on."""

    def held(parts: Iterator[DocumentPart]) -> Iterator[tuple[DocumentPart, bool]]:
        done, dev = 0, False
        for part in parts:
            room, done = limit - done, done + len(part.text)
            dev = dev or (part.begins and room <= 0)
            if dev or done <= limit:
                yield part, dev
                continue
            cut = part.text.find("\n", max(0, room))
            if cut < 0:
                yield part, dev
                continue
            dev = True
            if part.text[:cut].strip():
                yield replace(part, text=part.text[:cut]), False
            yield replace(part, text=part.text[cut:].lstrip("\n"), begins=True), True

    return held
