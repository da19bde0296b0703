"""Estimates the cost of training by training on a sample for a short time.

Two things are assumed: each device is `speed` times as fast as this one, and several devices reach the share
`efficiency` of the sum of their speeds. Everything else is measured.
"""

from __future__ import annotations

import math
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.decoding.beam_search import generate, most_probable
from regard.decoding.decoder_step import NextToken, TranslationStep
from regard.files.corpus import dev_size
from regard.model.kernels.compute_mode import computing
from regard.model.layers import TABLES
from regard.model.transformer import EncoderDecoder
from regard.preparation.chosen_settings import choose_preset, resolve
from regard.preparation.corpus_sample import Sample
from regard.preparation.pair_preparation import without_sampling
from regard.preparation.run_in_folder import prepare_run
from regard.preparation.task_preparation import TrainingRequest
from regard.preparation.text_preparation import MAX_HELD_OUT
from regard.settings import Settings
from regard.tokens.language_directions import directions_of
from regard.tokens.token_shards import token_type
from regard.training.batches import ResampledExamples
from regard.training.events import Stage
from regard.training.loop import update
from regard.training.run import TrainingRun, open_run
from regard.training.tasks.translation import TranslationTraining
from regard.weights import choose_device

MIN_STEPS, MAX_STEPS = 10, 400  # only the second half of the steps is measured
TRANSLATED = 32  # number of dev pairs whose translation is timed


@dataclass(frozen=True)
class TrainingMemory:
    """The memory that training needs on one device, in bytes."""

    weights: int
    gradients: int
    moments: int  # optimizer state
    mean: int  # running mean of the weights, with training.ema
    rest: int  # activations, tokens and, on a CPU, the program itself
    peak: int
    unit: float = 0.0  # additional memory per pair beyond the sample, for subword sampling

    @property
    def state(self) -> int:
        """The memory, in bytes, that can be distributed over devices."""
        return self.weights + self.gradients + self.moments + self.mean


@dataclass(frozen=True)
class Measured:
    """Measurements of training on a sample on this machine."""

    device: str
    threads: int
    steps: int
    seconds_per_step: float
    tokens_per_step: float  # source and target tokens, without padding
    tokens_per_unit: float  # tokens per pair, or per character of text
    flops_per_token: float  # for forward and backward passes; a multiplication and an addition count as two
    parameters: int
    tables: int  # number of parameters in embedding tables
    vocabulary: int
    preparing: float  # seconds per pair or character
    evaluating: float  # seconds per evaluation: the loss on the dev set, and greedy translations
    finishing: float  # seconds for the final scores with beam search
    memory: TrainingMemory

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_step / self.seconds_per_step


@dataclass(frozen=True)
class Estimate:
    """The cost of training on a corpus with some devices."""

    units: int  # number of pairs or characters
    tokens: float  # tokens per epoch
    steps: int  # from the settings; a run may end earlier if scores no longer improve
    epochs: float
    devices: int
    tokens_per_second: float
    epoch_seconds: float
    preparing_seconds: float
    evaluating_seconds: float
    seconds: float  # total time of steps, preparation and evaluations
    memory: int  # bytes per device if each device stores everything (DDP)
    memory_sharded: int  # bytes per device if weights, gradients and optimizer state are distributed (FSDP)
    disk: int  # size of the tokens in bytes


def expected_settings(given: dict[str, Any], size: int, device: str) -> Settings:
    """Returns the settings that a training run on a corpus of this size would use."""
    task = str(given.get("task", "translate"))
    return resolve(without_sampling(given, size), choose_preset(task, size, device)[0])


def measure(
    sample: Sample, given: dict[str, Any], folder: Path, seconds: float, say: Callable[[str], None]
) -> Measured:
    """Prepares the sample, trains on it for about `seconds`, and returns the measurements."""
    run, preparing = _prepare(sample, given, folder, say)
    parameters = {name: p.numel() for name, p in run.model.named_parameters()}
    say(f"training {sum(parameters.values()):,} parameters for about {seconds:.0f} s")
    steps, spent, seen = _train(run, seconds)
    _train_on_largest_batches(run)
    evaluating, finishing = _evaluate(run, sample, seen / spent)
    _decode_longest_batch(run, sample)
    memory = _memory(run, sample.size)
    return Measured(
        device=str(run.device),
        threads=torch.get_num_threads() if run.device.type == "cpu" else 0,
        steps=steps,
        seconds_per_step=spent / steps,
        tokens_per_step=seen / steps,
        tokens_per_unit=_tokens_per_unit(run, sample),
        flops_per_token=_flops_per_token(run),
        parameters=sum(parameters.values()),
        tables=sum(size for name, size in parameters.items() if name.endswith(TABLES)),
        vocabulary=run.vocabularies.target.size,
        preparing=preparing,
        evaluating=evaluating,
        finishing=finishing,
        memory=memory,
    )


