"""What the server has done, in the text form that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from typing import Any

from regard.serving.translation import Models, Queue

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Seconds within which requests are counted together."""


class Metrics:
    """Counts requests as they end."""

    def __init__(self, paths: Iterable[str]) -> None:
        """`paths` are told apart; all others count as one, for clients can make up any number of them."""
        self.paths = set(paths)
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.within: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()
        self.characters = 0

    def note(self, record: Mapping[str, Any]) -> None:
        """Counts a request by its record in the log."""
        path = record["path"] if record["path"] in self.paths else "other"
        self.requests[path, record["method"] if record["method"] in ("GET", "POST") else "other", record["status"]] += 1
        buckets = self.within.setdefault(path, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, record["seconds"])] += 1
        self.seconds[path] += record["seconds"]
        self.characters += record.get("characters", 0)

    def text(self, models: Models) -> str:
        """All of it, a line each."""
        return "\n".join([*self._requests(), *self._times(), *self._queues(models)]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield "# TYPE regard_requests_total counter"
        for (path, method, status), count in sorted(self.requests.items()):
            yield f'regard_requests_total{{path="{path}",method="{method}",status="{status}"}} {count}'
        yield "# TYPE regard_characters_total counter"
        yield f"regard_characters_total {self.characters}"

    def _times(self) -> Iterator[str]:
        yield "# TYPE regard_request_seconds histogram"
        for path, buckets in sorted(self.within.items()):
            total = 0
            for bound, count in zip([*map(str, BOUNDS), "+Inf"], buckets, strict=True):
                total += count
                yield f'regard_request_seconds_bucket{{path="{path}",le="{bound}"}} {total}'
            yield f'regard_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}'
            yield f'regard_request_seconds_count{{path="{path}"}} {total}'

    def _queues(self, models: Models) -> Iterator[str]:
        """Of each translator: what waits, what is translated together, and what was done."""
        queues = by_queue(models)
        for name, value in (("waiting", "texts that wait"), ("running", "sentences that are translated together")):
            yield f"# HELP regard_{name} {value}"
            yield f"# TYPE regard_{name} gauge"
            for queue, label in queues.items():
                yield f'regard_{name}{{model="{label}"}} {getattr(queue, name)}'
        kinds: list[str] = list(dict.fromkeys(kind for queue in queues for kind in asdict(queue.counts)))
        for kind in kinds:
            yield f"# TYPE regard_scheduler_{kind}_total counter"
            for queue, label in queues.items():
                yield f'regard_scheduler_{kind}_total{{model="{label}"}} {getattr(queue.counts, kind)}'


def by_queue(models: Models) -> dict[Queue, str]:
    """Each translator once, by its directions."""
    found: dict[Queue, list[str]] = {}
    for direction in models.directions:
        found.setdefault(models.queue(direction), []).append(str(direction))
    return {queue: ",".join(names) for queue, names in found.items()}
