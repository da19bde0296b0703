"""regard distill: a smaller model that learns from a larger one."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from regard.cli.setting_flags import Verbs, add_languages, overrides_of
from regard.cli.train import add_run, with_interrupts
from regard.cli.training_processes import follow
from regard.errors import InputError

DESCRIPTION = """Trains a new model, the student, on what another one, the teacher, makes of the sources (sequence-level
distillation): a small student learns more from a good teacher than from the translations that people wrote.

FILES are one file of text in the source language, a sentence a line, or a corpus of pairs as regard train takes it.
Of a corpus, a dev set is split off if none is given: it stays as people wrote it, and the student never sees it.
The student has a preset and a vocabulary of its own. regard train --resume FOLDER goes on with a run that was
interrupted."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "distill",
        help="train a smaller model on what a larger one says",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("teacher", metavar="TEACHER", help="the folder of a model that translates")
    parser.add_argument("files", nargs="*", metavar="FILES", help="text in the source language, or pairs; see above")
    add_languages(parser)
    add_run(parser, "where the student goes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if not arguments.files:
        raise InputError("give the text that the teacher shall translate: see regard distill --help")
    if not arguments.output:
        raise InputError("say where the student goes: -o FOLDER")

    from regard.preparation.distillation import distill

    stop, folder = threading.Event(), Path(arguments.output)
    events = distill(
        arguments.teacher,
        arguments.files,
        folder,
        dev=arguments.dev,
        test=arguments.test,
        settings_file=arguments.settings,
        overrides=overrides_of(arguments),
        overwrite=arguments.overwrite,
        stop=stop,
    )
    with_interrupts(stop)
    return follow(events, folder)
