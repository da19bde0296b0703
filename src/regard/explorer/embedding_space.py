"""Computes views of the embeddings: nearest neighbours, a map of the vocabulary, and the position vectors."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.errors import InputError, ModelError
from regard.explorer.model_parts import Anatomy
from regard.explorer.request_types import MissingError
from regard.model.positions import RotaryPositions
from regard.model_folder import TRAINING
from regard.tokens.token_shards import ABOUT
from regard.tokens.token_streams import Stream
from regard.training.batches import Examples

NO_TEXT = re.compile(r"(⟨([0-9A-F]{2}|\?)⟩)+|<0x[0-9A-F]{2}>|[\[<].*(unused|extra_id|reserved).*[\]>]")
"""Matches the display forms of single bytes and of unused entries in a vocabulary."""
LETTERS = re.compile(r"[^\W\d_]{2}")
WORD_LETTERS = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\u0e00-\u0eff]")
"""Letters that may be words on their own: Chinese, Japanese, Korean, Thai and Lao."""


def table(anatomy: Anatomy, side: str) -> Tensor:
    """Returns the unscaled token embeddings [V, D] of the source or target vocabulary."""
    if side not in anatomy.lexicons:
        raise InputError(f"side: must be {' or '.join(anatomy.lexicons)}, not {side[:40]!r}")
    return anatomy.embedding(side).tokens.weight.detach().float().cpu()


def require_tokens(rows: Tensor, ids: Sequence[int], field: str) -> None:
    """Raises MissingError for an id that the table [V, D] does not have."""
    for token in ids:
        if not 0 <= token < len(rows):
            raise MissingError(f"{field}: no token has the id {token}; the vocabulary has {len(rows)} tokens")


def near(anatomy: Anatomy, side: str, token: int, count: int, usage: Usage | None = None) -> dict[str, Any]:
    """Returns the tokens nearest to a token: by cosine, by dot product, and by cosine in the other language."""
    rows, lexicon = table(anatomy, side), anatomy.lexicons[side]
    require_tokens(rows, [token], "id")
    dots = rows @ rows[token]
    lengths = rows.norm(dim=1).clamp(min=1e-12)
    cosines = dots / lengths / lengths[token]
    hidden = torch.zeros(len(rows), dtype=torch.bool)
    hidden[sorted({token, *lexicon.special})] = True

    def best(values: Tensor, out: Tensor) -> list[dict[str, Any]]:
        top = values.masked_fill(out, -torch.inf).topk(min(count, int((~out).sum())))
        pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        return [{"id": i, "display": lexicon.display(i), "value": value} for i, value in pairs]

    own = own_pieces(anatomy, side, usage)
    other = None if own is None else best(cosines, hidden | own)
    return {"cosine": best(cosines, hidden), "dot": best(dots, hidden), "other": other}


def own_pieces(anatomy: Anatomy, side: str, usage: Usage | None) -> Tensor | None:
    """Returns [V], False for tokens that occur mostly on the other side of the training data; None if unknown."""
    if usage is None or anatomy.task != "translate" or anatomy.vocabularies.source is not anatomy.vocabularies.target:
        return None
    return usage.counts["target" if side == "source" else "source"] <= usage.counts[side]


def embedding_map(
    anatomy: Anatomy, side: str, count: int, ids: Sequence[int], usage: Usage | None = None
) -> dict[str, Any]:
    """Projects tokens of the vocabulary, including `ids`, to their first two principal components.

    The tokens are the most frequent ones if the training data is available, or else the first ones; see `order`.
    Imported vocabularies begin with single letters of many scripts. Therefore, the first tokens with two letters in a
    row are taken or, if `ids` contain letters that may be words on their own, with one such letter.
    """
    rows, lexicon = table(anatomy, side), anatomy.lexicons[side]
    require_tokens(rows, ids, "ids")
    if usage is not None:
        order, counts = "frequent", usage.counts[side]
        pieces = [i for i in counts.argsort(descending=True, stable=True).tolist() if counts[i] > 0]
    else:
        order = "first"
        pieces = [i for i in range(len(rows)) if not NO_TEXT.fullmatch(lexicon.display(i))]
    pieces = [i for i in pieces if i not in lexicon.special]
    if order == "first" and len(pieces) <= count:
        order = "all"
    elif order == "first":
        letter_words = any(WORD_LETTERS.search(lexicon.display(i)) for i in ids)
        forms = ((i, lexicon.display(i)) for i in pieces)
        long = [i for i, form in forms if is_word(form, letter_words)]
        pieces = long or pieces
    shown = sorted({*pieces[:count], *ids})
    points, explained = principal(rows[shown])
    return {
        "ids": shown,
        "displays": [lexicon.display(i) for i in shown],
        "points": points.tolist(),
        "explained": explained,
        "order": order,
        "usual": min(count, len(pieces)),
        "pieces": len(pieces),
        "texts": None if usage is None else usage.texts,
    }


def is_word(form: str, letter_words: bool) -> bool:
    """Reports whether a displayed piece has letters enough for a word; one that is a word is enough, if wanted."""
    alone = WORD_LETTERS.search(form) is not None
    return letter_words if alone else LETTERS.search(form) is not None


def principal(rows: Tensor) -> tuple[Tensor, list[float]]:
    """[N, D] -> [N, 2] on the first two principal axes, and the share of the variance along each axis.

    The largest component of each axis is positive, so that the map is the same every time.
    """
    centred = (rows - rows.mean(0)).double()
    _, lengths, axes = torch.linalg.svd(centred, full_matrices=False)
    variances, axes = lengths.square(), axes[:2].mT
    if axes.shape[1] < 2:  # a single token lies in the centre
        axes = torch.cat([axes, torch.zeros_like(axes)], 1)
        variances = torch.cat([variances, torch.zeros_like(variances)])
    signs = axes.gather(0, axes.abs().argmax(0, keepdim=True)).sign()
    total = max(float(variances.sum()), 1e-30)
    return (centred @ (axes * torch.where(signs == 0, 1.0, signs))).float(), (variances[:2] / total).tolist()


def positions(anatomy: Anatomy, side: str, count: int) -> tuple[dict[str, Any], Tensor | None]:
    """Returns a description of the positions, including the wavelength of each column, and their first rows [N, D].

    A row of rotary positions contains the cosines, then the sines, of the angles by which pairs are rotated.
    """
    table(anatomy, side)  # raises an error for an unknown side
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


@dataclass(frozen=True)
class Usage:
    """The number of occurrences of each token in the first texts of the training data."""

    counts: dict[str, Tensor]  # [V] for each side
    texts: int


def count_usage(anatomy: Anatomy, folder: Path | None, most: int = 50_000) -> Usage | None:
    """Counts the tokens in the training data of a model folder; returns None if there is no readable data."""
    data = None if folder is None else folder / TRAINING / "train"
    if data is None or not (data / ABOUT).is_file():
        return None
    try:
        if anatomy.task == "translate":
            examples = Examples(data)
            texts = min(most, len(examples))
            pairs = [examples.pair(row) for row in range(texts)]
            tokens = {text: [pair[n] for pair in pairs] for n, text in enumerate(anatomy.lexicons)}
        elif anatomy.task in ("write", "fill"):
            stream = Stream(data, check=False)
            texts = min(most, len(stream.documents))
            end = int(stream.documents[most]) if most < len(stream.documents) else len(stream)
            tokens = {"text": [stream.tokens[:end]]}
        else:
            return None
    except ModelError:
        return None
    sizes = {text: lexicon.tokenizer.size for text, lexicon in anatomy.lexicons.items()}
    if not texts or any(int(part.max(initial=0)) >= sizes[text] for text, parts in tokens.items() for part in parts):
        return None
    joined = {text: np.concatenate(parts).astype(np.int64) for text, parts in tokens.items()}
    return Usage({text: torch.from_numpy(np.bincount(joined[text], minlength=sizes[text])) for text in joined}, texts)
