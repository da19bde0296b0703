"""regard fill, classify and embed: the verbs for encoder models."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.output_paths import require_output
from regard.cli.shared_flags import Verbs, add_device, count
from regard.cli.text_lines import open_source, read_lines, write_lines
from regard.errors import InputError
from regard.files.formats.format_by_suffix import require_plain, suffix
from regard.files.remote_files import as_path

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Classifier, Embedder, Text

WINDOW = 2000
"""Number of texts that are held in memory and sorted by length at a time."""

FILL = 'Fills each gap in TEXT, as in: regard fill runs/bert "Paris is the [MASK] of France."'
CLASSIFY = """Labels each line of FILE or standard input. A model trained on pairs of texts expects two texts per line,
separated by a tab. A model trained to label words expects words separated by spaces, and labels each of them."""
EMBED = """Turns each line of FILE or standard input into a vector. With -o vectors.npy, writes an array. With -o
vectors.jsonl or without -o, writes a JSON object per line. With --nearest TEXT, prints the lines that are most similar
to TEXT."""


def add(verbs: Verbs) -> None:
    fill = verbs.add_parser("fill", help="fill the gaps in a text", description=FILL, run=_fill)
    fill.add_argument("model", metavar="MODEL", help="a model folder")
    fill.add_argument(
        "text", nargs="?", metavar="TEXT", help="a text that contains [MASK] (default: each line of standard input)"
    )
    fill.add_argument(
        "--count", type=count, default=5, metavar="N", help="number of tokens to show for each gap (default: 5)"
    )

    classify = verbs.add_parser("classify", help="label texts or their words", description=CLASSIFY, run=_classify)
    classify.add_argument("model", metavar="MODEL", help="a model folder")
    file_help = "a text file with one text per line (default: standard input)"
    classify.add_argument("file", nargs="?", metavar="FILE", help=file_help)
    classify.add_argument("--scores", action="store_true", help="print the probability after each label and a tab")

    embed = verbs.add_parser(
        "embed", help="turn texts into vectors, or find similar texts", description=EMBED, run=_embed
    )
    embed.add_argument("model", metavar="MODEL", help="folder of any model that has an encoder")
    embed.add_argument("file", nargs="?", metavar="FILE", help=file_help)
    embed.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="write the vectors to this .npy or .jsonl file"
    )
    embed.add_argument("--nearest", metavar="TEXT", help="print the lines of FILE that are most similar to this text")
    embed.add_argument(
        "--count", type=count, default=5, metavar="N", help="number of lines that --nearest prints (default: 5)"
    )
    text = "vector of a text: the mean of all hidden states, or the first one (default: the model's setting)"
    embed.add_argument("--pooling", choices=("mean", "first"), help=text)
    text = "scale vectors to length 1 (default: the model's setting)"
    embed.add_argument("--normalize", choices=("true", "false"), help=text)

    for parser in (fill, classify, embed):
        parser.add_argument("--json", action="store_true", help="print a JSON object per line")
        add_device(parser)


def _fill(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Filler
    from regard.decoding.model_loading import load_as

    filler = load_as(Filler, arguments.model, arguments.device)
    for text in [arguments.text] if arguments.text is not None else _lines(None):
        gaps = filler.fill(text, arguments.count)
        if arguments.json:
            fillings = [[asdict(filling) for filling in gap] for gap in gaps]
            print(json.dumps({"text": text, "gaps": fillings}, ensure_ascii=False))
            continue
        for number, gap in enumerate(gaps, 1):
            if len(gaps) > 1:
                print(f"gap {number}")
            for filling in gap:
                print(f"{filling.probability:7.2%}  {filling.token:<16}  {filling.text}")
    return 0


def _classify(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Classifier
    from regard.decoding.model_loading import load_as

    _require_texts(arguments.file, ".tsv")
    classifier = load_as(Classifier, arguments.model, arguments.device)
    lines, is_typed = _lines(arguments.file), sys.stdin.isatty()
    while window := list(islice(lines, 1 if is_typed and arguments.file is None else WINDOW)):
        for row in _label(classifier, window, arguments):
            print(row, flush=is_typed)
    return 0


def _label(classifier: Classifier, lines: list[str], arguments: argparse.Namespace) -> Iterator[str]:
    """Yields an output line for each input line."""
    if classifier.settings.data.carrier == "word":
        rows = [line.split() for line in lines]
        for words, labels in zip(rows, classifier.label_words(rows), strict=True):
            pairs = list(zip(words, labels, strict=True))
            if arguments.json:
                yield json.dumps([{"word": word, **asdict(label)} for word, label in pairs], ensure_ascii=False)
            else:
                yield " ".join(f"{word}/{label.label}" for word, label in pairs)
        return
    texts: list[Text] = [(line.partition("\t")[0], line.partition("\t")[2]) if "\t" in line else line for line in lines]
    _warn_of_truncation(classifier, texts)
    for label in classifier.classify(texts):
        if arguments.json:
            yield json.dumps(asdict(label), ensure_ascii=False)
        else:
            yield f"{label.label}\t{label.probability:.4f}" if arguments.scores else label.label


def _embed(arguments: argparse.Namespace) -> int:
    from regard.decoding.fill_classify_embed import Embedder
    from regard.decoding.model_loading import load_as

    _require_texts(arguments.file)
    require_output(arguments.output, [arguments.file, arguments.model])
    if arguments.output and arguments.nearest is not None:
        raise InputError("--nearest prints lines instead of vectors: it cannot be combined with -o")
    if arguments.output and arguments.output.suffix not in (".npy", ".jsonl"):
        raise InputError(f"{arguments.output}: unknown format: write vectors to a .npy or .jsonl file")
    embedder = load_as(Embedder, arguments.model, arguments.device)
    options: dict[str, Any] = {"pooling": arguments.pooling}
    if arguments.normalize:
        options["normalize"] = arguments.normalize == "true"
    if arguments.nearest is not None:
        return _print_nearest(embedder, arguments)
    windows = _embed_all(embedder, _lines(arguments.file), options)
    if arguments.output is None:
        for row in _format_vectors(windows):
            print(row)
        return 0
    from regard.atomic_files import write_atomically

    if arguments.output.suffix == ".npy":
        write_atomically(arguments.output, lambda path: _write_array(path, windows, embedder))
    else:
        write_atomically(arguments.output, lambda path: write_lines(path, _format_vectors(windows)))
    return 0


def _embed_all(embedder: Embedder, lines: Iterator[str], options: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    while window := list(islice(lines, WINDOW)):
        _warn_of_truncation(embedder, window)
        yield window, embedder.embed(window, **options)


def _format_vectors(windows: Iterable[tuple[list[str], Any]]) -> Iterator[str]:
    for lines, vectors in windows:
        for line, vector in zip(lines, vectors, strict=True):
            rounded = [round(float(value), 7) for value in vector]
            yield json.dumps({"text": line, "embedding": rounded}, ensure_ascii=False)


def _write_array(path: Path, windows: Iterable[tuple[list[str], Any]], embedder: Embedder) -> None:
    import numpy as np

    rows = [vectors for _, vectors in windows] or [embedder.embed([])]
    with path.open("wb") as file:
        np.save(file, np.concatenate(rows))


def _print_nearest(embedder: Embedder, arguments: argparse.Namespace) -> int:
    numbered = [(number, line) for number, line in enumerate(_lines(arguments.file), 1) if line.strip()]
    if not numbered:
        raise InputError("there is no text to search: every line is empty")
    vectors = embedder.embed([line for _, line in numbered], pooling=arguments.pooling)
    for place, cosine in embedder.nearest(arguments.nearest, vectors, arguments.count, pooling=arguments.pooling):
        number, line = numbered[place]
        if arguments.json:
            print(json.dumps({"line": number, "cosine": cosine, "text": line}, ensure_ascii=False))
        else:
            print(f"{cosine:.4f}  {line}")
    return 0


def _require_texts(name: str | None, *accepted: str) -> None:
    """Raises an error, before a model is loaded, if a file does not have one text per line."""
    path = as_path(name or "-")
    if name not in (None, "-") and suffix(path) not in accepted:
        advice = "pass a file with one text per line; to read this file as plain text, use standard input (< FILE)"
        require_plain(path, advice)


def _lines(name: str | None) -> Iterator[str]:
    with open_source(name) as source:
        yield from read_lines(source, name or "standard input")


def _warn_of_truncation(encoder: Classifier | Embedder, texts: Iterable[Text]) -> None:
    if count := sum(row.shortened for row in encoder.rows(texts)):
        longest = encoder.settings.model.max_length
        message = f"{count:,} texts are longer than {longest:,} tokens: only the beginning of each is read"
        print(f"regard: {message}", file=sys.stderr)
