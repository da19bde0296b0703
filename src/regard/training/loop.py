"""The training loop: `update` makes one update, `train_model` makes them until the run ends.

Everything else in a run stands beside it: `validation.py` evaluates, `final_weights.py` finishes.
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
from regard.model_folder import LOG
from regard.training import event_log as log
from regard.training.distributed import whole
from regard.training.events import Event, Finished, Note, Prepared, Progress
from regard.training.final_weights import finish
from regard.training.optimizer import learning_rate, set_rate
from regard.training.run import TrainingRun
from regard.training.stopping import reason_to_end
from regard.training.tasks.task import Batch
from regard.training.validation import evaluate, is_due
from regard.training.weights_history import forget_after, keep_snapshot

SAVE_SECONDS = 300.0
"""A run is saved at least this often, which is the most work that a kill can cost."""


def train_model(run: TrainingRun) -> Iterator[Event]:
    """Makes updates until the last step, until dev scores stop improving, or until `run.stop` is set."""
    if run.group.first:
        log.trim(run.folder / LOG, run.state.step)
        forget_after(run.folder, run.state.step)
    yield from introduction(run)
    while True:
        if is_due(run):
            evaluation = evaluate(run)
            if run.group.first:
                log.append(run.folder / LOG, evaluation)
            yield evaluation
        if reason := reason_to_end(run.settings.training, run.state):
            break
        keep_snapshot(run)
        progress = update(run)
        while run.notes:
            yield run.notes.pop(0)
        yield progress
        if run.group.first and progress.step % max(1, run.settings.training.evaluate_every // 10) == 0:
            log.append(run.folder / LOG, progress)
        stop, late = run.group.any(run.stop.is_set(), time.monotonic() - run.saved_at > SAVE_SECONDS)
        if stop:
            run.save()
            run.write_first_weights()
            yield Finished("stopped", False, run.state.step, run.state.seconds, {})
            return
        if late and not is_due(run):
            run.save()
    yield from finish(run, reason)


def update(run: TrainingRun) -> Progress:
    """Makes one update: the next batches, their loss and gradients, clipping, and a step of the optimizer."""
    training, state, group = run.settings.training, run.state, run.group
    started, step = time.perf_counter(), state.step + 1
    dropout = dropout_strength(run)
    batches = next_batches(run)
    tokens, read = group.total(sum(b.tokens for b in batches), sum(b.seen for b in batches))

    loss, surprise = compute_gradients(run, batches, tokens, dropout)
    loss, surprise = group.total(loss, surprise)
    require_finite(run, loss)

    run.scaler.unscale_(run.optimizer)
    norm = float(whole(nn.utils.clip_grad_norm_(run.model.parameters(), training.clip or math.inf)))
    if not run.scaler.is_enabled():
        require_finite(run, norm)
    rate = learning_rate(step, training, run.settings.model.width)
    set_rate(run.optimizer, rate)
    run.scaler.step(run.optimizer)
    run.scaler.update()
    run.optimizer.zero_grad()
    run.mean.update(step)

    seconds = max(1e-9, time.perf_counter() - started)
    state.step, state.tokens, state.seconds = step, state.tokens + int(tokens), state.seconds + seconds
    return Progress(
        step=step,
        epoch=state.epoch,
        loss=loss / tokens,
        perplexity=perplexity(surprise / tokens),
        learning_rate=rate,
        gradient=norm,
        tokens_per_second=read / seconds,
        seconds_left=(training.steps - step) * state.seconds / step,
    )


def compute_gradients(run: TrainingRun, batches: list[Share], tokens: float, dropout: float) -> tuple[float, float]:
    """Sets the gradients of the loss per token of an update; returns the sums of the loss and of the surprise.

    Where memory runs out, everything is computed again in twice as many parts, and so are all later updates.
    """
    while True:
        try:
            return forward_and_backward(run, batches, tokens, dropout)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            double_parts(run, batches)


def forward_and_backward(run: TrainingRun, batches: list[Share], tokens: float, dropout: float) -> tuple[float, float]:
    """Runs the model and its backward pass over each part of the batches."""
    training, group, state = run.settings.training, run.group, run.state
    torch.manual_seed(training.seed * 1_000_003 + state.step + (group.rank << 40))  # for dropout on a GPU
    loss_sum = surprise_sum = 0.0
    parts = list(split(run, batches))
    for number, (share, key) in enumerate(parts):
        last, run.sending = number == len(parts) - 1, False
        with group.summing(last):
            with run.forward_mode(masks_of(training.seed, state.step, *key, strength=dropout)):
                loss, surprise = run.objective(share.batch, training.label_smoothing)
            scaled = loss * group.size / tokens if share.counts else loss * 0.0
            run.sending = last and group.size > 1
            run.scaler.scale(scaled).backward()
        if share.counts:
            loss_sum, surprise_sum = loss_sum + loss.item(), surprise_sum + surprise
    return loss_sum, surprise_sum


# The data of an update


@dataclass(frozen=True)
class Share:
    """The rows of a batch that this process computes."""

    batch: Batch
    counts: bool = True  # False where there are too few rows: all processes must make the same calls

    @property
    def tokens(self) -> int:
        return self.batch.tokens if self.counts else 0

    @property
    def seen(self) -> int:
        return self.batch.seen if self.counts else 0


def next_batches(run: TrainingRun) -> list[Share]:
    """Returns this process's share of the next batches of the epoch, or of the first ones of the next epoch."""
    accumulate, state, group = run.settings.training.accumulate, run.state, run.group
    plan = run.plan(state.epoch)
    if state.batch >= len(plan):
        state.epoch, state.batch = state.epoch + 1, 0
        plan = run.plan(state.epoch)
    shares = []
    for number, rows in enumerate(plan[state.batch : state.batch + accumulate]):
        counts = group.rank < len(rows)
        batch = run.task.share(rows, state.step * accumulate + number, group.rank if counts else 0, group.size)
        shares.append(Share(batch, counts))
    state.batch += len(shares)
    return shares


