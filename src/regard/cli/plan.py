"""regard plan: what a training costs, before it is begun."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.setting_flags import Verbs, add_languages, add_shape, overrides_of
from regard.errors import InputError
from regard.files.corpus_files import expand_paths
from regard.files.remote_files import as_path
from regard.settings import Settings
from regard.settings.resolution import gather, resolve

if TYPE_CHECKING:
    from regard.preparation.corpus_sample import Sample
    from regard.preparation.cost_estimate import Estimate, Measured

DESCRIPTION = """Tells what a training costs before it is begun: parameters, operations and memory, the speed of this
machine, measured in real steps at the real shapes on a sample of the corpus, and from these the time and the memory for
all of it, here or on several devices. Nothing is left behind.

FILES are those of regard train (--task translate, write or fill); or say how large the corpus is that you do not have:
--pairs 4000000 --tokens 200000000, of which the tokens are those of both languages together."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "plan",
        help="what a training will cost: time and memory",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="*", metavar="FILES", help="the corpus, as regard train takes it")
    parser.add_argument("--pairs", type=whole, metavar="N", help="pairs of a corpus that is not here")
    parser.add_argument("--tokens", type=whole, metavar="M", help="its tokens, of both sides (25 a side and pair)")
    parser.add_argument("--devices", type=whole, default=1, metavar="N", help="devices that train together (1)")
    parser.add_argument(
        "--efficiency", type=share, default=0.9, metavar="X", help="share of their speed that several reach (0.9)"
    )
    parser.add_argument(
        "--speed", type=positive, default=1.0, metavar="X", help="how often as fast as this one each device is (1)"
    )
    parser.add_argument("--seconds", type=positive, default=20.0, metavar="S", help="how long to measure (20)")
    parser.add_argument("--json", action="store_true", help="all figures as a JSON object")
    parser.add_argument(
        "--task", default=argparse.SUPPRESS, metavar="TASK", help="translate, write or fill (translate)"
    )
    parser.refused = {"--directions": ONE_DIRECTION}
    add_languages(parser)
    add_shape(parser)
    parser.set_defaults(run=run)


ONE_DIRECTION = "regard plan measures one direction: leave data.directions out, and give all pairs together"


def whole(text: str) -> int:
    if not text.replace("_", "").replace(",", "").isdecimal() or int(text.replace(",", "")) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number above 0")
    return int(text.replace(",", ""))


def positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e9:
        raise argparse.ArgumentTypeError(f"{text} is not a number above 0")
    return value


def share(text: str) -> float:
    if positive(text) > 1:
        raise argparse.ArgumentTypeError(f"{text} is not a share: give a number from 0 to 1")
    return float(text)


def run(arguments: argparse.Namespace) -> int:
    given = gather(arguments.settings, overrides_of(arguments))
    require_corpus(arguments, resolve(given))
    from regard.preparation.cost_estimate import estimate, measure, settle

    with tempfile.TemporaryDirectory(prefix="regard-plan-") as folder:
        say("reading the corpus")
        sample = sample_of(arguments, resolve(given), Path(folder))
        measured = measure(sample, given, Path(folder) / "run", arguments.seconds, say)
    settings = settle(given, sample.whole, measured.device.partition(":")[0])
    found = estimate(
        measured,
        settings,
        sample,
        devices=arguments.devices,
        efficiency=arguments.efficiency,
        speed=arguments.speed,
    )
    if arguments.json:
        rate = {"tokens_per_second": measured.tokens_per_second}
        about = {"preset": settings.preset, "measured": {**asdict(measured), **rate}, "estimate": asdict(found)}
        print(json.dumps(about))
    else:
        show(settings, measured, found, arguments)
    return 0


def require_corpus(arguments: argparse.Namespace, settings: Settings) -> None:
    """Refuses what is no corpus, or two of them."""
    if settings.task not in ("translate", "write", "fill"):
        raise InputError(f"regard plan is for the tasks translate, write and fill, not for {settings.task}")
    sized = arguments.pairs or arguments.tokens
    if bool(arguments.files) == bool(sized):
        raise InputError("give the files of the corpus, or its size with --pairs and --tokens")
    if sized and settings.task == "translate" and not arguments.pairs:
        raise InputError("say how many pairs the corpus has: --pairs")
    if arguments.pairs and settings.task != "translate":
        raise InputError(f"a corpus to {settings.task} has no pairs: give --tokens alone")
    if settings.data.directions:
        raise InputError(ONE_DIRECTION)


