"""How good a model is that writes or labels: `regard evaluate MODEL FILES` for these tasks."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator

from regard.errors import InputError
from regard.files.formats.running_text import DocumentPart, read
from regard.files.remote_files import as_path


def measure_writer(arguments: argparse.Namespace) -> int:
    """Perplexity of text files, each document by itself."""
    from regard.decoding.model_loading import load_as
    from regard.decoding.writer import Writer, perplexity
    from regard.tokens.corpus_report import Report

    writer = load_as(Writer, arguments.files[0], arguments.device)
    parts = read([as_path(name) for name in arguments.files[1:]], writer.settings.data, Report())
    texts = list(whole(parts))
    if not texts:
        raise InputError(f"{' and '.join(arguments.files[1:])}: there is no text to score")
    surprise, tokens, characters = 0.0, 0, 0
    for text in texts:
        found = writer.score(text)
        surprise, tokens, characters = surprise + found.surprise, tokens + len(found.tokens), characters + len(text)
    longest = writer.settings.model.max_length
    figures = {
        "perplexity": perplexity(surprise / tokens),
        "tokens": tokens,
        "vocabulary": writer.vocabulary.size,
        "nats_per_character": surprise / characters,
        "bits_per_character": surprise / characters / math.log(2),
        "characters": characters,
        "documents": len(texts),
        "window": longest,
        "overlap": longest - longest // 2,
    }
    if arguments.json:
        print(json.dumps(figures))
        return 0
    print(f"{len(texts):,} documents, {characters:,} characters")
    print(
        f"perplexity {figures['perplexity']:.2f} per token ({tokens:,} tokens of a vocabulary of "
        f"{writer.vocabulary.size:,}; windows of {longest} that overlap by {figures['overlap']})"
    )
    print(f"{figures['nats_per_character']:.4f} nats, {figures['bits_per_character']:.4f} bits per character")
    return 0


def whole(parts: Iterable[DocumentPart]) -> Iterator[str]:
    """The texts of documents that come in parts."""
    held: list[str] = []
    for part in parts:
        if part.begins and held:
            yield "".join(held)
            held = []
        held.append(part.text)
    if held:
        yield "".join(held)


def measure_classifier(arguments: argparse.Namespace) -> int:
    """Accuracy, F1 and confusions on labelled files."""
    from regard.decoding.fill_classify_embed import Classifier
    from regard.decoding.model_loading import load_as
    from regard.evaluation.classification_scores import compare_labels
    from regard.files.formats.labelled_texts import read
    from regard.tokens.corpus_report import Report, require_kept
    from regard.training.tasks.classification import find_labels

    classifier = load_as(Classifier, arguments.files[0], arguments.device)
    report, files = Report(unit="texts"), [as_path(name) for name in arguments.files[1:]]
    texts = list(read(files, classifier.settings.data, report))
    require_kept(report, files)
    for line in report.lines()[1:]:
        print(f"regard: {line}", file=sys.stderr)
    found = find_labels(classifier, [each.texts for each in texts])
    right = [each.labels for each in texts]
    labels = sorted({*classifier.labels, *(label for row in right for label in row)})
    quality = compare_labels(right, found, labels)
    if arguments.json:
        confusions = [{"right": r, "found": f, "count": n} for (r, f), n in sorted(quality.confusions.items())]
        figures = {"accuracy": quality.accuracy, "f1": quality.f1, "count": quality.count, "confusions": confusions}
        print(json.dumps(figures, ensure_ascii=False))
        return 0
    for line in [f"{len(texts):,} texts", *quality.lines(), *quality.table()]:
        print(line)
    return 0
