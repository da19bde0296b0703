"""Builds small models and artificial texts for all experiments, and trains with the updates of the real trainer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from regard.model.recurrent import Recurrent, SequenceToSequence
from regard.model.transformer import EncoderDecoder
from regard.settings import ModelSettings, TrainingSettings
from regard.training.batches import IGNORE, PairBatch
from regard.training.losses import translation_loss
from regard.training.optimizer import build_optimizer, learning_rate, set_learning_rate

BEGIN, BLANK, SYMBOLS = 0, 1, 2  # the begin of a target, a token that says nothing, the first of all others
VOCABULARY = 34
SHAPE: dict[str, Any] = {"width": 64, "heads": 4, "hidden": 256, "encoder_layers": 2, "decoder_layers": 2}
SHAPE |= {"max_length": 1024, "dropout": 0.0}

KINDS: dict[str, dict[str, Any]] = {
    "Transformer": {"norm": "pre", "positions": "rotary"},
    "LSTM, attention": {"kind": "lstm"},
    "GRU, attention": {"kind": "gru"},
    "LSTM": {"kind": "lstm", "attends": False},
    "GRU": {"kind": "gru", "attends": False},
}

Batches = Callable[[torch.Generator], PairBatch]  # draws a batch


def build(seed: int, *, vocabulary: int = VOCABULARY, **changes: Any) -> SequenceToSequence:
    """Returns a model with random weights of this seed."""
    settings = ModelSettings(**{**SHAPE, **changes})
    torch.manual_seed(seed)
    return (EncoderDecoder if settings.kind == "transformer" else Recurrent)(settings, vocabulary, vocabulary)


def learn(model: SequenceToSequence, draw: Batches, seed: int, **how: Any) -> list[float]:
    """Updates the model as the trainer does; returns the loss of each update, in nats a token."""
    settings = TrainingSettings(**{"warmup": 50, "schedule": "cosine", "label_smoothing": 0.0, **how})
    optimizer, dice, losses = build_optimizer(model, settings), torch.Generator().manual_seed(seed), []
    model.train()
    for step in range(1, settings.steps + 1):
        set_learning_rate(optimizer, learning_rate(step, settings, model.settings.width))
        batch = draw(dice)
        loss = translation_loss(model, batch, settings.label_smoothing)
        (loss.total / loss.tokens).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.surprise / loss.tokens)
    model.eval()
    return losses


@torch.inference_mode()
def accuracy(model: SequenceToSequence, batch: PairBatch) -> float:
    """Returns the share of labels that are the most probable ones, given all correct tokens before them."""
    found = model(batch.inputs, batch.target, batch.keep).argmax(-1)
    asked = batch.labels != IGNORE
    return float((found == batch.labels)[asked].float().mean())


def copying(rows: int, length: int, dice: torch.Generator, blanks: int = 0) -> PairBatch:
    """Returns random symbols to be copied after some blanks, whose prediction does not count."""
    symbols = torch.randint(SYMBOLS, VOCABULARY, (rows, length), generator=dice)
    begin, blank = torch.full((rows, 1), BEGIN), torch.full((rows, blanks), BLANK)
    target = torch.cat([blank, begin, symbols[:, :-1]], 1)
    labels = torch.cat([torch.full_like(blank, IGNORE), symbols], 1)
    return pair_batch(symbols, target, labels)


def pair_batch(source: Tensor, target: Tensor, labels: Tensor, keep: Tensor | None = None) -> PairBatch:
    """Returns a batch of tensors; without `keep`, the source has no padding."""
    return PairBatch(source, labels, keep, target)
