"""Runs tests on a copy of the package with a fault in it, in a process that is forked when torch is loaded already."""

from __future__ import annotations

import compileall
import contextlib
import os
import resource
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import hypothesis
import pytest

from tests.mutants.mutations import Mutant
from tests.mutants.reach import OPTIONS, silence

LATE, UNUSABLE = 1000, int(pytest.ExitCode.USAGE_ERROR)
OUTCOMES = {int(pytest.ExitCode.OK): "survived", LATE: "timed out"}


CUT = (signal.SIGXCPU, signal.SIGKILL)
WAITING = 2
"""Who waits may do so for longer: others use the machine, too."""


class Bench:
    """A copy of the package, in which one mutant after the other takes its place."""

    def __init__(self, package: Path, folder: Path) -> None:
        self.package, self.copy, self.temporary = package, folder / "src" / package.name, folder / "tests"
        shutil.copytree(package, self.copy)
        compileall.compile_dir(self.copy, quiet=1)
        self.number = 0

    def try_out(self, mutant: Mutant, tests: Sequence[str], seconds: int) -> str:
        """Killed, survived or timed out."""
        if not tests:
            return "not reached"
        sources = {path: (self.copy / path).read_bytes() for path in {edit.path for edit in mutant.edits}}
        changed = dict(sources)
        for edit in sorted(mutant.edits, key=lambda edit: -edit.start):
            changed[edit.path] = edit.applied(changed[edit.path])
        for path, source in changed.items():
            self.write(path, source)
        outcome = self.run(tests, seconds)
        for path in changed:
            shutil.copy2(self.package / path, self.copy / path)
        if outcome == UNUSABLE and self.run(tests, seconds) == UNUSABLE:  # the tests themselves, not the mutant
            raise RuntimeError(f"pytest does not take these tests: {' '.join(tests)}")
        return OUTCOMES.get(outcome, "killed")

    def write(self, path: str, source: bytes) -> None:
        """Writes a file with a date of its own, so that nothing compiled before is taken for it."""
        self.number += 1
        (self.copy / path).write_bytes(source)
        os.utime(self.copy / path, (self.number, self.number))

    def run(self, tests: Sequence[str], seconds: int) -> int:
        """The exit code of the tests on the copy as it is, or `LATE`: past so many seconds of a core, or of waiting."""
        child = os.fork()
        if not child:
            os.setsid()
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
            os._exit(self.judge(tests))
        end = time.monotonic() + WAITING * seconds
        while time.monotonic() < end:
            done, status = os.waitpid(child, os.WNOHANG)
            if done:
                end_group(child)
                shutil.rmtree(self.temporary, ignore_errors=True)
                return (
                    LATE if os.WIFSIGNALED(status) and os.WTERMSIG(status) in CUT else os.waitstatus_to_exitcode(status)
                )
            time.sleep(0.02)
        end_group(child)
        os.waitpid(child, 0)
        shutil.rmtree(self.temporary, ignore_errors=True)
        return LATE

    def judge(self, tests: Sequence[str]) -> int:
        """In the forked process: the exit code of pytest, which stops at the first test that fails."""
        silence()
        place = str(self.copy.parent)
        sys.path.insert(0, place)
        sys.dont_write_bytecode = True
        os.environ |= {"PYTHONPATH": place, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            return int(
                pytest.main([*OPTIONS, "-x", "--basetemp", str(self.temporary), *tests], plugins=[WithoutShrinking()])
            )
        except BaseException:  # noqa: BLE001 (whatever it is, the mutant was noticed)
            return 1


class WithoutShrinking:
    """A plugin of pytest: a property that fails has killed a mutant, and no smaller example is looked for."""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        usual = hypothesis.settings()
        kept = set(usual.phases) - {hypothesis.Phase.shrink}
        hypothesis.settings.register_profile("mutants", usual, phases=kept, database=None)
        hypothesis.settings.load_profile("mutants")


def end_group(child: int) -> None:
    """Ends what a test has left behind, too."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
