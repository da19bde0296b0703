"""regard translate --cluster: very many lines, side by side, in shards that no kill makes twice."""

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
    from regard.jobs.bulk_translation import Executor, Order, Progress


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that are for very many lines."""
    group = parser.add_argument_group("very many lines", "a killed command goes on where it was when it is given again")
    group.add_argument(
        "--cluster",
        metavar="WHERE",
        help="translate in shards side by side: local (processes of this machine), auto (the Ray cluster that runs "
        "here, or one for this command) or the ADDRESS of a Ray cluster",
    )
    group.add_argument(
        "--workers", type=threads, metavar="N", help="engines, each with --threads (one a processor), with --cluster"
    )
    group.add_argument("--shard-lines", type=shard_lines, metavar="N", help="lines of a shard (10,000), with --cluster")


def shard_lines(text: str) -> int:
    """A number of lines, as a flag gives it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number of lines")
    return int(text)


def refuse_flags(arguments: argparse.Namespace) -> None:
    """What is for shards is for nothing else."""
    for flag in ("workers", "shard_lines"):
        if getattr(arguments, flag) is not None:
            raise InputError(f"--{flag.replace('_', '-')} is for very many lines: give --cluster local, too")


def require_lines(arguments: argparse.Namespace) -> None:
    """Refuses what cannot be done in shards, or does not give a line for a line."""
    if documents.are_meant(arguments):
        raise InputError("--cluster is for lines of text in one file: documents are translated without it")
    if arguments.output is None:
        raise InputError(
            "--cluster needs a file to write: give -o FILE; its shards are kept beside it until it is whole"
        )
    destination.require_file(arguments.output, [next(iter(arguments.files), None), arguments.model])
    documents.refuse_flags(arguments)
    given = {"--stream": arguments.stream, "--memory": arguments.memory, "--glossary": arguments.glossary}
    for flag in (flag for flag, value in given.items() if value):
        raise InputError(f"{flag} cannot be combined with --cluster")
    if "alternatives" in decoding_options(arguments) and (arguments.protect or not arguments.json):
        raise InputError("--cluster gives one line for each: --alternatives needs --json, and no --protect")


def run(arguments: argparse.Namespace) -> int:
    require_lines(arguments)
    from regard.cli.translate import open_source, read_lines, require_utf8
    from regard.jobs.bulk_translation import SHARD, Bulk

    order = order_of(arguments)
    bulk = Bulk(Path(arguments.output), order, arguments.shard_lines or SHARD)
    name = next(iter(arguments.files), None)
    require_utf8(name)
    try:
        with open_source(name) as source:
            found = bulk.run(read_lines(source, name or "standard input"), executor_for(arguments, order))
            last = told(found)
    except KeyboardInterrupt:
        print(f"\nStopped; what is done is in {bulk.folder}. Go on with the same command.", file=sys.stderr)
        return 130
    there = f", of which {last.there:,} had been translated before" if last.there else ""
    print(f"{arguments.output}: {last.done:,} lines{there}", file=sys.stderr)
    return 0


def order_of(arguments: argparse.Namespace) -> Order:
    """What the flags ask for; what is wrong with the model or with an option is said before anything is read."""
    from regard.decoding.translator import with_options
    from regard.jobs.bulk_translation import Order, model_digest
    from regard.model_folder import check_folder, read_settings
    from regard.tokens.directions import choose_direction

    model = Path(arguments.model).resolve()
    check_folder(model)
    settings = read_settings(model)
    if settings.task != "translate":
        raise InputError(f"{arguments.model}: is a model to {settings.task}, not to translate")
    with_options(settings.decoding, decoding_options(arguments))
    choose_direction(settings.data, **direction_options(arguments))
    return Order(
        str(model),
        model_digest(model),
        engine={**engine_options(arguments), "threads": arguments.threads or 1},
        options={**direction_options(arguments), **decoding_options(arguments)},
        protect=arguments.protect,
        form="json" if arguments.json else "scores" if arguments.scores else "text",
    )


def executor_for(arguments: argparse.Namespace, order: Order) -> Executor:
    """Processes of this machine, or a cluster."""
    if arguments.cluster != "local":
        from regard.jobs.ray_cluster import Cluster

        return Cluster(arguments.cluster, order, arguments.workers)
    from regard.jobs.worker_processes import Workers, processors

    count = arguments.workers or max(1, processors() // order.engine["threads"])
    alone = {"OMP_NUM_THREADS": str(order.engine["threads"]), "RAYON_NUM_THREADS": "1"}
    return Workers("regard.jobs.bulk_translation", vars(order), count, environment=alone)


def told(found: Iterable[Progress]) -> Progress:
    """The last word of a translation; where somebody watches, each of them is shown."""
    began, last = time.monotonic(), None
    for last in found:
        if sys.stderr.isatty():
            new, seconds = last.done - last.there, time.monotonic() - began
            print(f"\r{last.done:,} lines, {new / seconds:,.1f}/s ", end="", file=sys.stderr, flush=True)
    assert last is not None
    return last
