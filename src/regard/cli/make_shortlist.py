"""regard shortlist: the tokens that a sentence may be translated with, for speed."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.setting_flags import Verbs

DESCRIPTION = """Learns from the pairs that a translator was trained on which target tokens each source token is likely
to become, and writes them into its folder. With --shortlist, regard translate, evaluate and serve then score a few
hundred tokens for each sentence instead of the whole vocabulary.

  regard shortlist runs/en-de                        from the training/ that is still in the folder
  regard shortlist runs/en-de train.en train.de      from these files
  regard evaluate runs/en-de test.en test.de --shortlist"""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "shortlist",
        help="learn which tokens a translator needs for a sentence, for speed",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILES", help="pairs, as regard train takes them")
    parser.add_argument("--each", type=int, default=100, metavar="N", help="tokens for each source token (100)")
    parser.add_argument("--common", type=int, default=100, metavar="N", help="frequent tokens for all (100)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.progress import Progress

    from regard.jobs.shortlist_learning import learn_shortlist
    from regard.model_folder import SHORTLIST

    console = Console(stderr=True)
    with Progress(console=console, disable=not console.is_terminal, transient=True) as progress:
        task = progress.add_task("learning", total=None)
        learnt = learn_shortlist(
            arguments.model,
            arguments.files,
            common=arguments.common,
            each=arguments.each,
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    where = "the dev set" if learnt.held_out else "the pairs themselves"
    print(
        f"{arguments.model / SHORTLIST}: learnt from {learnt.pairs:,} pairs; {learnt.length:.0f} tokens for a text, "
        f"covering {learnt.covered:.2%} of those of {where}. Compare the translations and the speed with:"
    )
    print(f"regard evaluate {arguments.model} TEST.SOURCE TEST.TARGET --shortlist --baseline TRANSLATIONS_WITHOUT")
    return 0
