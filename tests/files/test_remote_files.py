"""Files that are elsewhere: what is read, and what is said when it cannot be."""

from __future__ import annotations

import gzip
import pickle
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from regard.errors import DataError
from regard.files.corpus import read_pairs
from regard.files.corpus_files import expand_paths
from regard.files.corpus_report import Report
from regard.files.formats import plain_text as plain
from regard.files.remote_files import RemotePath, as_path
from regard.settings import DataSettings


@pytest.fixture
def memory() -> Iterator[MemoryFileSystem]:
    """A store that is gone after the test."""
    store: Any = fsspec.filesystem("memory")
    store.store.clear()
    yield store
    store.store.clear()


def texts(*names: str) -> list[tuple[str, str]]:
    pairs = read_pairs([as_path(name) for name in names], DataSettings(), Report())
    return [(pair.source, pair.target) for pair in pairs]


def test_plain_names_stay_plain(tmp_path: Path) -> None:
    for name in ("a.tsv", "/x/a.tsv", "C:\\x\\a.tsv", "c:/x", "odd:/name", "a:b", "~/s3", str(tmp_path)):
        assert type(as_path(name)) is type(Path())
        assert as_path(name) == Path(name)
    assert as_path("file:///x/a.tsv") == Path("/x/a.tsv")


def test_plain_names_need_no_library(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "x.tsv").write_text("one\teins\n")
    monkeypatch.setitem(sys.modules, "fsspec", None)
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    assert texts(str(tmp_path)) == [("one", "eins")]


def test_an_address_survives_being_a_path() -> None:
    for name in ("s3://bucket/a/b.tsv.gz", "simplecache::s3://bucket/x.en", "hf://datasets/me/it@main/x.csv"):
        path = as_path(name)
        assert isinstance(path, RemotePath)
        assert str(path) == str(as_path(path)) == str(as_path(Path(name))) == str(path.resolve()) == name
        assert pickle.loads(pickle.dumps(path)) == path  # noqa: S301 (our own)
        assert f"{path}" == name
    path = as_path("s3://bucket/de/app.po")
    assert (path.name, path.suffix, path.parent.name, str(path.with_suffix(".mo"))) == (
        "app.po",
        ".po",
        "de",
        "s3://bucket/de/app.mo",
    )
    assert path != as_path("s3://bucket/de/app.mo")


def test_files_folders_and_patterns_are_read_from_anywhere(memory: MemoryFileSystem) -> None:
    memory.pipe("/corpus/a.tsv", b"one\teins\ntwo\tzwei\n")
    memory.pipe("/corpus/more/b.tsv.gz", gzip.compress(b"three\tdrei\n"))
    memory.pipe("/corpus/notes.txt", b"no pairs\n")
    memory.pipe("/two/x.en", b"four\n")
    memory.pipe("/two/x.de", "fünf\n".encode())
    assert texts("memory://corpus/a.tsv") == [("one", "eins"), ("two", "zwei")]
    assert texts("memory://corpus") == [("one", "eins"), ("two", "zwei"), ("three", "drei")]
    assert texts("memory://corpus/**/*.tsv.gz") == [("three", "drei")]
    assert texts("memory://two/x.en", "memory://two/x.de") == [("four", "fünf")]
    assert [str(path) for path in expand_paths(["memory://corpus/*.tsv"])] == ["memory:///corpus/a.tsv"]
    assert texts("memory:///corpus/a.tsv")[0] == ("one", "eins")
    assert texts("simplecache::memory://corpus/*.tsv")[0] == ("one", "eins")


