"""What an encoder is used for: to fill gaps, to label texts or words, and to turn texts into vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.argument_checks import require, require_text, require_texts
from regard.errors import InputError
from regard.model.output_heads import mean_state
from regard.model.transformer import Encoder
from regard.tokens.tokenizer import Tokenizer
from regard.weights import Contents, summary

MASKED = re.compile(r" ?\[MASK\]| ?<mask>")
BATCH_TOKENS = 8192
"""Tokens read together, padding included."""

Text = str | tuple[str, str]
"""One text, or two that are judged together."""


class Reader:
    """An encoder and its vocabulary: texts to states, batched by length, in the order they were given."""

    folder: Path | None = None
    """The model folder, if `load` has made this."""

    def __init__(self, contents: Contents) -> None:
        assert isinstance(contents.model, Encoder)
        self.settings, self.model = contents.settings, contents.model
        self.vocabulary = contents.vocabularies.source
        self.longest = contents.settings.model.max_length

    def __repr__(self) -> str:
        labels = f"{len(self.settings.data.labels)} labels, " if self.settings.data.labels else ""
        return f"<{type(self).__name__} {self.folder or 'of no folder'}: {labels}{summary(self.model)}>"

    def rows(self, texts: Iterable[Text], name: str = "rows") -> list[Row]:
        """The texts as ids, of one that is too long the beginning; `name` is the call that refuses other things."""
        pairs = [
            (text, "") if isinstance(text, str) else pair_of(text, name, number)
            for number, text in enumerate(require_texts(texts, name, types=(str, tuple)), 1)
        ]
        firsts = self.vocabulary.encode_batch([first for first, _ in pairs])
        seconds = self.vocabulary.encode_batch([second for _, second in pairs])
        return [
            shorten(first, second, self.vocabulary, self.longest) for first, second in zip(firsts, seconds, strict=True)
        ]

    @torch.inference_mode()
    def read(self, rows: Sequence[Row], use: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        """What `use` makes of the states [B, T, D] and keep [B, T] of a batch, [B, ...], row by row."""
        device = next(self.model.parameters()).device
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
        found: dict[int, Tensor] = {}
        start = 0
        while start < len(order):
            longest = len(rows[order[start]].ids)
            batch = order[start : start + max(1, BATCH_TOKENS // longest)]
            start += len(batch)
            tokens = torch.full((len(batch), longest), self.vocabulary.specials.pad)
            segments, keep = torch.zeros_like(tokens), torch.zeros_like(tokens, dtype=torch.bool)
            for place, number in enumerate(batch):
                row = rows[number]
                tokens[place, : len(row.ids)] = torch.tensor(row.ids)
                segments[place, : len(row.ids)] = torch.tensor(row.segments)
                keep[place, : len(row.ids)] = True
            tokens, segments, keep = tokens.to(device), segments.to(device), keep.to(device)
            states = self.model(tokens, None if bool(keep.all()) else keep, segments)
            found.update(zip(batch, use(states, keep).cpu(), strict=True))
        return [found[i] for i in range(len(rows))]


def pair_of(texts: tuple[str, str], name: str, number: int) -> tuple[str, str]:
    """Returns two texts that are read together; refuses any other tuple."""
    if len(texts) != 2 or not all(isinstance(each, str) for each in texts):
        raise InputError(f"text {number}: {name} takes a text (a str) or a tuple of two, not {texts!r:.60}")
    return texts


@dataclass(frozen=True)
class Row:
    """A text, or two, as an encoder reads it."""

    ids: list[int]
    segments: list[int]
    shortened: bool = False


def shorten(first: Sequence[int], second: Sequence[int], vocabulary: Tokenizer, longest: int) -> Row:
    """One text or two with begin and ends, at most `longest` tokens: the longer of the two loses its end first."""
    room = longest - 2 - (vocabulary.specials.between if second else 0)
    kept = min(len(first), max(room - len(second), room // 2 if second else room))
    rest = min(len(second), room - kept)
    ids, segments = vocabulary.specials.join(first[:kept], second[:rest])
    return Row(ids, segments, kept < len(first) or rest < len(second))


@dataclass(frozen=True)
class Filling:
    """A token that may stand in a gap."""

    token: str
    probability: float
    text: str  # the whole text with this token in the gap


class Filler(Reader):
    """Fills the gaps of texts with one model.

    >>> filler = regard.load_as(regard.Filler, "runs/bert")
    >>> filler("Paris is the [MASK] of France.")
    >>> filler.fill("Paris is the [MASK] of France.", 3)[0][0].token
    """

    def __call__(self, text: str) -> str:
        """The text with the most probable token in each gap."""
        ids, gaps = self.gaps(text)
        for gap, fillings in zip(gaps, self._guess(ids, gaps, 1), strict=True):
            ids[gap] = fillings[0][0]
        return self.vocabulary.decode(ids)

    def fill(self, text: str, count: int = 5) -> list[list[Filling]]:
        """For each gap of the text, the most probable tokens, best first; each gap is filled by itself."""
        require(count, int, "count", "a number of tokens")
        ids, gaps = self.gaps(text)
        return [
            [Filling(self.vocabulary.decode([token]).strip(), p, self._with(ids, gaps, i, token)) for token, p in found]
            for i, found in enumerate(self._guess(ids, gaps, count))
        ]

    def _with(self, ids: Sequence[int], gaps: Sequence[int], number: int, token: int) -> str:
        """The text with this token in gap `number`; the other gaps stay."""
        filled = [token if place in gaps else each for place, each in enumerate(ids)]
        text = self.vocabulary.decode(filled)
        for gap in reversed([*gaps[:number], *gaps[number + 1 :]]):
            start, end = (len(self.vocabulary.decode(filled[:place])) for place in (gap, gap + 1))
            text = f"{text[:start]}{' ' * (start > 0)}[MASK]{text[end:]}"
        return text

    def gaps(self, text: str) -> tuple[list[int], list[int]]:
        """The ids of a text with [MASK] in it, and the places of its gaps."""
        require_text(text, "a filler")
        mask = self.vocabulary.specials.mask
        if mask is None:
            raise InputError("the vocabulary of this model has no token for a gap")
        first, *others = MASKED.split(text)
        if not others:
            raise InputError("there is no gap in the text: write [MASK] where a word is missing")
        ids = [self.vocabulary.specials.begin, *(self.vocabulary.encode_batch([first])[0] if first else [])]
        gaps = []
        for part in others:
            gaps.append(len(ids))
            ids += [mask, *(self.vocabulary.encode_continuation(part) if part else [])]
        ids.append(self.vocabulary.specials.end)
        if len(ids) > self.longest:
            raise InputError(
                f"the text has {len(ids):,} tokens, and this model reads at most {self.longest:,}: shorten it"
            )
        return ids, gaps

    def _guess(self, ids: list[int], gaps: Sequence[int], count: int) -> list[list[tuple[int, float]]]:
        head = self.model.fill
        assert head is not None
        (logits,) = self.read([Row(ids, [0] * len(ids))], lambda states, _: head(states[:, list(gaps)]).float())
        never = torch.tensor([*self.vocabulary.specials.never_generated, self.vocabulary.specials.end])
        logits = logits.index_fill(1, never, -torch.inf)
        values, tokens = logits.softmax(-1).topk(min(count, logits.shape[-1]))
        return [list(zip(t, v, strict=True)) for t, v in zip(tokens.tolist(), values.tolist(), strict=True)]


@dataclass(frozen=True)
class Label:
    """What a classifier says of a text or a word."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Classifier(Reader):
    """Labels texts, or the words of texts, with one model.

    >>> classifier = regard.load_as(regard.Classifier, "runs/reviews")
    >>> classifier("a moving film")
    >>> classifier.classify(["a moving film", "a dull one"])[0].probability
    """

    @property
    def labels(self) -> tuple[str, ...]:
        return self.settings.data.labels

    def __call__(self, text: Text) -> str:
        """The label of one text; of a model that labels words, their labels with spaces between."""
        if self.settings.data.carrier == "word":
            require_text(text, "a classifier of words")
            text = cast(str, text)
            return " ".join(found.label for found in self.label_words([text.split()])[0])
        require(text, (str, tuple), "a classifier", "one text (a str) or a tuple of two; for several, call classify")
        return self.classify([text])[0].label

    def classify(self, texts: Iterable[Text]) -> list[Label]:
        """The label of each text, or of each two texts."""
        if self.settings.data.carrier == "word":
            raise InputError("this model labels words, not texts: use label_words")
        head = self.model.label
        assert head is not None
        found = self.read(self.rows(texts, "classify"), lambda states, keep: head(self.model.judge(states, keep)))
        return [self._label(logits) for logits in found]

    def label_words(self, texts: Iterable[Sequence[str]]) -> list[list[Label]]:
        """The label of each word of each text; the label of a word is that of its first token."""
        if self.settings.data.carrier == "text":
            raise InputError("this model labels texts, not words: use classify")
        head = self.model.label
        assert head is not None
        rows, places = [], []
        for number, words in enumerate(require_texts(texts, "label_words", "give [text.split()]", (object,)), 1):
            require(words, (list, tuple), f"text {number}: label_words", "the words of each text, a list of str")
            list(require_texts(words, "label_words"))
            tokens = [tokens or [self.vocabulary.specials.pad] for tokens in self.vocabulary.encode_words(words)]
            starts = np.cumsum([1, *map(len, tokens)])[:-1].tolist()
            rows.append(shorten([i for word in tokens for i in word], [], self.vocabulary, self.longest))
            places.append(starts)
            if starts and starts[-1] >= len(rows[-1].ids) - 1:
                raise InputError(f"a text of {len(words):,} words is longer than {self.longest:,} tokens: split it")
        found = self.read(rows, lambda states, _: head(states))  # [T, C] for each row
        return [[self._label(logits[place]) for place in starts] for logits, starts in zip(found, places, strict=True)]

    def _label(self, logits: Tensor) -> Label:
        probabilities = logits.float().softmax(-1).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        return Label(self.labels[best], probabilities[best], dict(zip(self.labels, probabilities, strict=True)))


