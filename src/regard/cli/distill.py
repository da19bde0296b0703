"""regard distill: trains a smaller model on the translations of a larger one."""

from __future__ import annotations

import argparse
import threading
from pathlib import Path

from regard.cli.shared_flags import Verbs, add_languages, setting_overrides
from regard.cli.train import add_run, follow, stop_on_interrupt
from regard.errors import InputError

DESCRIPTION = """Trains a new model, the student, on translations by another model, the teacher (sequence-level
distillation): a small student learns more from a good teacher than from human translations.

FILES are one file of text in the source language, one sentence per line, or a corpus of pairs in any form that regard
train accepts. If a corpus of pairs comes without a dev set, one is held out: it keeps its human translations, and the
student never trains on it. The student has its own preset and vocabulary. To continue an interrupted run, use regard
train --resume FOLDER."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "distill", help="train a smaller model on a larger one's output", description=DESCRIPTION, run=run
    )
    parser.add_argument("teacher", metavar="TEACHER", help="the folder of a model that translates")
    parser.add_argument("files", nargs="*", metavar="FILES", help="text in the source language, or pairs; see above")
    add_languages(parser)
    add_run(parser, "where to write the student")


def run(arguments: argparse.Namespace) -> int:
    if not arguments.files:
        raise InputError("give the text for the teacher to translate: see regard distill --help")
    if not arguments.output:
        raise InputError("name the folder of the student: -o FOLDER")

    from regard.preparation.train_and_resume import distill

    stop, folder = threading.Event(), Path(arguments.output)
    events = distill(
        arguments.teacher,
        arguments.files,
        folder,
        dev=arguments.dev,
        test=arguments.test,
        settings_file=arguments.settings,
        overrides=setting_overrides(arguments),
        overwrite=arguments.overwrite,
        stop=stop,
    )
    stop_on_interrupt(stop)
    return follow(events, folder)
