"""regard translate, of documents: what is not translated in them is filled in, the rest stays as it is."""

from __future__ import annotations

import argparse
import glob
import gzip
import json
import os
import sys
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import glossary_options as terms, output_paths as destination
from regard.cli.setting_flags import decoding_options, direction_options, engine_options
from regard.errors import DataError, InputError
from regard.files.formats import format_by_suffix as files
from regard.tokens.language_tags import same_language

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.faithful.document_translation import Made, Outcome, Translate
    from regard.faithful.translation_memory import Memory
    from regard.files.formats import Document, Unit
    from regard.tokens.directions import Direction


def add_flags(parser: argparse.ArgumentParser) -> None:
    """The flags that are for documents."""
    group = parser.add_argument_group("documents", "files in which translations are kept, such as PO and XLIFF")
    group.add_argument("--all", action="store_true", help="translate anew what is translated already")
    group.add_argument(
        "--memory", metavar="FILE", help="take what is in a TMX, PO, TSV, ... from there; auto: the model's"
    )
    group.add_argument("--dry-run", action="store_true", help="print what would be filled in, the doubtful first")
    group.add_argument("--report", type=Path, metavar="FILE", help="a TSV of what was filled in, the doubtful first")


def are_meant(arguments: argparse.Namespace) -> bool:
    """Whether the files are documents and not lines of text."""
    names = [] if arguments.plain else arguments.files
    several = len(names) > 1 or any(Path(name).is_dir() for name in names)
    return several or any(name != "-" and fillable(Path(name)) for name in names)


def fillable(path: Path) -> bool:
    """Whether translations can be put back into a file of this name."""
    return files.suffix(path) in files.FILLABLE


def refuse_flags(arguments: argparse.Namespace) -> None:
    """What is for documents is not for lines of text."""
    given = {"--all": arguments.all, "--dry-run": arguments.dry_run, "--report": arguments.report}
    for flag in (flag for flag, value in given.items() if value):
        raise InputError(f"{flag} is for documents, such as .po and .xlf files, and not for lines of text")


def why_unsure(model: Path) -> str:
    """Says why a model has no calibrated confidence, and what would give it one."""
    from regard.model_folder import CONFIDENCE, TRAINING, has_finished

    if (model / TRAINING).exists() and not has_finished(model):
        return f"its training was stopped, and confidence is calibrated at the end (regard train --resume {model})"
    return f"has no {CONFIDENCE}, which regard train writes at the end"


def run(arguments: argparse.Namespace) -> int:
    if arguments.stream or arguments.scores:
        raise InputError("--stream and --scores are for lines of text: documents have --json, --dry-run and --report")
    plan = outputs(arguments)
    require_outputs(plan, arguments)
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    translator = load_as(Translator, arguments.model, **engine_options(arguments))
    options: dict[str, Any] = {**direction_options(arguments), **decoding_options(arguments)}
    translator.decoding(decoding_options(arguments))
    direction = translator.direction(**direction_options(arguments))
    options |= terms.glossary_option(arguments, direction)
    memory = open_memory(arguments, translator) if arguments.memory else None
    if translator.confidence is None and (arguments.dry_run or arguments.report or arguments.json):
        say(f"{arguments.model}: {why_unsure(Path(arguments.model))}: translations have no confidence")
    translate = faithful(translator, options)
    for path, _ in plan:  # what is wrong with any of them is said before the first is translated
        require_languages(files.open_document(path, *named(direction)), path, direction)
    outcomes: list[Outcome] = []
    for done, (path, output) in enumerate(plan):
        try:
            outcomes += translate_document(path, output, translate, direction, memory, arguments)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {done:,} of {len(plan):,} documents are written") from None
    outcomes.sort(key=lambda outcome: outcome.doubt)
    if arguments.report:
        write_report(arguments.report, outcomes)
    if arguments.dry_run and not arguments.json:
        for outcome in outcomes:
            print("\n".join(describe(outcome)))
    return 0


def outputs(arguments: argparse.Namespace) -> list[tuple[Path, Path | None]]:
    """Which file goes where: one into a file or a folder, several into a folder, with the folders that they are in."""
    found = sorted({path for name in arguments.files for path in documents_in(name)})
    if arguments.dry_run:
        return [(path, None) for path in found]
    if arguments.output is None:
        name = f"translated{''.join(found[0].suffixes[-2:])}" if len(found) == 1 else "translated/"
        raise InputError(
            f"{found[0]}: is a document: say where its translation goes, as in -o {name}, or use --dry-run"
        )
    output = Path(arguments.output)
    if len(arguments.files) == 1 and len(found) == 1 and not output.is_dir() and not arguments.output.endswith("/"):
        return [(found[0], output)]
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file: several documents go into a folder")
    above = Path(os.path.commonpath([path.absolute().parent for path in found]))
    return [(path, output / path.absolute().relative_to(above)) for path in found]