def dropout_strength(run: TrainingRun) -> float:
    """Returns the share of the dropout rates that applies now: it grows with the epochs, to 1."""
    epochs, state = run.settings.training.dropout_warmup, run.state
    if not epochs:
        return 1.0
    return min(1.0, (state.epoch + state.batch / len(run.plan(state.epoch))) / epochs)


# What can go wrong


def require_finite(run: TrainingRun, value: float) -> None:
    """Stops the run before a loss or gradient that is not finite spoils the weights."""
    if math.isfinite(value):
        return
    run.write_first_weights()
    raise run.group.error(
        f"{run.folder}: the loss became {value} at step {run.state.step + 1}; training has stopped and the last "
        "good checkpoint is kept: resume with a lower --training.learning_rate or a longer --training.warmup"
    )


def split(run: TrainingRun, batches: list[Share]) -> Iterator[tuple[Share, tuple[int, ...]]]:
    """Yields what is computed at a time, and the numbers that its dropout masks depend on."""
    rank = run.group.rank
    for number, share in enumerate(batches):
        for part in range(min(run.parts, len(share.batch))):
            alone = rank == 0 and run.parts == 1
            key = (number,) if alone else (number, rank, part, run.parts)
            batch = share.batch if run.parts == 1 else share.batch.share(part, run.parts)
            yield Share(batch, share.counts), key


def double_parts(run: TrainingRun, batches: list[Share]) -> None:
    """Halves what is computed at a time, or refuses to go on where that is impossible."""
    rows = max(len(share.batch) for share in batches)
    if run.parts >= rows or run.sending or run.group.sharded:
        raise ModelError(
            f"not enough memory for {-(-rows // run.parts)} rows of a batch; the last checkpoint is kept: resume "
            "with a smaller --training.batch_tokens (and --training.accumulate), or with --training.recompute true"
        ) from None
    run.objective.zero_grad()
    run.parts *= 2
    run.notes.append(
        Note(
            f"not enough memory for a batch: batches are now computed in {run.parts} parts, which changes "
            "nothing but the speed and the dropout masks"
        )
    )


def is_out_of_memory(error: BaseException) -> bool:
    """Tells whether an allocation failed, on whatever device."""
    words = ("out of memory", "can't allocate memory", "not enough memory")
    kinds = MemoryError | torch.OutOfMemoryError
    return isinstance(error, kinds) or any(word in str(error).lower() for word in words)


# What is shown first


def introduction(run: TrainingRun) -> Iterator[Event]:
    """Yields what is about to be trained, and what happened to the run before."""
    for line in run.damage:
        yield Note(f"{line}: going on from step {run.state.step:,} instead")
    if run.group.restart:
        yield Note(f"A process was lost: start {run.group.restart + 1} goes on from step {run.state.step:,}.")
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
