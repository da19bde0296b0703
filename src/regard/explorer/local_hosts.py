"""The host names of this machine; requests to a local server under other names may come from DNS rebinding."""

from __future__ import annotations

import ipaddress

LOCAL = ("localhost", "127.0.0.1", "[::1]")


def is_address(host: str) -> bool:
    """Returns whether a host is an IP address."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