class Embedder(Reader):
    """Turns texts into vectors with one model.

    >>> embedder = regard.load_as(regard.Embedder, "runs/minilm")
    >>> vectors = embedder(["a dog", "a cat"])  # an array [2, D]
    >>> embedder.nearest("a puppy", vectors, 1)
    """

    def __call__(
        self, texts: Iterable[str], *, pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """[N, D], a vector for each text, as `embed` gives them."""
        return self.embed(texts, pooling=pooling, normalize=normalize)

    def embed(
        self, texts: Iterable[str], *, pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """[N, D], a vector for each text; `pooling` and `normalize` are the model's own unless they are given."""
        return self.embed_rows(self.rows(texts, "embed"), pooling, normalize)

    def embed_rows(
        self, rows: Sequence[Row], pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """Returns [N, D], a vector for each row."""
        own = self.settings.embedding
        pooling, normalize = pooling or own.pooling, own.normalize if normalize is None else normalize
        if pooling not in ("mean", "first"):
            raise InputError(f"pooling is mean or first, not {pooling}")

        def use(states: Tensor, keep: Tensor) -> Tensor:
            vectors = mean_state(states, keep) if pooling == "mean" else states[:, 0]
            return torch.nn.functional.normalize(vectors.float(), dim=-1) if normalize else vectors.float()

        found = self.read(rows, use)
        return torch.stack(found).numpy() if found else np.empty((0, self.settings.model.width), np.float32)

    def nearest(
        self, query: str, vectors: NDArray[np.float32], count: int = 5, *, pooling: str | None = None
    ) -> list[tuple[int, float]]:
        """The numbers of the vectors that are nearest to a text, best first, with the cosine.

        `pooling` is the one that the vectors were made with.
        """
        require_text(query, "nearest")
        require(count, int, "count", "a number of vectors")
        if getattr(vectors, "shape", ())[1:] != (self.settings.model.width,):
            raise InputError(
                f"nearest takes the vectors of texts, an array [N, {self.settings.model.width}] as from embed"
            )
        return nearest(self.embed([query], pooling=pooling, normalize=True)[0], vectors, count)


def nearest(query: NDArray[np.float32], vectors: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
    """The numbers of the rows of `vectors` [N, D] with the highest cosine to `query` [D], best first."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1) * np.linalg.norm(query), 1e-12)
    cosines = vectors @ query / lengths
    best = np.argsort(-cosines, kind="stable")[:count]
    return [(int(i), float(cosines[i])) for i in best]
