"""Parses the documents of clients in separate processes, so that a hostile document cannot harm the server.

Each process has a memory limit, and is killed as soon as no request waits for it.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

from regard.errors import DataError, RegardError
from regard.files.formats import format_by_suffix as files
from regard.serving import html_text

COMMAND = (sys.executable, "-m", __name__)
MEMORY = 2 << 30
"""Maximum memory of a process in bytes."""
SAMPLE = 50
"""Number of texts of a document from which its language is detected."""


class DocumentProcesses:
    """Runs functions of this module in processes, a few of them at a time."""

    def __init__(self) -> None:
        self.room = asyncio.Semaphore(max(2, (os.cpu_count() or 2) // 2))

    async def run(self, function: str, *arguments: Any) -> tuple[Any, bytes]:
        """Runs a function in a process and returns its result; kills the process if this call is cancelled."""
        request = json.dumps([function, *arguments]).encode()
        async with self.room:
            process = await asyncio.create_subprocess_exec(*COMMAND, stdin=-1, stdout=-1, start_new_session=True)
            try:
                output, _ = await process.communicate(request)
            finally:
                if process.returncode is None:
                    process.kill()
                    await process.wait()
        values, _, content = output.partition(b"\n")
        if not values:
            raise DataError("the document needs too much memory or time: split it into smaller documents")
        result = json.loads(values)
        if isinstance(result, dict) and "error" in result:
            raise DataError(result["error"])
        return result, content


def list_units(path: str, source: str = "", target: str = "") -> tuple[Any, bytes]:
    """Returns the number, text and marks of each unit that needs a translation, and a sample of all texts."""
    document = files.open_document(Path(path), source, target)
    if len(document.units) == 0:
        raise DataError("the document has no text to translate", path)
    unfinished = ((n, unit) for n, unit in enumerate(document.units) if unit.source.strip() and unit.state != "done")
    units = [(number, unit.source, unit.marks) for number, unit in unfinished]
    return {"units": units, "sample": [unit.source for unit in document.units[:SAMPLE]]}, b""


def render(path: str, source: str, target: str, texts: dict[str, str]) -> tuple[Any, bytes]:
    """Returns the document with translations, which are keyed by the number of the unit."""
    document = files.open_document(Path(path), source, target)
    return None, document.render({int(number): text for number, text in texts.items()}, target)


def cut_page(page: str) -> tuple[Any, bytes]:
    """Splits an HTML page into runs of markup and text."""
    return [(run.text, run.marks, run.words) for run in html_text.cut(page)], b""


FUNCTIONS = {each.__name__: each for each in (list_units, render, cut_page)}


def main() -> None:
    """Reads the name and arguments of a function from standard input, calls it, and writes the result."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        os.nice(5)  # the server and its other clients have priority
    name, *arguments = json.load(sys.stdin.buffer)
    content = b""
    try:
        values, content = FUNCTIONS[name](*arguments)
    except RegardError as error:
        values = {"error": str(error)}
    sys.stdout.buffer.write(json.dumps(values).encode() + b"\n" + content)


if __name__ == "__main__":
    main()
