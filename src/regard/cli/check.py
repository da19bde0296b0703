"""regard check: reports the faults of a corpus, and writes the pairs without errors."""

from __future__ import annotations

import argparse
import gzip
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.output_paths import require_output
from regard.cli.shared_flags import Verbs, add_check, setting_overrides
from regard.errors import DataError, InputError
from regard.files.check_thresholds import CheckSettings
from regard.files.corpus_files import expand_paths, languages
from regard.files.remote_files import as_path
from regard.preparation.chosen_settings import gather
from regard.settings import DataSettings
from regard.settings.option_fields import build

if TYPE_CHECKING:
    from rich.progress import Progress

    from regard.files.corpus_check import Examination, Finding, PairChunk

DESCRIPTION = """Checks the pairs of FILES, in any form that regard train accepts. For each kind of fault, reports how
many pairs have it and where the first of them are. The exit code is 0 even if there are faults, unless you pass
--strict.

  regard check train.en train.de                         print a table of the faults
  regard check train.en train.de --test test.en test.de  also report test sentences that are in the corpus
  regard check train.tsv --fix -o clean.tsv              write the pairs that have no errors

--fix drops pairs with errors and keeps pairs with warnings. Use --drop to treat a check as an error, and --keep to
treat it as a warning."""

LOG_WIDTH = 160
"""Width of the examples in characters if the output is not a terminal."""
COLOURS = {"error": "red", "warning": "yellow"}


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("check", help="find and remove faults in a corpus", description=DESCRIPTION, run=run)
    parser.add_argument("files", nargs="+", metavar="FILES", help="the corpus, in any form that regard train accepts")
    parser.add_argument(
        "--test", nargs="+", default=[], metavar="FILE", help="a test set; its sentences should not be in the corpus"
    )
    parser.add_argument("--fix", action="store_true", help="write the pairs that have no errors to -o FILE")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="the .tsv or .tsv.gz file for --fix")
    parser.add_argument("--drop", default="", metavar="LIST", help="warnings to treat as errors, such as numbers,tags")
    parser.add_argument("--keep", default="", metavar="LIST", help="errors to treat as warnings, such as duplicate")
    parser.add_argument("--json", action="store_true", help="print the report as a JSON object")
    parser.add_argument("--strict", action="store_true", help="exit with code 1 if there are errors")
    add_check(parser)


def run(arguments: argparse.Namespace) -> int:
    from rich.progress import TextColumn, TimeRemainingColumn

    from regard.cli.progress_display import bar_on_stderr
    from regard.files.corpus_check import Examination

    settings = gather(overrides=setting_overrides(arguments))
    check = build(CheckSettings, settings.get("check", {}), "check.")
    data = build(DataSettings, settings.get("data", {}), "data.")
    _require_fix_flags(arguments, data)
    files, data = _corpus(arguments.files, data)
    if arguments.fix:
        require_output(arguments.output, [*files, *arguments.test])
    result = Examination(files, data, check, _checks_that_drop(arguments))
    with bar_on_stderr(TextColumn("{task.completed:,} pairs"), TimeRemainingColumn()) as bar:
        task = bar.add_task("reading", total=None)
        for done in result.survey([as_path(name) for name in arguments.test]):
            bar.update(task, completed=done)
        bar.reset(task, description="checking", total=result.total)
        chunks = _judge(result, bar)
        if arguments.fix:
            _write(arguments.output, chunks, result)
        for _ in chunks:
            pass
    if arguments.json:
        print(json.dumps(_summary(result, arguments), ensure_ascii=False))
    else:
        _print_report(result, arguments.output)
    return 1 if arguments.strict and result.kept < result.report.pairs else 0


def _require_fix_flags(arguments: argparse.Namespace, data: DataSettings) -> None:
    if bool(arguments.fix) != (arguments.output is not None):
        raise InputError("--fix and -o must be used together, as in --fix -o clean.tsv")
    if arguments.fix and not arguments.output.name.removesuffix(".gz").endswith(".tsv"):
        raise InputError(f"{arguments.output}: --fix writes tab-separated pairs: use the suffix .tsv or .tsv.gz")
    if arguments.fix and data.directions:
        raise InputError("--fix works with one direction only: pass the files of that direction without --directions")


def _corpus(names: list[str], data: DataSettings) -> tuple[list[Path], DataSettings]:
    """Returns the files of the corpus, and the data settings with the languages of the flags or the files."""
    files = expand_paths(names, data)
    if data.directions:
        return files, data
    unnamed = DataSettings()
    named = ("" if data.source == unnamed.source else data.source, "" if data.target == unnamed.target else data.target)
    source, target = languages(files, *named)
    return files, replace(data, source=source or unnamed.source, target=target or unnamed.target)


