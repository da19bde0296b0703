"""regard plan: estimates the time and memory of a training run before it starts."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from regard.cli.shared_flags import Verbs, add_languages, add_training, count, positive_number, setting_overrides
from regard.errors import InputError
from regard.files.corpus_files import expand_paths
from regard.files.remote_files import as_path
from regard.preparation.chosen_settings import gather, resolve
from regard.settings import Settings

if TYPE_CHECKING:
    from regard.preparation.corpus_sample import Sample
    from regard.preparation.cost_estimate import Estimate, Measured

DESCRIPTION = """Estimates the cost of a training run before it starts. The command counts parameters and operations,
and measures the speed and memory of real training steps on a sample of the corpus. From these figures it estimates the
time and memory of the whole run, on this machine or on several devices. It leaves no files behind.

FILES are the same as for regard train (--task translate, write or fill). For a corpus that you do not have yet, pass
its size: --pairs 4000000 --tokens 200000000 (the tokens of both languages together)."""

ONE_DIRECTION = "regard plan measures one direction: remove data.directions, and pass all pairs together"


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "plan", help="estimate the time and memory of a training run", description=DESCRIPTION, run=run
    )
    add = parser.add_argument
    add("files", nargs="*", metavar="FILES", help="the corpus, in any form that regard train accepts")
    add("--pairs", type=count, metavar="N", help="number of pairs, instead of FILES")
    text = "number of tokens of both sides, instead of FILES (default: 25 per side of a pair)"
    add("--tokens", type=count, metavar="M", help=text)
    add("--devices", type=count, default=1, metavar="N", help="number of devices that train together (default: 1)")
    text = "fraction of their combined speed that several devices reach (default: 0.9)"
    add("--efficiency", type=fraction, default=0.9, metavar="X", help=text)
    text = "speed of each device relative to this one (default: 1)"
    add("--speed", type=positive_number, default=1.0, metavar="X", help=text)
    text = "duration of the measurement in seconds (default: 20)"
    add("--seconds", type=positive_number, default=20.0, metavar="S", help=text)
    add("--json", action="store_true", help="print all figures as a JSON object")
    tasks = "{translate,write,fill}"
    add("--task", default=argparse.SUPPRESS, metavar=tasks, help="what the model learns (default: translate)")
    parser.rejected_flags = {"--directions": ONE_DIRECTION}
    add_languages(parser)
    add_training(parser)


def fraction(text: str) -> float:
    """Parses a number greater than 0 and at most 1."""
    if positive_number(text) > 1:
        raise argparse.ArgumentTypeError(f"must be a number from 0 to 1, not {text}")
    return float(text)


def run(arguments: argparse.Namespace) -> int:
    chosen = gather(arguments.settings, setting_overrides(arguments))
    _require_corpus(arguments, resolve(chosen))
    from regard.preparation.cost_estimate import estimate, expected_settings, measure

    with tempfile.TemporaryDirectory(prefix="regard-plan-") as folder:
        _print_stage("reading the corpus")
        sample = _sample(arguments, resolve(chosen), Path(folder))
        measured = measure(sample, chosen, Path(folder) / "run", arguments.seconds, _print_stage)
    settings = expected_settings(chosen, sample.whole, measured.device.partition(":")[0])
    scale = {"devices": arguments.devices, "efficiency": arguments.efficiency, "speed": arguments.speed}
    estimated = estimate(measured, settings, sample, **scale)
    if arguments.json:
        rate = {"tokens_per_second": measured.tokens_per_second}
        figures = {"measured": {**asdict(measured), **rate}, "estimate": asdict(estimated)}
        print(json.dumps({"preset": settings.preset, **figures}))
    else:
        rows = _rows(settings, measured, estimated, arguments)
        print("\n".join(f"  {label:<16}  {text}" if text else f"\n{label}" for label, text in rows).lstrip())
    return 0


def _require_corpus(arguments: argparse.Namespace, settings: Settings) -> None:
    """Raises an error if the flags do not describe exactly one corpus."""
    if settings.task not in ("translate", "write", "fill"):
        raise InputError(f"regard plan supports the tasks translate, write and fill, not {settings.task}")
    has_size = bool(arguments.pairs or arguments.tokens)
    if bool(arguments.files) == has_size:
        raise InputError("pass either the files of the corpus, or its size with --pairs and --tokens")
    if has_size and settings.task == "translate" and not arguments.pairs:
        raise InputError("pass the number of pairs of the corpus: --pairs N")
    if arguments.pairs and settings.task != "translate":
        raise InputError(f"a corpus for --task {settings.task} has no pairs: pass --tokens only")
    if settings.data.directions:
        raise InputError(ONE_DIRECTION)


def _sample(arguments: argparse.Namespace, settings: Settings, folder: Path) -> Sample:
    """Returns a sample of the corpus, or generated text if only the size of the corpus is known."""
    from regard.preparation import corpus_sample as samples

    if settings.task == "translate":
        if not arguments.pairs:
            return samples.sample_pairs(expand_paths(arguments.files, settings.data), settings.data, folder)
        tokens = arguments.tokens or 50 * arguments.pairs
        if tokens < 2 * arguments.pairs:
            raise InputError(f"{arguments.pairs:,} pairs have at least {2 * arguments.pairs:,} tokens, not {tokens:,}")
        return samples.invented_pairs(arguments.pairs, tokens, folder)
    if arguments.tokens:
        return samples.invented_texts(arguments.tokens, folder)
    return samples.sample_texts([as_path(name) for name in arguments.files], settings.data, folder)


def _rows(
    settings: Settings, measured: Measured, estimated: Estimate, arguments: argparse.Namespace
) -> Iterator[tuple[str, str]]:
    """Yields the rows of the report as labels with texts; headings have an empty text."""
    from rich.filesize import decimal as size

    from regard.cli.progress_display import format_duration as duration

    memory, unit = measured.memory, "pairs" if settings.task == "translate" else "characters"
    where = f"{measured.device}, {measured.threads} threads" if measured.threads else measured.device
    yield f"Model: {settings.preset}, to {settings.task}", ""
    yield "parameters", f"{measured.parameters:,}, {measured.tables:,} of them in tables"
    yield "vocabulary", f"{measured.vocabulary:,} tokens"
    yield "training", f"{measured.flops_per_token / 1e6:,.1f} million operations per token"
    yield f"Measured here ({where}, {measured.steps} steps)", ""
    yield "speed", f"{measured.tokens_per_second:,.0f} tokens/s, {measured.seconds_per_step:.2f} s per step"
    yield "operations", f"{measured.flops_per_token * measured.tokens_per_second / 1e9:,.1f} billion per second"
    yield "memory", f"{size(memory.peak)} at peak"
    yield "", f"{size(memory.weights)} weights, {size(memory.gradients)} gradients, {size(memory.moments)} moments"
    yield "", f"{size(memory.mean)} mean of the weights, {size(memory.rest)} activations and program"
    on = "this device" if estimated.devices == 1 else f"{estimated.devices} devices"
    yield f"Estimate for {estimated.units:,} {unit} on {on}", ""
    if estimated.devices > 1 or arguments.speed != 1:
        total = f"{arguments.efficiency:.0%} of their total speed" if estimated.devices > 1 else ""
        each = f"each {arguments.speed:g} times as fast as this one" if arguments.speed != 1 else "each like this one"
        yield "assumed", ", ".join(filter(None, [total, each]))
    yield "tokens", f"{estimated.tokens:,.0f} per epoch, {size(estimated.disk)} on disk"
    yield "speed", f"{estimated.tokens_per_second:,.0f} tokens/s"
    yield "one epoch", duration(estimated.epoch_seconds)
    yield f"{estimated.steps:,} steps", f"at most {duration(estimated.seconds)}, {estimated.epochs:,.1f} epochs"
    preparing, evaluating = duration(estimated.preparing_seconds), duration(estimated.evaluating_seconds)
    yield "", f"{preparing} to prepare, {evaluating} to evaluate"
    sharded = f"; {size(estimated.memory_sharded)} if sharded (FSDP)" if estimated.devices > 1 else ""
    yield "memory", f"{size(estimated.memory)} per device{sharded}"


def _print_stage(line: str) -> None:
    if sys.stderr.isatty():
        print(f"{line} ...", file=sys.stderr)
