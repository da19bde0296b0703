"""regard average: one model of several that were trained from one."""

from __future__ import annotations

import argparse
from pathlib import Path

from regard.cli.flags import Verbs


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "average",
        help="make one model of several that were trained from one",
        description="Writes a model whose weights are the mean of those of several models, which were all trained from "
        "one with regard train --from, say with other seeds: mostly it is better than each of them, and no larger.",
        allow_abbrev=False,
    )
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="model folders, two or more")
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FOLDER", help="where the mean goes")
    parser.add_argument("--overwrite", action="store_true", help="replace the model that is in FOLDER")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from regard.interop.averaged import average_folders

    least = average_folders(arguments.models, arguments.output, overwrite=arguments.overwrite)
    count = len(arguments.models)
    print(f"{arguments.output}: the mean of {count} models (lowest cosine {least:.2f}). Compare what it says with:")
    print(f"regard evaluate {arguments.output} DEV.SOURCE DEV.TARGET --baseline {arguments.models[0]}")
    return 0
