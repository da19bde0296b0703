"""Checks a model folder, and reports all faults instead of stopping at the first one."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from regard.decoding.confidence import Confidence
from regard.decoding.token_shortlist import Shortlist
from regard.errors import RegardError
from regard.model_folder import EVERYTHING, LIMITS, SHORTLIST, TOKENIZER, WEIGHTS, check_folder, read_settings
from regard.model_manifest import LISTED, find_changed
from regard.tokens.tokenizer import Vocabularies
from regard.untrusted_files import require_regular


def find_faults(folder: Path, *, compare: bool = True) -> list[str]:
    """Returns a message for each fault in a model folder; with `compare`, also for differences from the manifest."""
    from regard.weights import check_shapes, read_folder

    check_folder(folder)
    present = [name for name in EVERYTHING if (folder / name).exists() and not (folder / name).is_dir()]
    checks: list[Callable[[], object]] = [
        *(partial(require_regular, folder / name, folder, LIMITS.get(name)) for name in present),
        partial(read_settings, folder),
        partial(Vocabularies.load, folder / TOKENIZER),
        partial(read_folder, folder, compare=()),
        partial(Confidence.load, folder),
    ]
    if (folder / SHORTLIST).exists():
        checks.append(partial(Shortlist.load, folder))
    faults = [" ".join(message.split()) for check in checks if (message := _failure(check))]
    if compare:
        fitting = not _failure(partial(check_shapes, folder))  # otherwise the weights may be of any size
        for name in LISTED:
            if name != WEIGHTS or fitting:
                try:
                    faults += find_changed(folder, [name])
                except RegardError as error:
                    faults.append(str(error))
    return list(dict.fromkeys(faults))


def _failure(check: Callable[[], object]) -> str:
    """Runs a check and returns its error message, or an empty string."""
    try:
        check()
    except RegardError as error:
        return str(error)
    return ""
