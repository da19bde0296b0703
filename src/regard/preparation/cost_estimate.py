"""What a training will cost: real steps of the real run on a sample, and from them the whole.

Assumed, and told: devices are as fast as this one (`speed` says otherwise), and several of them reach `efficiency` of
the sum of their speeds. All else is measured.
"""

from __future__ import annotations

import math
import resource
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from regard.decoding.beam_search import generate, highest
from regard.decoding.decoder_step import NextToken, TranslationStep
from regard.files.corpus import dev_size
from regard.model.kernels.compute_mode import computing
from regard.model.layers import TABLES
from regard.model.transformer import EncoderDecoder
from regard.preparation.corpus_sample import Sample
from regard.preparation.pair_preparation import without_sampling
from regard.preparation.task_preparation import Request
from regard.preparation.text_preparation import MOST_HELD_OUT
from regard.preparation.train_and_resume import prepared
from regard.settings import Settings
from regard.settings.presets import choose_preset
from regard.settings.resolution import resolve
from regard.tokens.directions import directions_of
from regard.tokens.token_shards import token_type
from regard.training.batches import ResampledExamples
from regard.training.events import Event, Stage
from regard.training.loop import update
from regard.training.run import TrainingRun, open_run
from regard.training.tasks.translation import TranslationTraining
from regard.weights import choose_device

FEWEST, MOST = 10, 400
"""Steps that are made, the first half of which is not counted."""
DECODED = 32
"""Dev pairs that are translated to see how long it takes."""


@dataclass(frozen=True)
class Measured:
    """What some steps on this machine have shown."""

    device: str
    threads: int
    steps: int
    seconds_per_step: float
    tokens_per_step: float  # source and target, padding not counted
    tokens_per_unit: float  # of a pair, or of a character of text
    flops_per_token: float  # of training: forward and backward, each multiplication and addition counted
    parameters: int
    tables: int  # of these, in the tables of tokens and positions
    vocabulary: int
    preparing: float  # seconds for a pair or a character
    evaluating: float  # seconds of one evaluation: the loss on the dev set, and greedy translations
    finishing: float  # seconds of the last scores, with the model's own beam
    memory: Memory

    @property
    def tokens_per_second(self) -> float:
        return self.tokens_per_step / self.seconds_per_step


@dataclass(frozen=True)
class Memory:
    """Bytes of a training on one device."""

    weights: int
    gradients: int
    moments: int  # of the optimizer
    mean: int  # of the weights, that training.ema asks for
    rest: int  # activations, tokens, and on a CPU the program itself
    peak: int
    unit: float = 0.0  # of each further pair: what subword sampling holds of it

    @property
    def state(self) -> int:
        """What can be spread over devices."""
        return self.weights + self.gradients + self.moments + self.mean


@dataclass(frozen=True)
class Estimate:
    """What a corpus costs on some devices."""

    units: int  # pairs, or characters
    tokens: float  # of an epoch
    steps: int  # as the settings have it; a run may end before, when scores rise no more
    epochs: float
    devices: int
    tokens_per_second: float
    epoch_seconds: float
    preparing_seconds: float
    evaluating_seconds: float
    seconds: float  # of all steps, with preparing and evaluating
    memory: int  # bytes of each device, all of which hold everything (DDP)
    memory_sharded: int  # bytes of each device, where weights, gradients and moments are spread (FSDP)
    disk: int  # bytes of the tokens


def settle(given: dict[str, Any], size: int, device: str) -> Settings:
    """The settings that a training on a corpus of this size would have."""
    task = str(given.get("task", "translate"))
    return resolve(without_sampling(given, size), choose_preset(task, size, device)[0])


