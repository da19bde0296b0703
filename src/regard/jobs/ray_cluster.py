"""Jobs on a Ray cluster: an engine per processor or accelerator, each replaced when it dies, its job done again."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.errors import DataError, InputError, RegardError
from regard.jobs.bulk_translation import Order, Translating, model_digest, model_files
from regard.jobs.worker_processes import TRIES, Message, refusal, refused

AHEAD = 2
"""Jobs that an engine has been given: one that it does and one that it finds there when that is done."""
STORE = 512 * 2**20
"""Bytes of a cluster of our own for what goes from one process to another."""


class Cluster:
    """Engines on the cluster at an address; `auto` is one that runs here, or one that is started for this command."""

    def __init__(self, address: str, order: Order, workers: int | None) -> None:
        self.address, self.order, self.workers = address, order, workers
        self.ray = import_ray()

    def run(self, jobs: Iterable[Message]) -> Generator[Message, None, None]:
        """The answers, in the order in which they are ready."""
        self.connect()
        try:
            yield from self.answers(iter(jobs), self.engines())
        finally:
            self.ray.shutdown()

    def connect(self) -> None:
        """Joins the cluster, and says so if there is none."""
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            self.ray.init(address=self.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            if self.address != "auto":
                told = " ".join(str(error).split())[:200]
                raise InputError(f"no Ray cluster answers at {self.address} ({told}): see ray status") from None
            self.ray.init(address="local", include_dashboard=False, object_store_memory=STORE, **quiet)

    def engines(self) -> list[Any]:
        """As many as there is room for, or as were asked for."""
        threads, device = self.order.engine["threads"] or 1, self.order.engine["device"]
        accelerated = device not in ("auto", "cpu")
        needs = {"num_cpus": 0, "num_gpus": 1} if accelerated else {"num_cpus": threads, "num_gpus": 0}
        there = self.ray.cluster_resources()
        room = int(there.get("GPU", 0)) if accelerated else int(there.get("CPU", 1)) // threads
        if room < 1:
            what = "accelerators" if accelerated else f"{threads} processors for one engine"
            raise InputError(f"the cluster at {self.address} has not {what}: it has {describe(there)}")
        kind = self.ray.remote(max_restarts=-1, max_task_retries=TRIES - 1, **needs)(Engine)
        files = self.ray.put({name: path.read_bytes() for name, path in model_files(Path(self.order.model)).items()})
        return [kind.remote(asdict(self.order), [files]) for _ in range(min(room, self.workers or room))]

    def answers(self, jobs: Iterator[Message], engines: list[Any]) -> Iterator[Message]:
        """Gives each engine its next job as soon as it has done one."""
        running: dict[Any, tuple[Message, Any]] = {}
        free = [engine for _ in range(AHEAD) for engine in engines]
        while True:
            while free and (job := next(jobs, None)) is not None:
                engine = free.pop(0)
                running[engine.work.remote(job.about, job.data)] = (job, engine)
            if not running:
                return
            done, _ = self.ray.wait(list(running))
            for reference in done:
                job, engine = running.pop(reference)
                free.append(engine)
                yield self.answer(reference, job)

    def answer(self, reference: Any, job: Message) -> Message:
        try:
            about, data = self.ray.get(reference)
        except self.ray.exceptions.RayActorError:
            raise DataError(
                f"the engines that were to do shard {job.about['shard']} ended {TRIES} times: what is done is kept; is "
                "there memory enough? --workers gives fewer"
            ) from None
        return refused(Message(about, data))


class Engine:
    """A model in a process of the cluster."""

    def __init__(self, order: dict[str, Any], files: list[Any]) -> None:
        self.order, self.files = Order(**order), files
        self.translating: Translating | None = None

    def work(self, about: dict[str, Any], data: bytes) -> tuple[dict[str, Any], bytes]:
        """The translations of a shard, or why there are none."""
        try:
            if self.translating is None:
                self.translating = Translating(replace(self.order, model=str(self.folder())))
            answer = self.translating(Message(about, data))
        except RegardError as error:
            answer = refusal(error)
        return answer.about, answer.data

    def folder(self) -> Path:
        """The model where it is on this machine too, or else a copy of it."""
        here = Path(self.order.model)
        try:
            if model_digest(here) == self.order.digest:
                return here
        except (RegardError, OSError):
            pass
        import ray

        made = Path(tempfile.mkdtemp(prefix="regard-"))
        for name, content in ray.get(self.files[0]).items():
            (made / name).write_bytes(content)
        return made


def import_ray() -> Any:
    """Ray, which tells nobody that it is used."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "a cluster needs Ray: install it with pip install 'regard[cluster]', or use --cluster local without it"
        ) from None
    return ray


def describe(resources: dict[str, float]) -> str:
    return f"{resources.get('CPU', 0):.0f} processors and {resources.get('GPU', 0):.0f} accelerators"
