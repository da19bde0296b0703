"""regard serve as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from typing import Any

import httpx


class Process:
    """A server in a process of its own, which tells its figures."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "regard", "serve", *arguments, "--metrics", "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"(https?://[\d.]+:\d+)/", self.line)
        assert found, self.process.communicate()[1]
        self.address = found[1]

    def count(self, name: str) -> int:
        """The sum of those of the server's figures whose names begin so."""
        lines = httpx.get(f"{self.address}/metrics", timeout=60).text.splitlines()
        return sum(int(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    def wait_for_more(self, name: str, count: int) -> None:
        end = time.monotonic() + 60
        while self.count(name) <= count:
            assert time.monotonic() < end, f"never more than {count} of {name}"
            time.sleep(0.01)

    def end(self, how: signal.Signals) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the log."""
        self.process.send_signal(how)
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, [json.loads(line) for line in told.splitlines()]
