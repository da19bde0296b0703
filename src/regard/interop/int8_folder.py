"""Writes a copy of a model folder with int8 matrices; in translators, the token embeddings are int16."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from regard.atomic_files import write_atomically
from regard.decoding.native.weight_packing import quantize
from regard.interop.export_folder import whole_folder
from regard.model_folder import (
    CARD,
    CONFIDENCE,
    LARGEST_CARD,
    LIMITS,
    MANIFEST,
    MEMORY,
    NATIVE,
    SCALE,
    SETTINGS,
    SHORTLIST,
    TOKENIZER,
    WEIGHTS,
    check_folder,
)
from regard.model_manifest import LISTED, require_unchanged, write_manifest
from regard.untrusted_files import read_limited, require_regular
from regard.weights import check_shapes, read_tensors

TABLES = ("embedding.tokens.weight", "logits.weight")
"""Parameters that determine which token is chosen, so that rounding errors in them would affect every output."""
COPIED = (SETTINGS, TOKENIZER, CONFIDENCE, SHORTLIST, MEMORY)
NOTE = "\nThe matrices of this copy are int8 (`regard quantize`); the scores above are those of the original.\n"


def quantize_folder(folder: Path | str, output: Path | str, *, overwrite: bool = False) -> None:
    """Writes a quantized copy of a model folder; position embeddings and vectors keep their precision."""
    folder, output = Path(folder), Path(output)
    check_folder(folder)
    settings, _ = check_shapes(folder)
    require_unchanged(folder, LISTED)  # the manifest of the copy would otherwise confirm damaged files
    translates = settings.task == "translate"
    arrays: dict[str, NDArray[Any]] = {}
    for name, tensor in read_tensors(folder / WEIGHTS)[0].items():
        array = tensor.float().numpy()
        if array.ndim == 2 and not name.endswith("positions.table"):
            kind = np.int16 if translates and name.endswith(TABLES) else np.int8
            arrays[name], arrays[name + SCALE] = quantize(array, kind)
        else:
            arrays[name] = array
    with whole_folder(output, folder, (*COPIED, WEIGHTS, CARD, NATIVE, MANIFEST), overwrite=overwrite) as place:
        for name in COPIED:
            if (folder / name).exists():
                require_regular(folder / name, folder, LIMITS[name])
                shutil.copyfile(folder / name, place / name)
        card = read_limited(folder / CARD, LARGEST_CARD).decode("utf-8") if (folder / CARD).is_file() else ""
        (place / CARD).write_text(card + NOTE, encoding="utf-8")
        write_atomically(place / WEIGHTS, lambda path: save_file(arrays, path))
        write_manifest(place)
