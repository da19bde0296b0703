"""regard quantize: writes a smaller copy of a model with int8 weights."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.import_export import add_output
from regard.cli.shared_flags import Verbs

DESCRIPTION = """Writes a copy of a model with every matrix in int8 and a translator's token embeddings in 16 bits. The
native engine computes with the integers; PyTorch converts them back to floating-point numbers."""


def add(verbs: Verbs) -> None:
    about = "reduce a model to about a third of its size"
    parser = verbs.add_parser("quantize", help=about, description=DESCRIPTION, run=run)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    add_output(parser, "where to write the copy", "model")


def run(arguments: argparse.Namespace) -> int:
    from regard.interop.int8_folder import quantize_folder
    from regard.model_folder import WEIGHTS

    quantize_folder(arguments.model, arguments.output, overwrite=arguments.overwrite)
    before, after = ((folder / WEIGHTS).stat().st_size / 2**20 for folder in (arguments.model, arguments.output))
    print(f"{arguments.output}: {after:.1f} MiB of weights instead of {before:.1f}. Compare the output with:")
    print(f"regard evaluate {arguments.output} TEST.SOURCE TEST.TARGET --baseline {arguments.model}")
    return 0