def test_a_fault_names_the_address_and_the_line(memory: MemoryFileSystem) -> None:
    memory.pipe("/x.tsv", b"one\teins\nbroken\n")
    with pytest.raises(DataError, match=r"^memory://x.tsv:2: 1 columns"):
        texts("memory://x.tsv")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("memory://nothing.tsv", r"^memory://nothing.tsv: the file does not exist"),
        ("memory://nothing/*.tsv", r"there is no file with a known format"),
        ("nonsense://x.tsv", r"^nonsense://x.tsv: cannot be read: Protocol not known: nonsense"),
        ("simplecache::nonsense://x.tsv", "Protocol not known"),
    ],
)
def test_what_is_not_there_is_said_in_a_line(name: str, told: str, memory: MemoryFileSystem) -> None:
    with pytest.raises(DataError, match=told):
        texts(name)


@pytest.mark.parametrize(
    ("name", "missing", "told"),
    [
        ("s3://bucket/x.tsv", "s3fs", r"^s3://bucket/x.tsv: s3:// needs s3fs: .*pip install 'regard\[s3\]'"),
        ("s3a://bucket/x.tsv", "s3fs", r"^s3a://bucket/x.tsv: s3a:// needs s3fs: .*pip install 'regard\[s3\]'"),
        ("gcs://bucket/x.tsv", "gcsfs", r"gcs:// needs gcsfs: .*'regard\[gs\]'"),
        ("http://example.org/x.tsv", "aiohttp", r"http:// needs aiohttp: .*'regard\[http\]'"),
        ("gs://bucket/x.tsv", "gcsfs", r"gs:// needs gcsfs: .*'regard\[gs\]'"),
        ("hf://datasets/me/x.tsv", "huggingface_hub", r"hf:// needs huggingface_hub: .*'regard\[hf\]'"),
        ("https://example.org/x.tsv", "aiohttp", r"https:// needs aiohttp: .*'regard\[http\]'"),
        ("memory://x.tsv", "fsspec.core", r"^memory://x.tsv: remote files need fsspec: .*pip install fsspec"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(
    name: str, missing: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = vars(sys.modules["fsspec.registry"])["_registry"]
    for protocol in ("s3", "s3a", "gs", "gcs", "hf", "http", "https"):
        monkeypatch.delitem(known, protocol, raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(DataError, match=told):
        texts(name)


class NoCredentialsError(Exception):
    """As botocore has it."""


class Locked(MemoryFileSystem):  # type: ignore[misc]
    """A store that nobody may read."""

    protocol = "locked"
    error: Exception = PermissionError("Access Denied")

    def open(self, *_: Any, **__: Any) -> Any:
        raise self.error

    def exists(self, *_: Any, **__: Any) -> bool:
        return True


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (PermissionError("Access Denied"), r"^locked://b/x.tsv: access was denied .*check your credentials"),
        (NoCredentialsError("Unable to locate credentials"), "access was denied .*Unable to locate credentials"),
        (OSError("403 Client Error"), "access was denied"),
        (FileNotFoundError("b/x.tsv"), "does not exist"),
        (OSError("Connection refused\nby peer"), r"cannot be read \(OSError: Connection refused by peer\)"),
    ],
)
def test_what_another_machine_refuses_is_said_in_a_line(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec.register_implementation("locked", Locked, clobber=True)
    monkeypatch.setattr(Locked, "error", error)
    with pytest.raises(DataError, match=told) as raised:
        texts("locked://b/x.tsv")
    assert "\n" not in str(raised.value)


def test_a_connection_that_breaks_is_told_and_not_taken_for_the_end(
    memory: MemoryFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.pipe("/x.tsv", b"one\teins\n" * 300_000)
    real = memory.open

    def breaks(*arguments: Any, **more: Any) -> Any:
        file = real(*arguments, **more)
        read, calls = file.read, iter([True])
        monkeypatch.setattr(file, "read", lambda size: read(size) if next(calls, False) else raise_reset())
        return file

    monkeypatch.setattr(type(memory), "open", lambda self, *a, **k: breaks(*a, **k))
    with pytest.raises(DataError, match=r"x.tsv: cannot be read \(ConnectionResetError"):
        list(plain.lines(as_path("memory://x.tsv")))


def raise_reset() -> bytes:
    raise ConnectionResetError("reset by peer")
