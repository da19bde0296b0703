"""regard evaluate: how good a model's, or any system's, translations are."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from regard.cli import output_paths as destination
from regard.cli.setting_flags import (
    Verbs,
    add_decoding,
    add_direction,
    add_engine,
    add_shortlist,
    decoding_options,
    direction_options,
    engine_options,
)
from regard.errors import InputError
from regard.files.corpus_files import expand_paths
from regard.files.formats.format_by_suffix import require_plain
from regard.files.remote_files import as_path
from regard.settings import DataSettings

DESCRIPTION = """Of a translator: BLEU, chrF and TER by sacrebleu, with signatures and 95 % bootstrap confidence
intervals. Of a model that writes, given text files: perplexity and nats per character. Of a classifier, given labelled
files: accuracy, F1, and which labels were taken for which.

  regard evaluate MODEL test.en test.de                  translate and score (also one .tsv or .jsonl)
  regard evaluate MODEL test.en test.de --to de          one direction of a model that has several
  regard evaluate --hypotheses out.de test.de            score translations that you have
  regard evaluate MODEL test.en test.de --baseline OTHER compare with another model or file of translations,
                                                         with a paired bootstrap test (Koehn, 2004)"""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "evaluate",
        help="score translations, compare two systems",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("files", nargs="+", metavar="FILES", help="MODEL and a test set; with --hypotheses: references")
    parser.add_argument("--hypotheses", type=Path, metavar="FILE", help="score these translations instead of a model's")
    parser.add_argument("--baseline", metavar="FILE", help="a file of translations, or a model folder, to compare with")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="keep the translations here")
    parser.add_argument("--lowercase", action="store_true", help="ignore case")
    parser.add_argument(
        "--tokenize", metavar="NAME", help="sacrebleu's tokenizer (by language): 13a, none, zh, char ..."
    )
    parser.add_argument(
        "--language", default="", metavar="CODE", help="language of the references (the model's target)"
    )
    parser.add_argument("--resamples", type=int, default=1000, metavar="N", help="bootstrap samples (1000); 0: none")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_direction(parser)
    add_engine(parser)
    add_shortlist(parser)
    add_decoding(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    task = _task(arguments)
    if task != "translate":
        _refuse_flags(arguments, task)
        return _measure(arguments, task)
    from regard.evaluation.translation_scores import compare, require_options, score

    if arguments.output is not None:
        require_output(arguments)
    sources, references, language = _test_set(arguments)
    options = {"lowercase": arguments.lowercase, "tokenize": arguments.tokenize, "resamples": arguments.resamples}
    how: dict[str, Any] = {"language": language, **options}
    require_options(**how, pairs=bool(arguments.baseline))
    baseline = _baseline(arguments, sources, references) if arguments.baseline else None
    if arguments.hypotheses:
        hypotheses = read_text(arguments.hypotheses)
        _require_count(arguments.hypotheses, hypotheses, references)
    else:
        hypotheses = translate(arguments.files[0], sources, arguments)
    if arguments.output:
        from regard.atomic_files import write_text

        write_text(arguments.output, "".join(line.replace("\n", " ") + "\n" for line in hypotheses))
    scores = score(hypotheses, references, **how)
    comparisons: list[Any] = []
    if baseline is not None:
        before = baseline or translate(arguments.baseline, sources, arguments)
        comparisons = compare(before, hypotheses, references, **how)
    show(len(references), scores, comparisons, as_json=arguments.json)
    return 0


def show(sentences: int, scores: list[Any], comparisons: list[Any], *, as_json: bool) -> None:
    """Prints scores, and how they compare with a baseline's."""
    if as_json:
        found = {"scores": [asdict(s) for s in scores], "comparisons": [asdict(c) for c in comparisons]}
        print(json.dumps(found, ensure_ascii=False))
        return
    print(f"{sentences:,} sentences")
    for line in scores:
        print(line)
    for c in comparisons:
        verdict = "significant" if c.significant else "not significant"
        print(
            f"{c.metric} against the baseline: {c.baseline:.2f} -> {c.system:.2f} ({c.difference:+.2f}), "
            f"p = {c.p_value:.4f}, {verdict} at 0.05"
        )


def require_output(arguments: argparse.Namespace) -> None:
    """Refuses an output that cannot be written, or that this command reads."""
    model, *corpus = [arguments.hypotheses, *arguments.files] if arguments.hypotheses else arguments.files
    reads = [model, *(corpus if arguments.hypotheses else expand_paths(corpus))]
    destination.require_file(arguments.output, reads + ([arguments.baseline] if arguments.baseline else []))