def sample_of(arguments: argparse.Namespace, settings: Settings, folder: Path) -> Sample:
    """Some of the corpus, or something of its size."""
    from regard.preparation import corpus_sample as samples

    if settings.task == "translate":
        if arguments.pairs:
            tokens = arguments.tokens or 50 * arguments.pairs
            if tokens < 2 * arguments.pairs:
                raise InputError(
                    f"{arguments.pairs:,} pairs cannot have {tokens:,} tokens: each has one a side at least"
                )
            return samples.invented_pairs(arguments.pairs, tokens, folder)
        return samples.sample_pairs(expand_paths(arguments.files, settings.data), settings.data, folder)
    if arguments.tokens:
        return samples.invented_texts(arguments.tokens, folder)
    return samples.sample_texts([as_path(name) for name in arguments.files], settings.data, folder)


def show(settings: Settings, measured: Measured, found: Estimate, arguments: argparse.Namespace) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    for label, text in [*rows(settings, measured, found, arguments), ("", "")]:
        if text:
            table.add_row(f"  {label:<16}", text)
            continue
        if table.row_count:
            console.print(table)
        table = Table.grid(padding=(0, 2))
        console.print(f"[bold]{label}[/bold]", end="\n" if label else "", soft_wrap=True)


def rows(
    settings: Settings, measured: Measured, found: Estimate, arguments: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """What is told, in two columns; a line without a second one is a heading."""
    from regard.cli.training_display import duration

    memory, unit = measured.memory, "pairs" if settings.task == "translate" else "characters"
    where = f"{measured.device}, {measured.threads} threads" if measured.threads else measured.device
    yield f"Model: {settings.preset}, to {settings.task}", ""
    yield "parameters", f"{measured.parameters:,}, {measured.tables:,} of them in tables"
    yield "vocabulary", f"{measured.vocabulary:,} tokens"
    yield "training a token", f"{measured.flops_per_token / 1e6:,.1f} million operations"
    yield f"Measured here ({where}, {measured.steps} steps)", ""
    yield "speed", f"{measured.tokens_per_second:,.0f} tokens/s, {measured.seconds_per_step:.2f} s a step"
    yield "operations", f"{measured.flops_per_token * measured.tokens_per_second / 1e9:,.1f} billion a second"
    yield "memory", f"{size(memory.peak)} at most"
    yield "", f"{size(memory.weights)} weights, {size(memory.gradients)} gradients, {size(memory.moments)} moments"
    yield "", f"{size(memory.mean)} mean of the weights, {size(memory.rest)} activations and program"
    on = "this device" if found.devices == 1 else f"{found.devices} devices"
    yield f"Estimate for {found.units:,} {unit} on {on}", ""
    if found.devices > 1 or arguments.speed != 1:
        reached = f"{arguments.efficiency:.0%} of their speed" if found.devices > 1 else ""
        fast = f"each {arguments.speed:g} times as fast as this one" if arguments.speed != 1 else "each like this one"
        yield "assumed", ", ".join(filter(None, [fast, reached]))
    yield "tokens", f"{found.tokens:,.0f} an epoch, {size(found.disk)} on disk"
    yield "speed", f"{found.tokens_per_second:,.0f} tokens/s"
    yield "an epoch", duration(found.epoch_seconds)
    yield f"{found.steps:,} steps", f"{duration(found.seconds)} at most, {found.epochs:,.1f} epochs"
    yield "", f"{duration(found.preparing_seconds)} to prepare, {duration(found.evaluating_seconds)} to evaluate"
    sharded = f"; {size(found.memory_sharded)} where it is sharded (FSDP)" if found.devices > 1 else ""
    yield "memory", f"{size(found.memory)} a device{sharded}"


def size(count: float) -> str:
    """1500000 -> 1.5 MB"""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.{0 if unit == 'B' else 1}f} {unit}"
        count /= 1000
    return f"{count:,.1f} TB"


def say(line: str) -> None:
    """What is being done, where somebody watches."""
    if sys.stderr.isatty():
        print(f"{line} ...", file=sys.stderr)
