"""Endpoints for encoder models: embeddings as in the OpenAI API, gaps and labels as in the Hugging Face API."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.decoding.read_ahead import end_if_unwanted
from regard.serving.batchers import Item, Kind, SmallBatcher
from regard.serving.client_limits import Admission, ServingLimits
from regard.serving.refusals import RefusedError, unknown_model
from regard.serving.request_bodies import ModelName, TextInputs, inputs, read_object, respond
from regard.serving.scheduler import MAX_WAITING, SLICE, Scheduler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.decoding.fill_classify_embed import (
        Classifier,
        EncoderInput,
        Filler,
        GapFilling,
        Label,
        Reader,
        Text,
    )
    from regard.serving.served_models import Models

GAPS = ("[MASK]", "<mask>")
MAX_BATCH_TEXTS = 64
"""Maximum number of texts in a batch."""
MAX_BATCH_TOKENS = 4_096
"""Number of tokens to process before checking whether the requests have been cancelled."""

ModelChoice = Annotated[str, Meta(description="the name of a model folder; required if several models have this task")]


class EmbeddingRequest(Struct):
    """A request for the embeddings of texts."""

    model: ModelName
    input: TextInputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


class FillParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `/fill-mask`."""

    top_k: Annotated[int, Meta(ge=1, le=100, description="number of tokens to return for each gap")] = 5


class FillMaskRequest(Struct):
    """A request for the most probable tokens in the gaps of texts."""

    inputs: Annotated[str | Annotated[list[str], Meta(min_length=1)], Meta(description="texts that contain [MASK]")]
    parameters: FillParameters = FillParameters()
    model: ModelChoice = ""


class LabelParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of `/text-classification`."""

    top_k: Annotated[int, Meta(ge=1, description="number of labels for each text; default: all")] | None = None


class TextPair(Struct):
    """A pair of texts that gets one label."""

    text: str
    text_pair: str


class TextLabelRequest(Struct):
    """A request for the labels of texts."""

    inputs: str | TextPair | Annotated[list[str | TextPair], Meta(min_length=1)]
    parameters: LabelParameters = LabelParameters()
    model: ModelChoice = ""


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """The options of `/token-classification`, which has none."""


class WordLabelRequest(Struct):
    """A request for the label of each word of texts."""

    inputs: Annotated[str | Annotated[list[str], Meta(min_length=1)], Meta(description="words separated by spaces")]
    parameters: NoParameters = NoParameters()
    model: ModelChoice = ""


class Filling(Struct):
    """A token that fills a gap, with its probability and the completed text."""

    score: float
    token: int
    token_str: str
    sequence: str


class ScoredLabel(Struct):
    """A label of a text and its probability."""

    label: str
    score: float


class LabelledWord(Struct):
    """A word with its most probable label and its position in the text."""

    entity: str
    score: float
    word: str
    start: int
    end: int


FillMaskAnswer = list[Filling | list[Filling | list[Filling]]]
WordLabelAnswer = list[LabelledWord | list[LabelledWord]]


class EncoderQueue(Scheduler):
    """Embeds, fills or labels the texts of many clients with one encoder model."""

    def __init__(self, reader: Reader, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting)
        self.reader = reader

    async def embed(self, texts: Sequence[str], **client: Any) -> tuple[list[NDArray[np.float32]], int]:
        """Returns a vector for each text, and the number of tokens read."""
        return await self._read("embed", texts, self.reader.rows, self.reader.embed_rows, **client)

    async def fill(self, texts: Sequence[str], count: int, **client: Any) -> list[list[list[GapFilling]]]:
        """Returns the most probable tokens for each gap of each text; requires a model that fills gaps."""
        filler = cast("Filler", self.reader)
        fill_rows = partial(filler.fill_rows, count=count)
        return (await self._read(("fill", count), texts, filler.gap_rows, fill_rows, **client))[0]

    async def label(self, texts: Sequence[Text], **client: Any) -> list[Label]:
        """Returns the label of each text or pair of texts; requires a text classifier."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("label", texts, classifier.rows, classifier.label_rows, **client))[0]

    async def label_words(self, texts: Sequence[Sequence[str]], **client: Any) -> list[list[Label]]:
        """Returns the label of each word of each text; requires a word classifier."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("words", texts, classifier.word_rows, classifier.label_word_rows, **client))[0]

    async def _read(
        self,
        key: Hashable,
        texts: Sequence[Any],
        tokenize: Callable[[Sequence[Any]], list[EncoderInput]],
        use: Callable[[Sequence[EncoderInput]], Iterable[Any]],
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> tuple[list[Any], int]:
        """Returns the result of `use` for each text, and the number of tokens read."""

        def run(items: list[Item]) -> list[Any]:
            results: list[Any] = []
            together = max(1, MAX_BATCH_TOKENS // max(item.tokens_read for item in items))
            for start in range(0, len(items), together):
                end_if_unwanted()
                results.extend(use([item.source for item in items[start : start + together]]))
            return results

        kind = Kind(key, lambda report: SmallBatcher(run, report, self.slots, size=MAX_BATCH_TEXTS))
        async with self.admit(len(texts), client, deadline) as request:
            rows: list[EncoderInput] = []
            for start in range(0, len(texts), SLICE):
                some = await self.in_thread(tokenize, texts[start : start + SLICE])
                request.add([Item(kind, row, len(row.ids)) for row in some], len(some))
                rows += some
            return await request.results(), sum(len(row.ids) for row in rows)


class Encoders:
    """Handles requests to encoder models."""

    def __init__(self, models: Models, limits: ServingLimits, admission: Admission) -> None:
        self.models, self.limits, self.admission = models, limits, admission

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/fill-mask", self.fill_mask, methods=["POST"]),
            Route("/text-classification", self.classify_texts, methods=["POST"]),
            Route("/token-classification", self.classify_words, methods=["POST"]),
        ]

    async def embeddings(self, request: Request) -> Response:
        client = self.admission.admit_bearer(request)
        asked = await read_object(request, EmbeddingRequest)
        queue = self.models.encoders.get(asked.model)
        if queue is None:
            raise unknown_model(asked.model)
        decode = queue.reader.vocabulary.decode
        texts = [each if isinstance(each, str) else decode(each) for each in inputs(asked.input, "input")]
        self.check_size(request, "input", texts)
        width = queue.reader.settings.model.width
        if asked.dimensions not in (None, width):
            raise RefusedError(400, f"dimensions: the vectors of this model always have {width} dimensions")
        vectors, tokens = await queue.embed(texts, **client)
        data = [
            {"object": "embedding", "index": index, "embedding": encode_vector(vector, asked.encoding_format)}
            for index, vector in enumerate(vectors)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return JSONResponse({"object": "list", "data": data, "model": asked.model, "usage": usage})

    async def fill_mask(self, request: Request) -> Response:
        client = self.admission.admit_bearer(request)
        asked = await read_object(request, FillMaskRequest)
        texts, queue = as_list(asked.inputs), self.queue(asked.model, "fill")
        count = asked.parameters.top_k
        if count * sum(text.count(gap) for text in texts for gap in GAPS) > self.limits.batch >= 0:
            raise RefusedError(400, f"inputs: at most {self.limits.batch} tokens are returned for all gaps together")
        self.check_size(request, "inputs", texts)
        answers = [make_fillings(each) for each in await queue.fill(texts, count, **client)]
        return respond(answers if isinstance(asked.inputs, list) else answers[0])

    async def classify_texts(self, request: Request) -> Response:
        client = self.admission.admit_bearer(request)
        asked = await read_object(request, TextLabelRequest)
        inputs, queue = as_list(asked.inputs), self.queue(asked.model, "classify")
        pairs = [(each, "") if isinstance(each, str) else (each.text, each.text_pair) for each in inputs]
        self.check_size(request, "inputs", ["".join(pair) for pair in pairs])
        labels = await queue.label([pair if pair[1] else pair[0] for pair in pairs], **client)
        return respond([rank_labels(label, asked.parameters.top_k) for label in labels])

    async def classify_words(self, request: Request) -> Response:
        client = self.admission.admit_bearer(request)
        asked = await read_object(request, WordLabelRequest)
        texts, queue = as_list(asked.inputs), self.queue(asked.model, "classify words")
        self.check_size(request, "inputs", texts)
        labels = await queue.label_words([text.split() for text in texts], **client)
        answers = [make_labelled_words(*each) for each in zip(texts, labels, strict=True)]
        return respond(answers if isinstance(asked.inputs, list) else answers[0])

    def queue(self, name: str, task: str) -> EncoderQueue:
        """Returns the queue of the model with this name, or of the only model for the task if the name is empty."""
        able = {each: queue for each, queue in self.models.encoders.items() if task_name(queue) == task}
        if not name and len(able) > 1:
            raise RefusedError(400, f"model: specify one of {', '.join(able)}")
        queue = able.get(name) if name else next(iter(able.values()), None)
        if queue is None:
            raise unknown_model(name) if name else RefusedError(404, f"This server has no model to {task}")
        return queue

    def check_size(self, request: Request, field: str, texts: Sequence[str]) -> None:
        """Raises an error if the texts are too many or too long; adds their number to the log record."""
        characters = sum(map(len, texts))
        if len(texts) > self.limits.batch >= 0 or characters > self.limits.characters >= 0:
            limits = f"{self.limits.batch} texts and {self.limits.characters} characters"
            raise RefusedError(400, f"{field}: at most {limits}")
        request.state.details.update(texts=len(texts), characters=characters)


def encode_vector(vector: NDArray[np.float32], form: str) -> Any:
    """Returns a vector as a list, or as base64-encoded little-endian 32-bit floats."""
    return vector.tolist() if form == "float" else base64.b64encode(vector.astype("<f4").tobytes()).decode()


def task_name(queue: EncoderQueue) -> str:
    """Returns the task of the model; "classify words" for a word classifier."""
    settings = queue.reader.settings
    return "classify words" if settings.task == "classify" and settings.data.carrier == "word" else settings.task


def as_list(inputs: Any) -> list[Any]:
    return inputs if isinstance(inputs, list) else [inputs]


def make_fillings(gaps: list[list[GapFilling]]) -> list[Any]:
    """Returns the fillings of a text, best first, with a list for each gap if there are several gaps."""
    answers = [[Filling(each.probability, each.id, each.token, each.text) for each in gap] for gap in gaps]
    return answers[0] if len(answers) == 1 else answers


def rank_labels(label: Label, count: int | None) -> list[ScoredLabel]:
    """Returns the labels of a text with their probabilities, best first."""
    best = sorted(label.probabilities.items(), key=lambda each: -each[1])
    return [ScoredLabel(*each) for each in best[:count]]


def make_labelled_words(text: str, labels: Sequence[Label]) -> list[LabelledWord]:
    """Returns each word with its label and its position in the text."""
    words = zip(re.finditer(r"\S+", text), labels, strict=True)
    return [LabelledWord(label.label, label.probability, word[0], *word.span()) for word, label in words]
