"""regard translate --cluster: translates very large files in parallel shards; an interrupted run can be continued."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli import shared_flags as flags, translate_documents as documents
from regard.cli.output_paths import require_output
from regard.cli.text_lines import open_source, read_lines, require_utf8
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.jobs.bulk_translation import TranslateLines
    from regard.jobs.resumable_shards import Executor, LinesDone


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `regard translate` for very large files."""
    group = parser.add_argument_group("very large files", "to continue an interrupted command, run it again")
    text = (
        "where to translate shards in parallel: local (processes on this machine), auto (the Ray cluster running here, "
        "or a new one for this command) or the address of a Ray cluster"
    )
    group.add_argument("--cluster", metavar="WHERE", help=text)
    text = "number of workers, each with --threads threads (default: one per processor); needs --cluster"
    group.add_argument("--workers", type=flags.count_up_to_1024, metavar="N", help=text)
    group.add_argument(
        "--shard-lines", type=flags.count, metavar="N", help="lines per shard (default: 10,000); needs --cluster"
    )


def reject_flags(arguments: argparse.Namespace) -> None:
    """Raises an error if a flag is used that needs --cluster."""
    rejected = {"--workers": arguments.workers, "--shard-lines": arguments.shard_lines}
    flags.reject_flags(rejected, "works only with --cluster: add --cluster local")


def run(arguments: argparse.Namespace) -> int:
    _require_lines(arguments)
    from regard.jobs.bulk_translation import LINES_PER_SHARD, shards_folder, translate_lines

    name = next(iter(arguments.files), None)
    work = _make_job(arguments, name or "standard input")
    output, size = Path(arguments.output), arguments.shard_lines or LINES_PER_SHARD
    require_utf8(name)
    try:
        with open_source(name) as source:
            lines, executor = read_lines(source, work.source), _choose_executor(arguments, work)
            last = _show_progress(translate_lines(output, work, lines, size, executor))
    except KeyboardInterrupt:
        print(
            f"\nStopped. Finished shards are in {shards_folder(output)}: run the command again to continue.",
            file=sys.stderr,
        )
        return 130
    reused = f", {last.reused:,} of them translated before" if last.reused else ""
    print(f"{arguments.output}: {last.done:,} lines{reused}", file=sys.stderr)
    return 0


def _require_lines(arguments: argparse.Namespace) -> None:
    """Raises an error for documents, and for options that do not write one output line per input line."""
    if documents.are_documents(arguments):
        raise InputError("--cluster translates the lines of one text file: translate documents without --cluster")
    if arguments.output is None:
        advice = "add -o FILE (finished shards are kept beside FILE until it is complete)"
        raise InputError(f"--cluster needs an output file: {advice}")
    require_output(arguments.output, [next(iter(arguments.files), None), arguments.model])
    documents.reject_flags(arguments)
    rejected = {"--stream": arguments.stream, "--memory": arguments.memory, "--glossary": arguments.glossary}
    flags.reject_flags(rejected, "cannot be combined with --cluster")
    if "alternatives" in flags.decoding_options(arguments) and (arguments.protect or not arguments.json):
        raise InputError(
            "--cluster writes one output line per input line: use --alternatives with --json and without --protect"
        )


def _make_job(arguments: argparse.Namespace, source: str) -> TranslateLines:
    """Returns the job that the flags describe; reports an unsuitable model or option before reading any text."""
    from regard.decoding.translator import with_options
    from regard.jobs.bulk_translation import TranslateLines
    from regard.model_folder import read_settings
    from regard.tokens.language_directions import choose_direction

    model = Path(arguments.model).resolve()
    settings = read_settings(model)
    if settings.task != "translate":
        raise InputError(f"{arguments.model}: has the task {settings.task}, not translate")
    with_options(settings.decoding, flags.decoding_options(arguments))
    choose_direction(settings.data, **flags.direction_options(arguments))
    engine = flags.engine_options(arguments)
    engine.pop("threads")
    return TranslateLines(
        path=str(model),
        engine=engine,
        options=flags.translating_options(arguments),
        protect=arguments.protect,
        form="json" if arguments.json else "scores" if arguments.scores else "text",
        threads=arguments.threads or 1,
        source=source,
    )


def _choose_executor(arguments: argparse.Namespace, work: TranslateLines) -> Executor:
    if arguments.cluster != "local":
        from regard.jobs.ray_cluster import RayCluster

        accelerated = work.engine["device"] not in ("auto", "cpu")
        return RayCluster(arguments.cluster, arguments.workers, threads=work.threads, accelerated=accelerated)
    from regard.decoding.native.native_search import count_processors
    from regard.jobs.worker_processes import WorkerProcesses

    return WorkerProcesses(arguments.workers or max(1, count_processors() // work.threads), work.threads)


def _show_progress(steps: Iterable[LinesDone]) -> LinesDone:
    start, last = time.monotonic(), None
    for last in steps:
        if sys.stderr.isatty():
            speed = (last.done - last.reused) / (time.monotonic() - start)
            print(f"\r{last.done:,} lines, {speed:,.1f}/s ", end="", file=sys.stderr, flush=True)
    assert last is not None
    return last
