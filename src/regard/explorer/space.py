"""The space of embeddings: which pieces lie near each other, a map of them, and the vectors of the positions."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.explorer.anatomy import Anatomy
from regard.explorer.requests import MissingError
from regard.folder import TRAINING
from regard.model.positions import RotaryPositions
from regard.text.vocabulary import RESERVED
from regard.training.batches import Examples
from regard.training.shards import ABOUT


def table(anatomy: Anatomy, side: str) -> Tensor:
    """[V, D]: the embeddings of a text's tokens, as they are before any scaling."""
    if side not in anatomy.lexicons:
        raise InputError(f"side: must be {' or '.join(anatomy.lexicons)}, not {side[:40]!r}")
    return anatomy.embedding(side).tokens.weight.detach().float().cpu()


def near(anatomy: Anatomy, side: str, token: int, count: int, foreign: Tensor | None = None) -> dict[str, Any]:
    """The pieces nearest to one: by cosine, by dot product, and by cosine among those of the other language.

    `foreign` [V] is true for pieces that are seen mostly in the other language.
    """
    rows = table(anatomy, side)
    if not 0 <= token < len(rows):
        raise MissingError(f"id: there is no token {token}; the vocabulary has {len(rows)}")
    dots = rows @ rows[token]
    lengths = rows.norm(dim=1).clamp(min=1e-12)
    cosines = dots / lengths / lengths[token]
    hidden = torch.zeros(len(rows), dtype=torch.bool)
    hidden[sorted({token, *anatomy.lexicons[side].special})] = True
    lexicon = anatomy.lexicons[side]

    def best(values: Tensor, out: Tensor) -> list[dict[str, Any]]:
        values = values.masked_fill(out, -torch.inf)
        found = values.topk(min(count, int((~out).sum())))
        pairs = zip(found.indices.tolist(), found.values.tolist(), strict=True)
        return [{"id": i, "display": lexicon.display(i), "value": value} for i, value in pairs]

    other = None if foreign is None else best(cosines, hidden | ~foreign)
    return {"cosine": best(cosines, hidden), "dot": best(dots, hidden), "other": other}


def foreign_pieces(anatomy: Anatomy, side: str, folder: Path | None) -> Tensor | None:
    """[V], true for pieces that the training data has mostly on the other side; none if nobody can tell."""
    joint = anatomy.vocabularies.source is anatomy.vocabularies.target
    data = None if folder is None else folder / TRAINING / "train"
    if anatomy.task != "translate" or not joint or data is None or not (data / ABOUT).is_file():
        return None
    try:
        examples = Examples(data)
    except ModelError:
        return None
    counts = torch.from_numpy(count_pieces(examples, anatomy.lexicons[side].tokenizer.size))
    own, other = (counts[0], counts[1]) if side == "source" else (counts[1], counts[0])
    return other > own


def embedding_map(anatomy: Anatomy, side: str, count: int, ids: list[int]) -> dict[str, Any]:
    """The most usual pieces, and these, on the two axes along which they differ most."""
    rows = table(anatomy, side)
    for token in ids:
        if not 0 <= token < len(rows):
            raise MissingError(f"ids: there is no token {token}; the vocabulary has {len(rows)}")
    lexicon = anatomy.lexicons[side]
    learnt = lexicon.tokenizer.pieces([len(RESERVED) - 1]) == ["⟨FF⟩"] if len(rows) >= len(RESERVED) else False
    usual = [i for i in range(len(RESERVED) if learnt else 0, len(rows)) if i not in lexicon.special][:count]
    shown = sorted({*usual, *ids})
    points, explained = principal(rows[shown])
    return {
        "ids": shown,
        "displays": [lexicon.display(i) for i in shown],
        "points": points.tolist(),
        "explained": explained,
    }


def principal(rows: Tensor) -> tuple[Tensor, list[float]]:
    """[N, D] -> [N, 2] on the first two principal axes, and the share of the variance along each.

    Of each axis the largest number is positive, so that the map is the same every time.
    """
    centred = (rows - rows.mean(0)).double()
    _, lengths, axes = torch.linalg.svd(centred, full_matrices=False)
    variances, axes = lengths.square(), axes[:2].mT
    if axes.shape[1] < 2:  # one piece is nowhere but in the middle
        axes = torch.cat([axes, torch.zeros_like(axes)], 1)
        variances = torch.cat([variances, torch.zeros_like(variances)])
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    total = max(float(variances.sum()), 1e-30)
    return (centred @ (axes * torch.where(signs == 0, 1.0, signs))).float(), (variances[:2] / total).tolist()


def positions(anatomy: Anatomy, side: str, count: int) -> tuple[dict[str, Any], Tensor | None]:
    """What tells the places of a text: how it is made, its first rows [N, D], and the wavelength of each column.

    Of rotary positions, the rows are the cosines, then the sines, of the angles by which a head's pairs are turned.
    """
    table(anatomy, side)  # says what is wrong with `side`
    shape, module = anatomy.shape, anatomy.embedding(side).positions
    kind, _, layout = shape.positions.partition("-")
    about: dict[str, Any] = {"kind": kind, "layout": None, "rows": 0, "width": 0, "wavelengths": None}
    rows: Tensor | None = None
    if kind == "rotary":
        width, base = shape.head_width, shape.rotary_base
        one = torch.cat([torch.ones(width // 2), torch.zeros(width // 2)]).expand(1, 1, count, width)
        rows = RotaryPositions(shape)(one, 0)[0, 0]
        waves = [2 * math.pi * base ** (2 * i / width) for i in range(width // 2)]
        about |= {"layout": "halves", "wavelengths": waves + waves}
    elif module is not None:
        count = min(count, shape.max_length) if kind == "learned" else count
        with torch.no_grad():
            rows = module(0, count).detach().float().cpu()
    if kind == "sinusoidal":
        waves = [2 * math.pi * 10_000 ** (2 * i / shape.width) for i in range(shape.width // 2)]
        columns = waves + waves if layout else [wave for wave in waves for _ in range(2)]
        about |= {"layout": layout or "interleaved", "wavelengths": columns}
    if rows is not None:
        about |= {"rows": rows.shape[0], "width": rows.shape[1]}
    return about, rows


def count_pieces(examples: Examples, size: int, most: int = 50_000) -> NDArray[np.int64]:
    """[2, V]: how often each piece stands in the source and in the target of the first pairs."""
    pairs = [examples.pair(row) for row in range(min(most, len(examples)))]
    return np.stack([np.bincount(np.concatenate(side), minlength=size) for side in zip(*pairs, strict=True)])
