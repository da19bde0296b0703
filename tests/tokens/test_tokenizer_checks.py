"""Panics of the library of tokenizers print nothing, and other threads keep their standard error."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import pytest

from regard.tokens.tokenizer_checks import call_silently


def open_files(place: str = "/proc/self/fd") -> list[str]:
    return sorted(path.name for path in Path(place).iterdir())


@pytest.mark.skipif(sys.platform != "linux", reason="threads share their standard error on other systems")
def test_a_silent_call_prints_nothing_while_others_do(capfd: pytest.CaptureFixture[str]) -> None:
    begun, printed = threading.Event(), threading.Event()

    def call() -> list[str]:
        os.write(2, b"of the silent call\n")
        begun.set()
        assert printed.wait(10)
        os.write(1, b"of the silent call\n")
        return open_files("/proc/thread-self/fd")

    def print_meanwhile() -> None:
        assert begun.wait(10)
        os.write(2, b"of another thread\n")
        printed.set()

    before = open_files()
    other = threading.Thread(target=print_meanwhile)
    other.start()
    assert call_silently(call) == ["0", "1", "2", "3"]  # the last one is that of the folder that is listed
    other.join()
    assert open_files() == before
    assert capfd.readouterr() == ("", "of another thread\n")


def test_a_silent_call_raises_what_its_function_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        call_silently(lambda: (tmp_path / "missing").read_text())
    with pytest.raises(KeyboardInterrupt):
        call_silently(interrupt)


def interrupt() -> None:
    raise KeyboardInterrupt
