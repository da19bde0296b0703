"""Runs encoders: fills gaps, labels texts or words, and turns texts into vectors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.argument_checks import require, require_text, require_texts
from regard.errors import InputError
from regard.model.transformer import Encoder, mean_state
from regard.tokens.tokenizer import Tokenizer
from regard.weights import Contents, summary

MASKED = re.compile(r" ?\[MASK\]| ?<mask>")
BATCH_TOKENS = 8192
"""Maximum number of tokens per batch, including padding."""

Text = str | tuple[str, str]
"""One text, or a pair of texts that is classified as a unit."""


class Reader:
    """The base of the classes below: an encoder that reads texts in batches and returns results in their order."""

    folder: Path | None = None
    """The folder from which the model was loaded, if any."""

    def __init__(self, contents: Contents) -> None:
        assert isinstance(contents.model, Encoder)
        self.settings, self.model = contents.settings, contents.model
        self.vocabulary = contents.vocabularies.source
        self.longest = contents.settings.model.max_length

    def __repr__(self) -> str:
        labels = f"{len(self.settings.data.labels)} labels, " if self.settings.data.labels else ""
        return f"<{type(self).__name__} {self.folder or 'without a folder'}: {labels}{summary(self.model)}>"

    def rows(self, texts: Iterable[Text], name: str = "rows") -> list[EncoderInput]:
        """Tokenizes texts and truncates them to the model's maximum length; `name` is the call to name in errors."""
        pairs = [
            (text, "") if isinstance(text, str) else pair_of(text, name, number)
            for number, text in enumerate(require_texts(texts, name, types=(str, tuple)), 1)
        ]
        firsts = self.vocabulary.encode_batch([first for first, _ in pairs])
        seconds = self.vocabulary.encode_batch([second for _, second in pairs])
        return [shorten(*each, self.vocabulary, self.longest) for each in zip(firsts, seconds, strict=True)]

    @torch.inference_mode()
    def read(self, rows: Sequence[EncoderInput], use: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
        """Applies `use` to the states [B, T, D] and keep [B, T] of each batch; returns one result per row."""
        device = next(self.model.parameters()).device
        order = sorted(range(len(rows)), key=lambda i: -len(rows[i].ids))
        results: dict[int, Tensor] = {}
        while len(results) < len(rows):
            longest = len(rows[order[len(results)]].ids)
            batch = order[len(results) :][: max(1, BATCH_TOKENS // longest)]
            tokens = torch.full((len(batch), longest), self.vocabulary.specials.pad)
            segments, keep = torch.zeros_like(tokens), torch.zeros_like(tokens, dtype=torch.bool)
            for place, number in enumerate(batch):
                row = rows[number]
                tokens[place, : len(row.ids)] = torch.tensor(row.ids)
                segments[place, : len(row.ids)] = torch.tensor(row.segments)
                keep[place, : len(row.ids)] = True
            tokens, segments, keep = tokens.to(device), segments.to(device), keep.to(device)
            states = self.model(tokens, None if bool(keep.all()) else keep, segments)
            results.update(zip(batch, use(states, keep).cpu(), strict=True))
        return [results[i] for i in range(len(rows))]

    def embed_rows(
        self, rows: Sequence[EncoderInput], pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """[N] rows -> [N, D] vectors, with any encoder."""
        own = self.settings.embedding
        pooling, normalize = pooling or own.pooling, own.normalize if normalize is None else normalize
        if pooling not in ("mean", "first"):
            raise InputError(f"pooling must be mean or first, not {pooling}")

        def use(states: Tensor, keep: Tensor) -> Tensor:
            vectors = mean_state(states, keep) if pooling == "mean" else states[:, 0]
            return torch.nn.functional.normalize(vectors.float(), dim=-1) if normalize else vectors.float()

        vectors = self.read(rows, use)
        return torch.stack(vectors).numpy() if vectors else np.empty((0, self.settings.model.width), np.float32)


def pair_of(texts: tuple[str, str], name: str, number: int) -> tuple[str, str]:
    """Returns `texts` if it is a pair of texts; raises InputError for any other tuple."""
    if len(texts) != 2 or not all(isinstance(each, str) for each in texts):
        raise InputError(f"text {number}: {name} takes a text (a str) or a tuple of two, not {texts!r:.60}")
    return texts


@dataclass(frozen=True)
class EncoderInput:
    """The tokens of a text or a pair of texts, with begin and end tokens."""

    ids: list[int]
    segments: list[int]
    shortened: bool = False
    places: Sequence[int] = ()  # positions of the gaps, or of the first token of each word


def shorten(first: Sequence[int], second: Sequence[int], vocabulary: Tokenizer, longest: int) -> EncoderInput:
    """Truncates a text or a pair to at most `longest` tokens; of a pair, the longer text is truncated first."""
    room = longest - 2 - (vocabulary.specials.between if second else 0)
    kept = min(len(first), max(room - len(second), room // 2 if second else room))
    ids, segments = vocabulary.specials.join(first[:kept], second[: room - kept])
    return EncoderInput(ids, segments, kept < len(first) or room - kept < len(second))


@dataclass(frozen=True)
class GapFilling:
    """A token that may fill a gap."""

    token: str
    probability: float
    text: str  # the whole text with this token in the gap
    id: int  # id of the token in the vocabulary


class Filler(Reader):
    """Fills gaps in texts.

    >>> filler = regard.load_as(regard.Filler, "runs/bert")
    >>> filler("Paris is the [MASK] of France.")
    >>> filler.fill("Paris is the [MASK] of France.", 3)[0][0].token
    """

    def __call__(self, text: str) -> str:
        """Returns the text with the most probable token in each gap."""
        (row,) = self.gap_rows([text])
        ids = list(row.ids)
        for place, ((token, _),) in zip(row.places, self._guess([row], 1)[0], strict=True):
            ids[place] = token
        return self.vocabulary.decode(ids)

    def fill(self, text: str, count: int = 5) -> list[list[GapFilling]]:
        """Returns the most probable tokens for each gap of the text, best first; gaps are filled independently."""
        require(count, int, "count", "a number of tokens")
        return self.fill_rows(self.gap_rows([text]), count)[0]

    def fill_rows(self, rows: Sequence[EncoderInput], count: int) -> list[list[list[GapFilling]]]:
        return [self._fillings(*each) for each in zip(rows, self._guess(rows, count), strict=True)]

    def _fillings(self, row: EncoderInput, guesses: list[list[tuple[int, float]]]) -> list[list[GapFilling]]:
        """Completes the guesses with the whole text, in which the other gaps are written as [MASK]."""
        ends = [0, *(place + 1 for place in row.places)]
        parts = [row.ids[start:end] for start, end in zip(ends, [*row.places, len(row.ids)], strict=True)]
        texts = list(map(self._decode, parts))
        fillings = []
        for number, guess in enumerate(guesses):
            before = "".join(f"{text} [MASK]" for text in texts[:number])
            after = "".join(f" [MASK]{text}" for text in texts[number + 2 :])
            around = [(token, p, self._decode([*parts[number], token, *parts[number + 1]])) for token, p in guess]
            fillings.append(
                [
                    GapFilling(
                        self.vocabulary.decode([token]).strip(), p, f"{before}{text}{after}".removeprefix(" "), token
                    )
                    for token, p, text in around
                ]
            )
        return fillings

    def _decode(self, ids: Sequence[int]) -> str:
        """Decodes ids in the middle of a text, including the space before them."""
        return self.vocabulary.decode([*self.vocabulary.encode_continuation("x"), *ids])[1:]

    def gap_rows(self, texts: Iterable[str]) -> list[EncoderInput]:
        return [EncoderInput(ids, [0] * len(ids), places=gaps) for ids, gaps in map(self.gaps, texts)]

    def gaps(self, text: str) -> tuple[list[int], list[int]]:
        """Tokenizes a text with gaps, which are written as [MASK]; returns the ids and the positions of the gaps."""
        require_text(text, "a filler")
        mask = self.vocabulary.specials.mask
        if mask is None:
            raise InputError("this model's vocabulary has no [MASK] token, so it cannot fill gaps")
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
                f"the text has {len(ids):,} tokens, but this model reads at most {self.longest:,}: shorten it"
            )
        return ids, gaps

    @torch.inference_mode()
    def _guess(self, rows: Sequence[EncoderInput], count: int) -> list[list[list[tuple[int, float]]]]:
        """Returns the ids and probabilities of the most probable tokens for each gap of each row."""
        head, device = self.model.fill, next(self.model.parameters()).device
        assert head is not None
        never = torch.tensor([*self.vocabulary.specials.never_generated, self.vocabulary.specials.end])
        guesses = []
        for row, states in zip(rows, self.read(rows, lambda states, _: states), strict=True):
            logits = head(states[list(row.places)].to(device)).float().cpu().index_fill(1, never, -torch.inf)
            values, tokens = logits.softmax(-1).topk(min(count, logits.shape[-1]))
            pairs = zip(tokens.tolist(), values.tolist(), strict=True)
            guesses.append([list(zip(*each, strict=True)) for each in pairs])
        return guesses


@dataclass(frozen=True)
class Label:
    """The most probable label of a text or a word, and the probabilities of all labels."""

    label: str
    probability: float
    probabilities: dict[str, float]


class Classifier(Reader):
    """Labels texts, or the words of texts.

    >>> classifier = regard.load_as(regard.Classifier, "runs/reviews")
    >>> classifier("a moving film")
    >>> classifier.classify(["a moving film", "a dull one"])[0].probability
    """

    @property
    def labels(self) -> tuple[str, ...]:
        return self.settings.data.labels

    def __call__(self, text: Text) -> str:
        """Returns the label of one text, or the labels of its words separated by spaces."""
        if self.settings.data.carrier == "word":
            require_text(text, "a classifier of words")
            text = cast(str, text)
            return " ".join(each.label for each in self.label_words([text.split()])[0])
        require(text, (str, tuple), "a classifier", "one text (a str) or a tuple of two; for several, call classify")
        return self.classify([text])[0].label

    def classify(self, texts: Iterable[Text]) -> list[Label]:
        """Returns the label of each text, or of each pair of texts."""
        if self.settings.data.carrier == "word":
            raise InputError("this model labels words, not texts: use label_words")
        return self.label_rows(self.rows(texts, "classify"))

    def label_rows(self, rows: Sequence[EncoderInput]) -> list[Label]:
        head = self.model.label
        assert head is not None
        return [self._label(each) for each in self.read(rows, lambda *states: head(self.model.pool(*states)))]

    def label_words(self, texts: Iterable[Sequence[str]]) -> list[list[Label]]:
        """Returns the label of each word of each text, predicted at the word's first token."""
        return self.label_word_rows(self.word_rows(texts))

    def word_rows(self, texts: Iterable[Sequence[str]]) -> list[EncoderInput]:
        """Tokenizes texts that are lists of words."""
        if self.settings.data.carrier == "text":
            raise InputError("this model labels texts, not words: use classify")
        rows = []
        for number, words in enumerate(require_texts(texts, "label_words", "pass [text.split()]", (object,)), 1):
            require(words, (list, tuple), f"text {number}: label_words", "the words of each text, a list of str")
            list(require_texts(words, "label_words"))
            tokens = [tokens or [self.vocabulary.specials.pad] for tokens in self.vocabulary.encode_words(words)]
            starts = np.cumsum([1, *map(len, tokens)])[:-1].tolist()
            row = shorten([i for word in tokens for i in word], [], self.vocabulary, self.longest)
            if starts and starts[-1] >= len(row.ids) - 1:
                raise InputError(f"a text of {len(words):,} words is longer than {self.longest:,} tokens: split it")
            rows.append(replace(row, places=starts))
        return rows

    def label_word_rows(self, rows: Sequence[EncoderInput]) -> list[list[Label]]:
        head = self.model.label
        assert head is not None
        results = self.read(rows, lambda states, _: head(states))  # [T, C] for each row
        return [[self._label(each[place]) for place in row.places] for row, each in zip(rows, results, strict=True)]

    def _label(self, logits: Tensor) -> Label:
        probabilities = logits.float().softmax(-1).tolist()
        best = max(range(len(probabilities)), key=probabilities.__getitem__)
        return Label(self.labels[best], probabilities[best], dict(zip(self.labels, probabilities, strict=True)))


class Embedder(Reader):
    """Turns texts into vectors.

    >>> embedder = regard.load_as(regard.Embedder, "runs/minilm")
    >>> vectors = embedder(["a dog", "a cat"])  # an array [2, D]
    >>> embedder.nearest("a puppy", vectors, 1)
    """

    def __call__(
        self, texts: Iterable[str], *, pooling: str | None = None, normalize: bool | None = None
    ) -> NDArray[np.float32]:
        """[N] texts -> [N, D] vectors; `pooling` and `normalize` override the model's own settings."""
        return self.embed_rows(self.rows(texts, "embed"), pooling, normalize)

    embed = __call__

    def nearest(
        self, query: str, vectors: NDArray[np.float32], count: int = 5, *, pooling: str | None = None
    ) -> list[tuple[int, float]]:
        """Returns the row numbers and cosines of the vectors nearest to a text, best first.

        `pooling` must be the same as for the vectors.
        """
        require_text(query, "nearest")
        require(count, int, "count", "a number of vectors")
        if getattr(vectors, "shape", ())[1:] != (self.settings.model.width,):
            raise InputError(
                f"nearest takes an array of vectors [N, {self.settings.model.width}], such as embed returns"
            )
        return nearest(self.embed([query], pooling=pooling, normalize=True)[0], vectors, count)


def nearest(query: NDArray[np.float32], vectors: NDArray[np.float32], count: int) -> list[tuple[int, float]]:
    """Returns the numbers and cosines of the rows of `vectors` [N, D] that are nearest to `query` [D], best first."""
    lengths = np.maximum(np.linalg.norm(vectors, axis=1) * np.linalg.norm(query), 1e-12)
    cosines = vectors @ query / lengths
    best = np.argsort(-cosines, kind="stable")[:count]
    return [(int(i), float(cosines[i])) for i in best]
