"""regard fill, classify and embed: what encoders are used for."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli import output_paths as destination
from regard.cli.setting_flags import Verbs
from regard.cli.translate import open_source, read_lines, write_rows
from regard.errors import InputError
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.files.remote_files import as_path

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Text

WINDOW = 2000
"""Texts that are held in memory and sorted by length together."""


def add(verbs: Verbs) -> None:
    fill = verbs.add_parser(
        "fill",
        help="fill the gaps in a text",
        description='Fills each gap of TEXT: regard fill runs/bert "Paris is the [MASK] of France."',
        allow_abbrev=False,
    )
    fill.add_argument("model", metavar="MODEL", help="a model folder")
    fill.add_argument("text", nargs="?", metavar="TEXT", help="a text with [MASK] in it (lines of standard input)")
    fill.add_argument("--count", type=int, default=5, metavar="N", help="tokens shown for each gap (5)")
    _common(fill, run_fill)

    classify = verbs.add_parser(
        "classify",
        help="label texts",
        description="Labels each line of FILE, or of standard input; a tab stands between two texts that are "
        "judged together. A model of word labels labels the words between the spaces.",
        allow_abbrev=False,
    )
    classify.add_argument("model", metavar="MODEL", help="a model folder")
    classify.add_argument("file", nargs="?", metavar="FILE", help="a text file, a text a line (standard input)")
    classify.add_argument("--scores", action="store_true", help="put the probability and a tab after each label")
    _common(classify, run_classify)

    embed = verbs.add_parser(
        "embed",
        help="turn texts into vectors, find the nearest",
        description="Turns each line of FILE, or of standard input, into a vector. -o vectors.npy writes an array, "
        "-o vectors.jsonl, or no -o, an object a line. With --nearest, prints the lines nearest to a text instead.",
        allow_abbrev=False,
    )
    embed.add_argument("model", metavar="MODEL", help="a model folder: any encoder")
    embed.add_argument("file", nargs="?", metavar="FILE", help="a text file, a text a line (standard input)")
    embed.add_argument("-o", "--output", type=Path, metavar="FILE", help="a .npy or .jsonl file")
    embed.add_argument("--nearest", metavar="TEXT", help="print the lines of FILE that are nearest to this text")
    embed.add_argument("--count", type=int, default=5, metavar="N", help="how many of them (5)")
    embed.add_argument(
        "--pooling", choices=("mean", "first"), help="mean of all states, or the first (the model's own)"
    )
    embed.add_argument(
        "--normalize", choices=("true", "false"), help="whether vectors have length 1 (the model's own setting)"
    )
    _common(embed, run_embed)


def _common(parser: argparse.ArgumentParser, run: Any) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object a line")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda or mps (auto)")
    parser.set_defaults(run=run)


def run_fill(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Filler
    from regard.decoding.model_loading import load_as

    if arguments.count < 1:
        raise InputError("--count must be at least 1")
    filler = load_as(Filler, arguments.model, arguments.device)
    for text in [arguments.text] if arguments.text is not None else _lines(None):
        gaps = filler.fill(text, arguments.count)
        if arguments.json:
            found = [[asdict(filling) for filling in gap] for gap in gaps]
            print(json.dumps({"text": text, "gaps": found}, ensure_ascii=False))
            continue
        for number, gap in enumerate(gaps, 1):
            if len(gaps) > 1:
                print(f"gap {number}")
            for filling in gap:
                print(f"{filling.probability:7.2%}  {filling.token:<16}  {filling.text}")
    return 0


def run_classify(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Classifier
    from regard.decoding.model_loading import load_as

    require_texts(arguments.file, ".tsv")
    classifier = load_as(Classifier, arguments.model, arguments.device)
    lines = _lines(arguments.file)
    while window := list(islice(lines, 1 if sys.stdin.isatty() and arguments.file is None else WINDOW)):
        for row in _label(classifier, window, arguments):
            print(row, flush=sys.stdin.isatty())
    return 0


def _label(classifier: Classifier, lines: list[str], arguments: argparse.Namespace) -> Iterator[str]:
    """The output line of each input line."""
    if classifier.settings.data.carrier == "word":
        found = classifier.label_words([line.split() for line in lines])
        for line, labels in zip(lines, found, strict=True):
            words = line.split()
            if arguments.json:
                yield json.dumps(
                    [{"word": w, **asdict(x)} for w, x in zip(words, labels, strict=True)], ensure_ascii=False
                )
            else:
                yield " ".join(f"{word}/{label.label}" for word, label in zip(words, labels, strict=True))
        return
    texts = [_text(line) for line in lines]
    _warn_of_length(classifier, texts)
    for label in classifier.classify(texts):
        if arguments.json:
            yield json.dumps(asdict(label), ensure_ascii=False)
        else:
            yield f"{label.label}\t{label.probability:.4f}" if arguments.scores else label.label


def _text(line: str) -> Text:
    first, tab, second = line.partition("\t")
    return (first, second) if tab else first


def run_embed(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Embedder
    from regard.decoding.model_loading import load_as

    if arguments.count < 1:
        raise InputError("--count must be at least 1")
    require_texts(arguments.file)
    if arguments.output is not None:
        destination.require_file(arguments.output, [arguments.file, arguments.model])
    if arguments.output and arguments.nearest is not None:
        raise InputError("--nearest prints the nearest lines: it cannot be combined with -o")
    if arguments.output and arguments.output.suffix not in (".npy", ".jsonl"):
        raise InputError(f"{arguments.output}: write vectors to a .npy or a .jsonl file")
    embedder = load_as(Embedder, arguments.model, arguments.device)
    options: dict[str, Any] = {"pooling": arguments.pooling}
    if arguments.normalize:
        options["normalize"] = arguments.normalize == "true"
    if arguments.nearest is not None:
        return _show_nearest(embedder, arguments)
    windows = _vectors(embedder, _lines(arguments.file), options)
    if arguments.output is None:
        for row in _objects(windows):
            print(row)
        return 0
    from regard.atomic_files import write_atomically

    if arguments.output.suffix == ".npy":
        write_atomically(arguments.output, lambda path: _write_array(path, windows, embedder))
    else:
        write_atomically(arguments.output, lambda path: write_rows(path, _objects(windows)))
    return 0


def _vectors(embedder: Embedder, lines: Iterator[str], options: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """Some lines and their vectors at a time."""
    while window := list(islice(lines, WINDOW)):
        _warn_of_length(embedder, window)
        yield window, embedder.embed(window, **options)


def _objects(windows: Iterable[tuple[list[str], Any]]) -> Iterator[str]:
    for lines, vectors in windows:
        for line, vector in zip(lines, vectors, strict=True):
            rounded = [round(float(value), 7) for value in vector]
            yield json.dumps({"text": line, "embedding": rounded}, ensure_ascii=False)


def _write_array(path: Path, windows: Iterable[tuple[list[str], Any]], embedder: Embedder) -> None:
    import numpy as np

    rows = [vectors for _, vectors in windows] or [embedder.embed([])]
    with path.open("wb") as file:
        np.save(file, np.concatenate(rows))


def _show_nearest(embedder: Embedder, arguments: argparse.Namespace) -> int:
    numbered = [(number, line) for number, line in enumerate(_lines(arguments.file), 1) if line.strip()]
    if not numbered:
        raise InputError("there is no text to search")
    vectors = embedder.embed([line for _, line in numbered], pooling=arguments.pooling)
    found = embedder.nearest(arguments.nearest, vectors, arguments.count, pooling=arguments.pooling)
    for place, cosine in found:
        number, line = numbered[place]
        if arguments.json:
            print(json.dumps({"line": number, "cosine": cosine, "text": line}, ensure_ascii=False))
        else:
            print(f"{cosine:.4f}  {line}")
    return 0


def require_texts(name: str | None, *accepted: str) -> None:
    """Refuses a file that is not a text a line, before a model is loaded."""
    path = as_path(name or "-")
    if name not in (None, "-") and suffix(path) not in accepted:
        require_plain(path, "give a file with a text a line, or, to take it as it is, standard input (< FILE)")


def _lines(name: str | None) -> Iterator[str]:
    with open_source(name) as source:
        yield from read_lines(source, name or "standard input")


def _warn_of_length(reader: Classifier | Embedder, texts: Iterable[Text]) -> None:
    """Says how many texts are read only in part."""
    count = sum(row.shortened for row in reader.rows(texts))
    if count:
        longest = reader.settings.model.max_length
        print(
            f"regard: {count:,} texts are longer than {longest:,} tokens: only their beginning is read", file=sys.stderr
        )