def measure(
    sample: Sample, given: dict[str, Any], folder: Path, seconds: float, tell: Callable[[str], None]
) -> Measured:
    """Prepares the sample and trains on it for about so many seconds."""
    device = choose_device(str(given.get("training", {}).get("device", "auto")))
    settings = settle(given, sample.whole, device.type)
    given = {**without_sampling(given, sample.whole), "preset": settings.preset}
    began = time.perf_counter()
    files, dev = [str(path) for path in sample.train], [str(path) for path in sample.dev]
    tell("preparing a sample")
    for event in prepared(folder, Request(files, given, device.type, dev), threading.Event()):  # in a thread, whose
        _stage(event, tell)  # memory the steps do not use again, as in training
    preparing = (time.perf_counter() - began) / sample.size
    run = open_run(folder)
    tell(f"training {sum(p.numel() for p in run.model.parameters()):,} parameters for about {seconds:.0f} s")
    steps, spent, seen = _train(run, seconds)
    _largest(run)
    evaluating, finishing = _evaluate(run, sample, seen / spent)
    _translate_endlessly(run, sample)
    peak = _peak(run.device)
    tables = sum(p.numel() for name, p in run.model.named_parameters() if name.endswith(TABLES))
    return Measured(
        device=str(run.device),
        threads=torch.get_num_threads() if run.device.type == "cpu" else 0,
        steps=steps,
        seconds_per_step=spent / steps,
        tokens_per_step=seen / steps,
        tokens_per_unit=_tokens_per_unit(run, sample),
        flops_per_token=_flops(run),
        parameters=sum(p.numel() for p in run.model.parameters()),
        tables=tables,
        vocabulary=run.vocabularies.target.size,
        preparing=preparing,
        evaluating=evaluating,
        finishing=finishing,
        memory=_memory(run, peak, sample.size),
    )


def _stage(event: Event, tell: Callable[[str], None]) -> None:
    if isinstance(event, Stage) and event.done == 0:
        tell(f"preparing a sample: {event.name}")


def _train(run: TrainingRun, seconds: float) -> tuple[int, float, float]:
    """Steps, their seconds, and the tokens that they have seen: of the second half, when every shape is known."""
    took, seen = list[float](), list[float]()
    while len(took) < FEWEST or (sum(took) < seconds and len(took) < MOST):
        before = run.state.seconds
        progress = update(run)
        took.append(run.state.seconds - before)
        seen.append(progress.tokens_per_second * took[-1])
    half = len(took) // 2
    return len(took) - half, sum(took[half:]), sum(seen[half:])


def _largest(run: TrainingRun) -> None:
    """A step on the batches that need the most room: that of the longest text, and that of the most tokens."""
    plan = run.task.plan(0)
    sizes = [[batch.seen, -len(rows)] for rows in plan[:500] for batch in [run.task.batch(rows, 0)]]
    for column in (0, 1):
        rows = plan[max(range(len(sizes)), key=lambda i: sizes[i][column])]
        batch = run.task.batch(rows, 0)
        with run.forward_mode():
            loss = run.task.loss(run.model, batch, 0.1)
        (loss.total / batch.tokens).backward()
        run.optimizer.zero_grad()


