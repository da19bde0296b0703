"""Running text becomes a stream of tokens, with begins and ends for writing, and a dev set is held out."""

from __future__ import annotations

from collections.abc import Iterator
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError, SettingsError
from regard.files.formats.running_text import DocumentPart
from regard.model_folder import TOKENIZER, read_settings
from regard.preparation.task_preparation import TrainingRequest
from regard.preparation.text_preparation import TextPreparation, first_texts, split_by_document, split_by_end
from regard.tokens.text_pairs import Location
from regard.tokens.token_streams import Stream
from regard.tokens.tokenizer import Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS
from regard.training.events import Event, Note
from tests.training.toys import write_text

HERE = Location("a.txt", 1)
texts = st.lists(st.sampled_from(["a", "two words", "x\ny", "long " * 9 + "end", "1\n2\n3"]), min_size=1, max_size=12)


def parts_of(rows: list[str], begins: list[bool] | None = None) -> Iterator[DocumentPart]:
    for number, row in enumerate(rows):
        begin = number == 0 or begins is None or begins[number]
        yield DocumentPart(row if begin else "\n" + row, begin, HERE)


def prepare(folder: Path, files: list[Path], dev: list[Path] | None = None, **given_settings: Any) -> list[Event]:
    messages: list[Event] = []
    settings: dict[str, Any] = {"tokenizer": {"vocabulary": 320}, **given_settings}
    request = TrainingRequest([str(path) for path in files], settings, "cpu", [str(path) for path in dev or []])
    TextPreparation(folder, request, messages.append).run()
    return messages


# Held out


@given(rows=texts, begins=st.lists(st.booleans(), min_size=12, max_size=12), share=st.floats(0, 1))
def test_whole_documents_are_held_out(rows: list[str], begins: list[bool], share: float) -> None:
    found = list(split_by_document(share)(parts_of(rows, begins)))
    assert [part for part, _ in found] == list(parts_of(rows, begins))
    for (_, before), (part, dev) in pairwise(found):
        assert part.begins or dev == before
    assert found == list(split_by_document(share)(parts_of(rows, begins)))


def test_about_the_share_is_held_out() -> None:
    rows = [f"document number {i}" for i in range(2000)]
    held = sum(dev for _, dev in split_by_document(0.1)(parts_of(rows)))
    assert 150 < held < 250


@given(rows=texts, begins=st.lists(st.booleans(), min_size=12, max_size=12), limit=st.integers(0, 200))
def test_the_end_is_held_out_from_a_line_on(rows: list[str], begins: list[bool], limit: int) -> None:
    whole = list(parts_of(rows, begins))
    found = list(split_by_end(limit)(iter(whole)))
    marks = [dev for _, dev in found]
    assert marks == sorted(marks)
    before = "".join(part.text for part, dev in found if not dev)
    after = "".join(part.text for part, dev in found if dev)
    text = "".join(part.text for part in whole)
    assert text.startswith(before)
    assert text.endswith(after)
    assert not text[len(before) : len(text) - len(after)].strip()
    if after:
        assert len(before) >= limit or not text[len(before) : limit].strip()
        assert next(part.begins for part, dev in found if dev)


