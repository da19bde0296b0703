"""regard import, export and quantize: convert models from and to other formats, and reduce their size."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from regard.cli.shared_flags import Verbs

IMPORT = """Converts a Hugging Face folder (BERT, RoBERTa, DistilBERT, GPT-2, Llama, Mistral, MarianMT or
sentence-transformers) or a llama2.c .bin file to a model folder of Regard."""
EXPORT = """Converts a model to the format of Hugging Face Transformers, CTranslate2 or ONNX, or a translator to a page:
one HTML file that translates in any recent browser, without a server and without the network."""
QUANTIZE = """Writes a smaller copy of a model: all matrices are stored in int8, and the token embeddings of a
translator in 16 bits. The native engine computes with the integers, and PyTorch converts them back to floating-point
numbers."""
FORMATS = ("huggingface", "ctranslate2", "onnx", "page")


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("import", help="import a model from another program", description=IMPORT, run=_import)
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a folder with config.json, or a .bin file")
    _add_output(parser, "where to write the model", "model")
    text = "the vocabulary, if SOURCE contains none: tokenizer.json, vocab.txt, a .model or .bin file, or its folder"
    parser.add_argument("--tokenizer", type=Path, metavar="PLACE", help=text)

    parser = verbs.add_parser("export", help="export a model for another program", description=EXPORT, run=_export)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("--to", choices=FORMATS, required=True, help="format of the export")
    _add_output(parser, "where to write the files; for a page, a name that ends in .html", "export")

    about = "reduce a model to about a third of its size"
    parser = verbs.add_parser("quantize", help=about, description=QUANTIZE, run=_quantize)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    _add_output(parser, "where to write the copy", "model")


def _add_output(parser: argparse.ArgumentParser, text: str, content: str) -> None:
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help=text)
    parser.add_argument("--overwrite", action="store_true", help=f"replace an existing {content} in FOLDER")


def _import(arguments: argparse.Namespace) -> int:
    source, output = arguments.source, arguments.output
    if source.is_file():
        from regard.interop import llama2c

        notes = llama2c.import_model(source, arguments.tokenizer, output, overwrite=arguments.overwrite)
    else:
        from regard.interop import huggingface

        notes = huggingface.import_model(source, output, arguments.tokenizer, overwrite=arguments.overwrite)
    return _print_notes(notes, output)


def _export(arguments: argparse.Namespace) -> int:
    module = import_module(f"regard.interop.{arguments.to}")
    notes = module.export_model(arguments.model, arguments.output, overwrite=arguments.overwrite)
    return _print_notes(notes, arguments.output)


def _quantize(arguments: argparse.Namespace) -> int:
    from regard.interop.int8_folder import quantize_folder
    from regard.model_folder import WEIGHTS

    model, output = arguments.model, arguments.output
    quantize_folder(model, output, overwrite=arguments.overwrite)
    before, after = ((folder / WEIGHTS).stat().st_size / 2**20 for folder in (model, output))
    print(f"{output}: {after:.1f} MiB of weights instead of {before:.1f}. Compare the output with:")
    print(f"regard evaluate {output} TEST.SOURCE TEST.TARGET --baseline {model}")
    return 0


def _print_notes(notes: list[str], output: Path) -> int:
    for note in notes:
        print(f"note: {note}")
    print(f"wrote {output}")
    return 0