def _prepare(
    sample: Sample, given: dict[str, Any], folder: Path, say: Callable[[str], None]
) -> tuple[TrainingRun, float]:
    """Returns a run on the sample, and the seconds that its preparation took per pair or character."""
    device = choose_device(str(given.get("training", {}).get("device", "auto"))).type
    preset = expected_settings(given, sample.whole, device).preset
    given = {**without_sampling(given, sample.whole), "preset": preset}
    files, dev = [str(path) for path in sample.train], [str(path) for path in sample.dev]
    began = time.perf_counter()
    say("preparing a sample")
    # prepare_run works in a thread, as before real training, so that the steps cannot reuse its memory
    for event in prepare_run(folder, TrainingRequest(files, given, device, dev), threading.Event()):
        if isinstance(event, Stage) and event.done == 0:
            say(f"preparing a sample: {event.name}")
    return open_run(folder), (time.perf_counter() - began) / sample.size


def _train(run: TrainingRun, seconds: float) -> tuple[int, float, float]:
    """Trains, and measures the second half of the steps, after warm-up: their number, seconds and tokens."""
    times, seen = list[float](), list[float]()
    while len(times) < MIN_STEPS or (sum(times) < seconds and len(times) < MAX_STEPS):
        before = run.state.seconds
        progress = update(run)
        times.append(run.state.seconds - before)
        seen.append(progress.tokens_per_second * times[-1])
    half = len(times) // 2
    return len(times) - half, sum(times[half:]), sum(seen[half:])


def _train_on_largest_batches(run: TrainingRun) -> None:
    """Runs a step on the batches that need the most memory: with the longest text, and with the most tokens."""
    plan = run.task.plan(0)
    sizes = [[batch.seen, -len(rows)] for rows in plan[:500] for batch in [run.task.batch(rows, 0)]]
    for column in (0, 1):
        rows = plan[max(range(len(sizes)), key=lambda i: sizes[i][column])]
        batch = run.task.batch(rows, 0)
        with run.forward_mode():
            loss = run.task.loss(run.model, batch, 0.1)
        (loss.total / batch.tokens).backward()
        run.optimizer.zero_grad()


