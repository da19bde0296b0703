"""Types of requests and answers: they check the requests and make the OpenAPI document."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

MOST_TERMS = 100
MOST_CHOICES = 16

TermText = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"\S")]
Texts = Annotated[str | list[str], Meta(description="a text or several")]
Source = Annotated[str, Meta(description="auto, or a code of /languages")]
Target = Annotated[str, Meta(description="a code of /languages")]
KeyField = Annotated[str, Meta(description="a key, where the server needs one")]

# LibreTranslate's interface


class TranslateRequest(Struct):
    """Texts to translate."""

    q: Texts
    source: Source
    target: Target
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Meta(ge=0, description="other translations of each text")] = 0
    scores: Annotated[bool, Meta(description="answer with scores and confidence")] = False
    flags: Annotated[bool, Meta(description="answer with what a person should check")] = False
    alignment: Annotated[bool, Meta(description="answer with what each token attended to")] = False
    glossary: Annotated[dict[TermText, TermText], Meta(max_length=MOST_TERMS, description="terms, in JSON only")] = {}
    api_key: KeyField = ""


class DetectRequest(Struct):
    """Texts whose language is detected."""

    q: Texts
    api_key: KeyField = ""


class TranslateFileRequest(Struct):
    """A file to translate."""

    file: Annotated[Any, Meta(extra_json_schema={"type": "string", "format": "binary"})]
    source: Source
    target: Target
    api_key: KeyField = ""


class SuggestRequest(Struct):
    """A better translation."""

    q: str
    s: str
    source: str
    target: str
    api_key: KeyField = ""


class Detected(Struct):
    """A language of a text."""

    confidence: Annotated[float, Meta(ge=0, le=100)]
    language: str


class TranslateAnswer(Struct):
    """Translations; lists if a list was asked for."""

    translatedText: str | list[str]  # noqa: N815 - these are names of LibreTranslate's
    detectedLanguage: Detected | list[Detected] | UnsetType = UNSET  # noqa: N815
    alternatives: list[str | list[str]] | UnsetType = UNSET
    scores: Any | UnsetType = UNSET
    confidence: Any | UnsetType = UNSET
    alignment: Any | UnsetType = UNSET
    glossary: Any | UnsetType = UNSET
    flags: list[str | list[str]] | UnsetType = UNSET


class TranslateFileAnswer(Struct):
    """The address at which the translated file can be downloaded for some minutes."""

    translatedFileUrl: str  # noqa: N815


class Language(Struct):
    """A language, and those that it is translated into."""

    code: str
    name: str
    targets: list[str]


class HealthAnswer(Struct):
    """The state of the server."""

    status: str = "ok"


class ErrorAnswer(Struct):
    """The reason for which a request was refused."""

    error: str


# OpenAI's interface

ModelName = Annotated[str, Meta(min_length=1, description="the name of a model's folder")]
TextInputs = Annotated[
    str | Annotated[list[str | int | Annotated[list[int], Meta(min_length=1)]], Meta(min_length=1)],
    Meta(description="a text, a list of texts, tokens, or a list of tokens of several texts"),
]


class StreamOptions(Struct, frozen=True):
    """Options of a stream."""

    include_usage: bool = False


class ResponseFormat(Struct, frozen=True):
    """The form of an answer."""

    type: Literal["text"] = "text"


class SamplingRequest(Struct):
    """Options of sampling that completions and chats share."""

    temperature: Annotated[float, Meta(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Meta(ge=0, le=1)] = 1.0
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES, description="answers to each prompt")] = 1
    stop: str | Annotated[list[str], Meta(max_length=4)] = []
    seed: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()


class CompletionRequest(SamplingRequest, kw_only=True):
    """Texts to continue."""

    model: ModelName
    prompt: TextInputs = ""
    max_tokens: Annotated[int, Meta(ge=0, le=100_000)] = 16
    best_of: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] = 1
    logprobs: Annotated[int, Meta(ge=0, le=5)] | None = None
    echo: bool = False


class ContentPart(Struct):
    """A part of a message."""

    type: Literal["text"]
    text: str


class ChatMessage(Struct):
    """A message of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str | list[ContentPart]


class ChatRequest(SamplingRequest, kw_only=True):
    """A conversation to continue, or whose last message of the user is translated."""

    model: Annotated[str, Meta(min_length=1, description="the name of a model's folder, or a direction such as en-de")]
    messages: Annotated[list[ChatMessage], Meta(min_length=1)]
    max_completion_tokens: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=100_000)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] = 0
    response_format: ResponseFormat = ResponseFormat()


class EmbeddingRequest(Struct):
    """Texts to turn into vectors."""

    model: ModelName
    input: TextInputs
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None


# Hugging Face's interface

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
