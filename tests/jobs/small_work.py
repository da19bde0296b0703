"""Work on lines that needs no model: other processes can import it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard.errors import DataError
from regard.jobs.resumable_shards import MakeShard, ShardInput, ShardOutput, Work


@dataclass(frozen=True, kw_only=True)
class Prefix(Work):
    """Writes the text of a file before each line; some lines are faults."""

    def files(self) -> dict[str, Path]:
        return {"prefix": Path(self.path) / "prefix"}

    def start(self) -> MakeShard:
        prefix = self.files()["prefix"].read_text()

        def make(shard: ShardInput) -> Iterator[int | ShardOutput]:
            rows = []
            for number, line in enumerate(shard.lines()):
                if line == "refused":
                    raise DataError(f"in.txt:{shard.first + number}: a line that cannot be used")
                if line.startswith("killed once:") and not Path(line.partition(":")[2]).exists():
                    Path(line.partition(":")[2]).touch()
                    os._exit(1)
                if line == "killed":
                    os._exit(7)
                rows.append(f"{prefix}{line}\n")
                yield number + 1
            yield ShardOutput("".join(rows).encode(), {"process": os.getpid()})

        return make
