"""Shards of tokens: made side by side, made once, and whole."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from regard.jobs import corpus_encoding as encoding
from regard.jobs.corpus_encoding import EncodePairs, encode_corpus, pack_pair, unpack_pair
from regard.jobs.resumable_shards import ResumableRun, ShardInput
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


def encode(
    folder: Path, vocabulary: Path, processes: int = 1, seed: int = 1, pairs: list[Pair] = PAIRS
) -> ResumableRun:
    work, vocabularies = EncodePairs(path=str(vocabulary.parent), longest=30, seed=seed), Vocabularies.load(vocabulary)
    return encode_corpus(folder, pairs, len(pairs), work, vocabularies, processes, size=40)


def stop(pairs: list[Pair], after: int) -> Iterator[Pair]:
    yield from pairs[:after]
    raise InterruptedError


def interrupted(folder: Path, vocabulary: Path, after: int) -> None:
    """Encodes the corpus into `folder`, and is interrupted after the first `after` pairs."""
    work, vocabularies = EncodePairs(path=str(vocabulary.parent), longest=30, seed=1), Vocabularies.load(vocabulary)
    with pytest.raises(InterruptedError):
        encode_corpus(folder, stop(PAIRS, after), 250, work, vocabularies, 1, size=40)


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_packed_is_unpacked() -> None:
    tagged = [
        Pair("a  b", "c", Location("", 0), ("de", "synthetic")),
        Pair("\N{NEXT LINE}x", "\u2028", Location("", 0)),
    ]
    assert [(p.source, p.target, p.tags) for p in map(unpack_pair, map(pack_pair, tagged))] == [
        ("a  b", "c", ("de", "synthetic")),
        ("\N{NEXT LINE}x", "\u2028", ()),
    ]


def test_processes_write_the_same_bytes_as_one(vocabulary: Path, tmp_path: Path) -> None:
    alone, together = encode(tmp_path / "1", vocabulary), encode(tmp_path / "2", vocabulary, 2)
    assert files(tmp_path / "1") == files(tmp_path / "2")
    assert (alone.total("pairs"), len(alone.shards), together.reused) == (250, 7, set())
    examples, tokenizer = Examples(tmp_path / "2"), Vocabularies.load(vocabulary).source
    found = [tuple(tokenizer.decode(side.tolist()) for side in examples.pair(row)) for row in range(250)]
    assert found == TEXTS


def test_what_is_whole_is_not_made_again(vocabulary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encode(tmp_path / "undisturbed", vocabulary)
    interrupted(tmp_path / "train", vocabulary, 130)
    assert len(list((tmp_path / "train").glob("*.json"))) == 3
    (tmp_path / "train" / ".00003.bin.17.new").write_bytes(b"half of it")
    numbers, encode_shard = list[int](), encoding.encode_shard

    def watched(shard: ShardInput, *more: Any) -> Any:
        numbers.append(shard.number)
        return encode_shard(shard, *more)

    monkeypatch.setattr(encoding, "encode_shard", watched)
    assert encode(tmp_path / "train", vocabulary).reused == {0, 1, 2}
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
    assert (len(made.reused), made.damaged) == (3, ["00001.bin", "00002.bin"])
    assert files(tmp_path / "train") == files(tmp_path / "undisturbed")


def test_shards_of_another_text_or_vocabulary_are_not_taken(vocabulary: Path, tmp_path: Path) -> None:
    interrupted(tmp_path / "train", vocabulary, 200)
    others = [*PAIRS[:50], Pair("another", "andere", Location("x", 1)), *PAIRS[51:]]
    assert encode(tmp_path / "train", vocabulary, seed=2).reused == set()
    interrupted(tmp_path / "train", vocabulary, 200)
    assert encode(tmp_path / "train", vocabulary, pairs=others).reused == {0, 2, 3, 4}
    assert Examples(tmp_path / "train").pair(50)[0].tolist() != Examples(tmp_path / "train").pair(51)[0].tolist()


def test_pairs_that_are_too_long_are_counted(vocabulary: Path, tmp_path: Path) -> None:
    long = Pair("zero " * 40, "null", Location("x", 1))
    made = encode(tmp_path, vocabulary, pairs=[*PAIRS[:60], long, *PAIRS[60:70], long])
    assert (made.total("pairs"), made.total("left_out")) == (70, 2)


def test_a_killed_preparation_goes_on_with_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a whole run: the weights are those of one that nobody disturbed."""
    from regard.preparation.train_and_resume import resume, train
    from regard.training.events import Note

    monkeypatch.setattr(encoding, "SMALLEST", 50)
    monkeypatch.setattr(encoding.encode_corpus, "__defaults__", (50,))
    corpus, given = write_reversals(tmp_path, 300), {**SMALL, "training.steps": 4, "training.evaluate_every": 4}
    for _ in train(corpus, tmp_path / "undisturbed", overrides=given):
        pass
    encode_shard = encoding.encode_shard

    def fails(shard: ShardInput, *more: Any) -> Any:
        if shard.number == 3:
            raise KeyboardInterrupt
        return encode_shard(shard, *more)

    with monkeypatch.context() as patch:
        patch.setattr(encoding, "encode_shard", fails)
        with pytest.raises(KeyboardInterrupt):
            list(train(corpus, tmp_path / "run", overrides=given))
    notes = [event.text for event in resume(tmp_path / "run") if isinstance(event, Note)]
    assert "train: reused 3 of 6 shards of an earlier run" in notes
    one, other = (tmp_path / name / "weights.safetensors" for name in ("run", "undisturbed"))
    assert one.read_bytes() == other.read_bytes()
