"""regard verify: checks that a model folder is complete and unchanged."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from regard.cli.shared_flags import Verbs

DESCRIPTION = """Checks a model folder: settings, tokenizer, names and shapes of the weights, finite numbers, and the
SHA-256 of each file in manifest.json. Prints one line per fault; the exit code is then 2."""


def add(verbs: Verbs) -> None:
    about = "check that a model folder is complete and unchanged"
    parser = verbs.add_parser("verify", help=about, description=DESCRIPTION, run=run)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("--renew", action="store_true", help="write the manifest again, after you changed a file")


def run(arguments: argparse.Namespace) -> int:
    from regard.decoding.folder_verification import find_faults
    from regard.manifest import read_manifest, write_manifest

    model: Path = arguments.model
    faults = find_faults(model, compare=not arguments.renew)
    for fault in faults:
        print(f"regard: {fault}", file=sys.stderr)
    if faults:
        return 2
    if arguments.renew:
        write_manifest(model)
    if digests := read_manifest(model):
        print(f"{model}: complete; the manifest lists {', '.join(sorted(digests))}")
    else:
        print(f"{model}: complete; it has no manifest, which regard verify --renew {model} writes")
    return 0
