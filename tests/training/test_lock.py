"""Two processes never train in one folder."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from regard.errors import ModelError
from regard.model_folder import sole_writer
from regard.preparation.train_and_resume import resume, train
from tests.training.corpora import SMALL, write_reversals

HOLDER = """
import sys, time
from pathlib import Path
from regard.model_folder import sole_writer
with sole_writer(Path(sys.argv[1])):
    print("mine", flush=True)
    time.sleep(600)
"""


def test_a_second_process_is_refused_until_the_first_has_ended(tmp_path: Path) -> None:
    corpus, folder = write_reversals(tmp_path, 40), tmp_path / "run"
    with subprocess.Popen([sys.executable, "-c", HOLDER, str(folder)], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "mine\n"
        for events in (train(corpus, folder, overrides=SMALL, overwrite=True), resume(folder)):
            with pytest.raises(ModelError, match=r"run: another process is training here: wait .*-o"):
                list(events)
        os.kill(holder.pid, signal.SIGKILL)
    list(train(corpus, folder, overrides={**SMALL, "training.steps": 2}))


def test_an_empty_new_folder_is_removed(tmp_path: Path) -> None:
    with sole_writer(tmp_path / "a" / "b"):
        assert (tmp_path / "a" / "b").is_dir()
    assert list(tmp_path.iterdir()) == []
