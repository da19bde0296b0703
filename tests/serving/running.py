"""A server on a real socket, in a thread."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from regard.serving.uvicorn_server import Server, configure


@contextmanager
def running(app: Any) -> Iterator[str]:
    """Yields the address of a server while it runs."""
    with socket.create_server(("127.0.0.1", 0)) as waiting:
        server = Server(configure(app))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [waiting]})
        thread.start()
        try:
            while not server.started and thread.is_alive():
                time.sleep(0.01)
            yield f"http://127.0.0.1:{waiting.getsockname()[1]}/"
        finally:
            server.handle_exit(signal.SIGTERM, None)
            thread.join(30)
            assert not thread.is_alive()