def _task(arguments: argparse.Namespace) -> str:
    """What the model to be measured is for."""
    from regard.model_folder import SETTINGS, read_settings

    path = Path(arguments.files[0])
    if arguments.hypotheses or not (path / SETTINGS).is_file():
        return "translate"
    return read_settings(path).task


def _refuse_flags(arguments: argparse.Namespace, task: str) -> None:
    """Refuses flags that are for translators alone, instead of ignoring them."""
    if arguments.source or arguments.target:
        raise InputError(f"a model to {task} has no direction: leave --from and --to out")
    given = {
        "-o": arguments.output,
        "--baseline": arguments.baseline,
        "--lowercase": arguments.lowercase,
        "--tokenize": arguments.tokenize,
        "--language": arguments.language,
    }
    for flag in (flag for flag, value in given.items() if value):
        raise InputError(f"{flag} is for translations: leave it out for a model to {task}")


def _measure(arguments: argparse.Namespace, task: str) -> int:
    """Measures a model that does not translate."""
    from regard.cli.evaluate_tasks import measure_classifier, measure_writer

    if len(arguments.files) < 2:
        raise InputError("give a model and the files to measure it on")
    if task == "write":
        return measure_writer(arguments)
    if task == "classify":
        return measure_classifier(arguments)
    raise InputError(f"a model to {task} is measured by its training alone: read {arguments.files[0]}/card.md")


def _test_set(arguments: argparse.Namespace) -> tuple[list[str], list[str], str]:
    """Returns the sources and references of the test set, every one of them, and the language of the references."""
    if arguments.hypotheses:
        references = read_text(Path(arguments.files[-1]))
        sources = read_text(Path(arguments.files[0])) if len(arguments.files) > 1 else []
        return sources, references, arguments.language or arguments.target or ""
    from regard.files.corpus import read_pairs
    from regard.model_folder import read_settings
    from regard.tokens.corpus_report import Report

    if len(arguments.files) < 2:
        raise InputError("give a model and a test set (two files, one .tsv or one .jsonl), or --hypotheses")
    path = Path(arguments.files[0])
    settings = read_settings(path) if path.is_dir() else None
    data = _directed(settings.data, arguments) if settings else DataSettings()
    pairs = list(read_pairs([as_path(name) for name in arguments.files[1:]], data, Report(), whole=True))
    if not pairs:
        raise InputError(f"{arguments.files[1]}: the test set is empty")
    return [p.source for p in pairs], [p.target for p in pairs], arguments.language or data.target


def _directed(data: DataSettings, arguments: argparse.Namespace) -> DataSettings:
    """What to read of the test set: for a model of several directions, that which is to be measured."""
    from regard.tokens.directions import choose_direction

    found = choose_direction(data, **direction_options(arguments))
    if not data.directions:
        return data
    if not found.source:
        raise InputError(
            f"which language is the source of the test set? Name it with --from beside --to {found.target}"
        )
    return replace(data, source=found.source, target=found.target, directions=(str(found),))


def _baseline(arguments: argparse.Namespace, sources: list[str], references: list[str]) -> list[str]:
    """Returns the translations of the baseline, or none yet of a model, which must be one that translates."""
    path = Path(arguments.baseline)
    if not path.is_dir():
        found = read_text(path)
        _require_count(path, found, references)
        return found
    if not sources:
        raise InputError("to compare with a model, give the sources too: --hypotheses FILE SOURCES REFERENCES")
    from regard.model_folder import read_settings

    if (task := read_settings(path).task) != "translate":
        raise InputError(f"{path}: is a model to {task}: compare with a model that translates, or with translations")
    return []


def _require_count(path: Path, lines: list[str], references: list[str]) -> None:
    if len(lines) != len(references) or not lines:
        count = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}"
        raise InputError(f"{path}: {count}, but the test set has {len(references):,}")


def translate(folder: str, sources: list[str], arguments: argparse.Namespace) -> list[str]:
    """The translations of a model, with a progress bar where somebody watches."""
    from rich.console import Console
    from rich.progress import track

    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    translator = load_as(Translator, folder, **engine_options(arguments))
    found = translator.translate_stream(sources, **direction_options(arguments), **decoding_options(arguments))
    console = Console(stderr=True)
    shown = track(
        found,
        f"translating with {folder}",
        len(sources),
        console=console,
        disable=not console.is_terminal,
        transient=True,
    )
    return [t.text for t in shown]


def read_text(path: Path) -> list[str]:
    """The lines of a UTF-8 file, split at line feeds only."""
    require_plain(path, "give the translations as plain text, one a line")
    try:
        lines = path.read_bytes().decode("utf-8-sig").split("\n")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 ({error.reason} at byte {error.start}): convert it with iconv") from None
    return [line.removesuffix("\r") for line in (lines[:-1] if lines[-1] == "" else lines)]
