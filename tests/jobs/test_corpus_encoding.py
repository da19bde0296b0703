"""Shards of tokens: made side by side, made once, and whole."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from regard.errors import DataError
from regard.jobs import corpus_encoding as encoding
from regard.jobs.corpus_encoding import Cutting, Encoder, Made, encode_corpus, pack, unpack
from regard.jobs.worker_processes import Message, Workers
from regard.settings import TokenizerSettings
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Examples
from tests.training.corpora import SMALL, write_reversals

TEXTS = [(f"zero one {i} two", f"{i} null eins zwei drei") for i in range(250)]
PAIRS = [Pair(source, target, Location("x", 1)) for source, target in TEXTS]


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("vocabulary") / "tokenizer.json"
    shared = Tokenizer.train([text for pair in TEXTS for text in pair], TokenizerSettings(vocabulary=320, tags=("de",)))
    path.write_text(Vocabularies(shared, shared).to_json(), encoding="utf-8")
    return path


def encode(folder: Path, vocabulary: Path, processes: int = 1, seed: int = 1, pairs: list[Pair] = PAIRS) -> Made:
    cutting, vocabularies = Cutting.by(vocabulary, 30, seed), Vocabularies.load(vocabulary)
    return encode_corpus(folder, pairs, len(pairs), cutting, vocabularies, processes, size=40)


def stop(pairs: list[Pair], after: int) -> Iterator[Pair]:
    yield from pairs[:after]
    raise InterruptedError


def interrupted(folder: Path, vocabulary: Path, after: int) -> None:
    """What a preparation leaves that was ended after so many pairs."""
    with pytest.raises(InterruptedError):
        encode_corpus(
            folder, stop(PAIRS, after), 250, Cutting.by(vocabulary, 30, 1), Vocabularies.load(vocabulary), 1, size=40
        )


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_packed_is_unpacked() -> None:
    tagged = [
        Pair("a  b", "c", Location("", 0), ("de", "synthetic")),
        Pair("\N{NEXT LINE}x", "\u2028", Location("", 0)),
    ]
    assert [(p.source, p.target, p.tags) for p in unpack(b"".join(pack(tagged, 1)))] == [
        ("a  b", "c", ("de", "synthetic")),
        ("\N{NEXT LINE}x", "\u2028", ()),
    ]


def test_processes_write_the_same_bytes_as_one(vocabulary: Path, tmp_path: Path) -> None:
    alone, together = encode(tmp_path / "1", vocabulary), encode(tmp_path / "2", vocabulary, 2)
    assert files(tmp_path / "1") == files(tmp_path / "2")
    assert (alone.pairs, len(alone.shards), together.kept) == (250, 7, 0)
    examples, tokenizer = Examples(tmp_path / "2"), Vocabularies.load(vocabulary).source
    found = [tuple(tokenizer.decode(side.tolist()) for side in examples.pair(row)) for row in range(250)]
    assert found == TEXTS


def test_what_is_whole_is_not_made_again(vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode(tmp_path / "undisturbed", vocabulary)
    interrupted(tmp_path / "train", vocabulary, 130)
    assert len(list((tmp_path / "train").glob("*.json"))) == 3
    (tmp_path / "train" / ".00003.bin.17.new").write_bytes(b"half of it")
    numbers, make = list[int](), Encoder.make

    def watched(self: Encoder, number: int, text: bytes) -> object:
        numbers.append(number)
        return make(self, number, text)

    monkeypatch.setattr(Encoder, "make", watched)
    assert encode(tmp_path / "train", vocabulary).kept == 3
    assert numbers == [3, 4, 5, 6]
    assert files(tmp_path / "train") == files(tmp_path / "undisturbed")


def test_a_damaged_shard_is_made_anew_and_named(vocabulary: Path, tmp_path: Path) -> None:
    encode(tmp_path / "undisturbed", vocabulary)
    interrupted(tmp_path / "train", vocabulary, 250)
    for number, spoil in ((1, lambda data: data[:-2]), (2, lambda data: data[:9] + b"!" + data[10:])):
        path = tmp_path / "train" / f"0000{number}.bin"
        path.write_bytes(spoil(path.read_bytes()))
    (tmp_path / "train" / "00004.json").write_text("{")
    made = encode(tmp_path / "train", vocabulary)
    assert (made.kept, made.damaged) == (3, ["00001.bin", "00002.bin"])
    assert files(tmp_path / "train") == files(tmp_path / "undisturbed")


def test_shards_of_another_text_or_vocabulary_are_not_taken(vocabulary: Path, tmp_path: Path) -> None:
    interrupted(tmp_path / "train", vocabulary, 200)
    others = [*PAIRS[:50], Pair("another", "andere", Location("x", 1)), *PAIRS[51:]]
    assert encode(tmp_path / "train", vocabulary, seed=2).kept == 0
    interrupted(tmp_path / "train", vocabulary, 200)
    assert encode(tmp_path / "train", vocabulary, pairs=others).kept == 4
    assert Examples(tmp_path / "train").pair(50)[0].tolist() != Examples(tmp_path / "train").pair(51)[0].tolist()


def test_pairs_that_are_too_long_are_counted(vocabulary: Path, tmp_path: Path) -> None:
    long = Pair("zero " * 40, "null", Location("x", 1))
    made = encode(tmp_path, vocabulary, pairs=[*PAIRS[:60], long, *PAIRS[60:70], long])
    assert (made.pairs, made.left_out) == (70, 2)


def test_a_killed_preparation_goes_on_with_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole run: the weights are those of one that nobody disturbed."""
    from regard.preparation.train_and_resume import resume, train
    from regard.training.events import Note

    monkeypatch.setattr(encoding, "SMALLEST", 50)
    monkeypatch.setattr(encoding.encode_corpus, "__defaults__", (50,))
    corpus, given = write_reversals(tmp_path, 300), {**SMALL, "training.steps": 4, "training.evaluate_every": 4}
    for _ in train(corpus, tmp_path / "undisturbed", overrides=given):
        pass
    make = Encoder.make

    def fails(self: Encoder, number: int, text: bytes) -> object:
        if number == 3:
            raise KeyboardInterrupt
        return make(self, number, text)

    with monkeypatch.context() as patch:
        patch.setattr(Encoder, "make", fails)
        with pytest.raises(KeyboardInterrupt):
            list(train(corpus, tmp_path / "run", overrides=given))
    notes = [event.text for event in resume(tmp_path / "run") if isinstance(event, Note)]
    assert "train: 3 of 6 shards were there and whole" in notes
    one, other = (tmp_path / name / "weights.safetensors" for name in ("run", "undisturbed"))
    assert one.read_bytes() == other.read_bytes()


