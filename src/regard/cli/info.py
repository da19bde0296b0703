"""regard info and verify: describe a model folder or this machine, and check a model folder."""

from __future__ import annotations

import argparse
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from math import prod
from pathlib import Path

import regard
from regard.cli.shared_flags import Verbs
from regard.errors import InputError
from regard.untrusted_files import read_header, read_limited

INFO = "Describes a model folder or, with --system, this machine and the installed libraries."
VERIFY = """Checks a model folder: the settings, the tokenizer, the names and shapes of the weights, that all weights
are finite, and the SHA-256 of each file in manifest.json. Prints one line per fault and exits with code 2 if there are
any."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("info", help="describe a model folder or this machine", description=INFO, run=_info)
    parser.add_argument("model", nargs="?", metavar="MODEL", help="a model folder")
    parser.add_argument("--system", action="store_true", help="print versions, devices and threads")

    about = "check that a model folder is complete and unchanged"
    parser = verbs.add_parser("verify", help=about, description=VERIFY, run=_verify)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model folder")
    parser.add_argument("--renew", action="store_true", help="update the manifest after you have changed a file")


def _info(arguments: argparse.Namespace) -> int:
    if not arguments.model and not arguments.system:
        raise InputError("pass a model folder, or use --system")
    if arguments.model:
        describe_model(Path(arguments.model))
    if arguments.system:
        describe_system()
    return 0


def describe_model(path: Path) -> None:
    """Prints the shape, the size and the card of a model, without importing torch."""
    from regard.model_folder import CARD, LARGEST_CARD, SETTINGS, TRAINING, WEIGHTS, check_settings
    from regard.settings.recorded_settings import load_recorded
    from regard.tokens.language_directions import format_directions

    check_settings(path)
    settings = load_recorded(path / SETTINGS)
    shape = settings.model
    directions = f"{format_directions(settings.data, '->')}, " if settings.task == "translate" else ""
    print(f"{path}: {settings.task} {directions}preset {settings.preset}".replace(" preset auto", " no preset"))
    norm = f"{shape.norm}-norm, {shape.positions} positions, " if shape.kind == "transformer" else ""
    print(f"{settings.shape}, {norm}at most {shape.max_length} tokens")
    weights = path / WEIGHTS
    if not weights.is_file():
        has_begun = (path / TRAINING).is_dir()
        reason = " yet: training has not reached its first evaluation" if has_begun else ": copy the whole folder"
        print(f"no weights{reason}")
        return
    count = sum(map(prod, read_header(weights, path).values()))
    print(f"{count:,} parameters, {weights.stat().st_size / 2**20:.1f} MiB")
    card = path / CARD
    if card.is_file():
        print()
        print(read_limited(card, LARGEST_CARD, path).decode("utf-8", errors="replace").rstrip())


def describe_system() -> None:
    """Prints the versions of the libraries, the devices and the number of threads."""
    print(f"regard {regard.__version__}, Python {platform.python_version()}, {platform.platform()}")
    for name in ("torch", "tokenizers", "safetensors", "sacrebleu", "numpy"):
        try:
            print(f"{name} {version(name)}")
        except PackageNotFoundError:
            print(f"{name}: not installed")
    import torch

    from regard.decoding.native.compiled_library import instructions, reason_unavailable
    from regard.model.kernels import fused

    print(f"CPU: {torch.get_num_threads()} threads, {torch.backends.cpu.get_cpu_capability()}")
    print(f"CUDA: {torch.cuda.get_device_name() if torch.cuda.is_available() else 'none'}")
    print(f"MPS: {'yes' if torch.backends.mps.is_available() else 'none'}")
    reason, library = reason_unavailable(), fused.library()
    engine = f"PyTorch; the native engine is not available: {reason}" if reason else f"native, {instructions()}"
    print(f"decoding engine: {engine}")
    print(f"training on the CPU: {f'fused, {library.instructions}' if library else 'PyTorch (kernels not compiled)'}")


def _verify(arguments: argparse.Namespace) -> int:
    from regard.decoding.verify_model_folder import find_faults
    from regard.model_manifest import read_manifest, write_manifest

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
        print(f"{model}: complete, but without a manifest; regard verify --renew {model} writes one")
    return 0
