"""Model folders, loaded once: translators by their directions, others by their names."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.decoding.engine import load
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError
from regard.folder import check_folder, read_settings
from regard.serving.scheduler import Scheduler
from regard.text.directions import Direction, directions_of

if TYPE_CHECKING:
    from regard.decoding.reader import Embedder


class Loaded:
    """The models of some folders."""

    def __init__(self) -> None:
        self.queues: dict[Direction, Scheduler] = {}
        self.places: dict[Direction, Path] = {}
        self.writers: dict[str, Writer] = {}
        self.embedders: dict[str, Embedder] = {}

    @classmethod
    def load(cls, paths: Sequence[str], **how: Any) -> Loaded:
        """The models of these folders; the options are those of `regard.load`."""
        made = cls()
        for path in map(Path, paths):
            check_folder(path)
            made._refuse_again(path)
        for path in map(Path, paths):
            made._add(path, how)
        return made

    @property
    def directions(self) -> list[Direction]:
        return list(self.queues)

    def queue(self, direction: Direction) -> Scheduler:
        """Where texts of a direction are translated."""
        return self.queues[direction]

    @property
    def names(self) -> list[str]:
        """What is served, for people."""
        return [*(f"{each.source} → {each.target}" for each in self.queues), *self.writers, *self.embedders]

    async def close(self) -> None:
        """Finishes what was taken."""
        await asyncio.gather(*(queue.close() for queue in dict.fromkeys(self.queues.values())))

    def _refuse_again(self, path: Path) -> None:
        """Refuses a folder that has what another has too: nobody could tell which of them answers."""
        settings = read_settings(path)
        if settings.task != "translate":
            return
        for direction in directions_of(settings.data):
            if direction in self.places:
                told = f"{self.places[direction]} and {path} both translate {direction.source} → {direction.target}"
                raise InputError(f"{told}: serve one of them")
            self.places[direction] = path

    def _add(self, path: Path, how: dict[str, Any]) -> None:
        name = path.resolve().name
        if name in self.writers or name in self.embedders:
            raise InputError(f"{path}: another model is called {name} too: rename the folder")
        task = read_settings(path).task
        if task in ("fill", "classify", "embed"):
            from regard.decoding.engine import load_as
            from regard.decoding.reader import Embedder

            self.embedders[name] = load_as(Embedder, path, how.get("device", "auto"))
            return
        made = load(path, **how)
        if isinstance(made, Translator):
            queue = Scheduler(made)
            self.queues.update(dict.fromkeys(directions_of(made.settings.data), queue))
        else:
            self.writers[name] = made
