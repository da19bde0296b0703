"""Training, from files to a finished model folder, as a stream of events."""

from __future__ import annotations

import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.errors import ModelError, SettingsError
from regard.folder import CARD, LOG, SETTINGS, TOKENIZER, TRAINING, WEIGHTS, read_settings, write_text
from regard.model.dropout import masks_from
from regard.options import dump
from regard.settings import gather, resolve
from regard.text.tokenizer import Vocabularies
from regard.training import log
from regard.training.adapters import adapt, merge, merged
from regard.training.batches import Rows
from regard.training.card import write_card
from regard.training.checkpoint import adopt, average, load_state, prune_snapshots, save_state, snapshot_path
from regard.training.events import Evaluation, Event, Finished, Prepared, Progress
from regard.training.history import forget_after, remember
from regard.training.machine import set_up_machine
from regard.training.mean import RunningMean
from regard.training.optimizer import build_optimizer, learning_rate
from regard.training.prepare import NEW, READY, TASKS, claim, install, prepare, stored_request
from regard.training.synthesis import synthesize, with_back_translation
from regard.training.task import ABOUT, START, Batch, Request, Tell, absolute_paths, require_metric
from regard.weights import Contents, assign, build_model, choose_device, read_folder, write_tensors

SAVE_SECONDS = 300.0
"""A run is saved at least this often, so that a kill costs no more."""


def train(
    files: Sequence[Path | str],
    output: Path | str,
    *,
    dev: Sequence[Path | str] = (),
    test: Sequence[Path | str] = (),
    settings_file: Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    start: Path | str | None = None,
    back_translate: Sequence[Path | str] = (),
    reverse: Path | str | None = None,
    overwrite: bool = False,
    stop: threading.Event | None = None,
) -> Iterator[Event]:
    """Trains a model on corpus files into a model folder.

    `overrides` are settings by their dotted names; `task` says what the model is for. `start` is a model whose
    weights and vocabulary are the first ones. `back_translate` is text in the target language: the model `reverse`,
    or one that is trained first, translates it back into more pairs. Setting `stop` ends the run, saved.
    """
    given = gather(settings_file, overrides)
    first = None if start is None else read_folder(Path(start)).settings  # all of it: a damaged one is refused now
    settings = resolve(given, start=first)
    if settings.training.adapters and start is None:
        raise SettingsError("training.adapters change a model that is there: give one with --from")
    device = choose_device(settings.training.device)
    absolute = [absolute_paths(names, settings) for names in (files, dev, test)]
    origin = None if start is None else str(Path(start).resolve())
    request = Request(absolute[0], given, device.type, absolute[1], absolute[2], origin)
    request = with_back_translation(request, settings, back_translate, reverse)
    claim(Path(output), overwrite)
    yield from run(Path(output), request, stop or threading.Event())


def resume(
    output: Path | str, *, overrides: Mapping[str, Any] | None = None, stop: threading.Event | None = None
) -> Iterator[Event]:
    """Goes on with a run that was interrupted, as if it had not been; `overrides` may change [training] only."""
    folder = Path(output)
    if (folder / NEW / READY).exists():
        install(folder)
    request = stored_request(folder)
    if request is None and not (folder / TRAINING / ABOUT).exists():
        raise ModelError(f"{folder}: there is no training to resume here")
    if overrides and request is not None:
        raise SettingsError(f"{folder}: was stopped while preparing: resume it as it was, or train with --overwrite")
    if overrides:
        change_training(folder, overrides)
    yield from run(folder, request, stop or threading.Event())


def run(folder: Path, request: Request | None, stop: threading.Event) -> Iterator[Event]:
    """Prepares what was requested, if anything was, and trains."""
    if request is not None:
        if request.synthetic:
            yield from synthesize(folder, request, stop, run)
        if not (request.synthetic and stop.is_set()):
            yield from told(lambda tell: prepare(folder, request, tell), stop)
        if stop.is_set():
            yield Finished("stopped", False, 0, 0.0, {})
            return
    yield from Trainer(folder, stop).run()


def told(work: Callable[[Tell], None], stop: threading.Event) -> Iterator[Event]:
    """The events that `work` tells, as they happen; it runs in a thread, and ends at its next word when stopped."""
    events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()

    def tell(event: Event) -> None:
        if stop.is_set():
            raise InterruptedError
        events.put(event)

    def run_work() -> None:
        try:
            work(tell)
            events.put(None)
        except BaseException as error:  # noqa: BLE001 (handed on to the thread that reads the events)
            events.put(error)

    threading.Thread(target=run_work, daemon=True).start()
    while (event := events.get()) is not None:
        if isinstance(event, InterruptedError):
            return
        if isinstance(event, BaseException):
            raise event
        yield event


