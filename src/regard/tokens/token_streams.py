"""Running text as tokens on disk, and windows over it.

The tokens of all documents lie end to end in a memory-mapped file, so memory does not grow with the corpus.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.tokens.token_shards import Rows, checksum, damaged, token_type


class Stream:
    """Tokenised documents in a folder: `tokens.bin` has them end to end, `documents.npy` says where each begins."""

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
                raise damaged(folder / name, "its checksum is not that of its content")

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, starts: Rows, length: int) -> Rows:
        """[N, length]: the tokens from each start on."""
        taken: Rows = self.tokens[starts[:, None] + np.arange(length)].astype(np.int64)
        return taken

    def document_numbers(self, starts: Rows, length: int) -> Rows:
        """[N, length]: for each of those tokens, the number of its document."""
        places = (starts[:, None] + np.arange(length)).ravel()
        return np.searchsorted(self.documents, places, side="right").reshape(-1, length)

    def windows(self, length: int, random: np.random.Generator | None) -> Rows:
        """Starts of windows that lie end to end and overlap by one token; with `random`, the first lies anywhere."""
        last = len(self) - 1 - length
        offset = 0 if random is None else int(random.integers(0, min(length, last + 1)))
        return np.arange(offset, last + 1, length)

    def pieces(self, length: int, random: np.random.Generator | None) -> Rows:
        """[N, 2], start and length of pieces of documents, none longer than `length`, that cover all of them.

        With `random`, long documents are cut at other places each time.
        """
        ends = np.append(self.documents[1:], len(self))
        sizes = ends - self.documents
        short = np.stack([self.documents, sizes], 1)[(sizes > 0) & (sizes <= length)]
        found = [short]
        for start, end in zip(self.documents[sizes > length], ends[sizes > length], strict=True):
            first = start + (0 if random is None else int(random.integers(0, length)))
            cuts = np.unique(np.concatenate([[start], np.arange(first, end, length), [end]]))
            found.append(np.stack([cuts[:-1], np.diff(cuts)], 1))
        return np.concatenate(found)


def write_stream(folder: Path, documents: Iterable[tuple[list[int], bool, int]], vocabulary: int) -> int:
    """Writes a stream as `Stream` reads it, from parts: ids, whether a document begins, and characters.

    Returns the number of tokens.
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
