"""The training loop: `update` updates the weights once, and `train_model` repeats this until the run ends.

`validation.py` evaluates the model, `stopping.py` decides when to stop, and `final_weights.py` finishes the run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import nn

from regard.decoding.writer import perplexity
from regard.errors import ModelError
from regard.model.dropout import masks_of
from regard.model_folder import HISTORY, LOG
from regard.training.batches import Batch
from regard.training.distributed import full_tensor
from regard.training.events import Event, Finished, Note, Prepared, Progress, append_event, trim_log
from regard.training.final_weights import finish
from regard.training.optimizer import learning_rate, set_learning_rate
from regard.training.run import TrainingRun
from regard.training.stopping import reason_to_end
from regard.training.validation import delete_snapshots_after, evaluate, is_due, keep_in_history

SAVE_SECONDS, MAX_SAVE_SHARE = 120.0, 0.01
"""Maximum work in seconds that a crash may lose, unless saving would take more than this share of the time."""


def train_model(run: TrainingRun) -> Iterator[Event]:
    """Updates the weights until the last step, until dev scores stop improving, or until `run.stop` is set."""
    if run.group.first:
        trim_log(run.folder / LOG, run.state.step)
        delete_snapshots_after(run.folder / HISTORY, run.state.step)
    yield from first_events(run)
    while True:
        if is_due(run):
            evaluation = evaluate(run)
            if run.group.first:
                append_event(run.folder / LOG, evaluation)
            yield evaluation
        if reason := reason_to_end(run.settings.training, run.state):
            break
        keep_in_history(run)
        started = time.perf_counter()
        progress = update(run)
        yield from run.notes
        run.notes.clear()
        yield progress
        if run.group.first and progress.step % max(1, run.settings.training.evaluate_every // 10) == 0:
            append_event(run.folder / LOG, progress)
        upcoming = run.evaluation_seconds if is_due(run) else time.perf_counter() - started
        stop, save = run.group.any(run.stop.is_set(), must_save(run, upcoming))
        if stop:
            run.save()
            run.write_first_weights()
            yield Finished("stopped", False, run.state.step, run.state.seconds, {})
            return
        if save:
            run.save()
    yield from finish(run, reason)


def must_save(run: TrainingRun, upcoming: float) -> bool:
    """Reports whether a crash within the next `upcoming` seconds could lose more than `SAVE_SECONDS` of work."""
    interval = max(SAVE_SECONDS, run.save_seconds / MAX_SAVE_SHARE)
    return time.perf_counter() - run.saved_at + upcoming > interval


def update(run: TrainingRun) -> Progress:
    """Updates the weights once: next batches, loss and gradients, clipping, optimizer step."""
    training, state, group = run.settings.training, run.state, run.group
    started, step = time.perf_counter(), state.step + 1
    batches = next_batches(run)
    counted = [local.batch for local in batches if local.counts]
    tokens, seen = group.sum(sum(batch.tokens for batch in counted), sum(batch.seen for batch in counted))

    while True:
        try:
            loss, surprise = forward_and_backward(run, batches, tokens)
            break
        except (RuntimeError, MemoryError) as error:
            use_less_memory(run, batches, error)
    loss, surprise = group.sum(loss, surprise)
    require_finite(run, loss)

    run.scaler.unscale_(run.optimizer)
    norm = float(full_tensor(nn.utils.clip_grad_norm_(run.model.parameters(), training.clip or math.inf)))
    if not run.scaler.is_enabled():
        require_finite(run, norm)
    rate = learning_rate(step, training, run.settings.model.width)
    set_learning_rate(run.optimizer, rate)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.optimizer.zero_grad()
    run.mean.update(step)

    seconds = max(1e-9, time.perf_counter() - started)
    state.step, state.tokens, state.seconds = step, state.tokens + int(tokens), state.seconds + seconds
    state.batch += len(batches)
    return Progress(
        step=step,
        epoch=state.epoch,
        loss=loss / tokens,
        perplexity=perplexity(surprise / tokens),
        learning_rate=rate,
        gradient=norm,
        tokens_per_second=seen / seconds,
        seconds_left=(training.steps - step) * state.seconds / step,
    )


def forward_and_backward(run: TrainingRun, batches: list[LocalBatch], tokens: float) -> tuple[float, float]:
    """Accumulates the gradients of an update's loss per token; returns the sums of the loss and of the surprise."""
    training, group, state = run.settings.training, run.group, run.state
    torch.manual_seed(training.seed * 1_000_003 + state.step + (group.rank << 40))  # for dropout on a GPU
    loss_sum, surprise_sum, dropout = 0.0, 0.0, dropout_strength(run)
    parts = list(split(run, batches))
    for number, (part, key) in enumerate(parts, 1):
        last, run.gradients_sent = number == len(parts), False
        with group.synchronize_gradients(last):
            with run.forward_mode(masks_of(training.seed, state.step, *key, strength=dropout)):
                loss, surprise = run.objective(part.batch, training.label_smoothing)
            scaled = loss * group.size / tokens if part.counts else loss * 0.0
            run.gradients_sent = last and group.size > 1
            run.scaler.scale(scaled).backward()
        if part.counts:
            loss_sum, surprise_sum = loss_sum + loss.item(), surprise_sum + surprise
    return loss_sum, surprise_sum


