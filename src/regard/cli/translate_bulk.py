"""regard translate --cluster: translates very many lines in shards, side by side; an interrupted run continues."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import output_paths as destination, translate_documents as documents
from regard.cli.setting_flags import decoding_options, direction_options, engine_options, threads
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.jobs.bulk_translation import TranslateLines
    from regard.jobs.resumable_shards import Executor, LinesDone


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for very many lines."""
    group = parser.add_argument_group("very many lines", "a command that was interrupted continues when it is repeated")
    group.add_argument(
        "--cluster",
        metavar="WHERE",
        help="translate shards in parallel: local (processes of this machine), auto (the Ray cluster that runs here, "
        "or one started for this command) or the ADDRESS of a Ray cluster",
    )
    group.add_argument(
        "--workers",
        type=threads,
        metavar="N",
        help="engines, each with --threads (one per processor), with --cluster",
    )
    group.add_argument("--shard-lines", type=shard_lines, metavar="N", help="lines per shard (10,000), with --cluster")


def shard_lines(text: str) -> int:
    """Reads a number of lines from the command line."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines")
    return int(text)


def refuse_flags(arguments: argparse.Namespace) -> None:
    """Refuses flags that need --cluster."""
    for flag in ("workers", "shard_lines"):
        if getattr(arguments, flag) is not None:
            raise InputError(f"--{flag.replace('_', '-')} works with --cluster only: add --cluster local")


def require_lines(arguments: argparse.Namespace) -> None:
    """Refuses documents and options that do not give one line for each line."""
    if documents.are_meant(arguments):
        raise InputError("--cluster translates lines of one text file: translate documents without it")
    if arguments.output is None:
        raise InputError(
            "--cluster needs an output file: add -o FILE; finished shards are kept beside it until it is complete"
        )
    destination.require_file(arguments.output, [next(iter(arguments.files), None), arguments.model])
    documents.refuse_flags(arguments)
    given = {"--stream": arguments.stream, "--memory": arguments.memory, "--glossary": arguments.glossary}
    for flag in (flag for flag, value in given.items() if value):
        raise InputError(f"{flag} cannot be combined with --cluster")
    if "alternatives" in decoding_options(arguments) and (arguments.protect or not arguments.json):
        raise InputError("--cluster writes a line for each line: use --alternatives with --json and without --protect")


def run(arguments: argparse.Namespace) -> int:
    require_lines(arguments)
    from regard.cli.translate import open_source, read_lines, require_utf8
    from regard.jobs.bulk_translation import LINES_PER_SHARD, BulkTranslation

    name = next(iter(arguments.files), None)
    work = work_of(arguments, name or "standard input")
    bulk = BulkTranslation(Path(arguments.output), work, arguments.shard_lines or LINES_PER_SHARD)
    require_utf8(name)
    try:
        with open_source(name) as source:
            last = show_progress(bulk.run(read_lines(source, work.source), choose_executor(arguments, work)))
    except KeyboardInterrupt:
        print(f"\nStopped. Finished shards are in {bulk.folder}: the same command continues.", file=sys.stderr)
        return 130
    reused = f", {last.reused:,} of them translated before" if last.reused else ""
    print(f"{arguments.output}: {last.done:,} lines{reused}", file=sys.stderr)
    return 0


def work_of(arguments: argparse.Namespace, source: str) -> TranslateLines:
    """Returns what the flags ask for; refuses a wrong model or option before anything is read."""
    from regard.decoding.translator import with_options
    from regard.jobs.bulk_translation import TranslateLines, model_digest
    from regard.model_folder import check_folder, read_settings
    from regard.tokens.directions import choose_direction

    model = Path(arguments.model).resolve()
    check_folder(model)
    settings = read_settings(model)
    if settings.task != "translate":
        raise InputError(f"{arguments.model}: is a model to {settings.task}, not to translate")
    with_options(settings.decoding, decoding_options(arguments))
    choose_direction(settings.data, **direction_options(arguments))
    engine = engine_options(arguments)
    engine.pop("threads")
    return TranslateLines(
        str(model),
        model_digest(model),
        engine=engine,
        options={**direction_options(arguments), **decoding_options(arguments)},
        protect=arguments.protect,
        form="json" if arguments.json else "scores" if arguments.scores else "text",
        threads=arguments.threads or 1,
        source=source,
    )


def choose_executor(arguments: argparse.Namespace, work: TranslateLines) -> Executor:
    """Returns processes of this machine, or a cluster."""
    if arguments.cluster != "local":
        from regard.jobs.ray_cluster import RayCluster

        accelerated = work.engine["device"] not in ("auto", "cpu")
        return RayCluster(arguments.cluster, arguments.workers, threads=work.threads, accelerated=accelerated)
    from regard.jobs.worker_processes import WorkerProcesses, count_processors

    return WorkerProcesses(arguments.workers or max(1, count_processors() // work.threads), work.threads)


def show_progress(steps: Iterable[LinesDone]) -> LinesDone:
    """Shows each step on a terminal, and returns the last one."""
    began, last = time.monotonic(), None
    for last in steps:
        if sys.stderr.isatty():
            speed = (last.done - last.reused) / (time.monotonic() - began)
            print(f"\r{last.done:,} lines, {speed:,.1f}/s ", end="", file=sys.stderr, flush=True)
    assert last is not None
    return last