def test_a_process_that_is_killed_is_replaced(vocabulary: Path, tmp_path: Path) -> None:
    setup = {"folder": str(tmp_path), "cutting": vars(Cutting.by(vocabulary, 30, 1))}
    workers = Workers("regard.jobs.corpus_encoding", setup, 1)
    texts = list(pack(PAIRS, 40))

    def jobs() -> Iterator[Message]:
        for number, text in enumerate(texts):
            yield Message({"shard": number}, text)
            if number == 2:
                next(iter(workers.processes.values())).kill()

    answers = list(workers.run(jobs()))
    assert sorted(answer.about["number"] for answer in answers) == list(range(7))
    assert json.loads((tmp_path / "00002.json").read_text())["shard"]["pairs"] == 40


def test_a_process_that_died_between_two_jobs_leaves_nothing_open() -> None:
    workers = Workers("regard.jobs.corpus_encoding", {}, 1)
    with closing(workers):
        first = workers.process()
        first.kill()
        first.wait()
        second = workers.process()
        assert second is not first
        assert first.stdin is not None
        assert first.stdout is not None
        assert first.stdin.closed
        assert first.stdout.closed
        assert second.poll() is None


def test_a_job_that_no_process_survives_is_named() -> None:
    with pytest.raises(DataError, match=r"\{'shard': 5\} ended 3 times \(exit code 1\)"):
        list(Workers("regard.no_such_module", {}, 1).run([Message({"shard": 5})]))


def test_what_a_process_refuses_is_said_here(tmp_path: Path, vocabulary: Path) -> None:
    from regard.errors import ModelError

    (tmp_path / "tokenizer.json").write_text("{}")
    setup = {"folder": str(tmp_path), "cutting": vars(Cutting.by(tmp_path / "tokenizer.json", 30, 1))}
    with pytest.raises(ModelError, match=r"tokenizer.json: "):
        list(Workers("regard.jobs.corpus_encoding", setup, 1).run([Message({"shard": 0}, b"\ta\tb\n")]))
