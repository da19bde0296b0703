"""The text that `regard` prints without arguments: first steps, and commands for the newest models in runs/."""

from __future__ import annotations

import re
from pathlib import Path

RUNS = Path("runs")
MAX_MODELS = 3

FIRST_STEPS = """Regard trains a Transformer on your own text, runs it, and lets you look into it.

  regard look                           look into a small example model in the browser
  regard demo                           train a small translator in about three minutes
  regard train train.en train.de        train a translator on your own text: two files, or .tmx, .po, .xlf, .tsv
  regard train book.txt --task write    or train a GPT, or a BERT (--task fill)
"""
MORE_HELP = """
regard --help lists the verbs, and regard VERB --help describes a verb. Tutorials are in docs/."""

USES = {
    "translate": 'echo "A dog runs." | regard translate {}',
    "write": 'regard write {} "Once upon a time"',
    "fill": 'regard fill {} "A [MASK] runs."',
    "classify": "regard classify {} texts.txt",
}


def welcome() -> str:
    """Returns the first steps and, for the newest models in runs/, commands that use them."""
    models = find_models(RUNS)
    lines = [f"  {USES[task].format(folder)}\n  regard look {folder}\n" for folder, task in models]
    heading = f"\nYou have trained {len(models)} model{'s' if len(models) > 1 else ''}:\n" if lines else ""
    return FIRST_STEPS + heading + "".join(lines) + MORE_HELP


def find_models(runs: Path) -> list[tuple[str, str]]:
    """Returns the newest model folders in `runs` with their tasks; skips incomplete ones."""
    if not runs.is_dir():
        return []
    from regard.model_folder import SETTINGS, WEIGHTS

    try:
        newest = sorted(runs.glob(f"*/{WEIGHTS}"), key=lambda path: -path.stat().st_mtime)[:MAX_MODELS]
        settings = [(path.parent, (path.parent / SETTINGS).read_text(encoding="utf-8")) for path in newest]
    except (OSError, UnicodeDecodeError):
        return []
    tasks = [(str(folder), re.search(r'^task = "(\w+)"', text, re.MULTILINE)) for folder, text in settings]
    return [(folder, task[1]) for folder, task in tasks if task and task[1] in USES]
