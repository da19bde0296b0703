"""regard check: what is wrong with a corpus, and the same corpus without it."""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import output_paths as destination
from regard.cli.setting_flags import Verbs, add_check, dotted
from regard.errors import DataError, InputError
from regard.files.check_thresholds import CheckSettings
from regard.files.corpus_files import expand_paths, languages
from regard.files.remote_files import as_path
from regard.settings import DataSettings
from regard.settings.option_fields import build
from regard.settings.resolution import gather

if TYPE_CHECKING:
    from regard.files.corpus_check import Examination, PairChunk

DESCRIPTION = """Tells what is wrong with the pairs of FILES, which are what regard train takes: how many have each
fault, and where the first ones stand. What it finds is no failure: it exits with 0 unless FILES cannot be read.

  regard check train.en train.de                         a table for people; --json for programs
  regard check train.en train.de --test test.en test.de  also: is the test set in the corpus?
  regard check train.tsv --fix -o clean.tsv              the same pairs without those that have errors

Errors are what --fix drops, warnings what it keeps; --drop and --keep change that, by the names of the checks."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "check",
        help="say what is wrong with a corpus, and clean it",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILES", help="the corpus, as regard train takes it")
    parser.add_argument("--test", nargs="+", default=[], metavar="FILE", help="a test set, which should not be in it")
    parser.add_argument("--fix", action="store_true", help="write the pairs that have no errors")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where --fix writes: a .tsv or .tsv.gz")
    parser.add_argument("--drop", default="", metavar="LIST", help="warnings to take for errors, such as numbers,tags")
    parser.add_argument("--keep", default="", metavar="LIST", help="errors to take for warnings, such as duplicate")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--strict", action="store_true", help="exit with 1 if there are errors")
    add_check(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from regard.files.corpus_check import Examination

    given = gather(overrides=dotted(arguments))
    check = build(CheckSettings, given.get("check", {}), "check.")
    data = build(DataSettings, given.get("data", {}), "data.")
    _require_output(arguments, data)
    files, data = _corpus(arguments.files, data)
    if arguments.fix:
        destination.require_file(arguments.output, [*files, *arguments.test])
    found = Examination(files, data, check, _dropping(arguments))
    with _watched() as show:
        for done in found.survey([as_path(name) for name in arguments.test]):
            show("reading", done, None)
        parts = _shown(found, show)
        if arguments.fix:
            _write(arguments.output, parts, found)
        for _ in parts:
            pass
    if arguments.json:
        print(json.dumps(_summary(found, arguments), ensure_ascii=False))
    else:
        from regard.cli.check_display import tell

        tell(found, arguments.output)
    return 1 if arguments.strict and found.kept < found.report.pairs else 0


def _corpus(names: list[str], data: DataSettings) -> tuple[list[Path], DataSettings]:
    """The files that are meant, and in which languages, as far as they tell."""
    files = expand_paths(names, data)
    if data.directions:
        return files, data
    unnamed = DataSettings()
    source, target = languages(
        files,
        "" if data.source == unnamed.source else data.source,
        "" if data.target == unnamed.target else data.target,
    )
    return files, replace(data, source=source or unnamed.source, target=target or unnamed.target)


def _require_output(arguments: argparse.Namespace, data: DataSettings) -> None:
    """Refuses flags that leave open what is to be written where."""
    if bool(arguments.fix) != (arguments.output is not None):
        raise InputError("--fix writes the pairs that pass to a file: give both, as in --fix -o clean.tsv")
    if arguments.fix and not arguments.output.name.removesuffix(".gz").endswith(".tsv"):
        raise InputError(f"{arguments.output}: --fix writes source, tab, target: name it .tsv or .tsv.gz")
    if arguments.fix and data.directions:
        raise InputError("--fix writes pairs of one direction: give its files alone, without --directions")


def _dropping(arguments: argparse.Namespace) -> set[str]:
    """The checks whose finds are errors."""
    from regard.files.pair_checks import CHECKS

    chosen = {name for name, check in CHECKS.items() if check.severity == "error"}
    drop, keep = (set(filter(None, text.split(","))) for text in (arguments.drop, arguments.keep))
    for name in drop | keep:
        if name not in CHECKS:
            raise InputError(f"there is no check {name!r}: the checks are {', '.join(CHECKS)}")
    for name in keep:
        if CHECKS[name].always:
            raise InputError(f"training leaves out what {name} finds, so that it cannot be kept")
    return (chosen | drop) - keep


Show = Callable[[str, int, int | None], None]


@contextmanager
def _watched() -> Iterator[Show]:
    """Shows how far the work is, where somebody looks at standard error."""
    if not sys.stderr.isatty():
        yield lambda name, done, total: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:,} pairs"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("reading", total=None)
        yield lambda name, done, total: bar.update(task, description=name, completed=done, total=total)


def _shown(found: Examination, show: Show) -> Iterator[PairChunk]:
    done = 0
    for part in found.judge():
        yield part
        done += len(part.pairs)
        show("checking", done, found.total)


def _write(output: Path, parts: Iterator[PairChunk], found: Examination) -> None:
    """Writes the pairs that pass, all or none."""
    from regard.atomic_files import write_atomically

    def write(path: Path) -> None:
        opened = gzip.open if output.suffix == ".gz" else open
        with opened(path, "wt", encoding="utf-8", newline="\n") as file:
            for part in parts:
                file.writelines(f"{source}\t{target}\n" for source, target in part.kept())
        if not found.kept:
            raise DataError(f"no pair of {' and '.join(map(str, found.files))} passes, so that nothing is written")

    write_atomically(output, write)


def _summary(found: Examination, arguments: argparse.Namespace) -> dict[str, Any]:
    """What was found, for programs."""
    checks = {
        name: {
            "count": finding.count,
            "share": finding.count / found.report.pairs,
            "severity": found.severity(name),
            "meaning": finding.check.meaning,
            "examples": [asdict(example) for example in finding.examples],
        }
        for name, finding in found.findings.items()
    }
    about: dict[str, Any] = {"files": arguments.files, "pairs": found.report.read, "passing": found.kept}
    if arguments.test:
        about["test"] = {"files": arguments.test, "sources": len(found.tested), "leaked": len(found.leaked)}
    if arguments.fix:
        about["written"] = str(arguments.output)
    return {**about, "checks": checks, "notes": found.notes()}
