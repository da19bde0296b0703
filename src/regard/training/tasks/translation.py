"""Learning to translate: batches of pairs, the loss, and scores on the dev set."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.decoding.confidence import fit
from regard.decoding.pytorch_engine import translator_of
from regard.decoding.translator import Translation
from regard.evaluation.translation_scores import Score, score, sentence_chrf, single_score
from regard.model.recurrent import SequenceToSequence
from regard.settings import DataSettings, Settings
from regard.tokens.directions import Direction, directions_of
from regard.tokens.subword_sampling import Sampler, WordTable
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Examples, PairBatch, Recut, Rows
from regard.training.objectives import translation_loss
from regard.training.tasks.task import (
    Assessment,
    Batch,
    Loss,
    Task,
)
from regard.weights import Contents, Model


class Translating(Task):
    """Trains an encoder-decoder on pairs."""

    unit = "pairs"
    prints: tuple[str, ...] = ("bleu", "chrf")

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Examples(work / "train"), Examples(work / "dev")
        self.specials = vocabularies.target.specials
        self.current = self.train  # as cut in this epoch
        self.prints = (*self.prints, *(f"{m} {d}" for d in settings.data.directions for m in self.prints))

    def plan(self, epoch: int) -> Sequence[Rows]:
        training = self.settings.training
        if training.subword_sampling:
            self.current = self.recut(np.random.default_rng([training.seed, epoch, 1]))
        return self.current.plan(training.batch_tokens, training.seed, epoch)

    def recut(self, random: np.random.Generator) -> Examples:
        """The training pairs in other subwords."""
        rate = self.settings.training.subword_sampling
        cuts = [Sampler(tokenizer, rate).epoch(words, random) for tokenizer, words in self.words]
        return Recut(self.train, cuts[0], cuts[1], self.specials, self.settings.model.max_length - 1)

    @cached_property
    def words(self) -> list[tuple[Tokenizer, WordTable]]:
        """The words of both sides, which the tokens spell."""
        found = []
        for side, tokenizer in enumerate((self.vocabularies.source, self.vocabularies.target)):
            spell = tokenizer.decode_slotted if tokenizer.slots else tokenizer.decode
            texts = (spell(self.train.pair(row)[side].tolist()) for row in range(len(self.train)))
            found.append((tokenizer, WordTable.build(texts, tokenizer)))
        return found

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.current.batch(rows, self.specials).to(self.device)

    def dev_batches(self) -> Iterator[Batch]:
        for rows in self.dev.plan(self.settings.training.batch_tokens, 0, 0):
            yield self.dev.batch(rows, self.specials).to(self.device)

    def loss(self, model: Model, batch: PairBatch, smoothing: float) -> Loss:
        assert isinstance(model, SequenceToSequence)
        return translation_loss(model, batch, smoothing)

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """BLEU and chrF of greedy translations of the first dev pairs, and one of them to look at.

        Of several directions, the scores are the means of theirs, which are given too.
        """
        apart = by_direction(self.held_out("dev"), self.settings.data)
        first = -(-self.settings.training.evaluate_pairs // len(apart))
        scores: dict[str, float] = {"bleu": 0.0, "chrf": 0.0}
        samples = []
        for direction, pairs in apart.items():
            pairs = pairs[:first]
            made = self.translate(contents, direction, pairs, beam=1)
            found, references = [each.text for each in made], [p["target"] for p in pairs]
            scores[f"bleu {direction}"] = single_score(found, references, "bleu", direction.target)
            scores[f"chrf {direction}"] = single_score(found, references, "chrf", direction.target)
            samples.append(list(zip(pairs, found, strict=True)))
        for metric in ("bleu", "chrf"):
            scores[metric] = sum(scores[f"{metric} {direction}"] for direction in apart) / len(apart)
        shown = samples[number % len(samples)]
        pair, text = shown[number // len(samples) % len(shown)]
        sample = [("source", pair["source"]), ("model", text), ("reference", pair["target"])]
        if not self.settings.data.directions:
            return Assessment({name: scores[name] for name in self.prints}, sample)
        return Assessment(scores, [("direction", pair["direction"]), *sample])

    def report(self, contents: Contents, name: str) -> list[str]:
        """BLEU, chrF and TER with the model's own decoding settings; on the dev set, the confidence is calibrated."""
        lines, found = [], []
        means, qualities = list[float](), list[float]()
        for direction, pairs in by_direction(self.held_out(name), self.settings.data).items():
            references: list[Any] = [p["target"] for p in pairs]
            made = self.translate(contents, direction, pairs)
            texts = [each.text for each in made]
            scores = score(texts, references, language=direction.target, resamples=0)
            prefix = f"{direction} " if self.settings.data.directions else ""
            lines += [f"{prefix}{line} (beam {self.settings.decoding.beam})" for line in scores]
            found.append(scores)
            means += [each.log_probability / max(1, len(each.token_log_probabilities)) for each in made]
            qualities += sentence_chrf(texts, references)
        if name == "dev":
            self.confidence = fit(means, qualities)
        return [*lines, mean_of(found)] if len(found) > 1 else lines

    def translate(
        self, contents: Contents, direction: Direction, pairs: Sequence[dict[str, Any]], **options: Any
    ) -> list[Translation]:
        """What the model makes of the sources of some pairs."""
        sources = [pair["source"] for pair in pairs]
        source, target = (direction.source, direction.target) if self.settings.data.directions else (None, None)
        return translator_of(contents).translate(sources, source=source, target=target, **options)


def by_direction(pairs: list[dict[str, Any]], data: DataSettings) -> dict[Direction, list[dict[str, Any]]]:
    """Held-out pairs apart by their directions."""
    if not data.directions:
        return {directions_of(data)[0]: pairs}
    return {each: [p for p in pairs if p["direction"] == str(each)] for each in directions_of(data)}


def mean_of(found: Sequence[Sequence[Score]]) -> str:
    """The mean of each score over the directions, in a line."""
    means = [
        f"{scores[0].name} {sum(s.value for s in scores) / len(scores):.2f}" for scores in zip(*found, strict=True)
    ]
    return f"mean of {len(found)} directions: {', '.join(means)}"