# Batches of an update


@dataclass(frozen=True)
class LocalBatch:
    """The rows of a batch that this process computes."""

    batch: Batch
    counts: bool = True  # False for a dummy: with fewer rows than processes, all must still make the same calls


def next_batches(run: TrainingRun) -> list[LocalBatch]:
    """Returns this process's rows of the next batches, starting a new epoch if the current one is over."""
    accumulate, state, group = run.settings.training.accumulate, run.state, run.group
    plan = run.plan(state.epoch)
    if state.batch >= len(plan):
        state.epoch, state.batch = state.epoch + 1, 0
        plan = run.plan(state.epoch)
    batches = []
    for number, rows in enumerate(plan[state.batch : state.batch + accumulate]):
        counts = group.rank < len(rows)
        batch = run.task.share(rows, state.step * accumulate + number, group.rank if counts else 0, group.size)
        batches.append(LocalBatch(batch, counts))
    return batches


def split(run: TrainingRun, batches: list[LocalBatch]) -> Iterator[tuple[LocalBatch, tuple[int, ...]]]:
    """Yields the parts of batches to compute at a time, and the numbers that seed their dropout masks."""
    rank = run.group.rank
    for number, local in enumerate(batches):
        if run.parts == 1:
            yield local, (number,) if rank == 0 else (number, rank, 0, 1)
            continue
        for part in range(min(run.parts, len(local.batch))):
            yield LocalBatch(local.batch.share(part, run.parts), local.counts), (number, rank, part, run.parts)


def dropout_strength(run: TrainingRun) -> float:
    """Returns the factor of all dropout rates, which grows to 1 during the epochs of training.dropout_warmup."""
    epochs, state = run.settings.training.dropout_warmup, run.state
    if not epochs:
        return 1.0
    return min(1.0, (state.epoch + state.batch / len(run.plan(state.epoch))) / epochs)


# Failures


def require_finite(run: TrainingRun, value: float) -> None:
    """Ends the run if the loss or gradient is not finite, before it can corrupt the weights."""
    if math.isfinite(value):
        return
    run.write_first_weights()
    raise run.group.error(
        f"{run.folder}: the loss became {value} at step {run.state.step + 1}; training has stopped and kept the last "
        "good checkpoint: resume with a lower --training.learning_rate or a longer --training.warmup"
    )


def use_less_memory(run: TrainingRun, batches: list[LocalBatch], error: Exception) -> None:
    """Halves the number of rows computed at a time after an out-of-memory error; raises every other error."""
    if not is_out_of_memory(error):
        raise error
    rows = max(len(local.batch) for local in batches)
    if run.parts >= rows or run.gradients_sent or run.group.sharded:
        raise ModelError(
            f"not enough memory for {-(-rows // run.parts)} rows of a batch; the last checkpoint is kept: resume "
            "with a smaller --training.batch_tokens (and a larger --training.accumulate), or with "
            "--training.recompute true"
        ) from None
    run.objective.zero_grad()
    run.parts *= 2
    run.notes.append(
        Note(
            f"not enough memory for a batch: from now on, each batch is computed in {run.parts} parts, which only "
            "affects speed and dropout masks"
        )
    )


def is_out_of_memory(error: Exception) -> bool:
    """Reports whether an error is a failed memory allocation, on any device."""
    messages = ("out of memory", "can't allocate memory", "not enough memory")
    kinds = MemoryError | torch.OutOfMemoryError
    return isinstance(error, kinds) or any(message in str(error).lower() for message in messages)


def first_events(run: TrainingRun) -> Iterator[Event]:
    """Yields the first events of a run: notes about its past, and a description of the model and data."""
    yield from run.notes
    run.notes.clear()
    if run.group.restart:
        yield Note(f"A process was lost: restart {run.group.restart} continues from step {run.state.step:,}.")
    yield Prepared(
        examples=run.about["examples"],
        held_out=run.about["held_out"]["dev"],
        unit=run.task.unit,
        preset=run.about["preset"],
        reason=run.about["reason"],
        vocabulary=run.vocabularies.target.size,
        parameters=sum(p.numel() for p in run.model.parameters()),
        device=str(run.device),
        step=run.state.step,
        steps=run.settings.training.steps,
    )
