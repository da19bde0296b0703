"""Runs README, the how-to pages and the tutorials: `python -m tests.documentation`, or `make tutorials`.

The tutorials are typed as they are. README and the how-to pages speak of files that the reader has: they are run in a
folder with such files (stage.py), and what they train are toys. Names of pages run these alone.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.documentation.pages import ROOT, Runner, chdir
from tests.documentation.stage import set_stage

HOW_TO = "README tour train translate howto-tmx howto-po howto-terminology check write read evaluate look"
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in HOW_TO.split()[1:])]
TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


def run(asked: list[str]) -> None:
    wanted = [page for page in [*PAGES, *TUTORIALS] if not asked or page.stem in asked]
    with tempfile.TemporaryDirectory() as stage:
        if set(wanted) & set(PAGES):
            with chdir(Path(stage)):
                set_stage(Path(stage))
        for page in wanted:
            started = time.perf_counter()
            if page in PAGES:
                count = Runner(Path(stage), quick=True).page(page)
            else:
                with tempfile.TemporaryDirectory() as folder:
                    count = Runner(Path(folder), quick=False).page(page)
            print(f"{page.relative_to(ROOT)}: {count} blocks, {time.perf_counter() - started:.0f} s", flush=True)


if __name__ == "__main__":
    run(sys.argv[1:])
