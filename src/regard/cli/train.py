"""regard train: from files to a translator."""

from __future__ import annotations

import argparse
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.setting_flags import Verbs, add_languages, add_shape, overrides_of, threads
from regard.cli.training_processes import follow, is_started, train_together
from regard.errors import InputError
from regard.files.corpus_files import expand_paths, languages
from regard.files.formats.format_by_suffix import ALONE, PAIRED, suffix
from regard.files.remote_files import as_path
from regard.settings import Settings
from regard.settings.resolution import gather, resolve
from regard.tokens.directions import directions_of, languages_of

if TYPE_CHECKING:
    from regard.training.events import Event, Finished

DESCRIPTION = """Trains a model on your text: checks the text, splits off a dev set if none is given, learns a
vocabulary, chooses a model by the size of the corpus, trains until dev scores no longer rise, and writes a folder
that holds all that is needed to use it.

--task translate  FILES are two files with a sentence a line (train.en train.de), or any number of .tmx, .xlf, .po,
                  .mo, .csv, .tsv or .jsonl, folders of such files, or patterns ('locales/**/de.po');
                  with --directions, any number of files in several languages
--task write      FILES are running text (.txt), or .jsonl with "text": a GPT that continues text
--task fill       the same: a BERT that fills gaps, to be trained on for other tasks
--task classify   FILES are .tsv, .csv or .jsonl with a label and one text or two (or words, --data.carrier word)

All files may be .gz. --from MODEL starts from a model that you trained or imported. --back-translate mono.de learns
from text in the target language too: a model that translates back, trained first, makes pairs of it."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "train",
        help="train a model on your own text",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="*", metavar="FILES", help="the corpus; see above")
    parser.add_argument(
        "--task", default=argparse.SUPPRESS, metavar="TASK", help="translate, write, fill or classify (translate)"
    )
    parser.add_argument("--from", dest="start", metavar="MODEL", help="start from this model's weights and vocabulary")
    add_languages(parser)
    parser.add_argument(
        "--directions",
        dest="data.directions",
        default=argparse.SUPPRESS,
        metavar="LIST",
        help="several directions in one model: en-de,en-fr,de-en (from source to target alone)",
    )
    parser.add_argument(
        "--back-translate",
        nargs="+",
        default=[],
        metavar="FILE",
        help="text in the target language, a sentence a line, to make more pairs of",
    )
    parser.add_argument(
        "--reverse", metavar="MODEL", help="the model that makes them (one that is trained first, on FILES)"
    )
    parser.add_argument("--resume", metavar="FOLDER", help="go on with an interrupted run, exactly where it stopped")
    parser.add_argument(
        "--processes", type=threads, default=1, metavar="N", help="processes on this machine that train together (1)"
    )
    add_run(parser, "where the model goes (runs/SOURCE-TARGET, runs/TASK)")
    parser.set_defaults(run=run)


def add_run(parser: argparse.ArgumentParser, output: str) -> None:
    """The flags of every verb that trains."""
    parser.add_argument("-o", "--output", metavar="FOLDER", help=output)
    parser.add_argument("--dev", nargs="+", default=[], metavar="FILE", help="dev set, in the same forms as FILES")
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="test set, scored at the end")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in the output folder")
    add_shape(parser)


def run(arguments: argparse.Namespace) -> int:
    stop = threading.Event()
    overrides = overrides_of(arguments)
    if arguments.resume:
        others = [
            *(arguments.files, arguments.dev, arguments.test, arguments.settings, arguments.output, arguments.start),
            *(arguments.back_translate, arguments.reverse),
        ]
        if any(others) or arguments.overwrite:
            raise InputError("--resume takes all from its folder: beside it, give --training settings only")
        folder = Path(arguments.resume)
    else:
        overrides, folder = _complete(arguments, overrides)

    from regard.cli.training_display import show_events
    from regard.preparation.train_and_resume import resume, train

    several = arguments.processes > 1
    if several and is_started():
        raise InputError("torchrun has started the processes already: leave out --processes")
    events: Iterator[Event] = (
        resume(folder, overrides=overrides, stop=stop, prepare_only=several)
        if arguments.resume
        else train(
            arguments.files,
            folder,
            dev=arguments.dev,
            test=arguments.test,
            settings_file=arguments.settings,
            overrides=overrides,
            start=arguments.start,
            back_translate=arguments.back_translate,
            reverse=arguments.reverse,
            overwrite=arguments.overwrite,
            stop=stop,
            prepare_only=several,
        )
    )
    with_interrupts(stop)
    if not several:
        return follow(events, folder)
    finished = show_events(events)
    return say_what_next(finished, folder) if finished else train_together(folder, arguments.processes)


def _complete(arguments: argparse.Namespace, overrides: dict[str, str]) -> tuple[dict[str, str], Path]:
    """Languages from the files or their names, and the folder from the languages, where they are not given."""
    if not arguments.files:
        raise InputError("give the corpus to train on: see regard train --help for the files that each task takes")
    given = gather(arguments.settings, overrides, starting=arguments.start is not None)
    start = _start(Path(arguments.start)) if arguments.start else None
    task = given.get("task") or (start.task if start else "translate")
    if task != "translate":
        return overrides, Path(arguments.output or f"runs/{task}")
    data = resolve(given, start=start).data
    if data.directions:
        return overrides, Path(arguments.output or f"runs/{'-'.join(languages_of(directions_of(data)))}")
    arguments.files = [str(path) for path in expand_paths(arguments.files, data)]
    named = given.get("data", {})
    found = _languages([as_path(name) for name in arguments.files], named.get("source", ""), named.get("target", ""))
    overrides |= {f"data.{side}": code for side, code in zip(("source", "target"), found, strict=True) if code}
    data = resolve(gather(arguments.settings, overrides)).data
    return overrides, Path(arguments.output or f"runs/{data.source}-{data.target}")


def _languages(files: list[Path], source: str, target: str) -> tuple[str, str]:
    """The languages of the corpus: as they were given, as its files say, or as the names of two files end."""
    source, target = languages(files, source, target)
    ends = [path.name.removesuffix(".gz").rpartition(".")[2] for path in files if suffix(path) not in (*PAIRED, *ALONE)]
    if len(ends) == 2 and all(1 < len(end) < 8 for end in ends) and ends[0] != ends[1]:
        return source or ends[0], target or ends[1]
    return source, target


def _start(folder: Path) -> Settings | None:
    """The settings of the model to start from, if there is one."""
    from regard.model_folder import read_settings

    return read_settings(folder) if folder.is_dir() else None


def with_interrupts(stop: threading.Event) -> None:
    """The first Ctrl-C, or a polite request to end, saves and stops; a second Ctrl-C stops at once."""

    def ask(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    signal.signal(signal.SIGINT, ask)
    signal.signal(signal.SIGTERM, ask)


def say_what_next(finished: Finished, folder: Path) -> int:
    """What to do with the folder of a run that is over; returns the exit code."""
    if not finished.complete:
        where = f"at step {finished.step:,}" if finished.step else "before the first step"
        print(f"Stopped {where}, saved. Go on with: regard train --resume {folder}")
        return 130
    from regard.model_folder import read_settings
    from regard.training.model_card import example

    settings = read_settings(folder)
    use = f"regard {settings.task} {folder} {example(settings)}"
    print(f"The model is in {folder} (read {folder / 'card.md'}). Use it with: {use}")
    return 0