def require_outputs(plan: Sequence[tuple[Path, Path | None]], arguments: argparse.Namespace) -> None:
    """Refuses outputs that cannot be written, or that would replace a text and not only fill it in."""
    read = {destination.identity(path): path for path, _ in plan}
    others = [name for name in (arguments.memory, arguments.glossary) if name]
    for path, output in plan:
        if output is None:
            continue
        replaced = read.get(destination.identity(output)) if output.exists() else None
        if replaced is None:
            destination.require_file(output, [*others, arguments.model])
        elif replaced != path or files.suffix(path) not in files.IN_PLACE:
            raise InputError(
                f"{output}: this command reads it, and would write over it: name another file or folder (only formats "
                f"that keep the source are filled in their place: {', '.join(files.IN_PLACE)})"
            )
        destination.require_writable(output)
        require_same_format(path, output)
    if arguments.report:
        destination.require_file(arguments.report, [*read.values(), *others, arguments.model])
        if arguments.report.resolve() in [output.resolve() for _, output in plan if output]:
            raise InputError(f"{arguments.report}: a translation goes there: name another file for the report")


def require_same_format(path: Path, output: Path) -> None:
    """Refuses an output whose name promises another format than the document has."""
    ends, known = (files.suffix(path), files.suffix(output)), {**files.PAIRED, **files.ALONE}
    if ends[1] in files.COMPILED or known.get(ends[0]) != known.get(ends[1], known.get(ends[0])):
        stem = output.name.removesuffix(".gz").rpartition(".")[0]
        raise InputError(
            f"{output}: {path} is translated as {ends[0]}: name the output {output.with_name(stem + ends[0])}"
        )


def documents_in(name: str) -> list[Path]:
    """A file, the documents in a folder, or those that fit a pattern."""
    path = Path(name)
    if not path.is_dir() and not path.exists() and glob.has_magic(name):
        found = [Path(each) for each in glob.glob(name, recursive=True) if fillable(Path(each))]  # noqa: PTH207
    elif not path.is_dir():
        if not path.exists():
            raise InputError(f"{path}: no such file")
        if not fillable(path) and files.suffix(path) not in files.PLAIN:
            raise InputError(
                f"{path}: Regard cannot write translations back into this format; to translate it line by line, run "
                "the command on this file alone"
            )
        return [path]
    else:
        found = [each for each in path.rglob("*") if each.is_file() and fillable(each)]
    if not found:
        raise InputError(f"{path}: no documents are in it")
    return found


def open_memory(arguments: argparse.Namespace, translator: Translator) -> Memory:
    """What the flags name as memory."""
    from regard.faithful import translation_memory as memory
    from regard.files.corpus import read_pairs
    from regard.model_folder import MEMORY
    from regard.tokens.corpus_report import Report

    direction = translator.direction(**direction_options(arguments))
    if arguments.memory == "auto":
        path = Path(arguments.model) / MEMORY
        if not path.exists():
            raise InputError(
                f"{arguments.model}: keeps no memory: train it with regard train --data.memory on, or name a file"
            )
        return memory.Memory(memory.read(path, direction))
    path = Path(arguments.memory)
    data = replace(translator.settings.data, source=direction.source, target=direction.target, directions=())
    found = memory.Memory(read_pairs([path], data, Report(), whole=True))
    if not found:
        raise DataError("nothing translated is in it", path)
    return found


def faithful(translator: Translator, options: dict[str, Any]) -> Translate:
    """The translator as something that translates units and keeps what must be kept."""
    from regard.faithful.document_translation import Made
    from regard.faithful.faithful_translation import Faithful, Job

    def translate(units: Sequence[Unit]) -> list[Made]:
        found = Faithful(translator).translate((Job(unit.source, unit.marks) for unit in units), **options)
        return [Made(each.text, each.how, each.confidence, each.flags) for each in found]

    return translate


def translate_document(
    path: Path,
    output: Path | None,
    translate: Translate,
    direction: Direction,
    memory: Memory | None,
    arguments: argparse.Namespace,
) -> list[Outcome]:
    """Fills one document in, writes it, and says what was done."""
    from regard.faithful.document_translation import fill, wanted

    document = files.open_document(path, *named(direction))
    found = fill(document, translate, everything=arguments.all, memory=memory)
    if sys.stderr.isatty():
        from regard.cli.progress_bar import metered

        sizes = deque(len(document.units[number].source) for number in wanted(document, everything=arguments.all))
        found = metered(found, sizes, sum(sizes) or None)
    outcomes = []
    with closing(found):
        for outcome in found:
            outcomes.append(outcome)
            if arguments.json:
                print(json.dumps(as_record(outcome), ensure_ascii=False))
    if output is not None:
        write(document, outcomes, output, named(direction)[1])
    for note in document.notes:
        say(f"{path}: {note}")
    for line in summary(path, output, len(document.units), outcomes):
        say(line)
    return outcomes


