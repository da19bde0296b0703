"""LibreTranslate's interface: what Weblate, Mastodon and its own clients ask, answered in its words."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import BaseRoute, Route

from regard.errors import DataError
from regard.serving import languages
from regard.serving.detection import detect
from regard.serving.limits import Admission, Limits
from regard.serving.reading import (
    Upload,
    bearer,
    glossary_of,
    is_true,
    read_values,
    required,
    texts_of,
    whole_number,
)
from regard.serving.refusals import RefusedError
from regard.serving.specification import page, specification
from regard.serving.translation import Answer, Asked, Translating
from regard.serving.uploads import Shelf
from regard.text.directions import Direction
from regard.text.formats import files

STYLED = "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
UNDETECTED = 0.0
PROBE = "test"
"""What Weblate has translated from English into German before it takes a server."""


class LibreTranslate:
    """The answers of one server."""

    def __init__(
        self,
        translating: Translating,
        limits: Limits,
        admission: Admission,
        *,
        weblate_probe: bool = False,
        files: Path | None = None,
    ) -> None:
        """`files` is a folder for translated files that servers share."""
        self.translating, self.limits, self.weblate_probe = translating, limits, weblate_probe
        self.admission = admission
        self.shelf = Shelf(limits.uploads, limits.kept, files)

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
        texts, several = texts_of(values)
        source, target = required(values, "source"), required(values, "target")
        alternatives = whole_number(values.get("alternatives") or 0, "alternatives", self.limits.alternatives)
        self.within(len(texts), self.limits.batch)
        self.within(sum(map(len, texts)), self.limits.characters)
        form = values.get("format") or "text"
        if form not in ("text", "html"):
            raise RefusedError(400, f"{str(form)[:100]} format is not supported")
        if self.weblate_probe and self.is_probe(texts, source, target):
            return JSONResponse({"translatedText": texts if several else texts[0]})
        detected = self.detected(texts, target, html=form == "html") if source == "auto" else None
        way, same = self.way(detected["language"] if detected else source, target)
        options: dict[str, Any] = {"alternatives": alternatives} if alternatives and form == "text" else {}
        if is_true(values.get("alignment")):
            options["alignment"] = True
        if way and (glossary := glossary_of(values, way[-1].source, way[-1].target)):
            options["glossary"] = glossary
        asked = Asked(client, time.monotonic() + self.limits.answering, tuple(options.items()))
        if same:
            answers = [Answer(text) for text in texts]
        else:
            work = self.translating.pages if form == "html" else self.translating.texts
            answers = await work(texts, way, asked)
        request.state.details.update(texts=len(texts), characters=sum(map(len, texts)))
        return JSONResponse(answered(answers, detected, alternatives, values, several=several))

    async def detect(self, request: Request) -> Response:
        values = await read_values(request, self.limits)
        self.admit(request, values)
        texts, _ = texts_of(values)
        self.within(len(texts), self.limits.batch)
        self.within(sum(map(len, texts)), self.limits.characters)
        found = [each for text in texts for each in self.likeliest(text, self.translating.languages)[:3]]
        return JSONResponse(found)

    async def languages(self, _request: Request) -> Response:
        known = self.translating
        told = [
            {
                "code": languages.public(code),
                "name": languages.name(code),
                "targets": sorted(map(languages.public, {*known.targets(code), code})),
            }
            for code in known.languages
        ]
        return JSONResponse(sorted(told, key=lambda each: (each["code"] != "en", str(each["name"]))))

    async def translate_file(self, request: Request) -> Response:
        values = await read_values(request, self.limits)
        client = self.admit(request, values)
        file = values.get("file")
        if not isinstance(file, Upload):
            raise RefusedError(400, "Invalid request: missing file parameter")
        source, target = required(values, "source"), required(values, "target")
        suffix = PurePosixPath(file.name).suffix.lower()
        if suffix not in FORMATS:
            raise RefusedError(400, "Invalid request: file format not supported")
        path = self.shelf.fresh(suffix)
        try:
            await asyncio.to_thread(path.write_bytes, file.content)
            made, target = await self.fill(path, source, target, client)
        except DataError as error:
            raise RefusedError(400, f"Invalid request: {str(error).replace(str(path), file.name)}") from None
        finally:
            path.unlink(missing_ok=True)
        stem = re.sub(r"[^\w.-]+", "_", PurePosixPath(file.name).stem)[:100]
        token = self.shelf.put(made, f"{stem}_{target}{suffix}")
        return JSONResponse({"translatedFileUrl": f"{request.base_url}download_file/{quote(token)}"})

    async def fill(self, path: Path, source: str, target: str, client: str) -> tuple[bytes, str]:
        """A document with its translations, and the language of them."""
        if source == "auto":
            document = await asyncio.to_thread(files.open_document, path)
            sample = [unit.source for unit in document.units[:50]]
            source = self.detected(sample, target)["language"] if sample else required({}, "source")
        way, same = self.way(source, target)
        if same:
            return path.read_bytes(), languages.public(source)
        return await self.translating.document(path, way, Asked(client)), languages.public(way[-1].target)

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
        first = languages.public(targets[0]) if targets else "en"
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
                    "target": {"code": first, "name": languages.name(first)},
                },
            }
        )

    async def health(self, _request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def spec(self, _request: Request) -> Response:
        return JSONResponse(specification(list(map(languages.public, self.translating.languages))))

    async def docs(self, _request: Request) -> Response:
        text = page(specification(list(map(languages.public, self.translating.languages))))
        return HTMLResponse(text, headers={"Content-Security-Policy": STYLED})

    # What is allowed

    def admit(self, request: Request, values: Mapping[str, Any]) -> str:
        """Who asks: a key or an address; one without a key where that is needed, or too often, is refused."""
        client = self.admission.admit(request.state.client, values.get("api_key") or bearer(request))
        request.state.client = client
        return client

    def within(self, amount: int, limit: int) -> None:
        if 0 <= limit < amount:
            raise RefusedError(400, f"Invalid request: request ({amount}) exceeds text limit ({limit})")

    def way(self, source: str, target: str) -> tuple[list[Direction], bool]:
        """The steps from one language to another, and whether they are the same."""
        known = self.translating
        found = [languages.find(code, known.languages) for code in (source, target)]
        for code, each in zip((source, target), found, strict=True):
            if each is None:
                raise RefusedError(400, f"{code[:100]} is not supported")
        start, end = map(str, found)
        way = known.way(start, end)
        if not way and start != end:
            names = [f"{languages.name(code)} ({languages.public(code)})" for code in (end, start)]
            raise RefusedError(400, f"{names[0]} is not available as a target language from {names[1]}")
        return way, start == end

    def is_probe(self, texts: Sequence[str], source: str, target: str) -> bool:
        """Whether Weblate asks if there is anybody, in a direction that is not served."""
        known = self.translating.languages
        ends = [languages.find(code, known) for code in ("en", "de")]
        served = None not in ends and self.translating.way(*map(str, ends))
        return list(texts) == [PROBE] and (source, target) == ("en", "de") and not served

    # Which language

    def detected(self, texts: Sequence[str], target: str, *, html: bool = False) -> dict[str, Any]:
        """The likeliest language of some texts together that can be translated into `target`."""
        known, text = self.translating, "\n".join(texts)
        end = languages.find(target, known.languages)
        fitting = [code for code in known.languages if end is not None and (code == end or known.way(code, end))]
        return self.likeliest(re.sub(r"<[^<>]*>", " ", text) if html else text, fitting or known.sources)[0]

    def likeliest(self, text: str, among: Sequence[str]) -> list[dict[str, Any]]:
        found = [(code, trust) for code, trust in detect(text, among) if trust > 0]
        if not found:
            english = languages.find("en", among)
            found = [(english or (among[0] if among else "en"), UNDETECTED)]
        return [{"confidence": trust, "language": languages.public(code)} for code, trust in found]


UNFIT = (".mo", ".pot")  # compiled, and templates
FORMATS = tuple(sorted(suffix for suffix in {**files.PAIRED, **files.ALONE, ".txt": ""} if suffix not in UNFIT))
"""The files that can be translated, by how their names end."""


def answered(
    answers: Sequence[Answer],
    detected: dict[str, Any] | None,
    alternatives: int,
    values: Mapping[str, Any],
    *,
    several: bool,
) -> dict[str, Any]:
    """What a translation is answered with: lists if a list was asked for."""
    found: dict[str, list[Any]] = {"translatedText": [each.text for each in answers]}
    if detected is not None:
        found["detectedLanguage"] = [detected] * len(answers)
    if alternatives:
        found["alternatives"] = [list(each.alternatives[:alternatives]) for each in answers]
    if is_true(values.get("scores")):
        found["scores"] = [each.translation.score if each.translation else None for each in answers]
        found["confidence"] = [each.translation.confidence if each.translation else None for each in answers]
    if is_true(values.get("alignment")):
        found["alignment"] = [alignment(each) for each in answers]
    if values.get("glossary"):
        found["glossary"] = [
            [asdict(term) for term in each.translation.glossary] if each.translation else [] for each in answers
        ]
    if is_true(values.get("flags")):
        found["flags"] = [list(each.flags) for each in answers]
    return {name: value if several else value[0] for name, value in found.items()}


def alignment(answer: Answer) -> dict[str, Any] | None:
    """What each token of a translation has looked at in the source."""
    found = answer.translation
    if found is None or not found.alignment:
        return None
    weights = [[round(weight, 4) for weight in row] for row in found.alignment]
    return {"source": list(found.source_tokens), "target": list(found.tokens), "weights": weights}
