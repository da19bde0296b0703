"""regard train and regard distill: train a model on the user's files, or on the translations of another model."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.shared_flags import Verbs, add_languages, add_training, count_up_to_1024, setting_overrides
from regard.errors import InputError, RegardError
from regard.files.corpus_files import expand_paths, languages
from regard.files.formats.format_by_suffix import ALONE, PAIRED, has_plain_name, suffix
from regard.files.remote_files import as_path
from regard.preparation.chosen_settings import gather, resolve
from regard.tokens.language_directions import directions_of, languages_of

if TYPE_CHECKING:
    from regard.training.events import Event, Finished

DESCRIPTION = """Trains a model on your text: checks the text, holds out a dev set unless you pass --dev, learns a
vocabulary, chooses a preset by the size of the corpus, trains until the dev scores stop improving, and writes a folder
with everything needed to use the model.

--task translate  FILES are two files with one sentence per line (train.en train.de), or any number of
                  .tmx, .xlf, .po, .mo, .csv, .tsv or .jsonl, folders of such files, or patterns
                  ('locales/**/de.po'); with --directions, any number of files in several languages
--task write      FILES are running text (.txt), or .jsonl with "text": a GPT that continues text
--task fill       FILES as for write: a BERT that fills gaps, and can be trained further for other tasks
--task classify   FILES are .tsv, .csv or .jsonl with a label and one or two texts;
                  or, with --data.carrier word, a label for each word

All files may be compressed (.gz). --from MODEL starts from a model that you trained or imported. --back-translate
mono.de also learns from text in the target language alone: a model for the reverse direction, which is trained first,
translates it back into the source language."""

DISTILL = """Trains a new model, the student, on translations made by another model, the teacher (sequence-level
distillation). A small student learns more from a good teacher than from human translations.

FILES are one text file in the source language, one sentence per line, or a corpus of pairs in any form that regard
train accepts. If you pass pairs without --dev, a dev set is held out: it keeps its human translations, and the student
never trains on it. The student has its own preset and vocabulary. To continue an interrupted run, use regard train
--resume FOLDER."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("train", help="train a model on your own text", description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("files", nargs="*", metavar="FILES", help="the corpus; see above")
    tasks = "{translate,write,fill,classify}"
    add("--task", default=argparse.SUPPRESS, metavar=tasks, help="what the model learns (default: translate)")
    add("--from", dest="start", metavar="MODEL", help="start from the weights and vocabulary of this model")
    add_languages(parser)
    text = "train one model for several directions, such as en-de,en-fr,de-en (default: source to target only)"
    add("--directions", dest="data.directions", default=argparse.SUPPRESS, metavar="LIST", help=text)
    text = "text in the target language, one sentence per line, which is translated back to get more pairs"
    add("--back-translate", nargs="+", default=[], metavar="FILE", help=text)
    text = "the model that does the back-translation (default: train one on FILES first)"
    add("--reverse", metavar="MODEL", help=text)
    add("--resume", metavar="FOLDER", help="continue an interrupted run exactly where it stopped")
    text = "number of processes on this machine that train together (default: 1)"
    add("--processes", type=count_up_to_1024, default=1, metavar="N", help=text)
    _add_run(parser, "where to write the model (default: runs/SOURCE-TARGET or runs/TASK)")

    about = "train a smaller model on the output of a larger one"
    parser = verbs.add_parser("distill", help=about, description=DISTILL, run=_distill)
    parser.add_argument("teacher", metavar="TEACHER", help="the folder of the larger model, a translator")
    parser.add_argument("files", nargs="*", metavar="FILES", help="text in the source language, or pairs; see above")
    add_languages(parser)
    _add_run(parser, "where to write the student")


