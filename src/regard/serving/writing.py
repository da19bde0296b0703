"""Continuations of a prompt as OpenAI's interface tells them: tokens, their log-probabilities, where each stands."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from regard.decoding.hypothesis import Hypothesis
from regard.decoding.writer import Writer, first_stop, held_back


@dataclass(frozen=True)
class Completion:
    """What follows a prompt."""

    text: str
    ids: tuple[int, ...]
    log_probabilities: tuple[float, ...]
    reason: str  # "stop" or "length"


def complete(
    writer: Writer, row: Sequence[int], count: int, stop: Sequence[str], options: dict[str, Any]
) -> list[Completion]:
    """The best of so many continuations of a prompt, best first, or as many as are drawn."""
    settings = writer.decoding({**options, "alternatives": count - 1})
    before = writer.vocabulary.decode(row)

    def text(tokens: Sequence[int]) -> str:
        return writer.vocabulary.decode([*row, *tokens])[len(before) :]

    def ends(_number: int, tokens: Sequence[int]) -> bool:
        return first_stop(text(tokens), stop) is not None

    def made(found: Hypothesis) -> Completion:
        whole, ids = text(found.tokens), found.tokens
        cut = first_stop(whole, stop)
        if cut is None:
            values = found.log_probabilities[: len(ids)]
            return Completion(whole, ids, values, "stop" if found.finished else "length")
        kept = next(n for n in range(len(ids) + 1) if len(text(ids[:n])) >= cut)
        return Completion(whole[:cut], ids[:kept], found.log_probabilities[:kept], "stop")

    (found,) = writer.searcher.search([row], [settings.max_tokens], settings, ends if stop else None)
    return [made(each) for each in found]


def stream(writer: Writer, row: Sequence[int], stop: Sequence[str], options: dict[str, Any]) -> Iterator[Completion]:
    """The same piece by piece; the last piece has the reason, and each the tokens since the one before it."""
    settings = writer.decoding(options)
    before, tokens, said, told = writer.vocabulary.decode(row), list[int](), 0, 0
    reason = "length"
    for token in writer.searcher.tokens(row, settings):
        if token == writer.vocabulary.specials.end:
            reason = "stop"
            break
        tokens.append(token)
        text = writer.vocabulary.decode([*row, *tokens])[len(before) :]
        cut = first_stop(text, stop)
        if cut is not None:
            yield Completion(text[said:cut], tuple(tokens[told:]), (), "stop")
            return
        safe = len(text) - held_back(text, stop)
        if safe > said and not text.endswith("\N{REPLACEMENT CHARACTER}"):
            yield Completion(text[said:safe], tuple(tokens[told:]), (), "")
            said, told = safe, len(tokens)
        if len(tokens) >= settings.max_tokens:
            break
    if len(tokens) < settings.max_tokens:  # the native engine does not tell the end
        reason = "stop"
    text = writer.vocabulary.decode([*row, *tokens])[len(before) :]
    yield Completion(text[said:], tuple(tokens[told:]), (), reason)


def logprobs(writer: Writer, row: Sequence[int], found: Completion, count: int, *, echo: bool) -> dict[str, list[Any]]:
    """Of each token, the prompt's too if echoed: how probable it and the likeliest others were, and its place."""
    ids = [*row, *found.ids]
    decode, shown = writer.vocabulary.decode, writer.vocabulary.pieces
    start, base = (0, 0) if echo else (len(row), len(decode(row)))
    if echo and row and row[0] == writer.vocabulary.specials.begin:
        start = 1
    tokens = [piece.replace("▁", " ") for piece in shown(ids[start:])]
    offsets = [max(0, len(decode(ids[:place])) - base) for place in range(start, len(ids))]
    values: list[float | None] = list(found.log_probabilities)
    tops: list[dict[str, float] | None] = []
    likeliest = writer.searcher.likeliest(ids, count) if len(ids) > 1 and (count or echo) else []
    if echo and likeliest:
        values = [None, *(value for value, _ in likeliest)] if start == 0 else [value for value, _ in likeliest]
    for place, value in zip(range(start, len(ids)), values, strict=True):
        if place == 0 or value is None:
            tops.append(None)
            continue
        others = likeliest[place - 1][1] if likeliest else []
        told = {shown([token])[0].replace("▁", " "): each for token, each in others}
        tops.append({**told, tokens[place - start]: value})
    return {"tokens": tokens, "token_logprobs": values, "top_logprobs": tops if count else [], "text_offset": offsets}
