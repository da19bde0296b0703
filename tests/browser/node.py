"""Runs the JavaScript of pages in Node, which has the engine of Chromium."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from regard import browser

SOURCE = Path(browser.__file__).parent
NODE = shutil.which("node")


def run(script: str, data: Any, folder: Path) -> Any:
    """Runs a script whose imports are "./module.js" of `regard/browser`; it gets `data` and returns `result`."""
    if NODE is None:
        pytest.skip("no Node on this machine: apt-get install nodejs, then this test runs")
    for path in SOURCE.glob("*.js"):
        shutil.copy(path, folder)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "data.json").write_text(json.dumps(data))
    imports = 'import { readFileSync } from "fs";\nconst data = JSON.parse(readFileSync("data.json"));\nlet result;\n'
    (folder / "main.js").write_text(f"{imports}{script}\nprocess.stdout.write(JSON.stringify(result));\n")
    done = subprocess.run([NODE, "main.js"], cwd=folder, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