def _add_run(parser: argparse.ArgumentParser, output: str) -> None:
    parser.add_argument("-o", "--output", metavar="FOLDER", help=output)
    parser.add_argument(
        "--dev", nargs="+", default=[], metavar="FILE", help="dev set, in a form of FILES (default: a part of FILES)"
    )
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="test set, scored after the training")
    parser.add_argument("--overwrite", action="store_true", help="replace the model in the output folder")
    add_training(parser)


def run(arguments: argparse.Namespace) -> int:
    stop, overrides = threading.Event(), setting_overrides(arguments)
    if arguments.resume:
        files = (arguments.files, arguments.dev, arguments.test, arguments.settings, arguments.back_translate)
        if any((*files, arguments.output, arguments.start, arguments.reverse, arguments.overwrite)):
            raise InputError("--resume reads all other settings from FOLDER: combine it only with --training settings")
        folder = Path(arguments.resume)
    else:
        overrides, folder = _complete(arguments, overrides)
    in_processes = arguments.processes > 1
    if in_processes and _is_distributed():
        raise InputError("torchrun has already started the processes: leave out --processes")

    from regard.cli.progress_display import show_training
    from regard.preparation.train_and_resume import resume, train

    events: Iterator[Event]
    if arguments.resume:
        events = resume(folder, overrides=overrides, stop=stop, prepare_only=in_processes)
    else:
        events = train(
            arguments.files,
            folder,
            overrides=overrides,
            start=arguments.start,
            back_translate=arguments.back_translate,
            reverse=arguments.reverse,
            prepare_only=in_processes,
            stop=stop,
            **_shared_options(arguments),
        )
    stop_on_interrupt(stop)
    if not in_processes:
        return follow(events, folder)
    finished = show_training(events)
    return _print_next_steps(finished, folder) if finished else train_in_processes(folder, arguments.processes)


def _distill(arguments: argparse.Namespace) -> int:
    if not arguments.files:
        raise InputError("pass the text that the teacher translates: see regard distill --help")
    if not arguments.output:
        raise InputError("specify the folder for the student: -o FOLDER")

    from regard.preparation.train_and_resume import distill

    stop, folder = threading.Event(), Path(arguments.output)
    events = distill(
        arguments.teacher,
        arguments.files,
        folder,
        overrides=setting_overrides(arguments),
        stop=stop,
        **_shared_options(arguments),
    )
    stop_on_interrupt(stop)
    return follow(events, folder)


def _shared_options(arguments: argparse.Namespace) -> dict[str, Any]:
    files = {"dev": arguments.dev, "test": arguments.test, "settings_file": arguments.settings}
    return {**files, "overwrite": arguments.overwrite}


def _complete(arguments: argparse.Namespace, overrides: dict[str, str]) -> tuple[dict[str, str], Path]:
    """Returns the settings, with languages taken from the files if necessary, and the output folder."""
    from regard.model_folder import read_settings

    if not arguments.files:
        raise InputError("pass the corpus to train on: regard train --help lists the files for each task")
    chosen = gather(arguments.settings, overrides, starting=arguments.start is not None)
    start = read_settings(Path(arguments.start)) if arguments.start and Path(arguments.start).is_dir() else None
    task = chosen.get("task") or (start.task if start else "translate")
    if task != "translate":
        return overrides, Path(arguments.output or f"runs/{task}")
    data = resolve(chosen, start=start).data
    if data.directions:
        return overrides, Path(arguments.output or f"runs/{'-'.join(languages_of(directions_of(data)))}")
    arguments.files = [str(path) for path in expand_paths(arguments.files, data)]
    named, paths = chosen.get("data", {}), [as_path(name) for name in arguments.files]
    if not arguments.start and len(paths) == 1 and has_plain_name(paths[0]) and paths[0].is_file():
        advice = "pass the file of the other language too, or train a GPT on this file with --task write"
        raise InputError(f"{paths[0]}: one file of plain text has no translations: {advice}")
    pair = _find_languages(paths, named.get("source", ""), named.get("target", ""))
    overrides |= {f"data.{side}": code for side, code in zip(("source", "target"), pair, strict=True) if code}
    data = resolve(gather(arguments.settings, overrides)).data
    return overrides, Path(arguments.output or f"runs/{data.source}-{data.target}")