def _flops_per_token(run: TrainingRun) -> float:
    """Counts the operations of a forward and backward pass on a batch of medium length with PyTorch."""
    plan = run.task.plan(0)
    batch = run.task.batch(plan[len(plan) // 2], 0)
    counter = FlopCounterMode(display=False)
    enabled, *_ = torch.backends.mkldnn.set_flags(False)  # PyTorch does not count the operations of oneDNN's LSTM
    try:
        with computing(fused=False), sdpa_kernel(SDPBackend.MATH), counter:
            run.task.loss(run.model, batch, 0.1).total.backward()
    finally:
        torch.backends.mkldnn.set_flags(enabled)
    run.optimizer.zero_grad()
    return float(counter.get_total_flops()) / batch.seen


def _evaluate(run: TrainingRun, sample: Sample, speed: float) -> tuple[float, float]:
    """Returns the seconds of an evaluation during training, and of the final one.

    Computing the loss on the dev set takes a forward pass, about a third of a step. Translations are timed, and the
    time is scaled to the length of the references, because a barely trained model generates too long outputs.
    """
    settings, dev = run.settings, _dev_size(run.settings, sample)
    forward = dev * _tokens_per_unit(run, sample) / 3 / speed
    if not isinstance(run.task, TranslationTraining):
        return forward, forward
    pairs, direction = run.task.held_out("dev"), directions_of(settings.data)[0]
    first = pairs[:TRANSLATED]
    run.model.eval()
    began = time.perf_counter()
    translations = run.task.translate(run.contents(run.model), direction, first, beam=1)
    spent = time.perf_counter() - began
    run.task.translate(run.contents(run.model), direction, pairs, max_ratio=1.0)  # only affects peak memory
    run.model.train()
    references = run.vocabularies.target.encode_batch([pair["target"] for pair in first])
    tokens = max(1, sum(len(each.tokens) for each in translations))
    greedy = spent / len(first) * min(1.0, sum(map(len, references)) / tokens)
    evaluated = min(dev, settings.training.evaluate_pairs)
    return forward + greedy * evaluated, forward + greedy * (evaluated + dev * math.sqrt(settings.decoding.beam))


@torch.inference_mode()
def _decode_longest_batch(run: TrainingRun, sample: Sample) -> None:
    """Decodes the largest batch of an evaluation up to the maximum output length.

    This needs the most memory of an evaluation, because rows stay in memory until the last one of a batch has ended,
    and a few steps of training do not show how soon that will be.
    """
    settings, task, model = run.settings, run.task, run.model
    if not isinstance(task, TranslationTraining) or not isinstance(model, EncoderDecoder):
        return
    evaluated = min(_dev_size(settings, sample), settings.training.evaluate_pairs)
    sources = run.vocabularies.source.encode_batch([pair["source"] for pair in task.held_out("dev")])
    sources = sorted(islice(cycle(sources), evaluated), key=len, reverse=True)
    sources = sources[: max(1, settings.decoding.batch_tokens // (len(sources[0]) + 1))]
    limit = int(min(settings.decoding.max_ratio * len(sources[0]) + 20, settings.model.max_length))
    specials = run.vocabularies.target.specials
    model.eval()
    step = TranslationStep(model, sources, specials, NextToken(specials))
    for _ in islice(generate(step, 1, most_probable), limit):
        pass
    model.train()


def _dev_size(settings: Settings, sample: Sample) -> int:
    if settings.task != "translate":
        return min(sample.whole // 20, MAX_HELD_OUT)
    return dev_size(settings.data.dev_pairs, sample.whole)


def _tokens_per_unit(run: TrainingRun, sample: Sample) -> float:
    """Returns the number of tokens per pair, including two end tokens, or per character."""
    if sample.tokens is not None:
        return sample.tokens / sample.whole
    if isinstance(run.task, TranslationTraining):
        return float(run.task.train.lengths.sum(1).mean()) + 2
    return float(run.about["examples"]) / sample.size


def _memory(run: TrainingRun, size: int) -> TrainingMemory:
    """Measures the memory of the GPU, or of this process, after training on a sample of this size."""
    if run.device.type == "cuda":
        peak = torch.cuda.max_memory_allocated(run.device)
    else:
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    weights = _bytes(run.model.parameters())
    gradients = _bytes(p for p in run.model.parameters() if p.requires_grad)
    moments = _bytes(value for state in run.optimizer.state.values() for value in state.values())
    mean = _bytes(run.mean.values.values())
    rest = max(0, peak - weights - gradients - moments - mean)
    return TrainingMemory(weights, gradients, moments, mean, rest, peak, _sampling_memory(run) / size)


def _bytes(values: Iterable[object]) -> int:
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, Tensor))


def _sampling_memory(run: TrainingRun) -> int:
    """Returns the memory of subword sampling in bytes: words of all pairs, and tokens of this and the last epoch."""
    task = run.task
    if not isinstance(task, TranslationTraining) or not isinstance(task.current, ResampledExamples):
        return 0
    words = sum(table.rows.nbytes + table.starts.nbytes for _, table in task.words)
    tokens = sum(part.nbytes for side in (task.current.source, task.current.target) for part in side)
    return words + 2 * (tokens + task.current.lengths.nbytes)


def estimate(
    measured: Measured, settings: Settings, sample: Sample, *, devices: int, efficiency: float, speed: float
) -> Estimate:
    """Extrapolates the measurements to the whole corpus."""
    units = max(1, sample.whole - _dev_size(settings, sample))
    tokens, steps, memory = units * measured.tokens_per_unit, settings.training.steps, measured.memory
    trained = steps * measured.tokens_per_step
    rate = measured.tokens_per_second * speed * devices * (efficiency if devices > 1 else 1.0)
    evaluations = max(1, steps // settings.training.evaluate_every)
    evaluating = (evaluations * measured.evaluating + measured.finishing) / speed
    preparing = measured.preparing * sample.whole
    more = int(max(0, sample.whole - sample.size) * memory.unit)
    lengths = 8 * units if settings.task == "translate" else 0
    return Estimate(
        units=units,
        tokens=tokens,
        steps=steps,
        epochs=trained / tokens,
        devices=devices,
        tokens_per_second=rate,
        epoch_seconds=tokens / rate,
        preparing_seconds=preparing,
        evaluating_seconds=evaluating,
        seconds=preparing + trained / rate + evaluating,
        memory=memory.peak + more,
        memory_sharded=memory.state // devices + memory.rest + more,
        disk=int(tokens) * token_type(measured.vocabulary).itemsize + lengths,
    )
