"""Compares the outputs of engines token by token, and finds out whether differences are ties."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.model.transformer import EncoderDecoder
from regard.weights import Contents

TIE = 1e-3  # closer log-probabilities are a tie: rounding decides between them

Tokens = Sequence[int | str]


def ids_of(contents: Contents, tokens: Tokens) -> list[int]:
    """Returns tokens as ids, where an engine has them as people see them."""
    tokenizer = contents.vocabularies.target
    if any(isinstance(token, str) for token in tokens):
        numbers = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.size)))}
        return [numbers[str(token)] for token in tokens]
    return [int(token) for token in tokens]


def compare(
    contents: Contents, texts: Sequence[str], expected: Sequence[list[int]], found: Sequence[list[int]], *, ties: bool
) -> dict[str, Any]:
    """Counts equal outputs and, with `ties`, those that differ first where two tokens are equally probable."""
    different = [number for number, pair in enumerate(zip(expected, found, strict=True)) if pair[0] != pair[1]]
    gaps = [gap(contents, texts[number], expected[number], found[number]) for number in different] if ties else []
    level = sum(each <= TIE for each in gaps)
    return {"equal": len(expected) - len(different), "ties": level, "of": len(expected), "gaps": sorted(gaps)}


@torch.inference_mode()
def gap(contents: Contents, text: str, expected: list[int], found: list[int]) -> float:
    """Returns the difference in log-probability of the first two tokens in which two greedy outputs differ."""
    model, specials = contents.model, contents.vocabularies.target.specials
    assert isinstance(model, EncoderDecoder)
    first, second = [*expected, specials.end], [*found, specials.end]
    place = next(number for number, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    source = torch.tensor([[*contents.vocabularies.source.encode_batch([text])[0], specials.end]])
    target = torch.tensor([[specials.begin, *first[:place]]])
    scores = model(source, target, None)[0, -1].log_softmax(-1)
    return float((scores[first[place]] - scores[second[place]]).abs())