def _flops(run: TrainingRun) -> float:
    """Of a token of a batch in the middle: what PyTorch counts of a forward and a backward pass."""
    plan = run.task.plan(0)
    batch = run.task.batch(plan[len(plan) // 2], 0)
    with computing(fused=False), sdpa_kernel(SDPBackend.MATH), _in_pieces(), FlopCounterMode(display=False) as counter:
        loss = run.task.loss(run.model, batch, 0.1)
        loss.total.backward()
    run.optimizer.zero_grad()
    return float(counter.get_total_flops()) / batch.seen


@contextmanager
def _in_pieces() -> Iterator[None]:
    """Without oneDNN, whose LSTM is one piece that PyTorch counts nothing of."""
    enabled, *_ = torch.backends.mkldnn.set_flags(False)
    try:
        yield
    finally:
        torch.backends.mkldnn.set_flags(enabled)


def _evaluate(run: TrainingRun, sample: Sample, speed: float) -> tuple[float, float]:
    """Seconds of an evaluation in the middle of training, and of the last one.

    The loss on the dev set is a forward pass, a third of a step. Translating is timed, and, since a model that has
    learnt little does not know when to end, corrected by how much longer its translations are than the references.
    What is translated with the model's own beam is for the memory that it takes.
    """
    settings, dev = run.settings, _dev_size(run.settings, sample)
    if not isinstance(run.task, TranslationTraining):
        forward = dev * 0.3 / 3 / speed
        return forward, forward
    pairs = run.task.held_out("dev")[:DECODED]
    run.model.eval()
    began = time.perf_counter()
    made = run.task.translate(run.contents(run.model), directions_of(settings.data)[0], pairs, beam=1)
    took = time.perf_counter() - began
    run.task.translate(
        run.contents(run.model), directions_of(settings.data)[0], run.task.held_out("dev"), max_ratio=1.0
    )
    run.model.train()
    target = run.vocabularies.target
    wanted = sum(len(ids) for ids in target.encode_batch([pair["target"] for pair in pairs]))
    greedy = took / len(pairs) * min(1.0, wanted / max(1, sum(len(each.tokens) for each in made)))
    forward = dev * _tokens_per_unit(run, sample) / 3 / speed
    evaluated = min(dev, settings.training.evaluate_pairs)
    return forward + greedy * evaluated, forward + greedy * (evaluated + dev * math.sqrt(settings.decoding.beam))


@torch.inference_mode()
def _translate_endlessly(run: TrainingRun, sample: Sample) -> None:
    """Fills the largest batch of an evaluation and goes on to the longest output that is allowed.

    That is what takes the most room in evaluations: rows stay until the last of a batch has ended. How soon a model
    ends depends on what it has learnt, and a few steps do not tell.
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
    for _ in islice(generate(step, 1, highest), limit):
        pass
    model.train()


def _dev_size(settings: Settings, sample: Sample) -> int:
    """Pairs or characters that are split off as dev set."""
    if settings.task != "translate":
        return min(sample.whole // 20, MOST_HELD_OUT)
    return dev_size(settings.data.dev_pairs, sample.whole)


def _tokens_per_unit(run: TrainingRun, sample: Sample) -> float:
    """Tokens of a pair, its two ends with it, or of a character."""
    if sample.tokens is not None:
        return sample.tokens / sample.whole
    if isinstance(run.task, TranslationTraining):
        return float(run.task.train.lengths.sum(1).mean()) + 2
    return float(run.about["examples"]) / sample.size


def _peak(device: torch.device) -> int:
    """The most memory that was ever in use: of the device, or of this process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024


def _memory(run: TrainingRun, peak: int, size: int) -> Memory:
    weights = sum(p.numel() * p.element_size() for p in run.model.parameters())
    learning = sum(p.numel() * p.element_size() for p in run.model.parameters() if p.requires_grad)
    moments = sum(
        value.numel() * value.element_size()
        for state in run.optimizer.state.values()
        for value in state.values()
        if isinstance(value, torch.Tensor)
    )
    mean = sum(value.numel() * value.element_size() for value in run.mean.values.values())
    rest = max(0, peak - weights - learning - moments - mean)
    return Memory(weights, learning, moments, mean, rest, peak, _sampled(run) / size)


def _sampled(run: TrainingRun) -> int:
    """Bytes that subword sampling holds: the words of all pairs, and the pieces of an epoch and of the one before."""
    task = run.task
    if not isinstance(task, TranslationTraining) or not isinstance(task.current, ResampledExamples):
        return 0
    words = sum(table.rows.nbytes + table.starts.nbytes for _, table in task.words)
    pieces = sum(part.nbytes for side in (task.current.source, task.current.target) for part in side)
    return words + 2 * (pieces + task.current.lengths.nbytes)


def estimate(
    measured: Measured, settings: Settings, sample: Sample, *, devices: int, efficiency: float, speed: float
) -> Estimate:
    """The whole from a part."""
    dev = _dev_size(settings, sample)
    units = max(1, sample.whole - dev)
    tokens = units * measured.tokens_per_unit
    rate = measured.tokens_per_second * speed * devices * (efficiency if devices > 1 else 1.0)
    steps, memory = settings.training.steps, measured.memory
    more = int(max(0, sample.whole - sample.size) * memory.unit)
    evaluations = max(1, steps // settings.training.evaluate_every)
    evaluating = (evaluations * measured.evaluating + measured.finishing) / speed
    preparing = measured.preparing * sample.whole
    learnt = steps * measured.tokens_per_step
    return Estimate(
        units=units,
        tokens=tokens,
        steps=steps,
        epochs=learnt / tokens,
        devices=devices,
        tokens_per_second=rate,
        epoch_seconds=tokens / rate,
        preparing_seconds=preparing,
        evaluating_seconds=evaluating,
        seconds=preparing + learnt / rate + evaluating,
        memory=memory.peak + more,
        memory_sharded=memory.state // devices + memory.rest + more,
        disk=int(tokens) * token_type(measured.vocabulary).itemsize
        + (8 * units if settings.task == "translate" else 0),
    )
