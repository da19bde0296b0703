"""The models of a server by task and direction; a model is reloaded when its folder changes."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from regard.decoding.model_loading import load
from regard.errors import InputError, ModelError, RegardError
from regard.model_folder import CANARY, CONFIDENCE, SETTINGS, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.serving.completions import WriterQueue
from regard.serving.encoder_endpoints import EncoderQueue
from regard.serving.scheduler import MAX_WAITING, Scheduler
from regard.serving.translation_service import TranslatorQueue
from regard.settings import DataSettings, Settings
from regard.tokens.language_directions import Direction, directions_of
from regard.untrusted_files import read_limited

if TYPE_CHECKING:
    from regard.decoding.translation_results import Translation
    from regard.decoding.writer import WriterOutput

POLL_SECONDS = 2.0
"""Seconds between two checks whether model folders have changed."""
QUIET_SECONDS = 30.0
"""Seconds without a request after which a replaced model is closed; a long document sends several requests."""

LARGEST_CANARY = 1_000_000
"""Maximum size of the file of example outputs in bytes."""

SENTENCES = ("A dog runs.", "Two cats sleep.", "1 2 3")
"""Test inputs for models without example outputs."""

log = logging.getLogger("regard.serving")
Stamp = tuple[tuple[int, int], ...]
"""Modification times and sizes of the files of a model."""
TaskQueue = TranslatorQueue | WriterQueue | EncoderQueue


@dataclass(frozen=True)
class ServedModel:
    """A loaded model, with its settings and the state of its files when it was loaded."""

    name: str
    folder: Path
    stamp: Stamp
    settings: Settings
    queue: TaskQueue

    @property
    def directions(self) -> tuple[Direction, ...]:
        return directions_of(self.settings.data) if isinstance(self.queue, TranslatorQueue) else ()

    @property
    def label(self) -> str:
        """The label of the model in the metrics."""
        return ",".join(map(str, self.directions)) or self.name


class Models:
    """All models of a server."""

    def __init__(self, folders: Sequence[Path | str], *, max_waiting: int = MAX_WAITING, **options: Any) -> None:
        """Loads the models; `options` are those of `regard.load`: device, engine, precision, threads, shortlist."""
        self.options, self.max_waiting = options, max_waiting
        self._served: dict[str, ServedModel] = {}
        self._retired: list[tuple[ServedModel, float]] = []  # replaced models, with the time of replacement
        self._seen: dict[str, Stamp] = {}  # state of each folder at the last check
        self._unusable: dict[str, Stamp] = {}  # state of the folders that could not be loaded
        require_distinct([Path(folder) for folder in folders])
        for folder in map(Path, folders):
            name = folder.resolve().name
            self._served[name] = self._open(name, folder)

    @classmethod
    def load(cls, folders: Sequence[Path | str], **options: Any) -> Models:
        """Loads the models in these folders; raises an error if one of them cannot be served."""
        if not folders:
            raise InputError("pass the model folders to serve, as in regard serve runs/en-de")
        return cls(folders, **options)

    @property
    def served(self) -> list[ServedModel]:
        """All currently loaded models."""
        return list(self._served.values())

    @property
    def directions(self) -> list[Direction]:
        """All directions without duplicates, in the order of the models."""
        return list(dict.fromkeys(direction for each in self.served for direction in each.directions))

    @property
    def names(self) -> list[str]:
        """The directions and names of all models, to be displayed."""
        return [*(f"{each.source} → {each.target}" for each in self.directions), *self.writers, *self.encoders]

    @property
    def queues(self) -> dict[str, Scheduler]:
        """The queues of all currently loaded models by label."""
        return {each.label: each.queue for each in self.served}

    @property
    def writers(self) -> dict[str, WriterQueue]:
        """The queues of the currently loaded models that write, by name."""
        return {name: each.queue for name, each in self._served.items() if isinstance(each.queue, WriterQueue)}

    @property
    def encoders(self) -> dict[str, EncoderQueue]:
        """The queues of the currently loaded encoder models, by name."""
        return {name: each.queue for name, each in self._served.items() if isinstance(each.queue, EncoderQueue)}

    def queue(self, direction: Direction) -> TranslatorQueue:
        """Returns the queue of the current model that translates in this direction."""
        for each in self.served:
            if isinstance(each.queue, TranslatorQueue) and direction in each.directions:
                return each.queue
        raise InputError(f"this server has no model that translates from {direction.source} to {direction.target}")

    # Folders that change

    async def watch(self) -> None:
        """Checks the model folders for changes until cancelled."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Reloads models whose folders have changed, and closes replaced models that are no longer in use."""
        for name, served in list(self._served.items()):
            now = await asyncio.to_thread(read_stamp, served.folder)
            unchanged_since_last_check = self._seen.get(name) == now  # so it is not being written
            self._seen[name] = now
            if unchanged_since_last_check and now not in (served.stamp, self._unusable.get(name)):
                await self._reopen(served, now)
        for served, since in list(self._retired):
            old = served.queue
            if not old.open_requests and max(since, old.quiet_since) + QUIET_SECONDS <= time.monotonic():
                self._retired.remove((served, since))
                await old.close()

    async def close(self, grace: float = 30.0) -> None:
        """Stops accepting requests, and waits until the accepted ones are answered."""
        models = [*self.served, *(served for served, _ in self._retired)]
        await asyncio.gather(*(served.queue.close(grace) for served in models))

    async def _reopen(self, old: ServedModel, now: Stamp) -> None:
        """Loads the model that is now in a folder, tests it, and replaces the previous one."""
        try:
            new = await asyncio.to_thread(self._open, old.name, old.folder)
            await asyncio.to_thread(check_outputs, new.folder, new.queue, new.directions)
        except (RegardError, OSError, ValueError, RuntimeError) as error:
            self._unusable[old.name] = now
            reason = " ".join(str(error).split())
            log.warning("%s: the changed model cannot be used: keeping the previous model (%s)", old.folder, reason)
            return
        if new.stamp != await asyncio.to_thread(read_stamp, old.folder):
            return  # it has changed again: the next check will load it
        self._served[old.name] = new
        self._retired.append((old, time.monotonic()))
        log.warning("%s: the model has changed: serving the new model", old.folder)

    def _open(self, name: str, folder: Path) -> ServedModel:
        """Loads the model in a folder and creates its queue."""
        check_folder(folder)
        stamp, settings = read_stamp(folder), read_settings(folder)
        if (
            settings.task == "translate"
            and not settings.data.directions
            and settings.data.source == DataSettings.source
        ):
            raise ModelError(f"{folder}: the languages are unknown: set data.source and data.target in {SETTINGS}")
        kind = {"translate": TranslatorQueue, "write": WriterQueue}.get(settings.task, EncoderQueue)
        options = {"device": self.options.get("device", "auto")} if kind is EncoderQueue else self.options
        model: Any = load(folder, **options)
        return ServedModel(name, folder, stamp, settings, kind(model, max_waiting=self.max_waiting))


