"""Compares numbers of heads and places of the norm, trained alike on the sentences of the demo."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

import torch
from torch.nn.utils.rnn import pad_sequence

from benchmarks.experiments.claim_records import Figures
from benchmarks.experiments.toy_training import Batches, accuracy, build, learn, pair_batch
from regard.demo import GLASS
from regard.demo.bilingual_phrases import Sentence
from regard.demo.sentence_generator import generate_splits
from regard.model_folder import TOKENIZER
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import IGNORE, PairBatch

HEADS, SEEDS, WIDTH = (1, 2, 4, 8), 3, 64
UPDATES, ROWS, LAYERS = 300, 32, 6
WARMUPS = {"": 50, ", no warm-up": 0}
NORMS = {f"{place}-norm{end}": (place, updates) for place in ("post", "pre") for end, updates in WARMUPS.items()}


def measure_heads(seed: int) -> Figures:
    """Measures accuracy on unseen sentences, by the number of heads that share one width, for some seeds."""
    demo = DemoSentences(seed)
    found: Figures = {"heads": list(HEADS), "width": WIDTH, "updates": UPDATES, "seeds": SEEDS, "sentences": ROWS}
    right: list[list[float]] = []
    for heads in HEADS:
        right.append([])
        for each in range(seed, seed + SEEDS):
            model = build(each, vocabulary=demo.size, heads=heads, norm="pre")
            learn(model, demo.draw, each, steps=UPDATES, learning_rate=3e-3)
            right[-1].append(round(accuracy(model, demo.test), 4))
    return found | {"accuracy": right, "mean": [round(fmean(each), 4) for each in right]}


def measure_norms(seed: int) -> Figures:
    """Measures the loss of a deep translator with the norm after each residual sum or before each sublayer."""
    demo = DemoSentences(seed)
    found: Figures = {"layers": LAYERS, "updates": UPDATES, "rate": 3e-3, "every": 10, "losses": {}, "accuracy": {}}
    for name, (norm, warmup) in NORMS.items():
        model = build(seed, vocabulary=demo.size, norm=norm, encoder_layers=LAYERS, decoder_layers=LAYERS)
        losses = learn(model, demo.draw, seed, steps=UPDATES, learning_rate=3e-3, warmup=warmup)
        found["losses"][name] = [round(fmean(losses[i : i + 10]), 4) for i in range(0, UPDATES, 10)]
        found["accuracy"][name] = round(accuracy(model, demo.test), 4)
    return found


class DemoSentences:
    """Sentences of the demo's grammar in the tokens of the glass model, English and French."""

    def __init__(self, seed: int) -> None:
        both = Vocabularies.load(GLASS / TOKENIZER)
        self.source, self.target, self.size = both.source, both.target, both.target.size
        splits = generate_splits(train=8000, dev=10, test=400, seed=seed)
        self.train, self.test = splits.train, self.batch(splits.test)

    @property
    def draw(self) -> Batches:
        def some(dice: torch.Generator) -> PairBatch:
            rows = torch.randint(len(self.train), (ROWS,), generator=dice).tolist()
            return self.batch([self.train[row] for row in rows])

        return some

    def batch(self, sentences: Sequence[Sentence]) -> PairBatch:
        specials = self.target.specials
        sources = [torch.tensor([*self.source.encode(each.source).ids, specials.end]) for each in sentences]
        texts = [self.target.encode(each.target).ids for each in sentences]
        targets = [torch.tensor([specials.begin, *ids]) for ids in texts]
        labels = [torch.tensor([*ids, specials.end]) for ids in texts]
        keep = pad_sequence([torch.ones(len(ids), dtype=torch.bool) for ids in sources], True)
        source, target = (pad_sequence(rows, True, specials.pad) for rows in (sources, targets))
        return pair_batch(source, target, pad_sequence(labels, True, IGNORE), keep)
