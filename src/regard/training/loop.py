"""The loop of training: one run, whose folder has everything it needs, as a stream of events."""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard.decoding.writer import perplexity
from regard.errors import ModelError
from regard.folder import CARD, LOG, TOKENIZER, TRAINING, WEIGHTS, read_settings, write_text
from regard.model.linear import bfloat16_products
from regard.model.transformer import Encoder, Stack
from regard.text.tokenizer import Vocabularies
from regard.training import log
from regard.training.adapters import adapt, merge, merged
from regard.training.batches import Rows
from regard.training.card import write_card
from regard.training.checkpoint import (
    adopt,
    average,
    damage_of,
    load_state,
    prune_snapshots,
    save_state,
    snapshot_path,
    write_sealed,
)
from regard.training.distributed import Group, require_shardable, whole
from regard.training.ending import reason_to_end
from regard.training.events import Evaluation, Event, Finished, Note, Prepared, Progress
from regard.training.gradients import Gradients, Objective, Share
from regard.training.history import forget_after, is_moment, remember
from regard.training.machine import set_up_machine, settled
from regard.training.mean import RunningMean
from regard.training.optimizer import build_optimizer, learning_rate, set_rate
from regard.training.prepare import TASKS
from regard.training.task import ABOUT, START, require_metric
from regard.weights import (
    Contents,
    Model,
    assign,
    build_model,
    choose_device,
    parameters,
    write_tensors,
)

SAVE_SECONDS = 300.0
"""A run is saved at least this often, so that a kill costs no more."""


