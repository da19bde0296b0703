"""LibreTranslate's interface, for Weblate, Mastodon and its own clients."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec
from msgspec import UNSET
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import DataError
from regard.faithful.glossary import Glossary, Term
from regard.files.formats import format_by_suffix as files
from regard.serving import language_codes
from regard.serving.client_limits import Admission, ServingLimits
from regard.serving.file_shelf import FileShelf
from regard.serving.language_detection import detect
from regard.serving.openapi import document, page
from regard.serving.refusals import RefusedError
from regard.serving.request_bodies import Upload, bearer, convert_values, read_values
from regard.serving.request_schema import (
    Detected,
    DetectRequest,
    HealthAnswer,
    Language,
    TranslateAnswer,
    TranslateFileAnswer,
    TranslateFileRequest,
    TranslateRequest,
)
from regard.serving.translation_service import Answer, TranslationCall, TranslationService
from regard.tokens.directions import Direction

STYLED = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
UNDETECTED = 0.0
PROBE = "test"
"""What Weblate has translated from English into German before it takes a server."""


class LibreTranslate:
    """Answers requests in LibreTranslate's interface."""

    def __init__(
        self,
        translating: TranslationService,
        limits: ServingLimits,
        admission: Admission,
        *,
        weblate_probe: bool = False,
        files: Path | None = None,
    ) -> None:
        """Keeps translated files in the folder `files`, which servers may share."""
        self.translating, self.limits, self.weblate_probe = translating, limits, weblate_probe
        self.admission = admission
        self.shelf = FileShelf(limits.uploads, limits.kept, files)

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
            Route("/spec", self.spec),
            Route("/docs", self.docs),
        ]

    # What is asked

    async def translate(self, request: Request) -> Response:
        values = await read_values(request, self.limits)
        client = self.admit(request, values)
        asked = convert_values(values, TranslateRequest)
        texts = self.texts_of(asked)
        if asked.alternatives > self.limits.alternatives:
            raise RefusedError(400, f"Invalid request: alternatives parameter must be <= {self.limits.alternatives}")
        if self.weblate_probe and self.is_probe(texts, asked.source, asked.target):
            return respond(TranslateAnswer(asked.q))
        html = asked.format == "html"
        detected = self.detected(texts, asked.target, html=html) if asked.source == "auto" else None
        way, same = self.way(detected.language if detected else asked.source, asked.target)
        options: dict[str, Any] = {"alternatives": asked.alternatives} if asked.alternatives and not html else {}
        if asked.alignment:
            options["alignment"] = True
        if way and asked.glossary:
            terms = [Term(term, (meaning,)) for term, meaning in asked.glossary.items()]
            options["glossary"] = Glossary(terms, way[-1].source, way[-1].target)
        job = TranslationCall(client, time.monotonic() + self.limits.answering, tuple(options.items()))
        if same:
            answers = [Answer(text) for text in texts]
        else:
            work = self.translating.pages if html else self.translating.texts
            answers = await work(texts, way, job)
        request.state.details.update(texts=len(texts), characters=sum(map(len, texts)))
        return respond(answer_of(answers, detected, asked))

    async def detect(self, request: Request) -> Response:
        values = await read_values(request, self.limits)
        self.admit(request, values)
        texts = self.texts_of(convert_values(values, DetectRequest))
        return respond([each for text in texts for each in self.likeliest(text, self.translating.languages)[:3]])

    async def languages(self, _request: Request) -> Response:
        known = self.translating
        found = [
            Language(
                language_codes.public(code),
                language_codes.name(code),
                sorted(map(language_codes.public, {*known.targets(code), code})),
            )
            for code in known.languages
        ]
        return respond(sorted(found, key=lambda each: (each.code != "en", each.name)))

    async def translate_file(self, request: Request) -> Response:
        values = await read_values(request, self.limits)
        client = self.admit(request, values)
        asked = convert_values(values, TranslateFileRequest)
        file = asked.file
        if not isinstance(file, Upload):
            raise RefusedError(400, "Invalid request: missing file parameter")
        suffix = PurePosixPath(file.name).suffix.lower()
        if suffix not in FORMATS:
            raise RefusedError(400, "Invalid request: file format not supported")
        path = self.shelf.fresh(suffix)
        try:
            await asyncio.to_thread(path.write_bytes, file.content)
            made, target = await self.fill(path, asked.source, asked.target, client)
        except DataError as error:
            raise RefusedError(400, f"Invalid request: {str(error).replace(str(path), file.name)}") from None
        finally:
            path.unlink(missing_ok=True)
        stem = re.sub(r"[^\w.-]+", "_", PurePosixPath(file.name).stem)[:100]
        token = self.shelf.put(made, f"{stem}_{target}{suffix}")
        return respond(TranslateFileAnswer(f"{request.base_url}download_file/{quote(token)}"))

    async def fill(self, path: Path, source: str, target: str, client: str) -> tuple[bytes, str]:
        """Returns a document with its translations, and their language."""
        if source == "auto":
            document = await asyncio.to_thread(files.open_document, path)
            sample = [unit.source for unit in document.units[:50]]
            if not sample:
                raise RefusedError(400, "Invalid request: missing source parameter")
            source = self.detected(sample, target).language
        way, same = self.way(source, target)
        if same:
            return path.read_bytes(), language_codes.public(source)
        return await self.translating.document(path, way, TranslationCall(client)), language_codes.public(
            way[-1].target
        )

    async def download_file(self, request: Request) -> Response:
        found = self.shelf.get(request.path_params["name"])
        if found is None:
            raise RefusedError(404, "Invalid request: no such file, or it is deleted by now")
        name, content = found
        headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name)}", "Cache-Control": "no-store"}
        return Response(content, media_type="application/octet-stream", headers=headers)

    async def suggest(self, request: Request) -> Response:
        self.admit(request, await read_values(request, self.limits))
        raise RefusedError(403, "Suggestions are disabled on this server.")

    async def settings(self, _request: Request) -> Response:
        targets = [each.target for each in self.translating.models.directions]
        first = language_codes.public(targets[0]) if targets else "en"
        return JSONResponse(
            {
                "charLimit": self.limits.characters,
                "frontendTimeout": 500,
                "apiKeys": self.admission.keys is not None,
                "keyRequired": self.admission.keys is not None,
                "suggestions": False,
                "filesTranslation": True,
                "supportedFilesFormat": list(FORMATS),
                "uploadLimit": self.limits.upload,  # for our page alone
                "language": {
                    "source": {"code": "auto", "name": "Auto Detect"},
                    "target": {"code": first, "name": language_codes.name(first)},
                },
            }
        )

    async def health(self, _request: Request) -> Response:
        return respond(HealthAnswer())

    async def spec(self, _request: Request) -> Response:
        return JSONResponse(document())

    async def docs(self, _request: Request) -> Response:
        return HTMLResponse(page(), headers={"Content-Security-Policy": STYLED})

    # What is allowed

    def admit(self, request: Request, values: Mapping[str, Any]) -> str:
        """Returns who the client is; refuses one without a needed key, or one that asks too often."""
        client = self.admission.admit(request.state.client, values.get("api_key") or bearer(request))
        request.state.client = client
        return client

    def texts_of(self, asked: TranslateRequest | DetectRequest) -> list[str]:
        """Returns the texts of a request, if they are not too many or too long."""
        texts = asked.q if isinstance(asked.q, list) else [asked.q]
        self.within(len(texts), self.limits.batch)
        self.within(sum(map(len, texts)), self.limits.characters)
        return texts

    def within(self, amount: int, limit: int) -> None:
        if 0 <= limit < amount:
            raise RefusedError(400, f"Invalid request: request ({amount}) exceeds text limit ({limit})")

    def way(self, source: str, target: str) -> tuple[list[Direction], bool]:
        """Returns the steps from one language to another, and whether these are the same language."""
        known = self.translating
        found = [language_codes.find(code, known.languages) for code in (source, target)]
        for code, each in zip((source, target), found, strict=True):
            if each is None:
                raise RefusedError(400, f"{code[:100]} is not supported")
        start, end = map(str, found)
        way = known.way(start, end)
        if not way and start != end:
            names = [f"{language_codes.name(code)} ({language_codes.public(code)})" for code in (end, start)]
            raise RefusedError(400, f"{names[0]} is not available as a target language from {names[1]}")
        return way, start == end

    def is_probe(self, texts: Sequence[str], source: str, target: str) -> bool:
        """Returns whether this is Weblate's test of the server, for a direction that is not served."""
        known = self.translating.languages
        ends = [language_codes.find(code, known) for code in ("en", "de")]
        served = None not in ends and self.translating.way(*map(str, ends))
        return list(texts) == [PROBE] and (source, target) == ("en", "de") and not served

    # Which language

    def detected(self, texts: Sequence[str], target: str, *, html: bool = False) -> Detected:
        """Returns the likeliest language of these texts among those with a way to `target`."""
        known, text = self.translating, "\n".join(texts)
        end = language_codes.find(target, known.languages)
        fitting = [code for code in known.languages if end is not None and (code == end or known.way(code, end))]
        return self.likeliest(re.sub(r"<[^<>]*>", " ", text) if html else text, fitting or known.sources)[0]

    def likeliest(self, text: str, among: Sequence[str]) -> list[Detected]:
        found = [(code, trust) for code, trust in detect(text, among) if trust > 0]
        if not found:
            english = language_codes.find("en", among)
            found = [(english or (among[0] if among else "en"), UNDETECTED)]
        return [Detected(trust, language_codes.public(code)) for code, trust in found]


