"""Limits and rates for clients, and API keys."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from starlette.requests import Request

from regard.errors import DataError, InputError
from regard.serving.refusals import BusyError, LateError, RefusedError


@dataclass(frozen=True)
class ServingLimits:
    """The limits of a server; each one is a maximum."""

    characters: int = 50_000  # characters in all texts of a request; -1: unlimited
    batch: int = 1_000  # texts in a request; -1: unlimited
    alternatives: int = 10  # alternative translations of each text
    bytes: int = 2_000_000  # bytes of a request without a file
    upload: int = 10_000_000  # bytes of an uploaded file
    uploads: int = 500_000_000  # bytes of all translated files that are waiting to be downloaded
    rate: float = 0.0  # requests per minute from one key or address; 0: unlimited
    concurrent: int = 512  # requests being answered at the same time
    concurrent_each: int = 128  # requests from one address being answered at the same time
    arriving: int = 1_024  # requests that have only partly arrived
    arriving_each: int = 64  # requests from one address that have only partly arrived
    reading: float = 30.0  # seconds until a request must have arrived
    answering: float = 120.0  # seconds until a request must be answered
    kept: float = 1200.0  # seconds for which a translated file can be downloaded


@dataclass(frozen=True)
class ApiKey:
    """An API key, of which only the digest is stored, with the name of its client."""

    digest: str  # SHA-256, without a salt because a key has 256 random bits
    name: str
    rate: float | None = None  # requests per minute, instead of the rate of the server


class KeyFile:
    """A file of API keys; each line has a digest, a name and, optionally, requests per minute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed: tuple[int, int] | None = None
        self._keys: tuple[ApiKey, ...] = ()
        self.all()

    def find(self, key: str) -> ApiKey | None:
        """Looks up a key sent by a client in constant time; returns None if it is invalid."""
        digest = digest_of(key)
        matches = [each for each in self.all() if hmac.compare_digest(each.digest, digest)]
        return matches[0] if matches else None

    def all(self) -> tuple[ApiKey, ...]:
        """Returns the keys currently in the file; a deleted key becomes invalid immediately."""
        try:
            state = self.path.stat()
        except OSError as error:
            raise DataError(f"cannot be read ({error.strerror}): use --make-key to create one", self.path) from None
        changed = state.st_mtime_ns, state.st_size
        if changed != self._changed:
            self._keys, self._changed = tuple(read_keys(self.path)), changed
        return self._keys


def read_keys(path: Path) -> Iterator[ApiKey]:
    """Yields the keys in a file; lines that begin with # are comments."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        digest, *fields = line.split() or [""]
        if not digest or digest.startswith("#"):
            continue
        if not re.fullmatch("[0-9a-f]{64}", digest) or len(fields) not in (1, 2):
            raise DataError("is not a key: write a SHA-256, a name and, optionally, requests per minute", path, number)
        if len(fields) == 2 and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", fields[1]):
            raise DataError(f"{fields[1]} is not a number of requests per minute", path, number)
        yield ApiKey(digest, fields[0], float(fields[1]) if len(fields) == 2 else None)


def make_key(path: Path, name: str = "key") -> str:
    """Creates a key, appends its digest to the file, and returns the key, which is not stored anywhere."""
    if not re.fullmatch(r"[\w.@-]{1,100}", name) or name.startswith("#"):
        raise InputError(f"{name!r} is not a name for a key: use letters, digits and . @ _ -")
    try:
        data = path.read_bytes() if path.exists() else b""
        if data:
            list(read_keys(path))
    except (DataError, UnicodeDecodeError):
        raise DataError("is not a file of keys: name another file, or a new one", path) from None
    key = secrets.token_urlsafe(32)
    try:
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file:
            line_end = "\n" if data and not data.endswith(b"\n") else ""
            file.write(f"{line_end}{digest_of(key)} {name}\n")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", path) from None
    return key


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


class Rates:
    """Limits the rate of each client with a token bucket that holds the requests of one minute."""

    CLIENTS = 20_000
    """Maximum number of buckets; if it is exceeded, the least recently used one is dropped."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, and time of the count

    def take(self, client: str, rate: float) -> None:
        """Counts a request; raises RefusedError if the client exceeds its rate."""
        if rate <= 0:
            return
        size, now = max(1.0, rate), self.clock()
        tokens, counted = self._buckets.pop(client, (size, now))
        tokens = min(size, tokens + (now - counted) * rate / 60)
        self._buckets[client] = (tokens - 1 if tokens >= 1 else tokens, now)
        if len(self._buckets) > self.CLIENTS:
            self._buckets.popitem(last=False)
        if tokens < 1:
            raise RefusedError(429, f"Slowdown: {rate:g} per 1 minute", (1 - tokens) * 60 / rate)


