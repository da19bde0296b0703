"""regard translate with documents: fills in the missing translations and leaves the rest unchanged."""

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

from regard.cli import shared_flags as flags
from regard.cli.output_paths import identity, require_output, require_writable
from regard.errors import DataError, InputError
from regard.files.formats import format_by_suffix as files
from regard.files.language_tags import same_language
from regard.settings import DataSettings

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.faithful.document_translation import FilledUnit, Translate
    from regard.faithful.translation_memory import TranslationMemory
    from regard.files.formats import Document
    from regard.tokens.language_directions import Direction

SOURCES = {"memory": "from memory", "model": "by the model", "repaired": "repaired"}
MAX_FLAGGED = 20
"""Maximum number of flagged translations per document that are reported on standard error."""
COLUMNS = ("place", "confidence", "how", "match", "flags", "source", "translation")


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flags of `regard translate` that apply to documents."""
    group = parser.add_argument_group("documents", "for files that contain translations, such as PO and XLIFF")
    group.add_argument("--all", action="store_true", help="also replace translations that are already finished")
    text = "reuse the translations in FILE (TMX, PO, TSV, ...); auto: the translation memory of the model"
    group.add_argument("--memory", metavar="FILE", help=text)
    text = "print the translations, least certain first, without writing any document"
    group.add_argument("--dry-run", action="store_true", help=text)
    text = "write a table (TSV) of the translations, least certain first"
    group.add_argument("--report", type=Path, metavar="FILE", help=text)


def are_documents(arguments: argparse.Namespace) -> bool:
    """Reports whether the files are documents, rather than lines of text."""
    names = [] if arguments.plain else arguments.files
    is_collection = len(names) > 1 or any(Path(name).is_dir() for name in names)
    return is_collection or any(name != "-" and is_fillable(Path(name)) for name in names)


def is_fillable(path: Path) -> bool:
    """Reports whether Regard can write translations back into the format of a file, judging by its suffix."""
    return files.suffix(path) in files.FILLABLE


def reject_flags(arguments: argparse.Namespace) -> None:
    """Raises an error if a flag for documents is used with lines of text."""
    rejected = {"--all": arguments.all, "--dry-run": arguments.dry_run, "--report": arguments.report}
    flags.reject_flags(rejected, "works only with documents, such as .po and .xlf files, not with lines of text")


def translation_options(arguments: argparse.Namespace, translator: Translator) -> dict[str, Any]:
    """Returns the flags as arguments of `Translator.translate`; raises an error if the model does not support one."""
    options = flags.translating_options(arguments)
    translator.decoding(flags.decoding_options(arguments))
    direction = translator.direction(**flags.direction_options(arguments))
    if arguments.glossary is None:
        return options
    if arguments.stream:
        raise InputError("--stream prints each word as it is decoded: it cannot be combined with --glossary")
    from regard.faithful.glossary import Glossary

    unnamed = (DataSettings.source, DataSettings.target)
    languages = ("" if name in unnamed else name for name in (direction.source, direction.target))
    return {**options, "glossary": Glossary.read(arguments.glossary, *languages)}


def run(arguments: argparse.Namespace) -> int:
    if arguments.stream or arguments.scores:
        raise InputError("--stream and --scores work only with lines of text: use --json, --dry-run or --report")
    outputs = _pair_outputs(arguments)
    _require_outputs(outputs, arguments)
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    translator = load_as(Translator, arguments.model, **flags.engine_options(arguments))
    options = translation_options(arguments, translator)
    direction = translator.direction(**flags.direction_options(arguments))
    memory = open_memory(arguments, translator) if arguments.memory else None
    if translator.confidence is None and (arguments.dry_run or arguments.report or arguments.json):
        reason = _explain_no_confidence(Path(arguments.model))
        print(f"{arguments.model}: {reason}: translations have no confidence", file=sys.stderr)
    translate = _faithful(translator, options)
    for path, _ in outputs:  # reports errors in any document before the first one is translated
        _require_languages(files.open_document(path, *_languages(direction)), path, direction)
    outcomes: list[FilledUnit] = []
    for done, (path, output) in enumerate(outputs):
        try:
            outcomes += _translate_document(path, output, translate, direction, memory, arguments)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(f"stopped; {done:,} of {len(outputs):,} documents have been written") from None
    outcomes.sort(key=lambda outcome: outcome.doubt)
    if arguments.report:
        _write_report(arguments.report, outcomes)
    if arguments.dry_run and not arguments.json:
        for outcome in outcomes:
            print("\n".join(_format_unit(outcome)))
    return 0


def _pair_outputs(arguments: argparse.Namespace) -> list[tuple[Path, Path | None]]:
    """Returns each document with its output path: the output file, or the same relative path in the output folder."""
    paths = sorted({path for name in arguments.files for path in _find_documents(name)})
    if arguments.dry_run:
        return [(path, None) for path in paths]
    if arguments.output is None:
        name = f"translated{''.join(paths[0].suffixes[-2:])}" if len(paths) == 1 else "translated/"
        raise InputError(f"{paths[0]}: a document needs an output: add -o {name}, or use --dry-run")
    output = Path(arguments.output)
    if len(arguments.files) == 1 and len(paths) == 1 and not output.is_dir() and not arguments.output.endswith("/"):
        return [(paths[0], output)]
    if output.exists() and not output.is_dir():
        raise InputError(f"{output}: is a file: specify a folder for several documents")
    above = Path(os.path.commonpath([path.absolute().parent for path in paths]))
    return [(path, output / path.absolute().relative_to(above)) for path in paths]


def _find_documents(name: str) -> list[Path]:
    """Returns the documents that a name stands for: one file, the files in a folder, or the matches of a pattern."""
    path = Path(name)
    if path.is_dir():
        paths = [each for each in path.rglob("*") if each.is_file() and is_fillable(each)]
    elif not path.exists() and glob.has_magic(name):
        paths = [Path(each) for each in glob.glob(name, recursive=True) if is_fillable(Path(each))]  # noqa: PTH207
    elif not path.exists():
        raise InputError(f"{path}: no such file")
    elif not is_fillable(path) and files.suffix(path) not in files.PLAIN:
        advice = "to translate it line by line, run the command on this file alone"
        raise InputError(f"{path}: Regard cannot write translations back into this format; {advice}")
    else:
        paths = [path]
    if not paths:
        raise InputError(f"{path}: contains no documents")
    return paths


def _require_outputs(outputs: Sequence[tuple[Path, Path | None]], arguments: argparse.Namespace) -> None:
    """Raises an error if an output cannot be written, or would replace an input whose source texts it does not keep."""
    inputs = {identity(path): path for path, _ in outputs}
    others = [name for name in (arguments.memory, arguments.glossary) if name] + [arguments.model]
    for path, output in outputs:
        if output is None:
            continue
        replaced = inputs.get(identity(output)) if output.exists() else None
        if replaced is None:
            require_output(output, others)
        elif replaced != path or files.suffix(path) not in files.IN_PLACE:
            raise InputError(
                f"{output}: this command reads this file and would overwrite it: specify another file or folder "
                f"(only formats that keep the source can be filled in place: {', '.join(files.IN_PLACE)})"
            )
        require_writable(output)
        _require_same_format(path, output)
    if arguments.report:
        require_output(arguments.report, [*inputs.values(), *others])
        if arguments.report.resolve() in [output.resolve() for _, output in outputs if output]:
            raise InputError(f"{arguments.report}: is also the output of a translation: specify another file")


def _require_same_format(path: Path, output: Path) -> None:
    suffix, output_suffix, known = files.suffix(path), files.suffix(output), {**files.PAIRED, **files.ALONE}
    if output_suffix in files.COMPILED or known.get(suffix) != known.get(output_suffix, known.get(suffix)):
        name = output.with_name(output.name.removesuffix(".gz").rpartition(".")[0] + suffix)
        raise InputError(f"{output}: {path} has the format {suffix}: name the output {name}")


def open_memory(arguments: argparse.Namespace, translator: Translator) -> TranslationMemory:
    """Opens the translation memory specified by --memory."""
    from regard.faithful import translation_memory as memory
    from regard.files.corpus import read_pairs
    from regard.files.corpus_report import Report
    from regard.model_folder import MEMORY

    direction = translator.direction(**flags.direction_options(arguments))
    if arguments.memory == "auto":
        path = Path(arguments.model) / MEMORY
        if not path.exists():
            advice = "train it with regard train --data.memory on, or specify a file"
            raise InputError(f"{arguments.model}: has no translation memory: {advice}")
        return memory.open_recorded(Path(arguments.model), direction)
    path = Path(arguments.memory)
    data = replace(translator.settings.data, source=direction.source, target=direction.target, directions=())
    entries = memory.TranslationMemory(read_pairs([path], data, Report(), whole=True))
    if not entries:
        raise DataError("the file contains no translations", path)
    return entries


def _explain_no_confidence(model: Path) -> str:
    from regard.model_folder import CONFIDENCE, TRAINING, has_finished

    if (model / TRAINING).exists() and not has_finished(model):
        return f"its training was stopped, and confidence is calibrated at the end (regard train --resume {model})"
    return f"has no {CONFIDENCE}, which regard train writes at the end"


def _faithful(translator: Translator, options: dict[str, Any]) -> Translate:
    """Returns a function that translates units and preserves their placeholders."""
    from regard.faithful.faithful_translation import Faithful, MarkedText

    faithful = Faithful(translator)
    return lambda units: list(faithful.translate((MarkedText(unit.source, unit.marks) for unit in units), **options))


def _translate_document(
    path: Path,
    output: Path | None,
    translate: Translate,
    direction: Direction,
    memory: TranslationMemory | None,
    arguments: argparse.Namespace,
) -> list[FilledUnit]:
    """Fills in one document, writes it and prints a summary on standard error."""
    from regard.faithful.document_translation import fill, wanted

    document = files.open_document(path, *_languages(direction))
    stream = fill(document, translate, everything=arguments.all, memory=memory)
    if sys.stderr.isatty():
        from regard.cli.progress_display import show_sentences

        sizes = deque(len(document.units[number].source) for number in wanted(document, everything=arguments.all))
        stream = show_sentences(stream, sizes, sum(sizes) or None)
    outcomes = []
    with closing(stream):
        for outcome in stream:
            outcomes.append(outcome)
            if arguments.json:
                print(json.dumps(_as_record(outcome), ensure_ascii=False))
    if output is not None:
        _write_document(document, outcomes, output, _languages(direction)[1])
    notes = [f"{path}: {note}" for note in document.notes]
    print(*notes, *_summary(path, output, document, outcomes), sep="\n", file=sys.stderr)
    return outcomes


def _languages(direction: Direction) -> tuple[str, str]:
    """Returns the source and target language; empty strings if the settings of the model do not name them."""
    is_unnamed = (direction.source, direction.target) == (DataSettings.source, DataSettings.target)
    return ("", "") if is_unnamed else (direction.source, direction.target)


def _require_languages(document: Document, path: Path, direction: Direction) -> None:
    has_text = any(unit.state != "empty" for unit in document.units)
    sides = [("from", document.source_language), ("into", document.target_language if has_text else "")]
    for (side, language), known in zip(sides, _languages(direction), strict=True):
        if language and known and not same_language(language, known):
            raise InputError(f"{path}: translates {side} {language}, but the model translates {side} {known}")


def _write_document(document: Document, outcomes: Iterable[FilledUnit], output: Path, language: str) -> None:
    from regard.atomic_files import write_atomically

    data = document.render({outcome.number: outcome.made.text for outcome in outcomes if outcome.is_filled}, language)
    data = gzip.decompress(data) if data.startswith(b"\x1f\x8b") else data
    data = gzip.compress(data, mtime=0) if output.suffix == ".gz" else data
    write_atomically(output, lambda temporary: temporary.write_bytes(data))


def _summary(path: Path, output: Path | None, document: Document, outcomes: Sequence[FilledUnit]) -> Iterator[str]:
    """Yields a line about a document, and a line for each flagged translation."""
    counts = Counter(outcome.made.how for outcome in outcomes)
    ways = ", ".join(f"{count:,} {SOURCES[how]}" for how, count in sorted(counts.items()) if how in SOURCES)
    flagged = [outcome for outcome in outcomes if outcome.made.flags]
    filled = sum(outcome.is_filled for outcome in outcomes)
    verb = "filled" if output is not None else "would be filled"
    result = f"{path}: {filled:,} {verb}{f' ({ways})' if ways else ''}, {len(document.units) - filled:,} unchanged"
    yield f"{result}, {len(flagged):,} flagged{f'; written to {output}' if output else ''}"
    for outcome in flagged[:MAX_FLAGGED]:
        yield f"{outcome.unit.where}: {'; '.join(outcome.made.flags)}"
    if len(flagged) > MAX_FLAGGED:
        yield f"... and {len(flagged) - MAX_FLAGGED:,} more; --report FILE lists all of them"


def _format_unit(outcome: FilledUnit) -> Iterator[str]:
    made = outcome.made
    confidence = "" if made.confidence is None else f"  {made.confidence:.2f}"
    yield f"{outcome.unit.where}{confidence}  {made.how}{''.join(f'  ! {flag}' for flag in made.flags)}"
    yield f"  - {escape(outcome.unit.source)}"
    yield f"  + {escape(made.text)}"
    for match in outcome.matches:
        yield f"  {match.score}% {escape(match.source)} = {escape(match.target)}"


def _as_record(outcome: FilledUnit) -> dict[str, Any]:
    unit, matches = outcome.unit, [asdict(match) for match in outcome.matches]
    where = {"file": unit.where.path, "line": unit.where.line, "context": unit.context}
    return {**where, "source": unit.source, **asdict(outcome.made), "matches": matches}


def _write_report(path: Path, outcomes: Iterable[FilledUnit]) -> None:
    """Writes the translations as a table (TSV) with escaped texts."""
    from regard.atomic_files import write_text

    rows: list[tuple[str, ...]] = [COLUMNS]
    for outcome in outcomes:
        made = outcome.made
        confidence = "" if made.confidence is None else f"{made.confidence:.4f}"
        match = str(outcome.matches[0].score) if outcome.matches else ""
        texts = map(escape, ("; ".join(made.flags), outcome.unit.source, made.text))
        rows.append((str(outcome.unit.where), confidence, made.how, match, *texts))
    write_text(path, "".join("\t".join(row) + "\n" for row in rows))


def escape(text: str) -> str:
    """Returns a text as one line, with tabs, line ends and backslashes escaped as \\t, \\n and \\\\."""
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