def check_outputs(folder: Path, queue: TaskQueue, directions: Sequence[Direction]) -> None:
    """Raises an error if the outputs of a model are not finite, or differ from those at the end of its training.

    The folder contains examples of the latter, decoded greedily in the first direction. Without examples, at least one
    test sentence must have an output.
    """
    examples = read_examples(folder)
    sources = [source for source, _ in examples] or list(SENTENCES)
    if isinstance(queue, EncoderQueue):
        if not np.isfinite(queue.reader.embed_rows(queue.reader.rows(sources))).all():
            raise ModelError("its vectors are not finite")
        return
    outputs: Sequence[Translation | WriterOutput]
    if isinstance(queue, TranslatorQueue):
        outputs = queue.translator.translate(sources, source=directions[0].source, target=directions[0].target, beam=1)
    else:
        longest = max((len(output.encode()) for _, output in examples), default=8)
        outputs = queue.writer.write(sources, max_tokens=longest, temperature=0.0, beam=1)
    if not all(math.isfinite(each.log_probability) for each in outputs) or not any(each.text for each in outputs):
        raise ModelError("its outputs are empty or not finite")
    texts = [each.text for each in outputs]
    for (source, expected), text in zip(examples, texts, strict=False):
        if (text if isinstance(queue, TranslatorQueue) else text[: len(expected)]) != expected:
            raise ModelError(f"its output for {source[:100]!r} differs from the example in {CANARY}")


def read_examples(folder: Path) -> list[tuple[str, str]]:
    """Returns example inputs and outputs from the end of the training; older folders have none."""
    path = folder / CANARY
    if not path.exists():
        return []
    try:
        values = json.loads(read_limited(path, LARGEST_CANARY, folder))
        return [(str(each["source"]), str(each["output"])) for each in values["examples"]]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise ModelError(f"{CANARY} is damaged") from None


def read_stamp(folder: Path) -> Stamp:
    """Returns the modification times and sizes of the files of a model; -1 for missing files."""
    stamps = []
    for name in (SETTINGS, WEIGHTS, TOKENIZER, CONFIDENCE, CANARY):
        try:
            status = (folder / name).stat()
            stamps.append((status.st_mtime_ns, status.st_size))
        except OSError:
            stamps.append((-1, -1))
    return tuple(stamps)


def require_distinct(folders: Sequence[Path]) -> None:
    """Raises an error if two folders have the same name or direction, since requests would be ambiguous."""
    names: set[str] = set()
    directions: dict[Direction, Path] = {}
    for folder in folders:
        check_folder(folder)
        name, settings = folder.resolve().name, read_settings(folder)
        for direction in directions_of(settings.data) if settings.task == "translate" else ():
            if direction in directions:
                both = f"{directions[direction]} and {folder} both translate {direction.source} → {direction.target}"
                raise InputError(f"{both}: serve only one of them")
            directions[direction] = folder
        if name in names:
            raise InputError(f"{folder}: another model is also named {name}: rename one of the folders")
        names.add(name)
