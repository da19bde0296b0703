"""Several processes that train one model: all that Regard asks of torch.distributed.

Each process plans the same batches and takes its rows of each, so that together they do what one process does alone,
to rounding. What is small and must be the same everywhere is summed, or said by the first process.
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

PATIENCE = timedelta(days=1)
"""How long the others wait for the first process while it prepares a corpus or evaluates."""

GRACE = 25
"""Seconds that workers have to save when they are told to end; schedulers give 30."""


class LostProcessError(ModelError):
    """Another process of the run is dead or silent."""


class ToldElsewhereError(ModelError):
    """What went wrong is told by the first process."""


class Group:
    """The processes of a run, as one of them sees them. A process on its own is a group of one."""

    def __init__(self, rank: int = 0, size: int = 1, here: int = 1, restart: int = 0) -> None:
        self.rank, self.size = rank, size
        self.here = here  # how many of them are on this machine
        self.restart = restart  # how often they were started anew
        self.patient = dist.new_group(backend="gloo", timeout=PATIENCE) if size > 1 else None
        self.module: Any = None  # what sums gradients
        self.sharded = False  # whether each process holds a part of the weights

    @property
    def first(self) -> bool:
        """Whether this is the process that prints and writes."""
        return self.rank == 0

    def device(self, device: torch.device) -> torch.device:
        """Where this process computes: each on a GPU of its own."""
        own = self.size > 1 and device == torch.device("cuda")
        return torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0))) if own else device

    def wrap(
        self, module: nn.Module, layers: Sequence[nn.Module], device: torch.device, kind: str, idle: bool
    ) -> nn.Module:
        """`module` so that a backward pass sums the gradients of all processes; `idle`: it may leave weights unused."""
        if self.size == 1:
            self.module = module
        elif kind == "ddp":
            constant = [name for name, _ in module.named_buffers()]  # the same everywhere: tables of positions
            DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(module, constant)
            self.module = DistributedDataParallel(module, gradient_as_bucket_view=True, find_unused_parameters=idle)
        else:
            self.module, self.sharded = shard(module, layers, device, self.size), True
        wrapped: nn.Module = self.module
        return wrapped

    @contextmanager
    def summing(self, last: bool) -> Iterator[None]:
        """Around a forward and a backward pass: only those of the last batch of an update wait for the others."""
        if isinstance(self.module, DistributedDataParallel) and not last:
            with self.module.no_sync():
                yield
            return
        if self.sharded:
            self.module.set_requires_gradient_sync(last)
        yield

    def total(self, *values: float) -> list[float]:
        """The sums of these numbers over all processes."""
        if self.size == 1:
            return list(values)
        numbers = torch.tensor(values, dtype=torch.float64)
        with heard():
            dist.all_reduce(numbers)
        return numbers.tolist()

    def share_out(self, work: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """work(rows), which must be of rows' shape and of each row alone: every process does some and tells the others.

        [N, ...] -> [N, ...], the same everywhere where `rows` are.
        """
        if self.size == 1:
            return work(rows)
        most = -(-len(rows) // self.size)
        own = rows[self.rank * most : (self.rank + 1) * most]
        mine = rows.new_zeros(most, *rows.shape[1:])
        if len(own):
            mine[: len(own)] = work(own)
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        with heard():
            dist.all_gather(parts, mine)
        return torch.cat(parts)[: len(rows)]

    def agree(self, value: Any) -> Any:
        """What the first process says, everywhere; it is told as JSON."""
        if self.size == 1:
            return value
        said = json.dumps(value).encode() if self.first else b""
        size = torch.tensor([len(said)])
        with heard():
            dist.broadcast(size, 0, group=self.patient)
            text = (
                torch.tensor(list(said), dtype=torch.uint8) if self.first else torch.empty(int(size), dtype=torch.uint8)
            )
            dist.broadcast(text, 0, group=self.patient)
        return json.loads(bytes(text.tolist()))

    def any(self, *claims: bool) -> list[bool]:
        """Of each of these claims, whether it is true in any process."""
        return [count > 0 for count in self.total(*claims)]

    def alone(self, work: Callable[[], Generator[Event, None, Any]]) -> Generator[Event, None, Any]:
        """What the first process does while the others wait: its events, and the JSON value that it returns."""
        if not self.first:
            answer = self.agree(None)
            if answer is None:
                raise ToldElsewhereError("the first process failed")
            return answer
        try:
            done = yield from work()
        except BaseException:
            with suppress(LostProcessError):
                self.agree(None)
            raise
        return self.agree(done)

    def error(self, text: str) -> ModelError:
        """What ends the run in all processes, and is told by one."""
        return ModelError(text) if self.first else ToldElsewhereError(text)

    def leave(self) -> None:
        """Ends what was between the processes."""
        if self.size > 1 and dist.is_initialized():
            dist.destroy_process_group()


def join(seconds: int) -> Group:
    """The group that torchrun or `launch` put this process into; who is silent for so many seconds counts as lost."""
    size = int(os.environ.get("WORLD_SIZE", 1)) if dist.is_torchelastic_launched() else 1
    if size == 1:
        return Group()
    restart = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", 0))
    if not dist.is_initialized():
        backend, timeout = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo", timedelta(seconds=seconds)
        with heard():
            store, rank, size = next(rendezvous("env://", timeout=timeout))
            fresh = PrefixStore(f"regard/{restart}", store)  # it still has the addresses of processes that died
            dist.init_process_group(backend, store=fresh, rank=rank, world_size=size, timeout=timeout)
    return Group(dist.get_rank(), size, int(os.environ.get("LOCAL_WORLD_SIZE", 1)), restart)


def require_shardable(settings: TrainingSettings, group: Group) -> None:
    """Refuses what needs whole matrices, or a whole model, where each process holds a part; one process tells."""
    wrong = {
        "training.optimizer = muon works on whole matrices": settings.optimizer == "muon",
        "training.adapters leave little to share out": settings.adapters > 0,
        "training.precision = float16 scales gradients that must be whole": settings.precision == "float16",
    }
    for reason, there in wrong.items():
        if settings.parallel == "fsdp" and there:
            text = f"{reason}: with several processes use training.parallel = ddp"
            raise SettingsError(text) if group.first else ToldElsewhereError(text)


@contextmanager
def heard() -> Iterator[None]:
    """Turns a message that did not come through into one line."""
    try:
        yield
    except RuntimeError as error:
        if not (isinstance(error, dist.DistError) or "gloo" in str(error).lower() or "NCCL" in str(error)):
            raise
        raise LostProcessError(
            f"another process of this run was lost ({str(error).splitlines()[0][:120]}); the last checkpoint is kept: "
            "go on with regard train --resume"
        ) from None


# A tensor of which each process holds some rows: a DTensor, whose library is not imported where nobody needs it


def shard(module: nn.Module, layers: Sequence[nn.Module], device: torch.device, size: int) -> nn.Module:
    """`module` with its weights, gradients and moments shared out, a layer at a time (FSDP2)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (size,))
    for layer in layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def held(tensor: Tensor) -> Tensor:
    """What this process holds of a tensor."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; where it is in parts, every process must ask for it."""
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def first_row(tensor: Tensor) -> int:
    """The number of the first row that this process holds."""
    if not hasattr(tensor, "device_mesh"):
        return 0
    mesh: Any = tensor.device_mesh
    most = -(-tensor.shape[0] // mesh.size())
    return int(min(tensor.shape[0], mesh.get_local_rank() * most))


# Processes on this machine


def launch(work: Callable[..., Any], arguments: Sequence[Any], processes: int, restarts: int) -> dict[int, Any] | None:
    """What `work`, a function of a module, returns in each of so many processes; none if a signal ended them.

    When one dies, all are started anew, so many times. A signal is handed on, and they have `GRACE` seconds to save.
    """
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    logging.disable(logging.CRITICAL)  # it tells of every start over, at length; the first process does, in a line
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=f"regard-{os.getpid()}",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="localhost",
        max_restarts=restarts,
        shutdown_timeout=GRACE,
    )
    try:
        returned: dict[int, Any] = elastic_launch(config, work)(*arguments)
    except SignalException:
        return None
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        raise LostProcessError(
            f"process {failure.local_rank} of {processes} ended with code {failure.exitcode}, after {restarts} starts "
            "over; the last checkpoint is kept: go on with regard train --resume"
        ) from None
    finally:
        logging.disable(logging.NOTSET)
    return returned
