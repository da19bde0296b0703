"""Server metrics in the text format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from itertools import accumulate
from typing import Any

from regard.serving.scheduler import Counts, Scheduler

BOUNDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)
"""Upper bounds of the buckets of the response time histogram, in seconds."""
GAUGES = {"waiting": "waiting texts", "running": "texts and sentences in running batches"}


class Metrics:
    """Counts finished requests, their response times and characters."""

    def __init__(self, paths: Iterable[str]) -> None:
        """Counts each of `paths` separately, and all other paths as one, since clients can send any number of them."""
        self.paths = set(paths)
        self.requests: Counter[tuple[str, str, int]] = Counter()
        self.buckets: dict[str, list[int]] = {}
        self.seconds: Counter[str] = Counter()
        self.characters = 0

    def note(self, record: Mapping[str, Any]) -> None:
        """Counts a finished request, described by its log record."""
        path = record["path"] if record["path"] in self.paths else "other"
        self.requests[path, record["method"] if record["method"] in ("GET", "POST") else "other", record["status"]] += 1
        buckets = self.buckets.setdefault(path, [0] * (len(BOUNDS) + 1))
        buckets[bisect_left(BOUNDS, record["seconds"])] += 1
        self.seconds[path] += record["seconds"]
        self.characters += record.get("characters", 0)

    def text(self, queues: Mapping[str, Scheduler]) -> str:
        """Returns all metrics as text; `queues` are the queues of the models by name."""
        return "\n".join([*self._requests(), *_queue_metrics(queues)]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield "# TYPE regard_requests_total counter"
        for (path, method, status), count in sorted(self.requests.items()):
            yield f'regard_requests_total{{path="{path}",method="{method}",status="{status}"}} {count}'
        yield "# TYPE regard_characters_total counter"
        yield f"regard_characters_total {self.characters}"
        yield "# TYPE regard_request_seconds histogram"
        for path, buckets in sorted(self.buckets.items()):
            for bound, count in zip([*map(str, BOUNDS), "+Inf"], accumulate(buckets), strict=True):
                yield f'regard_request_seconds_bucket{{path="{path}",le="{bound}"}} {count}'
            yield f'regard_request_seconds_sum{{path="{path}"}} {self.seconds[path]:.6f}'
            yield f'regard_request_seconds_count{{path="{path}"}} {sum(buckets)}'


def _queue_metrics(queues: Mapping[str, Scheduler]) -> Iterator[str]:
    for name, help_text in GAUGES.items():
        yield f"# HELP regard_{name} {help_text}"
        yield f"# TYPE regard_{name} gauge"
        for label, queue in queues.items():
            yield f'regard_{name}{{model="{label}"}} {getattr(queue, name)}'
    for name in asdict(Counts()):
        yield f"# TYPE regard_scheduler_{name}_total counter"
        for label, queue in queues.items():
            yield f'regard_scheduler_{name}_total{{model="{label}"}} {getattr(queue.counts, name)}'
