"""Which tests run which lines of the package, and how long they take: measured once, kept in build/mutants/."""

from __future__ import annotations

import hashlib
import json
import os
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent.parent
KEPT = ROOT / "build" / "mutants"
OPTIONS = ("-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning")
"""Of pytest, in a process that has loaded some of its plugins already."""


@dataclass
class Reach:
    """What the tests of some files run."""

    seconds: dict[str, float] = field(default_factory=dict)  # of each test that passes
    tests: dict[tuple[str, int], set[str]] = field(default_factory=dict)  # of each line; line 0: of the whole file

    def fastest(self, lines: Iterable[tuple[str, int]], seconds: float) -> list[str]:
        """The tests that run one of these lines, fastest first: at least one, and as many as take these seconds."""
        found = {test for line in lines for test in self.tests.get(line, ())}
        ranked = sorted(found, key=lambda test: (self.seconds[test], test))
        until = accumulate(self.seconds[test] for test in ranked)
        return [test for i, (test, total) in enumerate(zip(ranked, until, strict=True)) if not i or total <= seconds]


def reach(files: Sequence[Path], package: Path) -> Reach:
    """Measures the test files that have changed since they were measured, or what of the package they run."""
    found = Reach()
    for number, file in enumerate(files, 1):
        kept = KEPT / f"{'.'.join(file.parts[1:])}.json"
        record = json.loads(kept.read_text()) if kept.exists() else {}
        sources = record.get("sources", {})
        if record.get("test") != digest(file) or any(digest(package / name) != sources[name] for name in sources):
            print(f"what {file} reaches ({number} of {len(files)})", file=sys.stderr, flush=True)
            record = measured(file, package)
            kept.parent.mkdir(parents=True, exist_ok=True)
            kept.write_text(json.dumps(record))
        tests = list(record["seconds"])
        found.seconds |= record["seconds"]
        for name, lines in record["lines"].items():
            for line, numbers in lines.items():
                reached = {tests[i] for i in numbers}
                found.tests.setdefault((name, int(line)), set()).update(reached)
                found.tests.setdefault((name, 0), set()).update(reached)
    return found


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16] if path.exists() else ""


def measured(file: Path, package: Path) -> dict[str, Any]:
    """Runs the tests of a file in a process of its own, with coverage, and records what each of them reached."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            silence()
            os.close(reading)
            with os.fdopen(writing, "w") as out:
                json.dump(measure(file, package), out)
        except BaseException:  # noqa: BLE001 (a forked process must not go on)
            traceback.print_exc()
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        raise RuntimeError(f"{file}: cannot be measured: see {KEPT / 'output.txt'}")
    record: dict[str, Any] = json.loads(text)
    record["test"] = digest(file)
    record["sources"] = {name: digest(package / name) for name in record["lines"]}
    return record


def measure(file: Path, package: Path) -> dict[str, Any]:
    """In this process: {"seconds": {test: seconds}, "lines": {file: {line: [numbers of tests]}}}."""
    import coverage

    sys.path.insert(0, str(package.parent))
    watch = coverage.Coverage(data_file=None, source=[str(package)], config_file=False)
    clock = Clock(watch)
    watch.start()
    pytest.main([*OPTIONS, "-m", "not slow", str(file)], plugins=[clock])
    watch.stop()
    data = watch.get_data()
    numbers = {test: number for number, test in enumerate(clock.seconds)}
    lines: dict[str, dict[int, list[int]]] = {}
    for path in data.measured_files():
        contexts = data.contexts_by_lineno(path).items()
        by_line = {line: sorted(numbers[test] for test in tests if test in numbers) for line, tests in contexts}
        if reached := {line: tests for line, tests in by_line.items() if tests}:
            lines[Path(path).relative_to(package).as_posix()] = reached
    return {"seconds": clock.seconds, "lines": lines}


def silence() -> None:
    """What tests print is kept until the next ones, should something be wrong with them."""
    KEPT.mkdir(parents=True, exist_ok=True)
    output = os.open(KEPT / "output.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)


class Clock:
    """A plugin of pytest that tells coverage which test is running, and measures it."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch
        self.seconds: dict[str, float] = {}
        self.failed: set[str] = set()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.watch.switch_context(nodeid)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.outcome != "passed":
            self.failed.add(report.nodeid)
            self.seconds.pop(report.nodeid, None)
        elif report.nodeid not in self.failed:
            self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
