"""A queue in which clients take turns."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """A queue in which clients take turns, and so do the requests of each client: a long file keeps nobody waiting."""

    def __init__(self) -> None:
        self._clients: OrderedDict[str, OrderedDict[Hashable, deque[T]]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, client: str, request: Hashable, items: Iterable[T]) -> None:
        """Appends items to those of the request that already wait."""
        queue = deque(items)
        if queue:
            self._count += len(queue)
            self._clients.setdefault(client, OrderedDict()).setdefault(request, deque()).extend(queue)

    def drop(self, client: str, request: Hashable) -> None:
        """Removes a request and its items."""
        requests: OrderedDict[Hashable, deque[T]] = self._clients.get(client, OrderedDict())
        self._count -= len(requests.pop(request, ()))
        if not requests:
            self._clients.pop(client, None)

    def take(self, fits: Callable[[T], bool]) -> T | None:
        """Removes and returns the next item that fits, or None. A request whose item does not fit keeps its turn."""
        for client, requests in self._clients.items():
            for request, queue in requests.items():
                if fits(queue[0]):
                    self._count -= 1
                    item = queue.popleft()
                    self._clients.move_to_end(client)
                    requests.move_to_end(request)
                    if not queue:
                        self.drop(client, request)
                    return item
        return None