@pytest.mark.parametrize(("count", "equal"), [(10, False), (60, True)])
def test_few_or_equal_documents_are_split_at_the_end(count: int, equal: bool, tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("".join(f"document {0 if equal else i}\n" for i in range(count)))
    messages = prepare(tmp_path / "new", [path], task="write", data={"documents": "line"})
    assert any(isinstance(event, Note) and event.text.endswith("held out: the end of the text") for event in messages)
    train, dev = (len(documents_of(Stream(tmp_path / "new" / name))) for name in ("train", "dev"))
    assert train + dev == count
    assert dev == count // 10


def test_one_document_that_is_most_of_the_text_is_not_held_out(tmp_path: Path) -> None:
    share = 0.05 * 2**64
    number = next(i for i in range(1000) if key(f"large {i}\n" + "x\n" * 2000 + "x") < share)
    large = f"large {number}\n" + "x\n" * 2000 + "x"
    path = tmp_path / "a.txt"
    path.write_text("\n\n".join([large, *(f"small {i}" for i in range(60))]))
    prepare(tmp_path / "new", [path], task="write", data={"documents": "paragraph"})
    train, dev = Stream(tmp_path / "new" / "train"), Stream(tmp_path / "new" / "dev")
    assert dev.characters < train.characters / 4


def key(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


def test_a_dev_set_cannot_be_split_off_from_one_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("just one line")
    with pytest.raises(DataError, match="specify one with --dev"):
        prepare(tmp_path / "new", [path], task="write")


@pytest.mark.parametrize(("documents", "what"), [("file", "the end of the text"), ("line", "whole documents")])
def test_train_and_dev_are_all_of_the_text(documents: str, what: str, tmp_path: Path) -> None:
    path = write_text(tmp_path, lines=100)
    messages = prepare(tmp_path / "new", [path], task="write", data={"documents": documents})
    assert any(isinstance(event, Note) and event.text.endswith(f"held out: {what}") for event in messages)
    vocabulary = Vocabularies.load(tmp_path / "new" / TOKENIZER).target
    train, dev = Stream(tmp_path / "new" / "train"), Stream(tmp_path / "new" / "dev")
    lines = [line for stream in (train, dev) for ids in documents_of(stream) for line in lines_of(vocabulary, ids)]
    assert sorted(lines) == sorted(path.read_text().splitlines())
    assert 0 < dev.characters < 0.3 * train.characters


def documents_of(stream: Stream) -> list[list[int]]:
    ends = [*stream.documents[1:].tolist(), len(stream)]
    return [stream.tokens[start:end].tolist() for start, end in zip(stream.documents, ends, strict=True)]


def lines_of(vocabulary: Any, ids: list[int]) -> list[str]:
    return list(vocabulary.decode(ids).split("\n"))


# Streams


def test_a_document_for_writing_has_a_begin_and_an_end(tmp_path: Path) -> None:
    path, dev = write_text(tmp_path, lines=30), write_text(tmp_path, "dev.txt", lines=5, seed=1)
    prepare(tmp_path / "write", [path], [dev], task="write", data={"documents": "line"})
    prepare(tmp_path / "fill", [path], [dev], task="fill", data={"documents": "line"})
    for name, file in (("train", path), ("dev", dev)):
        vocabulary = Vocabularies.load(tmp_path / "write" / TOKENIZER).target
        lines = file.read_text().splitlines()
        written = documents_of(Stream(tmp_path / "write" / name))
        assert written == [[BOS, *vocabulary.encode(line).ids, EOS] for line in lines]
        assert documents_of(Stream(tmp_path / "fill" / name)) == [row[1:-1] for row in written]
        assert Stream(tmp_path / "write" / name).characters == sum(map(len, lines))


def test_a_long_document_stays_one_document(tmp_path: Path) -> None:
    path, dev = tmp_path / "long.txt", write_text(tmp_path)
    text = "\n".join(f"the cat {i} sat.{' ' * (i % 3)}" for i in range(12_000))
    path.write_text(text)
    prepare(tmp_path / "new", [path], [dev], task="write")
    vocabulary = Vocabularies.load(tmp_path / "new" / TOKENIZER).target
    assert len(text) > 200_000
    assert documents_of(Stream(tmp_path / "new" / "train")) == [[BOS, *vocabulary.encode(text.strip()).ids, EOS]]


def test_the_size_of_the_text_chooses_the_preset(tmp_path: Path) -> None:
    prepare(tmp_path / "new", [write_text(tmp_path)], task="write")
    settings = read_settings(tmp_path / "new")
    assert (settings.preset, settings.task, settings.model.width) == ("tiny", "write", 192)


def test_only_the_first_texts_are_held() -> None:
    rows = ["a" * 10, "b" * 10, "c" * 10]
    assert list(first_texts(parts_of(rows), 25)) == rows[:2]
    assert list(first_texts(parts_of(rows))) == rows


def test_a_corpus_without_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"no text in .*a\.txt"):
        prepare(tmp_path / "new", [tmp_path / "a.txt"], task="fill")
    with pytest.raises(DataError, match="dev: there is too little text"):
        prepare(tmp_path / "new", [write_text(tmp_path)], [tmp_path / "a.txt"], task="fill")


def test_a_preset_of_another_task_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="no preset big for write: use tiny, small, base, modern or auto"):
        prepare(tmp_path / "new", [write_text(tmp_path)], task="write", preset="big")
