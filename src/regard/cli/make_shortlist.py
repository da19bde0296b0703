"""regard shortlist: speeds up a translator by learning the likely translations of each token."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.shared_flags import Verbs

DESCRIPTION = """Learns from pairs which target tokens are likely translations of each source token, and stores them in
the model folder. With --shortlist, regard translate, evaluate and serve then score only a few hundred tokens per
sentence instead of the whole vocabulary.

  regard shortlist runs/en-de                        from the training data, if training/ is still in the folder
  regard shortlist runs/en-de train.en train.de      from these files
  regard evaluate runs/en-de test.en test.de --shortlist"""


def add(verbs: Verbs) -> None:
    about = "speed up a translator: learn likely translations of each token"
    parser = verbs.add_parser("shortlist", help=about, description=DESCRIPTION, run=run)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    text = "pairs, in any form that regard train accepts"
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES", help=text)
    text = "number of target tokens per source token (default: 100)"
    parser.add_argument("--each", type=int, default=100, metavar="N", help=text)
    parser.add_argument(
        "--common",
        type=int,
        default=100,
        metavar="N",
        help="number of frequent target tokens added for every sentence (default: 100)",
    )


def run(arguments: argparse.Namespace) -> int:
    from rich.progress import TimeRemainingColumn

    from regard.cli.progress_display import bar_on_stderr
    from regard.jobs.shortlist_learning import learn_shortlist
    from regard.model_folder import SHORTLIST

    with bar_on_stderr(TimeRemainingColumn()) as bar:
        task = bar.add_task("learning", total=None)
        learnt = learn_shortlist(
            arguments.model,
            arguments.files,
            common=arguments.common,
            each=arguments.each,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    text = "the dev set" if learnt.held_out else "the pairs themselves"
    print(
        f"{arguments.model / SHORTLIST}: learnt from {learnt.pairs:,} pairs; {learnt.length:.0f} tokens per text, "
        f"which cover {learnt.covered:.2%} of the tokens in {text}. Compare the translations and the speed with:"
    )
    print(f"regard evaluate {arguments.model} TEST.SOURCE TEST.TARGET --shortlist --baseline TRANSLATIONS_WITHOUT")
    return 0
