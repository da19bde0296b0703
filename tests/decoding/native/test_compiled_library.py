"""A packed file is checked before it is used."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.decoding.native.compiled_library import MAGIC, PackedModel, instructions
from regard.decoding.native.weight_packing import checksum_of
from regard.errors import ModelError
from regard.settings import DecodingSettings
from tests.decoding.native.models import FIRST, SETS, searching, toy, write
from tests.examples import examples

MODEL = toy(positions="rotary", max_length=10)
FIELDS = range(16, 16 + 4 * 22, 4)  # after the magic and the size: whole numbers, then three others
HEADER = 16 + 4 * 25


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("whole") / "packed"
    write(MODEL, path)
    return path.read_bytes()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("changed") / "packed"


def used(content: bytes, path: Path, *, sealed: bool = True) -> bool:
    """Reports whether a file with this content, and with its checksum, is taken for a model; then uses it as one."""
    path.write_bytes(content[:-16] + checksum_of([content[:-16]]) if sealed and len(content) % 8 == 0 else content)
    try:
        engine = searching(PackedModel(path), MODEL)
    except ModelError:
        return False
    with contextlib.suppress(ModelError):  # of a model with fewer tokens or positions
        engine.search([[FIRST, FIRST + 1]], [3], DecodingSettings(beam=2))
    return True


def test_a_whole_file_is_used(content: bytes, place: Path) -> None:
    assert used(content, place)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="none: cannot be read"):
        PackedModel(tmp_path / "none")
    with pytest.raises(ModelError, match="cannot be read"):
        PackedModel(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 8, 15, 16, HEADER - 1, HEADER, 127, 128, 1000, -1])
def test_a_file_that_is_cut_short(content: bytes, size: int, place: Path) -> None:
    assert not used(content[:size], place)
    told = struct.pack("<q", len(content[:size]))  # even if its header says that it is whole
    assert not used((content[:8] + told + content[16:])[:size], place)


def test_a_file_with_more_in_it_than_the_model(content: bytes, place: Path) -> None:
    assert not used(content[:8] + struct.pack("<q", len(content) + 64) + content[16:] + bytes(64), place)


@given(st.data())
@examples(50)
def test_a_damaged_file_is_refused(content: bytes, place: Path, data: st.DataObject) -> None:
    changed = bytearray(content)
    changed[data.draw(st.integers(0, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    assert not used(bytes(changed), place, sealed=False)


def test_a_file_of_another_version(content: bytes, place: Path) -> None:
    assert content.startswith(MAGIC)
    assert not used(b"regard-0" + content[8:], place)


@pytest.mark.parametrize("field", FIELDS)
def test_sizes_that_make_no_sense(content: bytes, field: int, place: Path) -> None:
    """A file with a changed number in its header is refused, or can be used."""
    for value in (-(2**31), -1, 0, 1, 3, 2**16 + 1, 2**24, 2**24 + 1, 2**31 - 1):
        changed = content[:field] + struct.pack("<i", value) + content[field + 4 :]
        taken = used(changed, place)
        assert changed != content or taken


@pytest.mark.parametrize("name", ["width", "heads", "groups", "hidden", "encoder_layers", "decoder_layers", "source"])
def test_other_sizes_are_refused(content: bytes, name: str, place: Path) -> None:
    names = {"width": 1, "heads": 2, "groups": 3, "hidden": 6, "encoder_layers": 7, "decoder_layers": 8, "source": 15}
    field = FIELDS[names[name]]
    size = struct.unpack_from("<i", content, field)[0]
    for value in (0, -1, 2 * size, 16 * size, 2**30):
        assert not used(content[:field] + struct.pack("<i", value) + content[field + 4 :], place)


@given(changes=st.lists(st.tuples(st.integers(16, HEADER - 1), st.integers(0, 255)), min_size=1, max_size=6))
@examples(100)
def test_headers_with_random_bytes(content: bytes, place: Path, changes: list[tuple[int, int]]) -> None:
    changed = bytearray(content)
    for where, byte in changes:
        changed[where] = byte
    used(bytes(changed), place)


def test_instructions(content: bytes, place: Path) -> None:
    assert instructions() == SETS[0]
    assert "portable" in SETS
    assert instructions("abacus") == ""
    assert used(content, place)
    with pytest.raises(ModelError, match="needs instructions that this machine does not have"):
        PackedModel(place, "abacus")
