"""Hugging Face's interface for models that fill gaps and models that classify texts or words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from regard.serving.client_limits import ServingLimits
from regard.serving.encoder_queue import EncoderQueue
from regard.serving.openai import OpenAI, unknown_model
from regard.serving.refusals import RefusedError
from regard.serving.request_bodies import read_object, respond

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import GapFilling, Label

GAPS = ("[MASK]", "<mask>")

ModelChoice = Annotated[str, Meta(description="the name of a model's folder, if several models do this")]


class FillParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of filling gaps."""

    top_k: Annotated[int, Meta(ge=1, le=100, description="tokens for each gap")] = 5


class FillMaskRequest(Struct):
    """Texts with gaps to fill."""

    inputs: Annotated[str | Annotated[list[str], Meta(min_length=1)], Meta(description="with [MASK] in each text")]
    parameters: FillParameters = FillParameters()
    model: ModelChoice = ""


class LabelParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """Options of classifying texts."""

    top_k: Annotated[int, Meta(ge=1, description="labels of each text; all if it is missing")] | None = None


class TextPair(Struct):
    """Two texts that are classified as one."""

    text: str
    text_pair: str


class TextLabelRequest(Struct):
    """Texts to classify."""

    inputs: str | TextPair | Annotated[list[str | TextPair], Meta(min_length=1)]
    parameters: LabelParameters = LabelParameters()
    model: ModelChoice = ""


class NoParameters(Struct, frozen=True, forbid_unknown_fields=True):
    """No options."""


class WordLabelRequest(Struct):
    """Texts whose words are classified."""

    inputs: Annotated[str | Annotated[list[str], Meta(min_length=1)], Meta(description="words with spaces between")]
    parameters: NoParameters = NoParameters()
    model: ModelChoice = ""


class Filling(Struct):
    """A token that fills a gap."""

    score: float
    token: int
    token_str: str
    sequence: str


class ScoredLabel(Struct):
    """A label of a text and its probability."""

    label: str
    score: float


class LabelledWord(Struct):
    """A word with its likeliest label, and its place in the text."""

    entity: str
    score: float
    word: str
    start: int
    end: int


FillMaskAnswer = list[Filling | list[Filling | list[Filling]]]
WordLabelAnswer = list[LabelledWord | list[LabelledWord]]


class HuggingFace:
    """Answers requests in Hugging Face's interface."""

    def __init__(self, openai: OpenAI, limits: ServingLimits) -> None:
        self.openai, self.limits = openai, limits

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/fill-mask", self.fill_mask, methods=["POST"]),
            Route("/text-classification", self.classify_texts, methods=["POST"]),
            Route("/token-classification", self.classify_words, methods=["POST"]),
        ]

    async def fill_mask(self, request: Request) -> Response:
        client = self.openai.admit(request)
        asked = await read_object(request, FillMaskRequest)
        texts, queue = listed(asked.inputs), self.queue(asked.model, "fill")
        count = asked.parameters.top_k
        if count * sum(text.count(gap) for text in texts for gap in GAPS) > self.limits.batch >= 0:
            raise RefusedError(400, f"inputs: at most {self.limits.batch} fillings of all gaps together")
        self.check_size(request, texts)
        answers = [fillings_of(each) for each in await queue.fill(texts, count, **client)]
        return respond(answers if isinstance(asked.inputs, list) else answers[0])

    async def classify_texts(self, request: Request) -> Response:
        client = self.openai.admit(request)
        asked = await read_object(request, TextLabelRequest)
        inputs, queue = listed(asked.inputs), self.queue(asked.model, "classify")
        pairs = [(each, "") if isinstance(each, str) else (each.text, each.text_pair) for each in inputs]
        self.check_size(request, ["".join(pair) for pair in pairs])
        labels = await queue.label([pair if pair[1] else pair[0] for pair in pairs], **client)
        return respond([scores_of(label, asked.parameters.top_k) for label in labels])

    async def classify_words(self, request: Request) -> Response:
        client = self.openai.admit(request)
        asked = await read_object(request, WordLabelRequest)
        texts, queue = listed(asked.inputs), self.queue(asked.model, "classify words")
        self.check_size(request, texts)
        labels = await queue.label_words([text.split() for text in texts], **client)
        answers = [words_of(*each) for each in zip(texts, labels, strict=True)]
        return respond(answers if isinstance(asked.inputs, list) else answers[0])

    def queue(self, name: str, task: str) -> EncoderQueue:
        """Returns the queue of the model with this name; without a name, that of the only model for the task."""
        able = {each: queue for each, queue in self.openai.served.encoders.items() if task_of(queue) == task}
        if not name and len(able) > 1:
            raise RefusedError(400, f"model: name one of {', '.join(able)}")
        queue = able.get(name) if name else next(iter(able.values()), None)
        if queue is None:
            raise unknown_model(name) if name else RefusedError(404, f"No model here was trained to {task}")
        return queue

    def check_size(self, request: Request, texts: Sequence[str]) -> None:
        """Refuses too many or too long texts; writes their number into the log."""
        characters = sum(map(len, texts))
        if len(texts) > self.limits.batch >= 0 or characters > self.limits.characters >= 0:
            limits = f"{self.limits.batch} texts and {self.limits.characters} characters"
            raise RefusedError(400, f"inputs: at most {limits}")
        request.state.details.update(texts=len(texts), characters=characters)


def task_of(queue: EncoderQueue) -> str:
    """Returns what the model was trained for."""
    settings = queue.reader.settings
    return "classify words" if settings.task == "classify" and settings.data.carrier == "word" else settings.task


def listed(inputs: Any) -> list[Any]:
    return inputs if isinstance(inputs, list) else [inputs]


def fillings_of(gaps: list[list[GapFilling]]) -> list[Any]:
    """Returns the fillings of a text, best first; a list for each gap if there are several."""
    answers = [[Filling(each.probability, each.id, each.token, each.text) for each in gap] for gap in gaps]
    return answers[0] if len(answers) == 1 else answers


def scores_of(label: Label, count: int | None) -> list[ScoredLabel]:
    """Returns the labels of a text with their probabilities, best first."""
    best = sorted(label.probabilities.items(), key=lambda each: -each[1])
    return [ScoredLabel(*each) for each in best[:count]]


def words_of(text: str, labels: Sequence[Label]) -> list[LabelledWord]:
    """Returns each word with its label and its place in the text."""
    words = zip(re.finditer(r"\S+", text), labels, strict=True)
    return [LabelledWord(label.label, label.probability, word[0], *word.span()) for word, label in words]
