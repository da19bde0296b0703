"""Limits, rates and keys of clients."""

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
    """The limits of a server."""

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
    """A client that may use the server; the key itself is not stored."""

    digest: str  # SHA-256: enough for what has 256 random bits, which nobody can guess
    name: str
    rate: float | None = None  # requests a minute, instead of the server's


class KeyFile:
    """Reads keys from a file; each line has a digest, a name and, optionally, requests per minute."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._changed: tuple[int, int] | None = None
        self._keys: tuple[ApiKey, ...] = ()
        self.all()

    def find(self, key: str) -> ApiKey | None:
        """Returns the key that a client gives, or None, in constant time."""
        digest = digest_of(key)
        found = [each for each in self.all() if hmac.compare_digest(each.digest, digest)]
        return found[0] if found else None

    def all(self) -> tuple[ApiKey, ...]:
        """Returns the keys in the file as it is now; a deleted key is invalid at once."""
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
        digest, *rest = line.split() or [""]
        if not digest or digest.startswith("#"):
            continue
        if not re.fullmatch("[0-9a-f]{64}", digest) or len(rest) not in (1, 2):
            raise DataError("is not a key: write a SHA-256, a name and, optionally, requests per minute", path, number)
        if len(rest) == 2 and not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", rest[1]):
            raise DataError(f"{rest[1]} is not a number of requests per minute", path, number)
        yield ApiKey(digest, rest[0], float(rest[1]) if len(rest) == 2 else None)


def make_key(path: Path, name: str = "key") -> str:
    """Creates a key, appends its digest to the file, and returns the key, which is not stored."""
    if not re.fullmatch(r"[\w.@-]{1,100}", name) or name.startswith("#"):
        raise InputError(f"{name!r} is not a name for a key: use letters, digits and . @ _ -")
    key = secrets.token_urlsafe(32)
    try:
        separator = _separator(path)
        path.touch(mode=0o600)
        with path.open("a", encoding="utf-8") as file:
            file.write(f"{separator}{digest_of(key)} {name}\n")
    except OSError as error:
        raise DataError(f"cannot be written ({error.strerror})", path) from None
    return key


def _separator(path: Path) -> str:
    """Returns the line end that the last line of a file of keys may lack; refuses a file that holds anything else."""
    try:
        data = path.read_bytes() if path.exists() else b""
        if data:
            list(read_keys(path))
    except (DataError, UnicodeDecodeError):
        raise DataError("is not a file of keys: name another file, or a new one", path) from None
    return "\n" if data and not data.endswith(b"\n") else ""


def digest_of(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "replace")).hexdigest()


class Rates:
    """Limits the rate of each client with a token bucket that holds one minute's requests."""

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
    """Admits clients with a valid key, where keys are needed, unless they exceed their rate."""

    def __init__(self, limits: ServingLimits, keys: KeyFile | None = None) -> None:
        self.limits, self.keys, self.rates = limits, keys, Rates()

    def admit(self, address: str, given: object) -> str:
        """Returns who the client is: the name of its key, or its address."""
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
    """Limits how many requests are answered at once, in all and for each client."""

    def __init__(self, most: int, most_each: int) -> None:
        self.most, self.most_each = most, most_each
        self.taken = 0
        self.each: dict[str, int] = {}

    @contextmanager
    def take(self, client: str) -> Iterator[None]:
        """Holds a place for one request, or refuses it if there is none."""
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
    """Returns the client for an address; an IPv6 network counts as one client."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv6Address) and not found.ipv4_mapped:
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
