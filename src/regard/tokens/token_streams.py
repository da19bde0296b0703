"""Stores the tokens of documents back to back in a memory-mapped file, so that large corpora need little memory."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.tokens.token_shards import Rows, checksum, damaged, token_type


class Stream:
    """Tokenized documents in a folder: all tokens in `tokens.bin`, the start of each document in `documents.npy`."""

    def __init__(self, folder: Path, check: bool = True) -> None:
        try:
            about = json.loads((folder / "about.json").read_text(encoding="utf-8"))
            self.characters = int(about["characters"])
            self.documents: Rows = np.load(folder / "documents.npy")
            self.tokens = np.memmap(folder / "tokens.bin", dtype=about["dtype"], mode="r")
        except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
            raise damaged(folder, str(error)) from None
        if len(self.tokens) != about["tokens"]:
            raise damaged(folder, "tokens are missing")
        for name, right in about.get("checksums", {}).items() if check else ():
            if checksum(folder / name) != right:
                raise damaged(folder / name, "its checksum is wrong")

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, starts: Rows, length: int) -> Rows:
        """[N] start positions -> [N, length] tokens from there on."""
        taken: Rows = self.tokens[starts[:, None] + np.arange(length)].astype(np.int64)
        return taken

    def document_numbers(self, starts: Rows, length: int) -> Rows:
        """[N] start positions -> [N, length] document numbers of the tokens from there on."""
        places = (starts[:, None] + np.arange(length)).ravel()
        return np.searchsorted(self.documents, places, side="right").reshape(-1, length)

    def windows(self, length: int, random: np.random.Generator | None) -> Rows:
        """Returns the start positions of adjacent windows that overlap by one token; `random` shifts all of them."""
        last = len(self) - 1 - length
        offset = 0 if random is None else int(random.integers(0, min(length, last + 1)))
        return np.arange(offset, last + 1, length)

    def pieces(self, length: int, random: np.random.Generator | None) -> Rows:
        """Splits all documents into pieces of at most `length` tokens; returns their starts and lengths [N, 2].

        With `random`, long documents are split at different places each time.
        """
        ends = np.append(self.documents[1:], len(self))
        sizes = ends - self.documents
        short = np.stack([self.documents, sizes], 1)[(sizes > 0) & (sizes <= length)]
        pieces = [short]
        for start, end in zip(self.documents[sizes > length], ends[sizes > length], strict=True):
            first = start + (0 if random is None else int(random.integers(0, length)))
            cuts = np.unique(np.concatenate([[start], np.arange(first, end, length), [end]]))
            pieces.append(np.stack([cuts[:-1], np.diff(cuts)], 1))
        return np.concatenate(pieces)


def write_stream(folder: Path, documents: Iterable[tuple[list[int], bool, int]], vocabulary: int) -> int:
    """Writes a folder for `Stream` and returns the number of tokens.

    Each item of `documents` consists of ids, whether they begin a new document, and their number of characters.
    """
    folder.mkdir(parents=True, exist_ok=True)
    dtype = token_type(vocabulary)
    starts: list[int] = []
    count = characters = 0
    with (folder / "tokens.bin").open("wb") as file:
        for ids, begins, size in documents:
            if begins:
                starts.append(count)
            file.write(np.array(ids, dtype).tobytes())
            count, characters = count + len(ids), characters + size
    where: NDArray[np.int64] = np.array(starts, np.int64)
    np.save(folder / "documents.npy", where)
    checksums = {name: checksum(folder / name) for name in ("tokens.bin", "documents.npy")}
    about = {"dtype": dtype.name, "tokens": count, "characters": characters, "checksums": checksums}
    (folder / "about.json").write_text(json.dumps(about), encoding="utf-8")
    return count
