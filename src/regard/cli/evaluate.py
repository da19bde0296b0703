"""regard evaluate: scores the translations of a model or in a file, and models for other tasks."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import shared_flags as flags
from regard.cli.output_paths import require_output
from regard.cli.text_lines import read_text
from regard.errors import InputError
from regard.files.corpus_files import expand_paths
from regard.files.remote_files import as_path
from regard.settings import DataSettings

if TYPE_CHECKING:
    from regard.files.formats.running_text import DocumentPart

DESCRIPTION = """Measures a model on a test set. For a translator, prints BLEU, chrF and TER (sacrebleu, with signatures
and 95 % bootstrap confidence intervals). For a model that writes, prints the perplexity and nats per character of text
files. For a classifier, prints accuracy, F1 and the confusion matrix on labelled files.

  regard evaluate MODEL test.en test.de                  translate and score (also one .tsv or .jsonl)
  regard evaluate MODEL test.en test.de --to de          one direction of a multilingual model
  regard evaluate --hypotheses out.de test.de            score existing translations
  regard evaluate MODEL test.en test.de --baseline OTHER compare with another model or file of translations,
                                                         with a paired bootstrap test (Koehn, 2004)"""


def add(verbs: flags.Verbs) -> None:
    parser = verbs.add_parser("evaluate", help="measure a model, or compare two", description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("files", nargs="+", metavar="FILES", help="MODEL and a test set; with --hypotheses, the references")
    add("--hypotheses", type=Path, metavar="FILE", help="score the translations in FILE instead of a model")
    add("--baseline", metavar="FILE", help="a file of translations or a model folder to compare with")
    add("-o", "--output", type=Path, metavar="FILE", help="write the translations to this file")
    add("--lowercase", action="store_true", help="ignore case")
    text = "sacrebleu tokenizer: 13a, none, zh, char, ... (default: chosen by the language)"
    add("--tokenize", metavar="NAME", help=text)
    add("--language", default="", metavar="CODE", help="language of the references (default: the model's target)")
    add(
        "--resamples",
        type=int,
        default=1000,
        metavar="N",
        help="number of bootstrap samples; 0: no confidence intervals (default: 1000)",
    )
    add("--json", action="store_true", help="print the scores as a JSON object")
    flags.add_translating(parser)


def run(arguments: argparse.Namespace) -> int:
    task = _find_task(arguments)
    if task != "translate":
        return _measure(arguments, task)
    from regard.evaluation.translation_scores import compare, require_options, score

    _require_output(arguments)
    sources, references, language = _test_set(arguments)
    options = {"lowercase": arguments.lowercase, "tokenize": arguments.tokenize, "resamples": arguments.resamples}
    how: dict[str, Any] = {"language": language, **options}
    require_options(**how, pairs=bool(arguments.baseline))
    baseline = _baseline(arguments, sources, references) if arguments.baseline else None
    if arguments.hypotheses:
        hypotheses = _read_translations(arguments.hypotheses, references)
    else:
        hypotheses = _translate(arguments.files[0], sources, arguments)
    if arguments.output:
        from regard.atomic_files import write_text

        write_text(arguments.output, "".join(line.replace("\n", " ") + "\n" for line in hypotheses))
    scores = score(hypotheses, references, **how)
    comparisons: list[Any] = []
    if baseline is not None:
        before = baseline or _translate(arguments.baseline, sources, arguments)
        comparisons = compare(before, hypotheses, references, **how)
    if arguments.json:
        figures = {"scores": [asdict(each) for each in scores], "comparisons": [asdict(each) for each in comparisons]}
        print(json.dumps(figures, ensure_ascii=False))
        return 0
    print(f"{len(references):,} sentences", *scores, sep="\n")
    for each in comparisons:
        verdict = "significant" if each.significant else "not significant"
        change = f"{each.baseline:.2f} -> {each.system:.2f} ({each.difference:+.2f})"
        print(f"{each.metric} against the baseline: {change}, p = {each.p_value:.4f}, {verdict} at 0.05")
    return 0


def _find_task(arguments: argparse.Namespace) -> str:
    from regard.model_folder import SETTINGS, read_settings

    path = Path(arguments.files[0])
    return "translate" if arguments.hypotheses or not (path / SETTINGS).is_file() else read_settings(path).task


def _require_output(arguments: argparse.Namespace) -> None:
    first, *others = [arguments.hypotheses, *arguments.files] if arguments.hypotheses else arguments.files
    if arguments.output is not None:
        inputs = [first, *(others if arguments.hypotheses else expand_paths(others))]
        require_output(arguments.output, inputs + ([arguments.baseline] if arguments.baseline else []))


def _test_set(arguments: argparse.Namespace) -> tuple[list[str], list[str], str]:
    """Returns the sources and references of the test set, and the language of the references."""
    if arguments.hypotheses:
        references = read_text(Path(arguments.files[-1]))
        sources = read_text(Path(arguments.files[0])) if len(arguments.files) > 1 else []
        return sources, references, arguments.language or arguments.target or ""
    from regard.files.corpus import read_pairs
    from regard.files.corpus_report import Report
    from regard.model_folder import check_folder, read_settings

    if len(arguments.files) < 2:
        raise InputError("pass a model and a test set (two files, one .tsv or one .jsonl), or use --hypotheses")
    path = Path(arguments.files[0])
    check_folder(path)
    data = _data_to_read(read_settings(path).data, arguments)
    pairs = list(read_pairs([as_path(name) for name in arguments.files[1:]], data, Report(), whole=True))
    if not pairs:
        raise InputError(f"{arguments.files[1]}: the test set is empty")
    return [p.source for p in pairs], [p.target for p in pairs], arguments.language or data.target


def _data_to_read(data: DataSettings, arguments: argparse.Namespace) -> DataSettings:
    """Returns the data settings of a model with only the direction to measure."""
    from regard.tokens.language_directions import choose_direction

    direction = choose_direction(data, **flags.direction_options(arguments))
    if not data.directions:
        return data
    if not direction.source:
        raise InputError(f"specify the source language of the test set: add --from LANGUAGE to --to {direction.target}")
    return replace(data, source=direction.source, target=direction.target, directions=(str(direction),))


def _baseline(arguments: argparse.Namespace, sources: list[str], references: list[str]) -> list[str]:
    """Returns the translations in the baseline file, or an empty list if the baseline is a model."""
    path = Path(arguments.baseline)
    if not path.is_dir():
        return _read_translations(path, references)
    if not sources:
        raise InputError("to compare with a model, pass the sources too: --hypotheses FILE SOURCES REFERENCES")
    from regard.model_folder import read_settings

    if (task := read_settings(path).task) != "translate":
        raise InputError(f"{path}: is a model to {task}: compare with a translator or a file of translations")
    return []


def _read_translations(path: Path, references: list[str]) -> list[str]:
    lines = read_text(path)
    if len(lines) != len(references) or not lines:
        count = f"{len(lines):,} line{'' if len(lines) == 1 else 's'}"
        raise InputError(f"{path}: has {count}, but the test set has {len(references):,}")
    return lines


def _translate(folder: str, sources: list[str], arguments: argparse.Namespace) -> list[str]:
    from regard.cli.progress_display import show_sentences
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    translator = load_as(Translator, folder, **flags.engine_options(arguments))
    stream = translator.translate_stream(sources, **flags.translating_options(arguments))
    sizes = deque([1] * len(sources))
    return [each.text for each in show_sentences(stream, sizes, len(sources), f"translating with {folder}")]


def _measure(arguments: argparse.Namespace, task: str) -> int:
    """Measures a model that does not translate; raises an error if a flag for translators is used."""
    if arguments.source or arguments.target:
        raise InputError(f"a model to {task} has no direction: remove --from and --to")
    rejected = {"-o": arguments.output, "--baseline": arguments.baseline, "--lowercase": arguments.lowercase}
    rejected |= {"--tokenize": arguments.tokenize, "--language": arguments.language}
    flags.reject_flags(rejected, f"works only with translators: remove it for a model to {task}")
    if len(arguments.files) < 2:
        raise InputError("pass a model and the files to measure it on")
    if task not in ("write", "classify"):
        card = Path(arguments.files[0]) / "card.md"
        raise InputError(f"regard evaluate cannot measure a model to {task}: its scores from training are in {card}")
    return _measure_writer(arguments) if task == "write" else _measure_classifier(arguments)


def _measure_writer(arguments: argparse.Namespace) -> int:
    """Prints the perplexity of text files; each document is scored separately."""
    from regard.decoding.model_loading import load_as
    from regard.decoding.writer import Writer, perplexity
    from regard.files.corpus_report import Report
    from regard.files.formats.running_text import read

    writer = load_as(Writer, arguments.files[0], arguments.device)
    parts = read([as_path(name) for name in arguments.files[1:]], writer.settings.data, Report())
    texts = list(_join_documents(parts))
    if not texts:
        raise InputError(f"{' and '.join(arguments.files[1:])}: no text to score")
    scores = [writer.score(text) for text in texts]
    surprise, tokens = sum(each.surprise for each in scores), sum(len(each.tokens) for each in scores)
    characters, window = sum(map(len, texts)), writer.settings.model.max_length
    figures = {
        "perplexity": perplexity(surprise / tokens),
        "tokens": tokens,
        "vocabulary": writer.vocabulary.size,
        "nats_per_character": surprise / characters,
        "bits_per_character": surprise / characters / math.log(2),
        "characters": characters,
        "documents": len(texts),
        "window": window,
        "overlap": window - window // 2,
    }
    if arguments.json:
        print(json.dumps(figures))
        return 0
    print(f"{len(texts):,} documents, {characters:,} characters")
    print(
        f"perplexity {figures['perplexity']:.2f} per token ({tokens:,} tokens of a vocabulary of "
        f"{figures['vocabulary']:,}; windows of {window} that overlap by {figures['overlap']})"
    )
    print(f"{figures['nats_per_character']:.4f} nats, {figures['bits_per_character']:.4f} bits per character")
    return 0


def _join_documents(parts: Iterable[DocumentPart]) -> Iterator[str]:
    texts: list[str] = []
    for part in parts:
        if part.begins and texts:
            yield "".join(texts)
            texts = []
        texts.append(part.text)
    if texts:
        yield "".join(texts)


def _measure_classifier(arguments: argparse.Namespace) -> int:
    """Prints the accuracy, the F1 score and the confusion matrix on labelled files."""
    from regard.decoding.fill_classify_embed import Classifier
    from regard.decoding.model_loading import load_as
    from regard.evaluation.classification_scores import compare_labels
    from regard.files.corpus_report import Report, require_kept
    from regard.files.formats.labelled_texts import read
    from regard.training.tasks.classification import predict_labels

    classifier = load_as(Classifier, arguments.files[0], arguments.device)
    report, files = Report(unit="texts"), [as_path(name) for name in arguments.files[1:]]
    texts = list(read(files, classifier.settings.data, report))
    require_kept(report, files)
    for line in report.lines()[1:]:
        print(f"regard: {line}", file=sys.stderr)
    predicted = predict_labels(classifier, [each.texts for each in texts])
    right = [each.labels for each in texts]
    labels = sorted({*classifier.labels, *(label for row in right for label in row)})
    quality = compare_labels(right, predicted, labels)
    if arguments.json:
        confusions = [{"right": r, "found": f, "count": n} for (r, f), n in sorted(quality.confusions.items())]
        figures = {"accuracy": quality.accuracy, "f1": quality.f1, "count": quality.count, "confusions": confusions}
        print(json.dumps(figures, ensure_ascii=False))
        return 0
    print(f"{len(texts):,} texts", *quality.lines(), *quality.table(), sep="\n")
    return 0
