"""Whether engines say the same, token by token, and whether what differs is a tie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from regard.model.transformer import EncoderDecoder
from regard.weights import Contents

TIE = 1e-3  # log-probabilities that are closer are level: rounding decides between them

Tokens = Sequence[int | str]


def ids_of(contents: Contents, tokens: Tokens) -> list[int]:
    """Tokens as ids, where an engine tells them as people see them."""
    tokenizer = contents.vocabularies.target
    if any(isinstance(token, str) for token in tokens):
        numbers = {piece: number for number, piece in enumerate(tokenizer.pieces(range(tokenizer.size)))}
        return [numbers[str(token)] for token in tokens]
    return [int(token) for token in tokens]


def compare(
    contents: Contents, texts: Sequence[str], expected: Sequence[list[int]], told: Sequence[list[int]], *, ties: bool
) -> dict[str, Any]:
    """How many outputs are equal; with `ties`, how many others part where two tokens are level."""
    different = [number for number, pair in enumerate(zip(expected, told, strict=True)) if pair[0] != pair[1]]
    gaps = [gap(contents, texts[number], expected[number], told[number]) for number in different] if ties else []
    level = sum(each <= TIE for each in gaps)
    return {"equal": len(expected) - len(different), "ties": level, "of": len(expected), "gaps": sorted(gaps)}


@torch.inference_mode()
def gap(contents: Contents, text: str, expected: list[int], told: list[int]) -> float:
    """By how much the model prefers the expected token to the other, where two greedy outputs part."""
    model, specials = contents.model, contents.vocabularies.target.specials
    assert isinstance(model, EncoderDecoder)
    first, second = [*expected, specials.end], [*told, specials.end]
    place = next(number for number, pair in enumerate(zip(first, second, strict=False)) if pair[0] != pair[1])
    source = torch.tensor([[*contents.vocabularies.source.encode_batch([text])[0], specials.end]])
    target = torch.tensor([[specials.begin, *first[:place]]])
    scores = model(source, target, None)[0, -1].log_softmax(-1)
    return float((scores[first[place]] - scores[second[place]]).abs())
