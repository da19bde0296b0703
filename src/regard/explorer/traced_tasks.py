"""Runs each task once with all tensors kept: translating, writing, filling gaps, labelling and embedding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from regard.errors import InputError
from regard.explorer.anatomy import Anatomy
from regard.explorer.displayed_tokens import InputTokens, encoder_tokens, prompt_tokens, source_tokens, word_tokens
from regard.explorer.expected_tokens import choose_rows, describe_labels, describe_steps
from regard.explorer.request_checks import RunRequest
from regard.explorer.traced_outputs import Output, WritingTask, write_output
from regard.explorer.traced_pass import Inputs, Pass, run_pass
from regard.explorer.what_if import Patch, check_places, hidden_places, make_edits, read_patches


@dataclass(frozen=True)
class TracedRun:
    """A finished run: the pass with its tensors, and its description as JSON."""

    run: Pass
    answer: dict[str, Any]
    warnings: list[str]


def run_task(anatomy: Anatomy, request: RunRequest) -> TracedRun:
    """Runs the model's task on a text."""
    patches = read_patches(request.patch, anatomy)
    request = replace(request, patch=tuple(patch.to_json() for patch in patches))
    if anatomy.task in ("translate", "write"):
        return run_writing(anatomy, request, patches)
    return run_reading(anatomy, request, patches)


def run_writing(anatomy: Anatomy, request: RunRequest, patches: Sequence[Patch]) -> TracedRun:
    """Writes a translation or a continuation, then reads the finished text once more with all tensors kept."""
    if request.pair is not None:
        raise InputError("pair: only an encoder reads two texts")
    translates = anatomy.task == "translate"
    lexicon = anatomy.lexicons[anatomy.written]
    if translates:
        tags = () if request.to is None else (request.to,)
        line, given = source_tokens(anatomy.lexicons["source"], request.text, anatomy.positions, tags)
        request = replace(request, text=line)
    else:
        given = prompt_tokens(lexicon, request.text, anatomy.positions)
    given = given if request.order is None else given.reordered(request.order)
    room = anatomy.positions - (0 if translates else len(given.tokens) - 1)
    forced, warnings = forced_tokens(anatomy, request, room)
    known = {"source": len(given.tokens), "target": room, "text": len(given.tokens) + max(0, len(forced) - 1)}
    check_places([p for p in patches if p.op == "hide"], anatomy, known)
    check_places([p for p in patches if p.op == "force"], anatomy, {**known, "text": anatomy.positions})
    keep = keep_mask(anatomy, patches, len(given.tokens))
    limit = min(room, len(forced) if request.target is not None else request.decode.max_tokens)
    if translates and request.target is None:
        limit = min(limit, int(request.decode.max_ratio * (len(given.tokens) - 1) + 20))
    edits = make_edits(patches, anatomy)
    output = write_output(anatomy, WritingTask(given.ids, request.decode, max(1, limit), forced, edits, keep))

    start = [lexicon.tokenizer.specials.begin] if translates else given.ids
    read = {"source": given.ids} if translates else {}
    tokens = {**read, anatomy.written: [*start, *output.inputs]}
    inputs = Inputs(tokens, list(range(len(tokens[anatomy.written]))), keep)
    run = run_pass(anatomy, inputs, edits)
    run.repetition_penalty = request.decode.repetition_penalty
    ended = [lexicon.tokenizer.specials.end] if output.found.finished else []
    run.chosen = [*start[1:], *output.found.tokens, *ended]
    return describe_writing(run, request, given, output, [*warnings, *warn_of_unused_patches(patches, run)])


def forced_tokens(anatomy: Anatomy, request: RunRequest, room: int) -> tuple[tuple[int, ...], list[str]]:
    """Returns the tokens that the output must begin with, and a warning if they had to be cut off."""
    lexicon = anatomy.lexicons[anatomy.written]
    specials = lexicon.tokenizer.specials
    for token in request.prefix or ():
        if not 0 <= token < lexicon.tokenizer.size or token in lexicon.special:
            raise InputError(f"prefix: {token} is not the id of a token that the model can write")
    if request.target is None:
        return request.prefix or (), []
    ids, _ = lexicon.cut(request.target, rest=anatomy.task == "write")
    if specials.unknown in ids:
        raise InputError("target: has characters that are not in the model's vocabulary; remove them")
    if len(ids) + 1 <= room:
        return (*ids, specials.end), []
    return tuple(ids[:room]), [f"the target has {len(ids)} tokens: only the first {room} are shown"]


def keep_mask(anatomy: Anatomy, patches: Sequence[Patch], length: int) -> list[bool] | None:
    """Returns the mask of visible tokens, or None; tokens of a writer are hidden by edits instead."""
    hidden = hidden_places(patches)
    if not hidden or anatomy.task == "write":
        return None
    return [place not in hidden for place in range(length)]


