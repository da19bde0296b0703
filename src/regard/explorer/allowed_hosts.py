"""By which names a server on this machine is called: a page from elsewhere can only borrow one (DNS rebinding)."""

from __future__ import annotations

import ipaddress

LOCAL = ("localhost", "127.0.0.1", "[::1]")


def is_address(host: str) -> bool:
    """Whether a host is named by its number."""
    try:
        ipaddress.ip_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
