"""regard quantize: a smaller model, for the native engine."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.setting_flags import Verbs


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "quantize",
        help="make a model about a third of its size",
        description="Writes a copy of a model with every matrix in int8; the tables of a translator's tokens have two "
        "bytes a number. The native engine computes with the integers; PyTorch with the numbers they stand for.",
        allow_abbrev=False,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the copy goes")
    parser.add_argument("--overwrite", action="store_true", help="replace the model that is in FOLDER")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from regard.interop.int8_folder import quantize_folder
    from regard.model_folder import WEIGHTS

    quantize_folder(arguments.model, arguments.output, overwrite=arguments.overwrite)
    before, after = ((folder / WEIGHTS).stat().st_size / 2**20 for folder in (arguments.model, arguments.output))
    print(f"{arguments.output}: {after:.1f} MiB of weights instead of {before:.1f}. Compare what it says with:")
    print(f"regard evaluate {arguments.output} TEST.SOURCE TEST.TARGET --baseline {arguments.model}")
    return 0
