"""The served models by task and direction; each is opened once, and again when its folder changes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.decoding.model_loading import load_as
from regard.errors import InputError, ModelError, RegardError
from regard.model_folder import CONFIDENCE, SETTINGS, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.serving.scheduler import MAX_WAITING, Scheduler
from regard.serving.task_queues import EncoderQueue, TranslatorQueue, WriterQueue
from regard.settings import DataSettings, Settings
from regard.tokens.directions import Direction, directions_of

POLL = 2.0
"""Seconds between two looks at the folders."""
QUIET = 30.0
"""Seconds without a request after which a model that was replaced is let go: a long document asks in several parts."""

log = logging.getLogger("regard.serving")
Stamp = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class ServedModel:
    """A model as it was when it was opened."""

    name: str
    folder: Path
    stamp: Stamp
    settings: Settings
    queue: TranslatorQueue | WriterQueue | EncoderQueue

    @property
    def directions(self) -> tuple[Direction, ...]:
        return directions_of(self.settings.data) if isinstance(self.queue, TranslatorQueue) else ()

    @property
    def label(self) -> str:
        """The name of the model in the metrics."""
        return ",".join(map(str, self.directions)) or self.name


class Models:
    """All models of a server."""

    def __init__(self, folders: Sequence[Path | str], *, max_waiting: int = MAX_WAITING, **how: Any) -> None:
        """Opens the models; `how` are options of `regard.load`: device, engine, precision, threads, shortlist."""
        self.how, self.max_waiting = how, max_waiting
        self._served: dict[str, ServedModel] = {}
        self._retired: list[tuple[ServedModel, float]] = []  # and when that was
        self._seen: dict[str, Stamp] = {}  # of folders that have changed,
        self._refused: dict[str, Stamp] = {}  # and of those that are of no use
        refuse_alike(list(map(Path, folders)))
        for folder in map(Path, folders):
            name = folder.resolve().name
            self._served[name] = self._open(name, folder)

    @classmethod
    def load(cls, folders: Sequence[Path | str], **how: Any) -> Models:
        """Loads the models in these folders; raises an error if one of them cannot be served."""
        if not folders:
            raise InputError("which models? Name their folders, as in regard serve runs/en-de")
        return cls(folders, **how)

    # What there is

    @property
    def served(self) -> list[ServedModel]:
        """All models as they are now."""
        return list(self._served.values())

    @property
    def directions(self) -> list[Direction]:
        """All directions once, in the order of the models."""
        return list(self._by_direction())

    @property
    def names(self) -> list[str]:
        """The directions and names of all models, for people to read."""
        return [*(f"{each.source} → {each.target}" for each in self.directions), *self.writers, *self.embedders]

    @property
    def queues(self) -> dict[str, Scheduler]:
        """The queues of all models as they are now, by label."""
        return {each.label: each.queue for each in self._served.values()}

    @property
    def writers(self) -> dict[str, WriterQueue]:
        """The queues of models that write as they are now, by name."""
        return {name: each.queue for name, each in self._served.items() if isinstance(each.queue, WriterQueue)}

    @property
    def embedders(self) -> dict[str, EncoderQueue]:
        """The queues of models that read as they are now, by name."""
        return {name: each.queue for name, each in self._served.items() if isinstance(each.queue, EncoderQueue)}

    def queue(self, direction: Direction) -> TranslatorQueue:
        """Returns the queue for translations in this direction as it is now."""
        found = self._by_direction().get(direction)
        if found is None or not isinstance(found.queue, TranslatorQueue):
            raise InputError(f"no model here translates from {direction.source} to {direction.target}")
        return found.queue

    def _by_direction(self) -> dict[Direction, ServedModel]:
        found: dict[Direction, ServedModel] = {}
        for served in self._served.values():
            for direction in served.directions:
                found.setdefault(direction, served)
        return found

    # Folders that change

    async def watch(self) -> None:
        """Checks the folders for changes until it is cancelled."""
        while True:
            await asyncio.sleep(POLL)
            await self.look()

    async def look(self) -> None:
        """Opens models whose folders have changed and rested since, and closes replaced ones that nobody uses."""
        for name, served in list(self._served.items()):
            now = await asyncio.to_thread(stamp, served.folder)
            settled = self._seen.get(name) == now  # nobody is writing to it
            self._seen[name] = now
            if settled and now not in (served.stamp, self._refused.get(name)):
                await self._reopen(served, now)
        for served, since in list(self._retired):
            old = served.queue
            if not old.open_requests and max(since, old.quiet_since) + QUIET <= time.monotonic():
                self._retired.remove((served, since))
                await old.close()

    async def close(self, grace: float = 30.0) -> None:
        """Finishes accepted requests, and accepts no more."""
        every = [*self._served.values(), *(served for served, _ in self._retired)]
        await asyncio.gather(*(served.queue.close(grace) for served in every))

    async def _reopen(self, old: ServedModel, now: Stamp) -> None:
        """Replaces a model by the one in its folder now; the old one answers until then."""
        try:
            fresh = await asyncio.to_thread(self._open, old.name, old.folder)
        except (RegardError, OSError, ValueError, RuntimeError) as error:
            self._refused[old.name] = now
            reason = " ".join(str(error).split())
            log.warning("%s: has changed, but cannot be used: keeping the previous model (%s)", old.folder, reason)
            return
        if fresh.stamp != await asyncio.to_thread(stamp, old.folder):
            return  # it has changed meanwhile: the next look will see
        self._served[old.name] = fresh
        self._retired.append((old, time.monotonic()))
        log.warning("%s: has changed: serving the new model", old.folder)

    def _open(self, name: str, folder: Path) -> ServedModel:
        check_folder(folder)
        before, settings = stamp(folder), read_settings(folder)
        return ServedModel(name, folder, before, settings, self._queue_of(folder, settings))

    def _queue_of(self, folder: Path, settings: Settings) -> TranslatorQueue | WriterQueue | EncoderQueue:
        """Loads the model in a folder, and puts its queue before it."""
        if settings.task == "translate":
            if not settings.data.directions and settings.data.source == DataSettings.source:
                raise ModelError(f"{folder}: names no languages: set data.source and data.target in {SETTINGS}")
            from regard.decoding.translator import Translator

            return TranslatorQueue(load_as(Translator, folder, **self.how), max_waiting=self.max_waiting)
        if settings.task == "write":
            from regard.decoding.writer import Writer

            return WriterQueue(load_as(Writer, folder, **self.how), max_waiting=self.max_waiting)
        from regard.decoding.fill_classify_embed import Embedder

        embedder = load_as(Embedder, folder, self.how.get("device", "auto"))
        return EncoderQueue(embedder, max_waiting=self.max_waiting)


def stamp(folder: Path) -> Stamp:
    """Returns the modification times and sizes of a model's files."""
    found = []
    for name in (SETTINGS, WEIGHTS, TOKENIZER, CONFIDENCE):
        try:
            status = (folder / name).stat()
        except OSError:
            found.append((0, -1))
        else:
            found.append((status.st_mtime_ns, status.st_size))
    return tuple(found)


def refuse_alike(folders: Sequence[Path]) -> None:
    """Refuses folders with the same name or direction: it would be unclear which of them answers."""
    names: set[str] = set()
    places: dict[Direction, Path] = {}
    for folder in folders:
        check_folder(folder)
        name, settings = folder.resolve().name, read_settings(folder)
        for direction in directions_of(settings.data) if settings.task == "translate" else ():
            if direction in places:
                both = f"{places[direction]} and {folder} both translate {direction.source} → {direction.target}"
                raise InputError(f"{both}: serve one of them")
            places[direction] = folder
        if name in names:
            raise InputError(f"{folder}: another model has the name {name} too: rename the folder")
        names.add(name)
