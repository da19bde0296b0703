"""Makes shards on a Ray cluster: a worker per processor or accelerator, each replaced when it dies."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.errors import InputError, RegardError
from regard.jobs.resumable_shards import TRIES, MakeShard, ShardInput, ShardOutput, Work, digest_files, lost_workers
from regard.jobs.worker_processes import pack_answer, pack_error, unpack_answer

AHEAD = 2
"""Shards that each worker has at a time: one that it makes, and one that it begins at once when that is done."""
STORE = 512 * 2**20
"""Bytes of shared memory of a cluster that is started for one run."""


class RayCluster:
    """Makes shards on the cluster at an address; `auto` is one that runs here, or else one started for this run."""

    def __init__(
        self, address: str, workers: int | None = None, *, threads: int = 1, accelerated: bool = False
    ) -> None:
        self.address, self.workers = address, workers
        self.threads, self.accelerated = threads, accelerated
        self.ray = import_ray()

    def run(self, work: Work, shards: Iterable[ShardInput]) -> Generator[tuple[int, ShardOutput], None, None]:
        """Yields outputs as soon as they are ready."""
        self.connect()
        try:
            yield from self.make(iter(shards), self.start_workers(work))
        finally:
            self.ray.shutdown()

    def connect(self) -> None:
        quiet: dict[str, Any] = {"log_to_driver": False, "logging_level": logging.ERROR}
        try:
            self.ray.init(address=self.address, **quiet)
        except (ConnectionError, ValueError, RuntimeError, TimeoutError) as error:
            if self.address != "auto":
                detail = " ".join(str(error).split())[:200]
                raise InputError(
                    f"no Ray cluster answers at {self.address} ({detail}): check it with ray status"
                ) from None
            self.ray.init(address="local", include_dashboard=False, object_store_memory=STORE, **quiet)

    def start_workers(self, work: Work) -> list[Any]:
        """Starts as many workers as there is room for, or as were asked for."""
        needs = {"num_cpus": 0, "num_gpus": 1} if self.accelerated else {"num_cpus": self.threads, "num_gpus": 0}
        resources = self.ray.cluster_resources()
        room = int(resources.get("GPU", 0)) if self.accelerated else int(resources.get("CPU", 1)) // self.threads
        if room < 1:
            wanted = "accelerators" if self.accelerated else f"{self.threads} processors for a worker"
            found = f"{resources.get('CPU', 0):.0f} processors and {resources.get('GPU', 0):.0f} accelerators"
            raise InputError(f"the cluster at {self.address} does not have {wanted}: it has {found}")
        actor = self.ray.remote(max_restarts=-1, max_task_retries=TRIES - 1, **needs)(ShardActor)
        files = self.ray.put({name: path.read_bytes() for name, path in work.files().items()})
        return [actor.remote(work, [files]) for _ in range(min(room, self.workers or room))]

    def make(self, shards: Iterator[ShardInput], workers: list[Any]) -> Iterator[tuple[int, ShardOutput]]:
        """Gives each worker its next shard as soon as it has made one."""
        running: dict[Any, tuple[ShardInput, Any]] = {}
        free = [worker for _ in range(AHEAD) for worker in workers]
        while True:
            while free and (shard := next(shards, None)) is not None:
                worker = free.pop(0)
                running[worker.make.remote(shard)] = (shard, worker)
            if not running:
                return
            done, _ = self.ray.wait(list(running))
            for reference in done:
                shard, worker = running.pop(reference)
                free.append(worker)
                try:
                    answer = self.ray.get(reference)
                except self.ray.exceptions.RayActorError:
                    raise lost_workers(shard, "see the logs of Ray") from None
                yield shard.number, unpack_answer(*answer)


class ShardActor:
    """A process of the cluster that makes shards."""

    def __init__(self, work: Work, files: list[Any]) -> None:
        self.work, self.files = work, files
        self.make_shard: MakeShard | None = None

    def make(self, shard: ShardInput) -> tuple[dict[str, Any], bytes]:
        """Returns the output of a shard, or an error, as a message."""
        try:
            self.make_shard = self.make_shard or self.local_work().start()
        except RegardError as error:
            return pack_error(error)
        return pack_answer(self.make_shard, shard)

    def local_work(self) -> Work:
        """Returns the work with the path of its files on this machine, which are copied here if need be."""
        try:
            if digest_files(self.work.files()) == self.work.digest:
                return self.work
        except (RegardError, OSError):
            pass
        import ray

        folder = Path(tempfile.mkdtemp(prefix="regard-"))
        for name, content in ray.get(self.files[0]).items():
            (folder / name).write_bytes(content)
        return replace(self.work, path=str(folder))


def import_ray() -> Any:
    """Imports Ray, with its reports of usage switched off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "a cluster needs Ray: install it with pip install 'regard[cluster]', or use --cluster local without it"
        ) from None
    return ray