def change_training(folder: Path, overrides: Mapping[str, Any]) -> None:
    """Records other training settings in a folder; what the weights depend on cannot be changed."""
    fixed = [name for name in overrides if not name.startswith("training.")]
    if fixed:
        raise SettingsError(f"{fixed[0]} cannot be changed when resuming: only training settings can")
    changed = resolve(gather(folder / SETTINGS, overrides))
    write_text(folder / SETTINGS, dump(replace(read_settings(folder), training=changed.training)))


class Trainer:
    """One run: everything it needs is in the folder."""

    def __init__(self, folder: Path, stop: threading.Event | None = None) -> None:
        self.folder, self.stop = folder, stop or threading.Event()
        self.work = folder / TRAINING
        self.settings = read_settings(folder)
        self.device = choose_device(self.settings.training.device)
        self.about = json.loads((self.work / ABOUT).read_text(encoding="utf-8"))
        self.vocabularies = Vocabularies.load(folder / TOKENIZER)
        require_metric(self.settings)
        self.task = TASKS[self.settings.task][1](self.work, self.settings, self.vocabularies, self.device)
        set_up_machine(self.settings.training, self.device)
        torch.manual_seed(self.settings.training.seed)
        self.model = build_model(self.settings, self.vocabularies).to(self.device)
        if (self.work / START).exists():
            new = adopt(self.work / START, self.model, self.about.get("leave"))
            if self.settings.training.adapters:
                adapt(self.model, self.settings.training.adapters, new)
        self.optimizer = build_optimizer(self.model, self.settings.training)
        self.mean = RunningMean(self.model, self.settings.training.ema)
        self.state = load_state(self.work, self.model, self.optimizer, self.mean)
        self.scaler = torch.amp.GradScaler(enabled=self.settings.training.precision == "float16")
        self.scaler.load_state_dict(self.state.scaler)
        self.planned: tuple[int, Sequence[Rows]] | None = None
        self.saved_at = time.monotonic()

    def run(self) -> Iterator[Event]:
        """Updates until the last step, until dev scores no longer rise, or until somebody says stop."""
        settings = self.settings.training
        log.trim(self.folder / LOG, self.state.step)
        forget_after(self.folder, self.state.step)
        yield self.prepared()
        reason = self.reason_to_end()
        while not reason:
            remember(self.folder, settings, self.model, self.state.step)
            progress = self.update()
            yield progress
            if progress.step % max(1, settings.evaluate_every // 10) == 0:
                log.append(self.folder / LOG, progress)
            if progress.step % settings.evaluate_every == 0 or progress.step == settings.steps:
                evaluation = self.evaluate()
                log.append(self.folder / LOG, evaluation)
                yield evaluation
            elif time.monotonic() - self.saved_at > SAVE_SECONDS:
                self.save()
            reason = self.reason_to_end()
            if self.stop.is_set() and not reason:
                yield self.pause()
                return
        yield self.finish(reason)

    def update(self) -> Progress:
        """One step of the optimizer on one batch, or on several whose gradients are summed."""
        began = time.perf_counter()
        settings, state = self.settings.training, self.state
        batches = self.next_batches()
        torch.manual_seed(settings.seed * 1_000_003 + state.step)  # dropout of a GPU depends on the step alone
        tokens = sum(batch.tokens for batch in batches)
        total = surprise = 0.0
        for number, batch in enumerate(batches):
            with masks_from(settings.seed, state.step, number), self.autocast():
                loss = self.task.loss(self.model, batch, settings.label_smoothing)
            self.scaler.scale(loss.total / tokens).backward()
            total, surprise = total + loss.total.item(), surprise + loss.surprise
        self.require_finite(total)
        rate = learning_rate(state.step + 1, settings, self.settings.model.width)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.scaler.unscale_(self.optimizer)
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), settings.clip or math.inf)
        if not self.scaler.is_enabled():
            self.require_finite(float(norm))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()
        self.mean.update(state.step + 1)
        seconds = time.perf_counter() - began
        state.step, state.tokens, state.seconds = (
            state.step + 1,
            state.tokens + tokens,
            state.seconds + seconds,
        )
        seen = sum(batch.seen for batch in batches)
        return Progress(
            step=state.step,
            epoch=state.epoch,
            loss=total / tokens,
            perplexity=perplexity(surprise / tokens),
            learning_rate=rate,
            gradient=float(norm),
            tokens_per_second=seen / seconds,
            seconds_left=(settings.steps - state.step) * state.seconds / state.step,
        )

    def next_batches(self) -> list[Batch]:
        """The next batches of this epoch, or the first of the next one."""
        settings, state = self.settings.training, self.state
        plan = self.plan(state.epoch)
        if state.batch >= len(plan):
            state.epoch, state.batch = state.epoch + 1, 0
            plan = self.plan(state.epoch)
        rows = plan[state.batch : state.batch + settings.accumulate]
        state.batch += len(rows)
        return [self.task.batch(each, state.step * settings.accumulate + i) for i, each in enumerate(rows)]

    def plan(self, epoch: int) -> Sequence[Rows]:
        """The batches of an epoch, planned once."""
        if self.planned is None or self.planned[0] != epoch:
            self.planned = (epoch, self.task.plan(epoch))
        return self.planned[1]

    def autocast(self) -> AbstractContextManager[Any]:
        precision = self.settings.training.precision
        if precision == "float32":
            return nullcontext()
        return torch.autocast(self.device.type, getattr(torch, precision))

    def require_finite(self, value: float) -> None:
        """Stops before a loss that is no number spoils the weights."""
        if math.isfinite(value):
            return
        if not (self.folder / WEIGHTS).exists():
            write_tensors(self.folder / WEIGHTS, merged(self.model))
        raise ModelError(
            f"{self.folder}: the loss became {value} at step {self.state.step + 1}; training has stopped and the last "
            "good checkpoint is kept: resume with a lower --training.learning_rate or a longer --training.warmup"
        )

    def evaluate(self) -> Evaluation:
        """Dev loss and dev scores; saves the run, and the weights if they are the best so far."""
        settings, state = self.settings.training, self.state
        with self.mean.in_place():
            scores, sample = self.dev_scores(len(state.evaluations))
            state.evaluations.append({"step": state.step, **scores})
            ranked = state.ranked(settings.metric)
            best = ranked[0] == state.step
            if state.step in ranked[: settings.average]:
                write_tensors(snapshot_path(self.work, state.step), merged(self.model))
            if best:
                write_tensors(self.folder / WEIGHTS, merged(self.model))
        self.save()
        prune_snapshots(self.work, ranked[: settings.average])
        shown = {name: scores[name] for name in self.task.prints}
        return Evaluation(state.step, scores["loss"], perplexity(scores["loss"]), shown, best, sample, state.seconds)

    def dev_scores(self, number: int) -> tuple[dict[str, float], list[tuple[str, str]]]:
        """The loss on the dev set in nats a token, what else the task measures, and a sample to look at."""
        self.model.eval()
        surprise = tokens = 0.0
        with torch.no_grad():
            for batch in self.task.dev_batches():
                with self.autocast():
                    loss = self.task.loss(self.model, batch, 0.0)
                surprise, tokens = surprise + loss.surprise, tokens + loss.tokens
        found = self.task.assess(self.contents(), surprise, number)
        self.model.train()
        return {"loss": surprise / tokens, **found.scores}, found.sample

    def contents(self) -> Contents:
        return Contents(self.settings, self.vocabularies, self.model)

    def save(self) -> None:
        self.state.scaler = self.scaler.state_dict()
        save_state(self.work, self.model, self.optimizer, self.mean, self.state)
        self.saved_at = time.monotonic()

    def reason_to_end(self) -> str:
        """Why training is over, or nothing."""
        settings, state = self.settings.training, self.state
        if state.step >= settings.steps:
            return f"all {settings.steps:,} steps are done"
        if state.evaluations and settings.patience and state.step > settings.warmup:
            best = state.ranked(settings.metric)[0]
            since = sum(e["step"] > best for e in state.evaluations)
            if since >= settings.patience:
                return f"dev {settings.metric} has not improved for {since} evaluations"
        return ""

    def pause(self) -> Finished:
        """Saves a run that somebody stopped."""
        self.save()
        if not (self.folder / WEIGHTS).exists():
            write_tensors(self.folder / WEIGHTS, merged(self.model))
        return Finished("stopped", False, self.state.step, self.state.seconds, {})

    def finish(self, reason: str) -> Finished:
        """Chooses the final weights, scores them, and writes the card."""
        settings, state = self.settings.training, self.state
        steps = state.ranked(settings.metric)[: settings.average]
        remember(self.folder, settings, self.model, state.step, last=True)
        merge(self.model)
        assign(self.model, self.best_weights(steps), self.folder / WEIGHTS)
        write_tensors(self.folder / WEIGHTS, merged(self.model))
        self.model.eval()
        scores = {name: self.task.report(self.contents(), name) for name in self.about["held_out"]}
        finished = Finished(reason, True, state.step, state.seconds, scores)
        if self.task.confidence is not None:
            self.task.confidence.save(self.folder)
        text = write_card(self.folder.name, self.settings, self.about, self.task.unit, self.model, finished)
        write_text(self.folder / CARD, text)
        log.append(self.folder / LOG, finished)
        return finished

    def best_weights(self, steps: Sequence[int]) -> dict[str, Tensor]:
        """The mean of the best checkpoints or, if that does worse on the dev set, the best one."""
        metric = self.settings.training.metric
        single, mean = average(self.work, steps[:1]), average(self.work, steps)
        if len(steps) == 1:
            return single
        assign(self.model, mean, self.work)
        sign = -1 if metric == "loss" else 1
        best = max(sign * evaluation[metric] for evaluation in self.state.evaluations)
        return mean if sign * self.dev_scores(0)[0][metric] >= best else single

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


def perplexity(surprise: float) -> float:
    return math.exp(min(surprise, 700.0))
