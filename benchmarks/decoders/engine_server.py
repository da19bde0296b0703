"""Serves one engine: `python -m benchmarks.decoders.engine_server JOB`, JSON commands in, JSON answers out.

A command is an object with `do`; its other keys are the arguments. Nothing of an engine is imported before the first
command, so that memory and load time are those of this engine alone.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TextIO

from benchmarks.decoders.adapters import Adapter, Job, Output, build


def main() -> None:
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a library's output is no answer
    adapter = build(Job(**json.loads(sys.argv[1])))
    for answer in replies(adapter, sys.stdin):
        json.dump(answer, answers, ensure_ascii=False)
        answers.write("\n")
        answers.flush()


def replies(adapter: Adapter, commands: TextIO | Iterator[str]) -> Iterator[dict[str, Any]]:
    """Yields the answer to each line; an error is an answer too."""
    for line in commands:
        command = json.loads(line)
        do = COMMANDS[command.pop("do")]
        try:
            yield do(adapter, **command)
        except Exception as error:  # noqa: BLE001 (whatever an engine raises, the other side has to know)
            yield {"error": f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]}


def load(adapter: Adapter) -> dict[str, Any]:
    began = time.perf_counter()
    adapter.prepare()
    imported = time.perf_counter()
    adapter.load()
    ready = time.perf_counter()
    times = {"import_seconds": imported - began, "construct_seconds": ready - imported}
    return {**times, "loaded_mib": peak_mib(), "versions": adapter.versions()}


def batch(adapter: Adapter, texts: Sequence[str], beam: int, **options: Any) -> dict[str, Any]:
    """Translates all texts at once."""
    adapter.searched, began = 0.0, time.perf_counter()
    outputs = adapter.translate(texts, beam, **options)
    return {"seconds": time.perf_counter() - began, **answer(adapter, outputs)}


def single(adapter: Adapter, texts: Sequence[str], beam: int, **options: Any) -> dict[str, Any]:
    """Translates one text after the other, each by itself."""
    latencies, outputs, adapter.searched = list[float](), list[Output](), 0.0
    for text in texts:
        began = time.perf_counter()
        outputs += adapter.translate([text], beam, **options)
        latencies.append(time.perf_counter() - began)
    return {"latencies": latencies, **answer(adapter, outputs)}


def answer(adapter: Adapter, outputs: Sequence[Output]) -> dict[str, Any]:
    texts, tokens = [output.text for output in outputs], [list(output.tokens) for output in outputs]
    return {"search_seconds": adapter.searched, "outputs": texts, "tokens": tokens, "peak_mib": peak_mib()}


COMMANDS: dict[str, Callable[..., dict[str, Any]]] = {"load": load, "batch": batch, "single": single}


def peak_mib() -> float:
    """Returns the most memory that this process has held so far."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / 1024


if __name__ == "__main__":
    main()
