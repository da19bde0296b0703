"""The LibreTranslate API, which Weblate, Mastodon and other clients use."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal
from urllib.parse import quote

from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import DataError
from regard.faithful.glossary import Glossary, Term
from regard.files.formats import format_by_suffix as files
from regard.serving import language_codes
from regard.serving.client_limits import Admission, ServingLimits, bearer
from regard.serving.explorer_pages import ExplorerPages
from regard.serving.language_detection import detect
from regard.serving.refusals import RefusedError
from regard.serving.request_bodies import RequestType, Upload, convert_values, read_values, respond
from regard.serving.translated_files import FileStore
from regard.serving.translation_service import Answer, TranslationCall, TranslationService
from regard.tokens.language_directions import Direction

WEBLATE_PROBE = "test"
"""The English word that Weblate translates into German to test a server."""
UNSUITABLE = (".mo", ".pot")  # compiled catalogues and templates
FORMATS = tuple(sorted(suffix for suffix in {**files.PAIRED, **files.ALONE, ".txt": ""} if suffix not in UNSUITABLE))
"""Suffixes of the files that the server translates."""

MAX_TERMS = 100
TermText = Annotated[str, Meta(min_length=1, max_length=100, pattern=r"\S")]
Texts = Annotated[str | list[str], Meta(description="a text or a list of texts")]
Source = Annotated[str, Meta(description="a language code from /languages, or auto to detect it")]
Target = Annotated[str, Meta(description="a language code from /languages")]
KeyField = Annotated[str, Meta(description="API key, if the server requires one")]


class TranslateRequest(Struct):
    """A request to translate texts."""

    q: Texts
    source: Source
    target: Target
    format: Literal["text", "html"] = "text"
    alternatives: Annotated[int, Meta(ge=0, description="number of other translations of each text")] = 0
    scores: Annotated[bool, Meta(description="return scores and confidence")] = False
    flags: Annotated[bool, Meta(description="return notes for a reviewer")] = False
    alignment: Annotated[bool, Meta(description="return how much each token attended to each source token")] = False
    glossary: Annotated[
        dict[TermText, TermText],
        Meta(max_length=MAX_TERMS, description="terms and their translations; only in JSON requests"),
    ] = {}
    api_key: KeyField = ""


class DetectRequest(Struct):
    """A request to detect the language of texts."""

    q: Texts
    api_key: KeyField = ""


class TranslateFileRequest(Struct):
    """A request to translate a file."""

    file: Annotated[Any, Meta(extra_json_schema={"type": "string", "format": "binary"})]
    source: Source
    target: Target
    api_key: KeyField = ""


class SuggestRequest(Struct):
    """A suggestion of a better translation; this server accepts none."""

    q: str
    s: str
    source: str
    target: str
    api_key: KeyField = ""


class Detected(Struct):
    """A detected language, with a confidence from 0 to 100."""

    confidence: Annotated[float, Meta(ge=0, le=100)]
    language: str


class TranslateAnswer(Struct):
    """The translations of a request; its fields are lists if `q` is a list."""

    translatedText: str | list[str]  # noqa: N815 - names of the LibreTranslate API
    detectedLanguage: Detected | list[Detected] | UnsetType = UNSET  # noqa: N815
    alternatives: list[str | list[str]] | UnsetType = UNSET
    scores: Any | UnsetType = UNSET
    confidence: Any | UnsetType = UNSET
    alignment: Any | UnsetType = UNSET
    glossary: Any | UnsetType = UNSET
    flags: list[str | list[str]] | UnsetType = UNSET


class TranslateFileAnswer(Struct):
    """The URL from which the translated file can be downloaded for some minutes."""

    translatedFileUrl: str  # noqa: N815


class Language(Struct):
    """A source language, with its name and target languages."""

    code: str
    name: str
    targets: list[str]


class HealthAnswer(Struct):
    """The answer of a server that is ready."""

    status: str = "ok"


class LibreTranslate:
    """Handles requests to the LibreTranslate API."""

    def __init__(
        self,
        translating: TranslationService,
        limits: ServingLimits,
        admission: Admission,
        *,
        weblate_probe: bool = False,
        files: Path | None = None,
        pages: ExplorerPages | None = None,
    ) -> None:
        """Stores translated files in the folder `files`, which servers may share; `pages` are those of the explorer."""
        self.translating, self.limits, self.admission = translating, limits, admission
        self.weblate_probe, self.pages = weblate_probe, pages
        self.shelf = FileStore(limits.uploads, limits.kept, files)

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/languages", self.languages),
            Route("/translate", self.translate, methods=["POST"]),
            Route("/detect", self.detect, methods=["POST"]),
            Route("/translate_file", self.translate_file, methods=["POST"]),
            Route("/download_file/{name:path}", self.download_file),
            Route("/suggest", self.suggest, methods=["POST"]),
            Route("/frontend/settings", self.settings),
            Route("/health", self.health),
        ]

    async def translate(self, request: Request) -> Response:
        asked = await self.read(request, TranslateRequest)
        texts = self.texts_of(asked)
        if asked.alternatives > self.limits.alternatives:
            raise RefusedError(400, f"Invalid request: alternatives parameter must be <= {self.limits.alternatives}")
        if self.is_weblate_probe(asked):
            return respond(TranslateAnswer(asked.q))
        html = asked.format == "html"
        detected = await self.detect_source(texts, asked.target, html=html) if asked.source == "auto" else None
        steps = self.steps(detected.language if detected else asked.source, asked.target)
        options: dict[str, Any] = {"alternatives": asked.alternatives} if asked.alternatives and not html else {}
        if asked.alignment:
            options["alignment"] = True
        if steps and asked.glossary:
            terms = [Term(term, (translation,)) for term, translation in asked.glossary.items()]
            options["glossary"] = Glossary(terms, steps[-1].source, steps[-1].target)
        answers = [Answer(text) for text in texts]
        if steps:
            work = self.translating.pages if html else self.translating.texts
            answers = await work(texts, steps, self.call(request, options))
        request.state.details.update(texts=len(texts), characters=sum(map(len, texts)))
        return respond(make_answer(answers, detected, asked))

    async def detect(self, request: Request) -> Response:
        texts = self.texts_of(await self.read(request, DetectRequest))
        languages = self.translating.languages
        return respond([each for text in texts for each in (await detect_languages(text, languages))[:3]])

    async def languages(self, _request: Request) -> Response:
        languages = [
            Language(
                language_codes.public(code),
                language_codes.name(code),
                sorted(map(language_codes.public, {*self.translating.targets(code), code})),
            )
            for code in self.translating.languages
        ]
        return respond(sorted(languages, key=lambda each: (each.code != "en", each.name)))

    async def translate_file(self, request: Request) -> Response:
        asked = await self.read(request, TranslateFileRequest)
        file = asked.file
        if not isinstance(file, Upload):
            raise RefusedError(400, "Invalid request: missing file parameter")
        suffix = PurePosixPath(file.name).suffix.lower()
        if suffix not in FORMATS:
            raise RefusedError(400, "Invalid request: file format not supported")
        path = self.shelf.fresh(suffix)
        try:
            await asyncio.to_thread(path.write_bytes, file.content)
            source, call = asked.source, self.call(request, {})
            if source == "auto":
                sample = await self.translating.document_sample(path, call)
                source = (await self.detect_source(sample, asked.target)).language
            steps, content = self.steps(source, asked.target), file.content
            if steps:
                content = await self.translating.document(path, steps, call, self.limits.characters)
        except DataError as error:
            raise RefusedError(400, f"Invalid request: {str(error).replace(str(path), file.name)}") from None
        finally:
            path.unlink(missing_ok=True)
        stem = re.sub(r"[^\w.-]+", "_", PurePosixPath(file.name).stem)[:100]
        target = language_codes.public(steps[-1].target if steps else source)
        token = self.shelf.put(content, f"{stem}_{target}{suffix}")
        return respond(TranslateFileAnswer(f"{request.base_url}download_file/{quote(token)}"))

    async def download_file(self, request: Request) -> Response:
        file = self.shelf.get(request.path_params["name"])
        if file is None:
            raise RefusedError(404, "Invalid request: the file does not exist or has been deleted")
        name, content = file
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Cache-Control": "no-store"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def suggest(self, request: Request) -> Response:
        await self.read(request, SuggestRequest)
        raise RefusedError(403, "Suggestions are disabled on this server.")

    async def settings(self, _request: Request) -> Response:
        target = next((each.target for each in self.translating.models.directions), "en")
        return JSONResponse(
            {
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "apiKeys": self.admission.keys is not None,
                "keyRequired": self.admission.keys is not None,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": list(FORMATS),
                "uploadLimit": self.limits.upload,  # this and `look` are not in LibreTranslate: our page uses them
                "look": self.pages.paths() if self.pages else {},
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": language_codes.public(target), "name": language_codes.name(target)},
                },
            }
        )

    async def health(self, _request: Request) -> Response:
        return respond(HealthAnswer())

    # Requests

    async def read(self, request: Request, kind: type[RequestType]) -> RequestType:
        """Reads a request of this type; raises an error if the client has no valid key or exceeds its rate."""
        values = await read_values(request, self.limits)
        key = values.get("api_key") or bearer(request)
        request.state.client = self.admission.admit(request.state.client, key)
        return convert_values(values, kind)

    def call(self, request: Request, options: dict[str, Any]) -> TranslationCall:
        return TranslationCall(request.state.client, time.monotonic() + self.limits.answering, options)

    def texts_of(self, asked: TranslateRequest | DetectRequest) -> list[str]:
        """Returns the texts of a request; raises an error if they are too many or too long."""
        texts = asked.q if isinstance(asked.q, list) else [asked.q]
        for amount, limit in ((len(texts), self.limits.batch), (sum(map(len, texts)), self.limits.characters)):
            if 0 <= limit < amount:
                raise RefusedError(400, f"Invalid request: request ({amount}) exceeds text limit ({limit})")
        return texts

    def steps(self, source: str, target: str) -> list[Direction]:
        """Returns the directions of a translation, two if it has a pivot language, none if both languages are equal."""
        start, end = (language_codes.find(code, self.translating.languages) for code in (source, target))
        if start is None or end is None:
            raise RefusedError(400, f"{(source if start is None else target)[:100]} is not supported")
        steps = self.translating.steps(start, end) if start != end else []
        if not steps and start != end:
            names = [f"{language_codes.name(code)} ({language_codes.public(code)})" for code in (end, start)]
            raise RefusedError(400, f"{names[0]} is not available as a target language from {names[1]}")
        return steps

    def is_weblate_probe(self, asked: TranslateRequest) -> bool:
        """Reports whether this is the test request of Weblate and the server has no English-German model."""
        if not self.weblate_probe or (asked.source, asked.target) != ("en", "de"):
            return False
        ends = [language_codes.find(code, self.translating.languages) or "" for code in ("en", "de")]
        return asked.q in (WEBLATE_PROBE, [WEBLATE_PROBE]) and not self.translating.steps(*ends)

    async def detect_source(self, texts: Sequence[str], target: str, *, html: bool = False) -> Detected:
        """Returns the most probable language of the texts, among the languages that can be translated into `target`."""
        known, text = self.translating, "\n".join(texts)
        end = language_codes.find(target, known.languages)
        sources = [code for code in known.languages if end is not None and (code == end or known.steps(code, end))]
        text = re.sub(r"<[^<>]*>", " ", text) if html else text
        return (await detect_languages(text, sources or known.sources))[0]


async def detect_languages(text: str, among: Sequence[str]) -> list[Detected]:
    """Returns the possible languages of a text, most probable first; English or the first known if none is possible."""
    found = [each for each in await asyncio.to_thread(detect, text, among) if each[1] > 0]
    if not found:
        default = among[0] if among else "en"
        found = [(language_codes.find("en", among) or default, 0.0)]
    return [Detected(confidence, language_codes.public(code)) for code, confidence in found]


def make_answer(answers: Sequence[Answer], detected: Detected | None, asked: TranslateRequest) -> TranslateAnswer:
    """Returns the answer to a request, with lists if the request contains a list of texts."""
    several = isinstance(asked.q, list)
    translations = [each.translation for each in answers]

    def field(values: list[Any], wanted: object = True) -> Any:
        return UNSET if not wanted else values if several else values[0]

    return TranslateAnswer(
        field([each.text for each in answers]),
        detectedLanguage=field([detected] * len(answers), detected),
        alternatives=field([list(each.alternatives[: asked.alternatives]) for each in answers], asked.alternatives),
        scores=field([each.score if each else None for each in translations], asked.scores),
        confidence=field([each.confidence if each else None for each in translations], asked.scores),
        alignment=field(list(map(alignment, answers)), asked.alignment),
        glossary=field([list(each.glossary) if each else [] for each in translations], asked.glossary),
        flags=field([list(each.flags) for each in answers], asked.flags),
    )


def alignment(answer: Answer) -> dict[str, Any] | None:
    """Returns the tokens, and the attention of each translated token to each source token."""
    translation = answer.translation
    if translation is None or not translation.alignment:
        return None
    weights = [[round(weight, 4) for weight in row] for row in translation.alignment]
    return {"source": list(translation.source_tokens), "target": list(translation.tokens), "weights": weights}