class Trainer:
    """One run: everything it needs is in the folder."""

    def __init__(self, folder: Path, stop: threading.Event | None = None, group: Group | None = None) -> None:
        self.folder, self.stop, self.group = folder, stop or threading.Event(), group or Group()
        self.work = folder / TRAINING
        self.settings = read_settings(folder)
        self.device = self.group.device(choose_device(self.settings.training.device))
        self.settings = settled(self.settings, self.device)
        self.about = json.loads((self.work / ABOUT).read_text(encoding="utf-8"))
        self.vocabularies = Vocabularies.load(folder / TOKENIZER)
        require_metric(self.settings)
        self.task = TASKS[self.settings.task][1](self.work, self.settings, self.vocabularies, self.device)
        set_up_machine(self.settings.training, self.device, self.group.here)
        torch.manual_seed(self.settings.training.seed)
        self.model = build_model(self.settings, self.vocabularies).to(self.device)
        if (self.work / START).exists():
            new = adopt(self.work / START, self.model, self.about.get("leave"))
            if self.settings.training.adapters:
                adapt(self.model, self.settings.training.adapters, new)
        self.objective = self.spread()
        self.optimizer = build_optimizer(self.model, self.settings.training, self.group)
        self.mean = RunningMean(self.model, self.settings.training.ema)
        self.state, self.damage = load_state(self.work, self.model, self.optimizer, self.mean, self.group)
        self.scaler = torch.amp.GradScaler(enabled=self.settings.training.precision == "float16")
        self.scaler.load_state_dict(self.state.scaler)
        self.gradients = Gradients(self.objective, self.group, self.settings.training, self.autocast, self.scaler)
        self.planned: tuple[int, Sequence[Rows]] | None = None
        self.saved_at = time.monotonic()

    def spread(self) -> nn.Module:
        """The model and its loss, spread over the processes."""
        training = self.settings.training
        stacks = [module for module in self.model.modules() if isinstance(module, Stack)]
        for stack in stacks:
            stack.recomputes = training.recompute
        if self.group.size > 1:
            require_shardable(training, self.group)
        layers = [layer for stack in stacks for layer in stack.layers]
        idle = isinstance(self.model, Encoder) and self.model.pooler is not None
        return self.group.wrap(Objective(self.model, self.task), layers, self.device, training.parallel, idle)

    def run(self) -> Iterator[Event]:
        """Updates until the last step, until dev scores no longer rise, or until somebody says stop."""
        settings, first = self.settings.training, self.group.first
        if first:
            log.trim(self.folder / LOG, self.state.step)
            forget_after(self.folder, self.state.step)
        yield from self.introduce()
        while True:
            if self.is_due():
                evaluation = self.evaluate()
                if first:
                    log.append(self.folder / LOG, evaluation)
                yield evaluation
            if reason := reason_to_end(settings, self.state):
                break
            self.remember()
            progress = self.update()
            yield from self.gradients.tell()
            yield progress
            if first and progress.step % max(1, settings.evaluate_every // 10) == 0:
                log.append(self.folder / LOG, progress)
            stop, late = self.group.any(self.stop.is_set(), time.monotonic() - self.saved_at > SAVE_SECONDS)
            if stop:
                yield self.pause()
                return
            if late and not self.is_due():
                self.save()
        yield from self.finish(reason)

    def is_due(self) -> bool:
        """Whether the weights of now are to be evaluated, and have not been: a run may be stopped in between."""
        settings, step = self.settings.training, self.state.step
        due = step > 0 and (step % settings.evaluate_every == 0 or step == settings.steps)
        return due and not any(evaluation["step"] == step for evaluation in self.state.evaluations)

    def update(self) -> Progress:
        """One step of the optimizer on one batch, or on several whose gradients are summed."""
        began = time.perf_counter()
        settings, state = self.settings.training, self.state
        strength, shares = self.dropout_strength(), self.next_shares()
        torch.manual_seed(settings.seed * 1_000_003 + state.step + (self.group.rank << 40))  # for dropout on a GPU
        tokens, seen = map(int, self.group.total(sum(s.tokens for s in shares), sum(s.seen for s in shares)))
        total, surprise = self.group.total(*self.gradients.of(shares, tokens, state.step, strength))
        self.require_finite(total)
        rate = learning_rate(state.step + 1, settings, self.settings.model.width)
        set_rate(self.optimizer, rate)
        self.scaler.unscale_(self.optimizer)
        norm = float(whole(nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip or math.inf)))
        if not self.scaler.is_enabled():
            self.require_finite(norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.mean.update(state.step + 1)
        seconds = max(1e-9, time.perf_counter() - began)
        state.step, state.tokens, state.seconds = state.step + 1, state.tokens + tokens, state.seconds + seconds
        return Progress(
            step=state.step,
            epoch=state.epoch,
            loss=total / tokens,
            perplexity=perplexity(surprise / tokens),
            learning_rate=rate,
            gradient=norm,
            tokens_per_second=seen / seconds,
            seconds_left=(settings.steps - state.step) * state.seconds / state.step,
        )

    def dropout_strength(self) -> float:
        """The share of dropout's rates that counts now: what was seen seldom is not learnt by heart yet."""
        epochs, state = self.settings.training.dropout_warmup, self.state
        if not epochs:
            return 1.0
        return min(1.0, (state.epoch + state.batch / len(self.plan(state.epoch))) / epochs)

    def next_shares(self) -> list[Share]:
        """What this process works on of the next batches of this epoch, or of the first of the next one."""
        settings, state, group = self.settings.training, self.state, self.group
        plan = self.plan(state.epoch)
        if state.batch >= len(plan):
            state.epoch, state.batch = state.epoch + 1, 0
            plan = self.plan(state.epoch)
        batches = plan[state.batch : state.batch + settings.accumulate]
        state.batch += len(batches)
        found = []
        for i, rows in enumerate(batches):
            update, counts = state.step * settings.accumulate + i, group.rank < len(rows)
            found.append(Share(self.task.share(rows, update, group.rank if counts else 0, group.size), counts))
        return found

    def plan(self, epoch: int) -> Sequence[Rows]:
        """The batches of an epoch, planned once."""
        if self.planned is None or self.planned[0] != epoch:
            self.planned = (epoch, self.task.plan(epoch))
        return self.planned[1]

    def autocast(self) -> AbstractContextManager[Any]:
        precision = self.settings.training.precision
        if precision == "float32":
            return nullcontext()
        if self.device.type == "cpu":
            return bfloat16_products()
        return torch.autocast(self.device.type, getattr(torch, precision))

    def require_finite(self, value: float) -> None:
        """Stops before a loss that is no number spoils the weights."""
        if math.isfinite(value):
            return
        self.write_first_weights()
        raise self.group.error(
            f"{self.folder}: the loss became {value} at step {self.state.step + 1}; training has stopped and the last "
            "good checkpoint is kept: resume with a lower --training.learning_rate or a longer --training.warmup"
        )

    def write_first_weights(self) -> None:
        """A model folder that is whole, though nothing was evaluated yet."""
        with self.whole(mean=False) as model:
            if self.group.first and not (self.folder / WEIGHTS).exists():
                write_tensors(self.folder / WEIGHTS, merged(model))

    @contextmanager
    def whole(self, mean: bool = True) -> Iterator[Model]:
        """The model with all its weights, in the first process, or with the running mean of them; it is not to change.

        Where each process has a part of the weights, this gathers them, and all processes must ask for it.
        """
        with self.mean.in_place() if mean else nullcontext():
            if not self.group.sharded:
                yield self.model
                return
            weights: dict[str, Tensor] = {}
            for name, parameter in parameters(self.model).items():
                full = whole(parameter)
                if self.group.first:
                    weights[name] = full
            model = self.model
            if self.group.first:
                model = build_model(self.settings, self.vocabularies).to(self.device)
                assign(model, weights, self.work)
            yield model

    def remember(self, last: bool = False) -> None:
        """Keeps the weights for later looks, if this is a moment for it."""
        if is_moment(self.settings.training, self.state.step, last):
            with self.whole(mean=False) as model:
                if self.group.first:
                    remember(self.folder, model, self.state.step)

    def evaluate(self) -> Evaluation:
        """Dev loss and dev scores; saves the run, and the weights if they are the best so far."""
        settings, state, first = self.settings.training, self.state, self.group.first
        with self.whole() as model:
            found = self.dev_scores(model, len(state.evaluations)) if first else None
            scores, sample = self.group.agree(found)
            state.evaluations.append({"step": state.step, **scores})
            ranked = state.ranked(settings.metric)
            best = ranked[0] == state.step
            if first and state.step in ranked[: settings.average]:
                write_sealed(snapshot_path(self.work, state.step), merged(model))
            if first and best:
                write_tensors(self.folder / WEIGHTS, merged(model))
        self.save()
        if first:  # what the state before this one would need is kept as well
            before = state.ranked(settings.metric, len(state.evaluations) - 1)
            prune_snapshots(self.work, ranked[: settings.average] + before[: settings.average])
        shown = {name: scores[name] for name in self.task.prints}
        return Evaluation(state.step, scores["loss"], perplexity(scores["loss"]), shown, best, sample, state.seconds)

    def dev_scores(self, model: Model, number: int) -> tuple[dict[str, float], list[tuple[str, str]]]:
        """The loss on the dev set in nats a token, what else the task measures, and a sample to look at."""
        model.eval()
        surprise = tokens = 0.0
        with torch.no_grad():
            for batch in self.task.dev_batches():
                with self.autocast():
                    loss = self.task.loss(model, batch, 0.0)
                surprise, tokens = surprise + loss.surprise, tokens + loss.tokens
        found = self.task.assess(self.contents(model), surprise, number)
        model.train()
        return {"loss": surprise / tokens, **found.scores}, found.sample

    def contents(self, model: Model) -> Contents:
        return Contents(self.settings, self.vocabularies, model)

    def save(self) -> None:
        self.state.scaler = self.scaler.state_dict()
        save_state(self.work, self.model, self.optimizer, self.mean, self.state, self.group)
        self.saved_at = time.monotonic()

    def pause(self) -> Finished:
        """Saves a run that somebody stopped."""
        self.save()
        self.write_first_weights()
        return Finished("stopped", False, self.state.step, self.state.seconds, {})

    def finish(self, reason: str) -> Iterator[Event]:
        """Chooses the final weights, scores them, and writes the card: in the first process, the others are done."""
        state = self.state
        finished = Finished(reason, True, state.step, state.seconds, {})
        self.remember(last=True)
        with self.whole(mean=False) as model:
            if not self.group.first:
                yield finished
                return
            merge(model)
            steps = []
            for step in state.ranked(self.settings.training.metric)[: self.settings.training.average]:
                if why := damage_of(snapshot_path(self.work, step)):
                    yield Note(f"{snapshot_path(self.work, step)}: {why}: the final weights are made without it")
                else:
                    steps.append(step)
            assign(model, self.best_weights(model, steps), self.folder / WEIGHTS)
            write_tensors(self.folder / WEIGHTS, merged(model))
            model.eval()
            scores = {name: self.task.report(self.contents(model), name) for name in self.about["held_out"]}
            finished = replace(finished, scores=scores)
            if self.task.confidence is not None:
                self.task.confidence.save(self.folder)
            text = write_card(self.folder.name, self.settings, self.about, self.task.unit, model, finished)
        write_text(self.folder / CARD, text)
        log.append(self.folder / LOG, finished)
        yield finished

    def best_weights(self, model: Model, steps: Sequence[int]) -> dict[str, Tensor]:
        """The mean of the best checkpoints or, if that does worse on the dev set, the best one."""
        if not steps:
            raise ModelError(f"{self.work}: no checkpoint of an evaluated step is whole: train again with --overwrite")
        metric = self.settings.training.metric
        single, mean = average(self.work, steps[:1]), average(self.work, steps)
        if len(steps) == 1:
            return single
        assign(model, mean, self.work)
        sign = -1 if metric == "loss" else 1
        best = max(sign * evaluation[metric] for evaluation in self.state.evaluations)
        return mean if sign * self.dev_scores(model, 0)[0][metric] >= best else single

    def introduce(self) -> Iterator[Event]:
        """What is about to be trained, and what befell the run before."""
        for line in self.damage:
            yield Note(f"{line}: going on from step {self.state.step:,} instead")
        if self.group.restart:
            yield Note(f"A process was lost: start {self.group.restart + 1} goes on from step {self.state.step:,}.")
        yield self.prepared()

    def prepared(self) -> Prepared:
        return Prepared(
            examples=self.about["examples"],
            held_out=self.about["held_out"]["dev"],
            unit=self.task.unit,
            preset=self.about["preset"],
            reason=self.about["reason"],
            vocabulary=self.vocabularies.target.size,
            parameters=sum(p.numel() for p in self.model.parameters()),
            device=str(self.device),
            step=self.state.step,
            steps=self.settings.training.steps,
        )
