"""How much a client may ask for: sizes, rates and keys."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from regard.errors import DataError, InputError
from regard.serving.refusals import RefusedError


@dataclass(frozen=True)
class ServingLimits:
    """What is too much."""

    characters: int = 50_000  # of all texts of a request; -1: any number
    batch: int = 1_000  # texts in a request; -1: any number
    alternatives: int = 10
    bytes: int = 2_000_000  # of a request that is no file
    upload: int = 10_000_000  # bytes of a file
    uploads: int = 500_000_000  # bytes of all files that wait to be fetched
    rate: float = 0.0  # requests a minute from one key or address; 0: any number
    concurrent: int = 512  # requests that are being answered
    concurrent_each: int = 128  # of one key or address
    reading: float = 30.0  # seconds in which a request has to arrive
    answering: float = 120.0  # seconds in which a text has to be translated; files have no limit
    kept: float = 1200.0  # seconds for which a translated file can be fetched


@dataclass(frozen=True)
class ApiKey:
    """Who may use the server; the key itself is nowhere kept."""

    digest: str  # SHA-256: enough for what has 256 random bits, which nobody can guess
    name: str
    rate: float | None = None  # requests a minute, instead of the server's


class KeyFile:
    """The keys of a file, a line each: the digest, a name and, if it has one of its own, the requests a minute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed: tuple[int, int] | None = None
        self._keys: tuple[ApiKey, ...] = ()
        self.all()

    def find(self, key: str) -> ApiKey | None:
        """The key that a client gives, if it is one; it takes as long for all that are wrong."""
        digest = digest_of(key)
        found = [each for each in self.all() if hmac.compare_digest(each.digest, digest)]
        return found[0] if found else None

    def all(self) -> tuple[ApiKey, ...]:
        """The keys of the file as it is now: one that is deleted there opens nothing any more."""
        try:
            state = self.path.stat()
        except OSError as error:
            raise DataError(
                f"cannot be read ({error.strerror}): regard serve --make-key makes one", self.path
            ) from None
        changed = state.st_mtime_ns, state.st_size
        if changed != self._changed:
            self._keys, self._changed = tuple(read_keys(self.path)), changed
        return self._keys


def read_keys(path: Path) -> Iterator[ApiKey]:
    """The keys of a file; lines that begin with # say nothing."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        digest, *rest = line.split() or [""]
        if not digest or digest.startswith("#"):
            continue
        if not re.fullmatch("[0-9a-f]{64}", digest) or len(rest) not in (1, 2):
            raise DataError("is no key: a line is a SHA-256, a name and, if wanted, requests a minute", path, number)
        if len(rest) == 2 and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", rest[1]):
            raise DataError(f"{rest[1]} is no number of requests a minute", path, number)
        yield ApiKey(digest, rest[0], float(rest[1]) if len(rest) == 2 else None)


def make_key(path: Path, name: str = "key") -> str:
    """A new key, whose digest is put into the file; only the one who asks is told it."""
    if not re.fullmatch(r"[\w.@-]{1,100}", name) or name.startswith("#"):
        raise InputError(f"{name!r} is no name of a key: letters, digits and . @ _ - may be in it")
    key = secrets.token_urlsafe(32)
    try:
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{digest_of(key)} {name}\n")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", path) from None
    return key


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


class Rates:
    """A bucket for each client: it holds a minute's requests, each takes one, and it fills up again all the time."""

    MOST = 20_000  # clients that are remembered

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, rate: float) -> None:
        """Counts a request; one too many is refused."""
        if rate <= 0:
            return
        most, now = max(1.0, rate), self.clock()
        left, since = self._buckets.pop(client, (most, now))
        left = min(most, left + (now - since) * rate / 60)
        self._buckets[client] = (max(0.0, left - 1) if left >= 1 else left, now)
        if len(self._buckets) > self.MOST:
            self._buckets.popitem(last=False)
        if left < 1:
            raise RefusedError(429, f"Slowdown: {rate:g} per 1 minute", (1 - left) * 60 / rate)


class Admission:
    """Lets clients in: by their keys, where keys are needed, and not too often."""

    def __init__(self, limits: ServingLimits, keys: KeyFile | None = None) -> None:
        self.limits, self.keys, self.rates = limits, keys, Rates()

    def admit(self, address: str, given: object) -> str:
        """Who a client counts as: the name of the key that it gives, or its address."""
        if self.keys is None:
            self.rates.take(address, self.limits.rate)
            return address
        if not given:
            raise RefusedError(400, "Please contact the server operator to get an API key")
        found = self.keys.find(given) if isinstance(given, str) else None
        if found is None:
            self.rates.take(f"wrong keys from {address}", WRONG_KEYS)
            raise RefusedError(403, "Invalid API key")
        self.rates.take(f"key {found.name}", self.limits.rate if found.rate is None else found.rate)
        return found.name


WRONG_KEYS = 60.0  # a minute from one address


class Places:
    """How many requests are being answered, of all clients and of each."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.taken = 0
        self.each: dict[str, int] = {}

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """A place for one request; where there is none it is refused."""
        if self.taken >= self.most or self.each.get(client, 0) >= self.most_each:
            raise RefusedError(429, "Slowdown: too many requests at the same time", 1.0)
        self.taken += 1
        self.each[client] = self.each.get(client, 0) + 1
        try:
            yield
        finally:
            self.taken -= 1
            self.each[client] -= 1
            if not self.each[client]:
                del self.each[client]


@lru_cache(1000)
def client_of(address: str) -> str:
    """Who an address counts as: of IPv6, a network counts as one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
