"""The notebook runs from its first cell to its last, in a kernel of its own, and says what its text says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "notebook.ipynb"
EXECUTE = """
import sys, nbformat
from nbclient import NotebookClient
notebook = nbformat.read(sys.argv[1], as_version=4)
NotebookClient(notebook, timeout=600, kernel_name="python3").execute()
nbformat.write(notebook, sys.argv[2])
"""


def test_every_cell_of_the_notebook_runs(tmp_path: Path) -> None:
    kept = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert not any(cell.get("outputs") for cell in kept["cells"]), "outputs are not stored: they would grow stale"
    environment = {**os.environ, "JUPYTER_PLATFORM_DIRS": "1", "HOME": str(tmp_path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", EXECUTE, str(NOTEBOOK), str(tmp_path / "done.ipynb")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    cells = [cell for cell in json.loads((tmp_path / "done.ipynb").read_text())["cells"] if cell["cell_type"] == "code"]
    told = [shown(cell) for cell in cells]
    assert "qu'il était trop fatigué." in told[0]
    assert "qu'elle était trop large." in told[1]
    assert "<iframe" in told[2]
    assert told[3].startswith("{'▁animal':")
    assert "qu'elle était trop fatigué" in told[4]


def shown(cell: dict[str, Any]) -> str:
    """What a cell shows, as a page where it has one."""
    data = cell["outputs"][-1]["data"]
    found = data.get("text/html", data["text/plain"])
    return found if isinstance(found, str) else "".join(found)