def _checks_that_drop(arguments: argparse.Namespace) -> set[str]:
    """Returns the names of the checks that count as errors, taking --drop and --keep into account."""
    from regard.files.pair_checks import CHECKS

    errors = {name for name, check in CHECKS.items() if check.severity == "error"}
    drop, keep = (set(filter(None, text.split(","))) for text in (arguments.drop, arguments.keep))
    for name in drop | keep:
        if name not in CHECKS:
            raise InputError(f"unknown check {name!r}: the checks are {', '.join(CHECKS)}")
    for name in keep:
        if CHECKS[name].always:
            raise InputError(f"--keep {name}: training always skips these pairs, so they cannot be kept")
    return (errors | drop) - keep


def _judge(result: Examination, bar: Progress) -> Iterator[PairChunk]:
    for chunk in result.judge():
        yield chunk
        bar.advance(bar.tasks[0].id, len(chunk.pairs))


def _write(output: Path, chunks: Iterator[PairChunk], result: Examination) -> None:
    """Writes the pairs without errors atomically."""
    from regard.atomic_files import write_atomically

    def write(path: Path) -> None:
        opener = gzip.open if output.suffix == ".gz" else open
        with opener(path, "wt", encoding="utf-8", newline="\n") as file:
            for chunk in chunks:
                file.writelines(f"{source}\t{target}\n" for source, target in chunk.kept())
        if not result.kept:
            raise DataError(f"every pair of {' and '.join(map(str, result.files))} has an error: no file was written")

    write_atomically(output, write)


def _summary(result: Examination, arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the report as a JSON object."""
    checks = {
        name: {
            "count": finding.count,
            "share": finding.count / result.report.pairs,
            "severity": result.severity(name),
            "meaning": finding.check.meaning,
            "examples": [asdict(example) for example in finding.examples],
        }
        for name, finding in result.findings.items()
    }
    about: dict[str, Any] = {"files": arguments.files, "pairs": result.report.read, "passing": result.kept}
    if arguments.test:
        about["test"] = {"files": arguments.test, "sources": len(result.tested), "leaked": len(result.leaked)}
    if arguments.fix:
        about["written"] = str(arguments.output)
    return {**about, "checks": checks, "notes": result.notes()}


def _print_report(result: Examination, output: Path | None) -> None:
    """Prints each kind of fault with its count, its share of all pairs, and examples."""
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False, soft_wrap=True)
    width, total = console.width if console.is_terminal else LOG_WIDTH, result.report.pairs
    more = f", {total:,} with plural forms and lines of texts" if result.report.further else ""
    others = f" and {len(result.files) - 4} more files" if len(result.files) > 5 else ""
    names = ", ".join(map(str, result.files[: 4 if others else None])) + others
    console.print(Text(f"{result.report.read:,} pairs in {names}{more}"))
    present = {name: finding for name, finding in result.findings.items() if finding.count}
    for name, finding in present.items():
        severity = result.severity(name)
        count = f"{finding.count:>11,} {finding.count / total:>8.2%}   {finding.check.meaning}"
        console.print(Text.assemble((f"\n{severity:8}", COLOURS[severity]), (f"{name:14}", "bold"), count))
        for row in _format_examples(name, finding, width):
            console.print(Text(row, style="dim"))
    lines = [f"Nothing found: {', '.join(name for name in result.findings if name not in present)}."]
    if result.tested:
        lines.append(f"{len(result.leaked):,} of the {len(result.tested):,} sources of the test set are in the corpus.")
    lines += result.notes()
    dropped = total - result.kept
    if output:
        errors = [name for name in present if result.severity(name) == "error"]
        reasons = ", ".join(f"{name} {present[name].count:,}" for name in errors)
        because = f" ({reasons})" if reasons else ""
        lines.append(f"{output}: {result.kept:,} pairs written, {dropped:,} dropped{because}.")
    elif dropped:
        lines.append(f"{result.kept:,} pairs have no error; --fix -o clean.tsv writes these and drops {dropped:,}.")
    console.print(Text("\n" + "\n".join(lines)))


def _format_examples(name: str, finding: Finding, width: int) -> Iterator[str]:
    from regard.files.pair_checks import unmatched_items

    for example in finding.examples:
        only = zip(unmatched_items(name, example.source, example.target), ("source", "target"), strict=True)
        parts = [f"{', '.join(texts[:5])} only in the {side}" for texts, side in only if texts]
        yield f"{'':8}{example.where}" + (f"  ({shorten('; '.join(parts), width)})" if parts else "")
        if example.source or example.target:
            source, target = (shorten(text, (width - 17) // 2) for text in (example.source, example.target))
            yield f"{'':12}{source}  →  {target}"


def shorten(text: str, length: int) -> str:
    """Truncates a text to `length` characters and escapes invisible characters."""
    visible = "".join(c if c.isprintable() else repr(c)[1:-1] for c in text[: length + 1])
    return visible if len(visible) <= length else visible[: length - 1] + "…"