def warn_of_unused_patches(patches: Sequence[Patch], run: Pass) -> list[str]:
    """Returns a warning for each patch of a row that the finished text does not have."""
    warnings = []
    for number, patch in enumerate(patches, 1):
        length = len(run.inputs.tokens[run.anatomy.written])
        if patch.op == "force" and patch.site.startswith("decoder") and (patch.query or 0) >= length:
            warnings.append(f"patch {number} forces row {patch.query}, but the text has only {length} rows")
    return warnings


def describe_writing(
    run: Pass, request: RunRequest, given: InputTokens, output: Output, warnings: list[str]
) -> TracedRun:
    """Describes a translation or a continuation."""
    anatomy, found = run.anatomy, output.found
    lexicon, translates = anatomy.lexicons[anatomy.written], anatomy.task == "translate"
    before = 0 if translates else len(given.tokens) - 1  # rows whose token is part of the prompt
    fixed = before + output.given
    shown = lexicon.tokens(run.inputs.tokens[anatomy.written])
    texts = {"source": given.tokens, "target": shown} if translates else {"text": shown}
    if not translates:
        places = [(token.start, token.end) for token in given.tokens]
        texts["text"] = [
            replace(token, start=start, end=end)
            for token, (start, end) in zip(shown, [*places, *[(None, None)] * len(output.inputs)], strict=True)
        ]
    drawn = {before + i: pair for i, pair in enumerate(zip(output.drawn, output.kept, strict=True))}
    how = {row: pair for row, pair in drawn.items() if row >= fixed}
    decoder = lexicon.tokenizer
    text = decoder.decode(found.tokens)
    if not translates:
        text = decoder.decode([*given.ids, *found.tokens])[len(decoder.decode(given.ids)) :]
    answer = {
        "request": request.to_json(),
        "tokens": {name: [token.to_json() for token in tokens] for name, tokens in texts.items()},
        "steps": describe_steps(run, {row: row < fixed for row in run.inputs.rows}, how),
        "labels": [],
        "beam": output.beam,
        "text": text,
        "finished": found.finished,
        "log_probability": found.log_probability,
        "score": found.score,
        "points": {name: list(anatomy.points(name)) for name in anatomy.stacks},
    }
    return TracedRun(run, answer, [*given.warnings, *warnings])


def run_reading(anatomy: Anatomy, request: RunRequest, patches: Sequence[Patch]) -> TracedRun:
    """Reads a text with an encoder: fills its gaps, labels it, or turns it into a vector."""
    if request.target is not None or request.prefix is not None:
        raise InputError("target and prefix: an encoder writes no text; leave them out")
    if request.pair is not None and anatomy.shape.segments == 1:
        raise InputError("pair: this model has no segments and reads only one text; leave pair out")
    lexicon, words = anatomy.lexicons["text"], anatomy.task == "classify" and anatomy.settings.data.carrier == "word"
    if words and request.pair is not None:
        raise InputError("pair: a model that labels words reads one text")
    if words:
        given = word_tokens(lexicon, request.text, anatomy.positions)
    else:
        fills = anatomy.task == "fill"
        given = encoder_tokens(lexicon, request.text, request.pair, anatomy.positions, fills=fills)
    given = given if request.order is None else given.reordered(request.order)
    check_places(patches, anatomy, {"text": len(given.tokens)})
    mask = lexicon.tokenizer.specials.mask
    gaps = [place for place, token in enumerate(given.tokens) if token.id == mask]
    rows = given.firsts if words else gaps or [i for i, token in enumerate(given.tokens) if not token.special]
    keep = keep_mask(anatomy, patches, len(given.tokens))
    inputs = Inputs({"text": given.ids}, rows, keep, given.segments)
    run = run_pass(anatomy, inputs, make_edits(patches, anatomy))
    known = anatomy.task == "fill" and not gaps
    choose_rows(run, [given.ids[row] for row in rows] if known else None)
    return describe_reading(run, request, given, known)


def describe_reading(run: Pass, request: RunRequest, given: InputTokens, known: bool) -> TracedRun:
    """Describes the reading of a text: its steps are the gaps, or all tokens if it has no gaps."""
    anatomy = run.anatomy
    steps = describe_steps(run, dict.fromkeys(range(len(run.chosen)), known), {})
    labels = describe_labels(run)
    log_probability = None
    text = ""
    if run.answers is not None:
        scores = run.scores(run.answers[None])[0]
        log_probability = sum(float(row[chosen]) for row, chosen in zip(scores, run.chosen, strict=True))
    if anatomy.task == "fill":
        filled = list(given.ids)
        for row, chosen in zip(run.inputs.rows, run.chosen, strict=True):
            filled[row] = chosen
        text = anatomy.lexicons["text"].tokenizer.decode(filled)
    elif anatomy.task == "classify":
        text = " ".join(anatomy.settings.data.labels[chosen] for chosen in run.chosen)
    answer = {
        "request": request.to_json(),
        "tokens": {"text": [token.to_json() for token in given.tokens]},
        "steps": steps,
        "labels": labels,
        "beam": None,
        "text": text,
        "finished": True,
        "log_probability": log_probability,
        "score": log_probability,
        "points": {name: list(anatomy.points(name)) for name in anatomy.stacks},
    }
    return TracedRun(run, answer, given.warnings)
