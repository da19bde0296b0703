"""Processes shards on a Ray cluster, with one worker per processor or accelerator; workers that die are replaced."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from regard.errors import InputError, RegardError
from regard.jobs.resumable_shards import (
    TRIES,
    ShardInput,
    ShardMaker,
    ShardOutput,
    Work,
    digest_files,
    lost_workers,
    make_in_threads,
    output_in,
)

AHEAD = 2
"""Number of shards assigned to a worker at a time: one in progress, and one that it can start next without waiting."""
STORE = 512 * 2**20
"""Size in bytes of the shared memory of a cluster that is started for a single run."""


class RayCluster:
    """Processes shards on the cluster at an address; `auto` uses a running local cluster, or starts one."""

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
            workers = self.start_workers(work)
            free = SimpleQueue[Any]()
            for worker in workers * AHEAD:
                free.put(worker)

            def make(shard: ShardInput) -> ShardOutput:
                worker = free.get()
                try:
                    return output_in(self.ray.get(worker.make.remote(shard)))
                except self.ray.exceptions.RayActorError:
                    raise lost_workers(shard, "see the logs of Ray") from None
                finally:
                    free.put(worker)

            def stop() -> None:
                for worker in workers:
                    self.ray.kill(worker)

            yield from make_in_threads(make, shards, len(workers) * AHEAD, stop)
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
                    f"no Ray cluster responds at {self.address} ({detail}): check it with ray status"
                ) from None
            self.ray.init(address="local", include_dashboard=False, object_store_memory=STORE, **quiet)

    def start_workers(self, work: Work) -> list[Any]:
        """Starts as many workers as requested, or as the cluster has room for."""
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


class ShardActor(ShardMaker):
    """A process of the cluster that processes shards; it gets copies of the input files that its machine lacks."""

    def __init__(self, work: Work, files: list[Any]) -> None:
        try:
            is_here = digest_files(work.files()) == work.digest
        except (RegardError, OSError):
            is_here = False
        if not is_here:
            import ray

            folder = Path(tempfile.mkdtemp(prefix="regard-"))
            for name, content in ray.get(files[0]).items():
                (folder / name).write_bytes(content)
            work = replace(work, path=str(folder))
        super().__init__(work)


def import_ray() -> Any:
    """Imports Ray with usage reports switched off."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        raise InputError(
            "a cluster needs Ray: install it with pip install 'regard[cluster]', or use --cluster local without it"
        ) from None
    return ray
