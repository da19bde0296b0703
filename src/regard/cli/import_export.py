"""regard import, regard export: models from and for other programs."""

from __future__ import annotations

import argparse
from importlib import import_module
from pathlib import Path

from regard.cli.setting_flags import Verbs

VOCABULARY = "the vocabulary, if it is not in SOURCE: a file (tokenizer.json, vocab.txt, .model, .bin) or its folder"
FORMS = ("huggingface", "ctranslate2", "onnx")


def add(verbs: Verbs) -> None:
    add_import(verbs)
    add_export(verbs)


def add_import(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "import",
        help="make a Regard model of one from elsewhere",
        description="Makes a model folder of a Hugging Face folder (BERT, RoBERTa, DistilBERT, GPT-2, Llama, Mistral, "
        "MarianMT, sentence-transformers) or of a .bin file of llama2.c.",
        allow_abbrev=False,
    )
    parser.add_argument("source", type=Path, metavar="SOURCE", help="a folder with config.json, or a .bin file")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the model goes")
    parser.add_argument("--tokenizer", type=Path, metavar="PLACE", help=VOCABULARY)
    parser.add_argument("--overwrite", action="store_true", help="replace the model that is in FOLDER")
    parser.set_defaults(run=run_import)


def add_export(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "export",
        help="write a Regard model for another program",
        description="Writes the model of a folder for Hugging Face Transformers, for CTranslate2 or as ONNX.",
        allow_abbrev=False,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("--to", choices=FORMS, required=True, help="for which program")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the files go")
    parser.add_argument("--overwrite", action="store_true", help="replace the export that is in FOLDER")
    parser.set_defaults(run=run_export)


def run_import(arguments: argparse.Namespace) -> int:
    source, output = arguments.source, arguments.output
    if source.is_file():
        from regard.interop import llama2c

        notes = llama2c.import_model(source, arguments.tokenizer, output, overwrite=arguments.overwrite)
    else:
        from regard.interop import huggingface

        notes = huggingface.import_model(source, output, arguments.tokenizer, overwrite=arguments.overwrite)
    tell(notes, output)
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    module = import_module(f"regard.interop.{arguments.to}")
    tell(module.export_model(arguments.model, arguments.output, overwrite=arguments.overwrite), arguments.output)
    return 0


def tell(notes: list[str], output: Path) -> None:
    for note in notes:
        print(f"note: {note}")
    print(f"wrote {output}")