UNFIT = (".mo", ".pot")  # compiled, and templates
FORMATS = tuple(sorted(suffix for suffix in {**files.PAIRED, **files.ALONE, ".txt": ""} if suffix not in UNFIT))
"""The files that can be translated, by how their names end."""


def respond(answer: Any) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def answer_of(answers: Sequence[Answer], detected: Detected | None, asked: TranslateRequest) -> TranslateAnswer:
    """Returns the answer to a request: lists if a list was asked for."""
    several = isinstance(asked.q, list)
    made = [each.translation for each in answers]

    def one_or_all(values: list[Any], wanted: object = True) -> Any:
        return UNSET if not wanted else values if several else values[0]

    return TranslateAnswer(
        one_or_all([each.text for each in answers]),
        detectedLanguage=one_or_all([detected] * len(answers), detected),
        alternatives=one_or_all(
            [list(each.alternatives[: asked.alternatives]) for each in answers], asked.alternatives
        ),
        scores=one_or_all([each.score if each else None for each in made], asked.scores),
        confidence=one_or_all([each.confidence if each else None for each in made], asked.scores),
        alignment=one_or_all(list(map(alignment, answers)), asked.alignment),
        glossary=one_or_all([list(each.glossary) if each else [] for each in made], asked.glossary),
        flags=one_or_all([list(each.flags) for each in answers], asked.flags),
    )


def alignment(answer: Answer) -> dict[str, Any] | None:
    """Returns how much each token of a translation attended to each token of the source."""
    found = answer.translation
    if found is None or not found.alignment:
        return None
    weights = [[round(weight, 4) for weight in row] for row in found.alignment]
    return {"source": list(found.source_tokens), "target": list(found.tokens), "weights": weights}
