"""What to do next, told to who types `regard` and nothing else."""

from __future__ import annotations

import re
from pathlib import Path

RUNS = Path("runs")
MOST = 3

FIRST = """Regard trains a Transformer on your own text, runs it, and lets you look into it.

  regard look                           look into a small model that comes with it, in the browser
  regard demo                           train a small translator, in some three minutes
  regard train train.en train.de        train one on your own text: two files, or .tmx, .po, .xlf, .tsv
  regard train book.txt --task write    or a GPT, or a BERT (--task fill)
"""
LAST = """
regard VERB --help says more about a verb, regard --help names them all; docs/ has tutorials."""

USES = {
    "translate": 'echo "A dog runs." | regard translate {}',
    "write": 'regard write {} "Once upon a time"',
    "fill": 'regard fill {} "A [MASK] runs."',
    "classify": "regard classify {} texts.txt",
}


def tell() -> str:
    """First steps; and what can be done with the models that lie in runs/, the newest first."""
    models = trained(RUNS)
    lines = [f"  {USES[task].format(folder)}\n  regard look {folder}\n" for folder, task in models]
    return FIRST + (f"\nYou have trained {len(models)}:\n" if lines else "") + "".join(lines) + LAST


def trained(runs: Path) -> list[tuple[str, str]]:
    """The last models in a folder, each with its task; what is no whole model is passed over."""
    if not runs.is_dir():
        return []
    from regard.model_folder import SETTINGS, WEIGHTS

    try:
        found = sorted(runs.glob(f"*/{WEIGHTS}"), key=lambda path: -path.stat().st_mtime)[:MOST]
        settings = [(path.parent, (path.parent / SETTINGS).read_text(encoding="utf-8")) for path in found]
    except (OSError, UnicodeDecodeError):
        return []
    tasks = [(str(folder), re.search(r'^task = "(\w+)"', text, re.MULTILINE)) for folder, text in settings]
    return [(folder, task[1]) for folder, task in tasks if task and task[1] in USES]
