"""Tokens on disk: all there, documents told apart, and every token in a window or a piece once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from regard.errors import ModelError
from regard.tokens.token_streams import Stream, write_stream

documents = st.lists(st.lists(st.integers(0, 99), max_size=30), min_size=1, max_size=8).filter(any)


def stream_of(folder: Path, rows: list[list[int]], vocabulary: int = 100) -> Stream:
    count = write_stream(folder, ((ids, True, 2 * len(ids)) for ids in rows), vocabulary)
    assert count == sum(map(len, rows))
    return Stream(folder)


@given(rows=documents, vocabulary=st.sampled_from([100, 2**16, 2**16 + 1]))
def test_written_examples_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], vocabulary: int
) -> None:
    stream = stream_of(tmp_path_factory.mktemp("stream"), rows, vocabulary)
    assert stream.tokens.tolist() == [token for row in rows for token in row]
    assert stream.tokens.dtype == (np.uint16 if vocabulary <= 2**16 else np.uint32)
    assert stream.characters == 2 * len(stream)
    ends = [*stream.documents[1:].tolist(), len(stream)]
    found = [stream.tokens[start:end].tolist() for start, end in zip(stream.documents, ends, strict=True)]
    assert found == rows


@given(rows=documents, parts=st.lists(st.booleans(), min_size=8, max_size=8))
def test_parts_of_a_document_are_one(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], parts: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("stream")
    begins = [True, *parts[1:]][: len(rows)]
    write_stream(folder, ((ids, begin, 1) for ids, begin in zip(rows, begins, strict=True)), 100)
    stream = Stream(folder)
    numbers = [sum(begins[: i + 1]) for i, row in enumerate(rows) for _ in row]
    assert stream.document_numbers(np.array([0]), len(stream))[0].tolist() == numbers


@given(rows=documents, length=st.integers(1, 12), seed=st.none() | st.integers(0, 9))
def test_windows_lie_end_to_end(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], length: int, seed: int | None
) -> None:
    stream = stream_of(tmp_path_factory.mktemp("stream"), rows)
    length = min(length, len(stream) - 1)
    if length < 1:
        return
    random = None if seed is None else np.random.default_rng(seed)
    starts = stream.windows(length, random)
    predicted = [place for start in starts for place in range(start + 1, start + length + 1)]
    assert predicted == list(range(predicted[0], predicted[-1] + 1))  # each once, without a hole
    assert predicted[-1] < len(stream)
    assert len(stream) - 1 - predicted[-1] < length  # no window more would fit
    assert predicted[0] == 1 if random is None else 1 <= predicted[0] <= length
    taken = stream.take(starts, length + 1)
    assert taken.shape == (len(starts), length + 1)
    assert all(row.tolist() == stream.tokens[s : s + length + 1].tolist() for s, row in zip(starts, taken, strict=True))


def test_windows_begin_anywhere(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, [list(range(50))])
    firsts = {int(stream.windows(8, np.random.default_rng(seed))[0]) for seed in range(100)}
    assert firsts == set(range(8))
    assert {int(stream.windows(48, np.random.default_rng(seed))[0]) for seed in range(50)} == {0, 1}


@given(rows=documents, length=st.integers(1, 12), seed=st.none() | st.integers(0, 9))
def test_pieces_cover_every_token_of_every_document_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[list[int]], length: int, seed: int | None
) -> None:
    stream = stream_of(tmp_path_factory.mktemp("stream"), rows)
    pieces = stream.pieces(length, None if seed is None else np.random.default_rng(seed))
    covered = sorted(place for start, size in pieces for place in range(start, start + size))
    assert covered == list(range(len(stream)))
    assert all(1 <= size <= length for _, size in pieces)
    numbers = stream.document_numbers(np.array([0]), len(stream))[0]
    assert all(len(set(numbers[start : start + size])) == 1 for start, size in pieces)
    least = sum(-(-len(row) // length) for row in rows)
    assert len(pieces) == least if seed is None else least <= len(pieces) <= least + len(rows)


def test_long_documents_are_cut_elsewhere_each_time(tmp_path: Path) -> None:
    stream = stream_of(tmp_path, [list(range(50)), list(range(5))])
    cuts = {tuple(stream.pieces(8, np.random.default_rng(seed))[:, 0].tolist()) for seed in range(30)}
    assert len(cuts) > 5


@pytest.mark.parametrize("name", ["tokens.bin", "documents.npy", "about.json"])
@pytest.mark.parametrize("damage", ["missing", "empty", "cut"])
def test_damage_is_told(name: str, damage: str, tmp_path: Path) -> None:
    stream_of(tmp_path, [[1, 2, 3], [4, 5]])
    path = tmp_path / name
    content = path.read_bytes()
    path.unlink()
    if damage != "missing":
        path.write_bytes(b"" if damage == "empty" else content[:-3])
    with pytest.raises(ModelError, match=r"damaged training data .* train again with --overwrite"):
        Stream(tmp_path)


def test_a_count_that_does_not_fit_is_told(tmp_path: Path) -> None:
    stream_of(tmp_path, [[1, 2, 3]])
    about = json.loads((tmp_path / "about.json").read_text())
    (tmp_path / "about.json").write_text(json.dumps({**about, "tokens": 4}))
    with pytest.raises(ModelError, match="tokens are missing"):
        Stream(tmp_path)


@pytest.mark.parametrize("name", ["tokens.bin", "documents.npy"])
def test_a_flipped_bit_is_found(name: str, tmp_path: Path) -> None:
    write_stream(tmp_path, [([1, 2, 3], True, 3), ([4, 5], True, 2)], 320)
    Stream(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-1] ^= 1
    (tmp_path / name).write_bytes(data)
    with pytest.raises(ModelError, match=rf"{name}: damaged training data .*checksum.* --overwrite"):
        Stream(tmp_path)