def _find_languages(files: list[Path], source: str, target: str) -> tuple[str, str]:
    """Returns the languages of the corpus, taken from the flags, the files, or the suffixes of two files."""
    source, target = languages(files, source, target)
    ends = [path.name.removesuffix(".gz").rpartition(".")[2] for path in files if suffix(path) not in (*PAIRED, *ALONE)]
    if len(ends) == 2 and all(1 < len(end) < 8 for end in ends) and ends[0] != ends[1]:
        return source or ends[0], target or ends[1]
    return source, target


def stop_on_interrupt(stop: threading.Event) -> None:
    """Makes the first Ctrl-C or SIGTERM save the run and stop, and the second one stop immediately."""

    def request(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    signal.signal(signal.SIGINT, request)
    signal.signal(signal.SIGTERM, request)


def follow(events: Iterator[Event], folder: Path) -> int:
    """Trains until the end, shows progress if this is the first process, and returns the exit code."""
    from regard.cli.progress_display import show_training
    from regard.training.distributed import LostProcessError, ReportedElsewhereError
    from regard.training.events import Finished

    if not _is_distributed() or os.environ["RANK"] == "0":
        finished = show_training(events)
        assert finished is not None
        return _print_next_steps(finished, folder)
    try:
        complete = [event.complete for event in events if isinstance(event, Finished)]
    except ReportedElsewhereError:
        return 2
    except LostProcessError:
        sys.exit(1)  # the first process reports this; if that one is lost, the parent process does
    return 0 if complete[-1:] == [True] else 130


def _is_distributed() -> bool:
    return "TORCHELASTIC_RUN_ID" in os.environ


def _print_next_steps(finished: Finished, folder: Path) -> int:
    """Prints the command that uses the model or resumes the training, and returns the exit code."""
    if not finished.complete:
        where = f"at step {finished.step:,}" if finished.step else "before the first step"
        print(f"Stopped {where}; the run is saved. Continue with: regard train --resume {folder}")
        return 130
    from regard.model_folder import read_settings
    from regard.training.final_weights import example_input

    settings = read_settings(folder)
    use = f"regard {settings.task} {folder} {example_input(settings)}"
    print(f"The model is in {folder} (read {folder / 'card.md'}). Use it with: {use}")
    return 0


def train_in_processes(folder: Path, processes: int) -> int:
    """Trains a prepared model in several processes on this machine, and returns the exit code.

    If a process is lost, all processes restart from the last checkpoint. If a worker receives a stop signal but this
    parent process does not, as when a cloud machine is reclaimed, all workers save their state and restart.
    """
    from regard.model_folder import read_settings
    from regard.training.distributed import launch

    restarts = read_settings(folder).training.restarts
    while True:
        results = launch(_train_as_one_process, (str(folder),), processes, restarts)
        if results is None:
            return 130
        for _, line in results.values():
            if line:
                print(f"regard: {line}", file=sys.stderr)
        codes: set[int] = {code for code, _ in results.values()}
        if codes != {130} or not restarts:
            return max(codes)
        restarts -= 1
        print("A process received a stop signal: all processes restart from the saved state.")


def _train_as_one_process(folder: str) -> tuple[int, str]:
    """Trains as one of several processes; returns the exit code and the error message, which is empty on success."""
    from regard.preparation.train_and_resume import resume
    from regard.training.distributed import LostProcessError

    stop = threading.Event()
    stop_on_interrupt(stop)
    try:
        return follow(resume(folder, stop=stop), Path(folder)), ""
    except LostProcessError:
        sys.exit(1)  # restarts all processes
    except RegardError as error:
        return 2, " ".join(str(error).split())
