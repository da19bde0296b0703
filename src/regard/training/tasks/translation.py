"""Trains translators on sentence pairs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.decoding.confidence import fit
from regard.decoding.pytorch_engine import translator_of
from regard.decoding.translation_results import Translation
from regard.evaluation.translation_scores import Score, score, sentence_chrf, single_score
from regard.model.recurrent import SequenceToSequence
from regard.settings import DataSettings, Settings
from regard.tokens.language_directions import Direction, directions_of
from regard.tokens.subword_sampling import Sampler, WordTable
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.training.batches import Batch, Examples, PairBatch, ResampledExamples, Rows
from regard.training.losses import Loss, translation_loss
from regard.training.tasks.task import EXAMPLES, Assessment, Task
from regard.weights import Contents, Model

EXAMPLE_CHARACTERS, EXAMPLE_CANDIDATES = 200, 32
"""Maximum length of an example's source in characters, and number of pairs from which examples are chosen."""


class TranslationTraining(Task):
    """Trains an encoder-decoder on sentence pairs."""

    unit = "pairs"
    metrics = ("chrf", "bleu", "loss")
    shown_scores: tuple[str, ...] = ("bleu", "chrf")

    def __init__(self, work: Path, settings: Settings, vocabularies: Vocabularies, device: torch.device) -> None:
        super().__init__(work, settings, vocabularies, device)
        self.train, self.dev = Examples(work / "train"), Examples(work / "dev")
        self.current = self.train  # segmented for this epoch
        directions = [f"{score} {each}" for each in settings.data.directions for score in self.shown_scores]
        self.shown_scores = (*self.shown_scores, *directions)

    def plan(self, epoch: int) -> Sequence[Rows]:
        training = self.settings.training
        if training.subword_sampling:
            self.current = self.resample(np.random.default_rng([training.seed, epoch, 1]))
        return self.current.plan(training.batch_tokens, training.seed, epoch)

    def resample(self, random: np.random.Generator) -> Examples:
        """Returns the training pairs with a new random segmentation."""
        rate = self.settings.training.subword_sampling
        sides = [Sampler(tokenizer, rate).epoch(words, random) for tokenizer, words in self.words]
        return ResampledExamples(self.train, sides[0], sides[1], self.specials, self.settings.model.max_length - 1)

    @cached_property
    def words(self) -> list[tuple[Tokenizer, WordTable]]:
        """The tokenizer and the word table of each side of the training pairs."""
        tables = []
        for side, tokenizer in enumerate((self.vocabularies.source, self.vocabularies.target)):
            decode = tokenizer.decode_slotted if tokenizer.slots else tokenizer.decode
            texts = (decode(self.train.pair(row)[side].tolist()) for row in range(len(self.train)))
            tables.append((tokenizer, WordTable.build(texts, tokenizer)))
        return tables

    def batch(self, rows: Rows, update: int) -> Batch:
        return self.current.batch(rows, self.specials).to(self.device)

    def dev_batches(self) -> Iterator[Batch]:
        for rows in self.dev.plan(self.settings.training.batch_tokens, 0, 0):
            yield self.dev.batch(rows, self.specials).to(self.device)

    def loss(self, model: Model, batch: PairBatch, smoothing: float) -> Loss:
        assert isinstance(model, SequenceToSequence)
        return translation_loss(model, batch, smoothing)

    def assess(self, contents: Contents, surprise: float, number: int) -> Assessment:
        """Returns BLEU and chrF of greedy translations of the first dev pairs, and one of the translations.

        If the model has several directions, its scores are the means over them.
        """
        directions = pairs_by_direction(self.held_out("dev"), self.settings.data)
        count = -(-self.settings.training.evaluate_pairs // len(directions))
        scores, samples = dict[str, float](), []
        for direction, pairs in directions.items():
            pairs = pairs[:count]
            outputs = [each.text for each in self.translate(contents, direction, pairs, beam=1)]
            references = [pair["target"] for pair in pairs]
            for metric in ("bleu", "chrf"):
                scores[f"{metric} {direction}"] = single_score(outputs, references, metric, direction.target)
            samples.append(list(zip(pairs, outputs, strict=True)))
        means = {m: sum(scores[f"{m} {each}"] for each in directions) / len(directions) for m in ("bleu", "chrf")}
        choices = samples[number % len(samples)]
        pair, output = choices[number // len(samples) % len(choices)]
        sample = [("source", pair["source"]), ("model", output), ("reference", pair["target"])]
        if not self.settings.data.directions:
            return means, sample
        return {**means, **scores}, [("direction", pair["direction"]), *sample]

    def report(self, contents: Contents, name: str) -> list[str]:
        """Reports BLEU, chrF and TER with the model's decoding settings; on the dev set, also calibrates confidence."""
        lines, all_scores = [], []
        means, qualities = list[float](), list[float]()
        for direction, pairs in pairs_by_direction(self.held_out(name), self.settings.data).items():
            references: list[Any] = [pair["target"] for pair in pairs]
            translations = self.translate(contents, direction, pairs)
            texts = [each.text for each in translations]
            scores = score(texts, references, language=direction.target, resamples=0)
            prefix = f"{direction} " if self.settings.data.directions else ""
            lines += [f"{prefix}{line} (beam {self.settings.decoding.beam})" for line in scores]
            all_scores.append(scores)
            means += [each.log_probability / max(1, len(each.token_log_probabilities)) for each in translations]
            qualities += sentence_chrf(texts, references)
        if name == "dev":
            self.confidence = fit(means, qualities)
        return [*lines, format_means(all_scores)] if len(all_scores) > 1 else lines

    def examples(self, contents: Contents) -> list[tuple[str, str]]:
        """Returns the most probable of some greedy translations, because rounding is least likely to change them."""
        direction, pairs = next(iter(pairs_by_direction(self.held_out("dev"), self.settings.data).items()))
        unique = {pair["source"]: pair for pair in pairs if len(pair["source"]) <= EXAMPLE_CHARACTERS}
        pairs = [*unique.values()][:EXAMPLE_CANDIDATES]
        translations = self.translate(contents, direction, pairs, beam=1)
        candidates = [(pair["source"], each) for pair, each in zip(pairs, translations, strict=True) if each.finished]
        candidates.sort(key=lambda pair: -pair[1].log_probability / max(1, len(pair[1].tokens)))
        return [(source, each.text) for source, each in candidates[:EXAMPLES]]

    def translate(
        self, contents: Contents, direction: Direction, pairs: Sequence[dict[str, Any]], **options: Any
    ) -> list[Translation]:
        sources = [pair["source"] for pair in pairs]
        source, target = (direction.source, direction.target) if self.settings.data.directions else (None, None)
        return translator_of(contents).translate(sources, source=source, target=target, **options)


def pairs_by_direction(pairs: list[dict[str, Any]], data: DataSettings) -> dict[Direction, list[dict[str, Any]]]:
    directions = directions_of(data)
    if not data.directions:
        return {directions[0]: pairs}
    return {each: [pair for pair in pairs if pair["direction"] == str(each)] for each in directions}


def format_means(all_scores: Sequence[Sequence[Score]]) -> str:
    """Formats the mean of each score over the directions as one line."""
    columns = zip(*all_scores, strict=True)
    means = [f"{scores[0].name} {sum(s.value for s in scores) / len(scores):.2f}" for scores in columns]
    return f"mean of {len(all_scores)} directions: {', '.join(means)}"
