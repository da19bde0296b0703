"""Runs the task of a model on one text and records all tensors: translates, writes, fills gaps, labels or embeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from msgspec import structs

from regard.errors import InputError
from regard.explorer.activation_patches import check_patches, check_places, hidden_places, make_edits
from regard.explorer.displayed_tokens import (
    InputTokens,
    Token,
    encoder_tokens,
    prompt_tokens,
    source_tokens,
    word_tokens,
)
from regard.explorer.model_parts import Anatomy
from regard.explorer.recorded_decoding import Output, WritingTask, write_output
from regard.explorer.recorded_pass import Inputs, Pass, describe_labels, describe_steps, run_pass
from regard.explorer.request_types import Patch, RunRequest
from regard.settings import DecodingSettings

RecordedRun = tuple[Pass, dict[str, Any]]
"""A pass with its tensors, and the description of the run as JSON."""


def run_task(anatomy: Anatomy, request: RunRequest, settings: DecodingSettings) -> RecordedRun:
    """Runs the task of a model on the text of a request."""
    check_patches(request.patches, anatomy)
    if anatomy.task in ("translate", "write"):
        return run_writing(anatomy, request, settings)
    return run_reading(anatomy, request)


def run_writing(anatomy: Anatomy, request: RunRequest, settings: DecodingSettings) -> RecordedRun:
    """Generates a translation or continuation, then runs the model once more over the finished text to record it."""
    if request.pair is not None:
        raise InputError("pair: only encoder models read two texts")
    translates, patches = anatomy.task == "translate", request.patches
    lexicon = anatomy.lexicons[anatomy.written]
    if translates:
        tags = () if request.to is None else (request.to,)
        line, given = source_tokens(anatomy.lexicons["source"], request.text, anatomy.positions, tags)
        request = structs.replace(request, text=line)
    else:
        given = prompt_tokens(lexicon, request.text, anatomy.positions)
    given = given.reordered(request.order)
    room = anatomy.positions - (0 if translates else len(given.tokens) - 1)
    forced, warnings = forced_tokens(anatomy, request, room)
    lengths = {"source": len(given.tokens), "target": room, "text": len(given.tokens) + max(0, len(forced) - 1)}
    check_places([patch for patch in patches if patch.op == "hide"], anatomy, lengths)
    check_places([patch for patch in patches if patch.op == "force"], anatomy, {**lengths, "text": anatomy.positions})
    keep = keep_mask(anatomy, patches, len(given.tokens))
    limit = min(room, len(forced) if request.target is not None else settings.max_tokens)
    if translates and request.target is None:
        limit = min(limit, int(settings.max_ratio * (len(given.tokens) - 1) + 20))
    edits = make_edits(patches, anatomy)
    output = write_output(anatomy, WritingTask(given.ids, settings, max(1, limit), forced, edits, keep))

    start = [lexicon.tokenizer.specials.begin] if translates else given.ids
    read = {"source": given.ids} if translates else {}
    tokens = {**read, anatomy.written: [*start, *output.inputs]}
    inputs = Inputs(tokens, list(range(len(tokens[anatomy.written]))), keep)
    run = run_pass(anatomy, inputs, edits, settings.repetition_penalty)
    ended = [lexicon.tokenizer.specials.end] if output.found.finished else []
    run.chosen = [*start[1:], *output.found.tokens, *ended]
    return run, {
        **describe_run(run, request, describe_writing(run, given, output)),
        "warnings": [*given.warnings, *warnings, *warn_of_unused_patches(patches, run)],
    }


def forced_tokens(anatomy: Anatomy, request: RunRequest, room: int) -> tuple[tuple[int, ...], list[str]]:
    """Returns the tokens with which the output must begin, and a warning if they were truncated."""
    lexicon = anatomy.lexicons[anatomy.written]
    specials = lexicon.tokenizer.specials
    for token in request.prefix or ():
        if not 0 <= token < lexicon.tokenizer.size or token in lexicon.special:
            raise InputError(f"prefix: {token} is not the id of a token the model can generate")
    if request.target is None:
        return tuple(request.prefix or ()), []
    ids, _ = lexicon.cut(request.target, rest=anatomy.task == "write")
    if specials.unknown in ids:
        raise InputError("target: contains characters that are not in the model's vocabulary; remove them")
    if len(ids) + 1 <= room:
        return (*ids, specials.end), []
    return tuple(ids[:room]), [f"the target has {len(ids)} tokens: only the first {room} are shown"]


def keep_mask(anatomy: Anatomy, patches: Sequence[Patch], length: int) -> list[bool] | None:
    """Returns a mask of visible tokens, or None if all are visible; in writers, edits hide tokens instead."""
    hidden = hidden_places(patches)
    if not hidden or anatomy.task == "write":
        return None
    return [place not in hidden for place in range(length)]


def warn_of_unused_patches(patches: Sequence[Patch], run: Pass) -> list[str]:
    """Returns a warning for each patch of a position that does not exist in the finished text."""
    warnings = []
    for number, patch in enumerate(patches, 1):
        length = len(run.inputs.tokens[run.anatomy.written])
        if patch.op == "force" and patch.site.startswith("decoder") and (patch.query or 0) >= length:
            warnings.append(f"patch {number} forces row {patch.query}, but the text has only {length} rows")
    return warnings


def describe_writing(run: Pass, given: InputTokens, output: Output) -> dict[str, Any]:
    """Describes a translation or continuation: its tokens, and how each token was chosen."""
    anatomy, found = run.anatomy, output.found
    lexicon, translates = anatomy.lexicons[anatomy.written], anatomy.task == "translate"
    before = 0 if translates else len(given.tokens) - 1  # rows whose token is part of the prompt
    fixed = before + output.given
    shown = lexicon.tokens(run.inputs.tokens[anatomy.written])
    decoder = lexicon.tokenizer
    if translates:
        texts, text = {"source": given.tokens, "target": shown}, decoder.decode(found.tokens)
    else:
        prompt = [replace(t, start=old.start, end=old.end) for t, old in zip(shown, given.tokens, strict=False)]
        texts = {"text": [*prompt, *shown[len(prompt) :]]}
        text = decoder.decode([*given.ids, *found.tokens])[len(decoder.decode(given.ids)) :]
    drawn = enumerate(zip(output.drawn, output.kept, strict=True), before)
    how = {row: pair for row, pair in drawn if row >= fixed}
    return {
        "tokens": to_json(texts),
        "steps": describe_steps(run, {row: row < fixed for row in run.inputs.rows}, how),
        "beam": output.beam,
        "text": text,
        "finished": found.finished,
        "log_probability": found.log_probability,
        "score": found.score,
    }


def run_reading(anatomy: Anatomy, request: RunRequest) -> RecordedRun:
    """Runs an encoder over a text: fills its gaps, labels it or embeds it."""
    if request.target is not None or request.prefix is not None:
        raise InputError("target and prefix: an encoder generates no text; leave them out")
    if request.pair is not None and anatomy.shape.segments == 1:
        raise InputError("pair: this model has no segments and reads only one text; leave pair out")
    lexicon, words = anatomy.lexicons["text"], anatomy.task == "classify" and anatomy.settings.data.carrier == "word"
    if words and request.pair is not None:
        raise InputError("pair: a model that labels words reads only one text; leave pair out")
    fills, patches = anatomy.task == "fill", request.patches
    if words:
        given = word_tokens(lexicon, request.text, anatomy.positions)
    else:
        given = encoder_tokens(lexicon, request.text, request.pair, anatomy.positions, fills=fills)
    given = given.reordered(request.order)
    check_places(patches, anatomy, {"text": len(given.tokens)})
    mask = lexicon.tokenizer.specials.mask
    gaps = [place for place, token in enumerate(given.tokens) if token.id == mask]
    rows = given.firsts if words else gaps or [i for i, token in enumerate(given.tokens) if not token.special]
    inputs = Inputs({"text": given.ids}, rows, keep_mask(anatomy, patches, len(given.tokens)), given.segments)
    run = run_pass(anatomy, inputs, make_edits(patches, anatomy))
    known = fills and not gaps
    if run.answers is not None:
        run.chosen = [given.ids[row] for row in rows] if known else run.log_probabilities.argmax(-1).tolist()
    return run, {**describe_run(run, request, describe_reading(run, given, known)), "warnings": given.warnings}


def describe_reading(run: Pass, given: InputTokens, known: bool) -> dict[str, Any]:
    """Describes the run of an encoder; its steps are the gaps, or all tokens if there are no gaps."""
    anatomy, text, log_probability = run.anatomy, "", None
    if run.answers is not None:
        chosen = enumerate(run.chosen)
        log_probability = sum(float(run.log_probabilities[row, answer]) for row, answer in chosen)
    if anatomy.task == "fill":
        answers = dict(zip(run.inputs.rows, run.chosen, strict=True))
        text = anatomy.lexicons["text"].tokenizer.decode([answers.get(i, token) for i, token in enumerate(given.ids)])
    elif anatomy.task == "classify":
        text = " ".join(anatomy.settings.data.labels[chosen] for chosen in run.chosen)
    return {
        "tokens": to_json({"text": given.tokens}),
        "steps": describe_steps(run, dict.fromkeys(range(len(run.chosen)), known), {}),
        "beam": None,
        "text": text,
        "finished": True,
        "log_probability": log_probability,
        "score": log_probability,
    }


def describe_run(run: Pass, request: RunRequest, task: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the description of a run, including the fields `task` that depend on the task."""
    points = {name: list(run.anatomy.points(name)) for name in run.anatomy.stacks}
    return {"request": request.to_json(), **task, "labels": describe_labels(run), "points": points}


def to_json(texts: Mapping[str, Sequence[Token]]) -> dict[str, list[dict[str, Any]]]:
    """Returns the tokens of each text as JSON."""
    return {name: [asdict(token) for token in tokens] for name, tokens in texts.items()}
