"""Trains one model in several processes with torch.distributed.

All processes plan the same batches, and each computes its share of the rows of each batch. Together, they make the same
updates as a single process, up to rounding.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import PrefixStore
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from regard.errors import ModelError, SettingsError
from regard.settings import TrainingSettings
from regard.training.events import Event

FIRST_PROCESS_TIMEOUT = timedelta(days=1)
"""How long other processes wait while the first process prepares a corpus or evaluates."""

SHUTDOWN_SECONDS = 25
"""Time for processes to save their state after SIGTERM; schedulers allow 30 s."""


class LostProcessError(ModelError):
    """Another process of the run has died or does not respond."""


class ReportedElsewhereError(ModelError):
    """The run failed, and the first process reports the cause."""


class ProcessGroup:
    """The processes of a run, from the point of view of one of them; a single process is a group of one."""

    def __init__(self, rank: int = 0, size: int = 1, local_size: int = 1, restart: int = 0) -> None:
        self.rank, self.size = rank, size
        self.local_size = local_size  # number of processes on this machine
        self.restart = restart  # how many times the processes were restarted
        self.patient = dist.new_group(backend="gloo", timeout=FIRST_PROCESS_TIMEOUT) if size > 1 else None
        self.module: Any = None  # the module that synchronizes gradients
        self.sharded = False  # whether each process holds a part of the weights

    @property
    def first(self) -> bool:
        """True in the process that prints messages and writes files."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Returns the device of this process, since each process has its own GPU."""
        several_gpus = self.size > 1 and device == torch.device("cuda")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if several_gpus else device

    def wrap(
        self, module: nn.Module, layers: Sequence[nn.Module], device: torch.device, kind: str, unused_weights: bool
    ) -> nn.Module:
        """Wraps a module to synchronize gradients; `unused_weights`: some passes may not use all weights."""
        if self.size == 1:
            self.module = module
        elif kind == "ddp":
            constant = [name for name, _ in module.named_buffers()]  # position tables are the same in all processes
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, constant)
            self.module = DistributedDataParallel(
                module, gradient_as_bucket_view=True, find_unused_parameters=unused_weights
            )
        else:
            self.module, self.sharded = _shard(module, layers, device, self.size), True
        wrapped: nn.Module = self.module
        return wrapped

    @contextmanager
    def synchronize_gradients(self, last: bool) -> Iterator[None]:
        """Surrounds a forward and backward pass; only the last pass of an update waits for the other processes."""
        if isinstance(self.module, DistributedDataParallel) and not last:
            with self.module.no_sync():
                yield
            return
        if self.sharded:
            self.module.set_requires_gradient_sync(last)
        yield

    def sum(self, *values: float) -> list[float]:
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with report_lost_process():
            dist.all_reduce(numbers)
        return numbers.tolist()

    def any(self, *flags: bool) -> list[bool]:
        return [count > 0 for count in self.sum(*flags)]

    def map_rows(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """[N, ...] -> [N, ...], `function` applied to the rows; each process computes some rows for all processes.

        `rows` must be the same in all processes, and `function` must preserve their shape.
        """
        if self.size == 1:
            return function(rows)
        share = -(-len(rows) // self.size)
        local_rows = rows[self.rank * share : (self.rank + 1) * share]
        result = rows.new_zeros(share, *rows.shape[1:])
        if len(local_rows):
            result[: len(local_rows)] = function(local_rows)
        parts = [torch.empty_like(result) for _ in range(self.size)]
        with report_lost_process():
            dist.all_gather(parts, result)
        return torch.cat(parts)[: len(rows)]

    def broadcast(self, value: Any) -> Any:
        """Returns the first process's value, which must be JSON, in all processes."""
        if self.size == 1:
            return value
        text = torch.tensor(list(json.dumps(value).encode() if self.first else b""), dtype=torch.uint8)
        length = torch.tensor([len(text)])
        with report_lost_process():
            dist.broadcast(length, 0, group=self.patient)
            text = text if self.first else torch.empty(int(length), dtype=torch.uint8)
            dist.broadcast(text, 0, group=self.patient)
        return json.loads(bytes(text.tolist()))

    def run_in_first(self, work: Callable[[], Generator[Event, None, Any]]) -> Generator[Event, None, Any]:
        """Runs `work` in the first process while the others wait; returns its result, which must be JSON, in all."""
        if not self.first:
            result = self.broadcast(None)
            if result is None:
                raise ReportedElsewhereError("the first process failed")
            return result
        try:
            result = yield from work()
        except BaseException:
            with suppress(LostProcessError):
                self.broadcast(None)
            raise
        return self.broadcast(result)

    def error(self, text: str, kind: type[ModelError | SettingsError] = ModelError) -> Exception:
        """Returns an error that ends the run in all processes; only the first process reports its text."""
        return kind(text) if self.first else ReportedElsewhereError(text)

    def leave(self) -> None:
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def join_group(timeout: int) -> ProcessGroup:
    """Joins the process group of torchrun or `launch`; after `timeout` seconds without response, a process is lost."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if dist.is_torchelastic_launched() else 1
    if size == 1:
        return ProcessGroup()
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    if not dist.is_initialized():
        backend, limit = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timedelta(seconds=timeout)
        with report_lost_process():
            store, rank, size = next(rendezvous("env://", timeout=limit))
            new_store = PrefixStore(f"regard/{restart}", store)  # `store` still has the addresses of dead processes
            dist.init_process_group(backend, store=new_store, rank=rank, world_size=size, timeout=limit)
    return ProcessGroup(dist.get_rank(), size, int(os.environ.get("LOCAL_WORLD_SIZE", 1)), restart)


def require_shardable(settings: TrainingSettings, group: ProcessGroup) -> None:
    """Raises SettingsError for settings that training.parallel = fsdp does not support."""
    unsupported = {
        "training.optimizer = muon": settings.optimizer == "muon",
        "training.adapters": settings.adapters > 0,
        "training.precision = float16": settings.precision == "float16",
    }
    for setting, is_used in unsupported.items():
        if settings.parallel == "fsdp" and is_used:
            message = f"training.parallel = fsdp does not support {setting}: use training.parallel = ddp"
            raise group.error(message, SettingsError)


@contextmanager
def report_lost_process() -> Iterator[None]:
    """Converts a communication failure in the block to a LostProcessError."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "NCCL" in str(error)):
            raise
        raise LostProcessError(
            f"another process of this run was lost ({str(error).splitlines()[0][:120]}); the last checkpoint is kept: "
            "continue with regard train --resume"
        ) from None


# Sharded tensors, of which each process holds some rows (DTensor, whose library is imported only when needed)


def _shard(module: nn.Module, layers: Sequence[nn.Module], device: torch.device, size: int) -> nn.Module:
    """Shards weights, gradients and optimizer state over the processes, layer by layer (FSDP2)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (size,))
    for part in (*layers, module):
        fully_shard(part, mesh=mesh)
    return module


def local_part(tensor: Tensor) -> Tensor:
    """Returns the rows of a tensor that this process holds."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Returns all rows of a tensor; if processes hold parts of it, all of them must call this."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def first_row(tensor: Tensor) -> int:
    """Returns the index of the first row of a tensor that this process holds."""
    if not hasattr(tensor, "device_mesh"):
        return 0
    mesh: Any = tensor.device_mesh
    share = -(-tensor.shape[0] // mesh.size())
    return int(min(tensor.shape[0], mesh.get_local_rank() * share))


def launch(work: Callable[..., Any], arguments: Sequence[Any], processes: int, restarts: int) -> dict[int, Any] | None:
    """Runs `work`, a module-level function, in several processes; returns their results, or None after a signal.

    If a process dies, all of them are restarted, up to `restarts` times. Signals are forwarded to them.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # PyTorch logs restarts at length; the first process reports them in one line
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"regard-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=restarts,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    try:
        results: dict[int, Any] = elastic_launch(config, work)(*arguments)
    except SignalException:
        return None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        raise LostProcessError(
            f"process {failure.local_rank} of {processes} ended with code {failure.exitcode} after {restarts} "
            "restarts; the last checkpoint is kept: continue with regard train --resume"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return results