def named(direction: Direction) -> tuple[str, str]:
    """The two languages; nothing for those of a model that does not say what they are."""
    from regard.settings import DataSettings

    unnamed = (direction.source, direction.target) == (DataSettings.source, DataSettings.target)
    return ("", "") if unnamed else (direction.source, direction.target)


def require_languages(document: Document, path: Path, direction: Direction) -> None:
    """Refuses a document from or into another language than the model's; regions may differ."""
    has = any(unit.state != "empty" for unit in document.units)
    sides = [("from", document.source_language), ("into", document.target_language if has else "")]
    for (way, theirs), ours in zip(sides, named(direction), strict=True):
        if theirs and ours and not same_language(theirs, ours):
            raise InputError(f"{path}: is translated {way} {theirs}, and the model translates {way} {ours}")


def write(document: Document, outcomes: Iterable[Outcome], output: Path, language: str) -> None:
    """The document with its translations, gzipped if its new name says so; whole or not at all."""
    from regard.atomic_files import write_atomically

    data = document.render({outcome.number: outcome.made.text for outcome in outcomes if outcome.is_filled}, language)
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    data = gzip.compress(data, mtime=0) if output.suffix == ".gz" else data
    write_atomically(output, lambda temporary: temporary.write_bytes(data))


def summary(path: Path, output: Path | None, units: int, outcomes: Sequence[Outcome]) -> Iterator[str]:
    """What was done to a document, and a line for each translation that somebody has to look at."""
    counts = Counter(outcome.made.how for outcome in outcomes)
    ways = ", ".join(f"{count:,} {WAYS[how]}" for how, count in sorted(counts.items()) if how in WAYS)
    flagged = [outcome for outcome in outcomes if outcome.made.flags]
    filled = sum(outcome.is_filled for outcome in outcomes)
    did = "filled" if output is not None else "would be filled"
    told = f"{path}: {filled:,} {did}{f' ({ways})' if ways else ''}, {units - filled:,} left alone"
    yield f"{told}, {len(flagged):,} flagged{f'; written to {output}' if output else ''}"
    for outcome in flagged[:MOST_TOLD]:
        yield f"{outcome.unit.where}: {'; '.join(outcome.made.flags)}"
    if len(flagged) > MOST_TOLD:
        yield f"... and {len(flagged) - MOST_TOLD:,} more: --report FILE lists them all"


WAYS = {"memory": "from memory", "model": "by the model", "repaired": "put right"}
MOST_TOLD = 20


def describe(outcome: Outcome) -> Iterator[str]:
    """One translation for people."""
    made = outcome.made
    trust = "" if made.confidence is None else f"  {made.confidence:.2f}"
    yield f"{outcome.unit.where}{trust}  {made.how}{''.join(f'  ! {flag}' for flag in made.flags)}"
    yield f"  - {escape(outcome.unit.source)}"
    yield f"  + {escape(made.text)}"
    for match in outcome.matches:
        yield f"  {match.score}% {escape(match.source)} = {escape(match.target)}"


def as_record(outcome: Outcome) -> dict[str, Any]:
    """One translation for programs."""
    unit, made = outcome.unit, outcome.made
    return {
        "file": unit.where.path,
        "line": unit.where.line,
        "context": unit.context,
        "source": unit.source,
        **asdict(made),
        "matches": [asdict(match) for match in outcome.matches],
    }


COLUMNS = ("place", "confidence", "how", "match", "flags", "source", "translation")


def write_report(path: Path, outcomes: Iterable[Outcome]) -> None:
    """A table for a spreadsheet: tabs, line ends and backslashes in texts are written as \\t, \\n and \\\\."""
    from regard.atomic_files import write_text

    rows: list[tuple[str, ...]] = [COLUMNS]
    for outcome in outcomes:
        made = outcome.made
        trust = "" if made.confidence is None else f"{made.confidence:.4f}"
        match = str(outcome.matches[0].score) if outcome.matches else ""
        texts = map(escape, ("; ".join(made.flags), outcome.unit.source, made.text))
        rows.append((str(outcome.unit.where), trust, made.how, match, *texts))
    write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def escape(text: str) -> str:
    """A text on one line."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


def say(line: str) -> None:
    """A line for who runs the command, apart from the translations."""
    print(line, file=sys.stderr)