WRONG_KEYS = 60.0
"""Maximum number of wrong keys that an address may send per minute."""


class Admission:
    """Checks the API key and the rate of each client."""

    def __init__(self, limits: ServingLimits, keys: KeyFile | None = None) -> None:
        self.limits, self.keys, self.rates = limits, keys, Rates()

    def admit(self, address: str, key: object) -> str:
        """Returns the name of the client, which is the name of its key or its address."""
        if self.keys is None:
            self.rates.take(address, self.limits.rate)
            return address
        if not key:
            raise RefusedError(400, "Please contact the server operator to get an API key")
        known = self.keys.find(key) if isinstance(key, str) else None
        if known is None:
            self.rates.take(f"wrong keys from {address}", WRONG_KEYS)
            raise RefusedError(403, "Invalid API key")
        self.rates.take(f"key {known.name}", self.limits.rate if known.rate is None else known.rate)
        return known.name

    def admit_bearer(self, request: Request) -> dict[str, Any]:
        """Checks the key in the header of a request; returns the client and the deadline of the answer."""
        try:
            client = request.state.client = self.admit(request.state.client, bearer(request))
        except RefusedError as error:
            raise RefusedError(429 if error.status == 429 else 401, error.message, error.retry_after) from None
        return {"client": client, "deadline": time.monotonic() + self.limits.answering}


def bearer(request: Request) -> str:
    """Returns the key in the Authorization header of a request."""
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""


class Places:
    """Limits the number of concurrent requests, in total and for each client."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.clients: Counter[str] = Counter()

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Holds a place for one request; raises RefusedError if all places are taken."""
        if self.clients.total() >= self.most or self.clients[client] >= self.most_each:
            raise RefusedError(429, "Slowdown: too many requests at the same time", 1.0)
        self.clients[client] += 1
        try:
            yield
        finally:
            self.clients[client] -= 1
            if not self.clients[client]:
                del self.clients[client]


class Deadlines:
    """Deadlines of work that ends early when the server stops: documents, and requests that arrive slowly."""

    def __init__(self) -> None:
        self.ended = False
        self._timeouts: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def until(self, deadline: float | None) -> AsyncIterator[None]:
        """Raises LateError when `time.monotonic` reaches the deadline, and BusyError when the server stops."""
        try:
            async with asyncio.timeout(None if deadline is None else deadline - time.monotonic()) as timeout:
                self._timeouts.add(timeout)
                try:
                    yield
                finally:
                    self._timeouts.discard(timeout)
        except TimeoutError:
            if self.ended:
                raise BusyError("the server is stopping: try again in a moment", 5.0) from None
            raise LateError("the answer was not ready in time: send shorter requests, or try again later") from None

    def end(self) -> None:
        """Ends all work with a deadline."""
        self.ended = True
        for timeout in self._timeouts:
            timeout.reschedule(asyncio.get_running_loop().time())


@lru_cache(1000)
def client_of(address: str) -> str:
    """Returns the name of the client at an address; an IPv6 network counts as one client."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address) and not parsed.ipv4_mapped:
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
