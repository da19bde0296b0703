"""regard serve as a process."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from typing import Any


class Process:
    """A server in a process of its own."""

    def __init__(self, *arguments: str, port: int = 0) -> None:
        command = [sys.executable, "-m", "regard", "serve", *arguments, "--port", str(port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        found = re.search(r"(https?://[\d.]+:\d+)/", self.line)
        assert found, self.process.communicate()[1]
        self.address = found[1]

    def end(self, how: signal.Signals) -> tuple[int, list[dict[str, Any]]]:
        """The exit code and the log."""
        self.process.send_signal(how)
        _, told = self.process.communicate(timeout=60)
        return self.process.returncode, [json.loads(line) for line in told.splitlines()]
