"""One translator for many clients: their texts share its batches, and each is answered as soon as it is done."""

from __future__ import annotations

import asyncio
import contextlib
import math
import threading
import time
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

from regard.decoding.native.library import can_join
from regard.decoding.native.search import NativeSearch
from regard.decoding.translator import Found as FoundParts, Part, Translation, Translator
from regard.errors import ModelError, RegardError
from regard.serving.fairness import Turns
from regard.serving.lanes import BatchLane, How, Item, Lane, LiveLane
from regard.settings import DecodingSettings
from regard.text.slots import Cut

MOST_WAITING = 10_000
"""Texts that may wait: minutes of work for a small machine."""
SLICE = 64
"""Texts of a request that are cut into tokens in one go: others have their turn in between."""
SMALL = 2_000
"""Characters that are cut in less time than it takes to wake a thread up for them."""
MOST_LANES = 4
"""Sets of options of a kind that are searched with side by side."""
IDLE = 60.0
"""Seconds after which a lane that nobody uses gives its memory back."""
RECENT = 200
"""Finished texts from which the speed is told."""

T = TypeVar("T")


class BusyError(RegardError):
    """Nothing more is taken for now."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after  # seconds


class LateError(RegardError):
    """A translation was not ready in time."""


@dataclass
class Counts:
    """What has been done since the start."""

    requests: int = 0
    texts: int = 0
    sentences: int = 0
    tokens_read: int = 0
    tokens_written: int = 0
    busy: int = 0  # requests that were refused,
    late: int = 0  # not ready in time,
    cancelled: int = 0  # given up by who asked,
    failed: int = 0  # or went wrong


class Scheduler:
    """Translates for any number of clients, to be used in one event loop."""

    def __init__(self, translator: Translator, *, most_waiting: int = MOST_WAITING) -> None:
        self.translator, self.most_waiting = translator, most_waiting
        self.counts, self.quiet_since = Counts(), time.monotonic()
        self.live = isinstance(translator.searcher, NativeSearch) and can_join()
        self._turns: Turns[Item] = Turns()
        self._lanes: dict[_Key, Lane] = {}
        self._requests: set[_Request] = set()
        self._alone = threading.Lock()
        self._threads = ThreadPoolExecutor(2, "regard-read")
        self._recent: deque[float] = deque(maxlen=RECENT)  # when texts were finished
        self._closing = self._over = False
        self._change = asyncio.Event()
        self._checked = lru_cache(256)(self._check)

    @property
    def waiting(self) -> int:
        """Texts and sentences whose turn has not come."""
        return len(self._turns) + sum(request.unread for request in self._requests)

    @property
    def running(self) -> int:
        """Sentences that are being translated together."""
        return sum(lane.running for lane in self._lanes.values())

    @property
    def open_requests(self) -> int:
        """Requests that were taken and are not answered yet."""
        return len(self._requests)

    async def translate(
        self, texts: Sequence[str | Cut], *, client: str = "", deadline: float | None = None, **options: Any
    ) -> list[Translation]:
        """The translations of some texts, with the options of `Translator.translate`.

        Clients take turns, and so do the requests of one `client`. `deadline` is a time of `time.monotonic`.
        BusyError is raised when too many texts wait, and LateError past the deadline; a cancelled call leaves.
        """
        how = self._how(options)
        self._admit(len(texts))
        request = _Request(client, len(texts))
        self._requests.add(request)
        self.counts.requests += 1
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()):
                made = await self._serve(request, texts, how)
        except TimeoutError:
            self.counts.late += 1
            raise LateError("the translation was not ready in time: ask for less at once, or later") from None
        except asyncio.CancelledError:
            self.counts.cancelled += 1
            raise
        except BaseException:
            self.counts.failed += 1
            raise
        finally:
            self._leave(request)
        self.counts.texts += len(made)
        return made

    async def close(self, grace: float = 30.0) -> None:
        """Finishes what was taken, for at most so many seconds, and takes nothing more."""
        self._closing = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._all_answered(), grace)
        self._over = True
        for request in list(self._requests):
            request.fail(BusyError("the server is being ended: ask again in a moment", 5.0))
        lanes = list(self._lanes.values())
        self._lanes.clear()
        for lane in lanes:
            await asyncio.to_thread(lane.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _all_answered(self) -> None:
        while self._requests:
            self._change.clear()
            await self._change.wait()

    # What happens to a request

    def _how(self, options: dict[str, Any]) -> How:
        """The options, checked before anything else."""
        if options.get("constrain") is None and not options.get("glossary"):
            return self._checked(tuple(each for each in options.items() if each[0] not in ("constrain", "glossary")))
        return self._check(tuple(options.items()))

    def _check(self, given: tuple[tuple[str, Any], ...]) -> How:
        options = dict(given)
        direction = {name: options.pop(name) for name in ("source", "target", "zero_shot") if name in options}
        constrain, glossary = options.pop("constrain", None), options.pop("glossary", None)
        settings, into = self.translator.decoding(options), self.translator.direction(**direction).target
        if self.live and constrain is None and not glossary and not settings.consensus:
            return How(settings, into, searched_with(settings))
        every = {**direction, **options, "constrain": constrain, "glossary": glossary}
        alike = (*sorted((direction | options).items()), id(constrain), id(glossary))  # both live as long as their lane
        return How(settings, into, alike, partial(self.translator.translate, **every))

    def _admit(self, count: int) -> None:
        """Refuses what is too much; a request larger than the queue is taken when nobody else waits."""
        if self._closing:
            self.counts.busy += 1
            raise BusyError("the server is being ended: ask again in a moment", 5.0)
        if self.waiting and self.waiting + count > self.most_waiting:
            self.counts.busy += 1
            raise BusyError(f"too many texts are waiting ({self.waiting:,}): ask again later", self._retry_after())

    def _retry_after(self) -> float:
        """Seconds until half of those that wait should be done, by the speed of late."""
        now = time.monotonic()
        seconds = now - self._recent[0] if self._recent else 1.0
        return float(min(60, max(1, math.ceil(self.waiting / 2 * seconds / max(1, len(self._recent))))))

    async def _serve(self, request: _Request, texts: Sequence[str | Cut], how: How) -> list[Translation]:
        if how.translate is not None:
            self._enqueue(request, [Item(request, i, how, text) for i, text in enumerate(texts)], len(texts))
            return list(await request.everything())
        small = sum(map(size_of, texts)) <= SMALL
        parts: list[list[Part]] = []
        for start in range(0, len(texts), SLICE):
            some = await self._done(small, self._read, texts[start : start + SLICE], start, how)
            asked = [part for row in some for part in row if part.ids]
            places = range(request.items, request.items + len(asked))
            self._enqueue(
                request, [self._item(request, *each, how) for each in zip(places, asked, strict=True)], len(some)
            )
            parts += some
        found = iter(await request.everything())
        rows = [[(part, next(found) if part.ids else None) for part in row] for row in parts]
        joined: list[Translation] = []
        for start in range(0, len(rows), SLICE):
            joined += await self._done(small, self._join, rows[start : start + SLICE])
        return joined

    async def _done(self, small: bool, work: Callable[..., T], *arguments: Any) -> T:
        """What some work makes, in a thread unless it is small."""
        if small:
            return work(*arguments)
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)

    def _read(self, texts: Sequence[str | Cut], start: int, how: How) -> list[list[Part]]:
        return [self.translator.read(number, text, how.into) for number, text in enumerate(texts, start + 1)]

    def _join(self, rows: Sequence[FoundParts]) -> list[Translation]:
        return [self.translator.join(row) for row in rows]

    def _item(self, request: _Request, place: int, part: Part, how: How) -> Item:
        return Item(request, place, how, part.ids, self.translator.limit(part.ids, how.settings))

    def _enqueue(self, request: _Request, items: list[Item], texts: int) -> None:
        """So many texts more of a request have been read, and these items are to be done for them."""
        if request not in self._requests:
            return  # it has left
        request.unread -= texts
        request.items += len(items)
        self._turns.add(request.client, request, items)
        self._start()

    def _leave(self, request: _Request) -> None:
        """A request is answered or given up: nothing more is done for it."""
        self._requests.discard(request)
        self._turns.drop(request.client, request)
        for item in list(request.running):
            if item.lane is not None:
                item.lane.cancel(item)
                self._free(item)
        self.quiet_since = time.monotonic()
        self._change.set()
        self._start()

    # What happens to items

    def _start(self) -> None:
        """Lets items join as long as there is room for any."""
        joining: defaultdict[Lane, list[Item]] = defaultdict(list)
        while not self._over and (item := self._turns.take(self._fits)) is not None:
            try:
                lane = self._lane(item.how)
            except ModelError as error:  # too many threads, or no memory
                item.request.fail(error)
                continue
            item.lane = lane
            lane.running += 1
            item.request.running.add(item)
            joining[lane].append(item)
        for lane, items in joining.items():
            try:
                lane.submit(items)
            except ModelError as error:  # the search has failed
                self._settle([(item, error) for item in items])

    def _fits(self, item: Item) -> bool:
        """Whether its lane has room, or a lane can be opened for it."""
        key = key_of(item.how)
        if key in self._lanes:
            return self._lanes[key].running < self._lanes[key].room
        same_kind = self._of_kind(key)
        return len(same_kind) < MOST_LANES or any(not lane.running for lane in same_kind.values())

    def _lane(self, how: How) -> Lane:
        """The lane for these options, if need be in the place of one that nobody uses."""
        key = key_of(how)
        if key not in self._lanes:
            same_kind = self._of_kind(key)
            if len(same_kind) >= MOST_LANES:
                self._retire(*next((other, lane) for other, lane in same_kind.items() if not lane.running))
            self._lanes[key] = self._open(how)
            self._look_after(key, self._lanes[key])
        return self._lanes[key]

    def _of_kind(self, key: _Key) -> dict[_Key, Lane]:
        return {other: lane for other, lane in self._lanes.items() if other[0] == key[0]}

    def _open(self, how: How) -> Lane:
        loop = asyncio.get_running_loop()

        def found(outcomes: list[tuple[Item, Any]]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody waits
                loop.call_soon_threadsafe(self._settle, outcomes)

        if how.translate is not None:
            return BatchLane(how.translate, found, self._alone)
        engine = self.translator.searcher
        assert isinstance(engine, NativeSearch)
        return LiveLane(engine, how.settings, found)

    def _settle(self, outcomes: list[tuple[Item, Any]]) -> None:
        """Hands out what was found, and lets others take the places."""
        for item, outcome in outcomes:
            lane = item.lane
            if lane is None:
                continue  # its request has left
            self._free(item)
            if isinstance(outcome, BaseException):
                item.request.fail(outcome)
                if item.how.translate is None:  # a search that has failed is over
                    self._retire(key_of(item.how), lane)
                continue
            self._count(item, outcome)
            item.request.succeed(item, outcome)
        self._start()

    def _free(self, item: Item) -> None:
        """An item leaves its lane."""
        lane, item.lane = item.lane, None
        item.request.running.discard(item)
        if lane is not None:
            lane.running -= 1
            lane.used = time.monotonic()

    def _look_after(self, key: _Key, lane: Lane) -> None:
        """Closes a lane when nobody uses it any more."""
        if self._lanes.get(key) is not lane:
            return
        if not lane.running and lane.used + IDLE <= time.monotonic():
            self._retire(key, lane)
        else:
            asyncio.get_running_loop().call_later(IDLE, self._look_after, key, lane)

    def _retire(self, key: _Key, lane: Lane) -> None:
        if self._lanes.get(key) is lane:
            del self._lanes[key]
            lane.close()

    def _count(self, item: Item, outcome: Any) -> None:
        self._recent.append(time.monotonic())
        self.counts.sentences += 1
        if isinstance(outcome, Translation):
            self.counts.tokens_written += len(outcome.tokens)
        else:
            self.counts.tokens_read += len(item.source)
            self.counts.tokens_written += len(outcome[0].tokens) if outcome else 0


class _Request:
    """What is done for one call, to be found where it was asked for."""

    def __init__(self, client: str, texts: int) -> None:
        self.client, self.unread = client, texts
        self.items = 0
        self.running: set[Item] = set()  # in lanes
        self._found: dict[int, Any] = {}
        self._error: BaseException | None = None
        self._change = asyncio.Event()

    async def everything(self) -> list[Any]:
        """What was found for all items, in their order."""
        while self._error is None and len(self._found) < self.items:
            self._change.clear()
            await self._change.wait()
        if self._error is not None:
            raise self._error
        return [self._found[place] for place in range(self.items)]

    def succeed(self, item: Item, outcome: Any) -> None:
        self._found[item.place] = outcome
        if len(self._found) == self.items:
            self._change.set()

    def fail(self, error: BaseException) -> None:
        self._error = self._error or error
        self._change.set()


def size_of(text: str | Cut) -> int:
    return len(text if isinstance(text, str) else text.text)


_Key = tuple[bool, Hashable]


def key_of(how: How) -> _Key:
    """What a lane is found by: whether sentences join it, and what they have in common."""
    return how.translate is None, how.alike


def searched_with(settings: DecodingSettings) -> DecodingSettings:
    """What two searches have in common that sentences can share: not the seed, and nothing that makes the limit."""
    common = DecodingSettings()
    return replace(
        settings,
        **{name: getattr(common, name) for name in ("seed", "max_tokens", "max_ratio", "batch_tokens")},
    )
