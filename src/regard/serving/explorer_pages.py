"""Serves the explorer of each translation model under /look/{direction}/, linked from the translation page.

A run costs more than a translation, and PyTorch has to load each model a second time. Therefore, the explorer is off by
default, and its requests are limited in number, count towards the rate, and run one at a time for each model.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.routing import BaseRoute, Mount
from starlette.types import ASGIApp, Receive, Scope, Send

from regard.serving import language_codes
from regard.serving.client_limits import Admission, Deadlines, Places, bearer
from regard.serving.refusals import RefusedError
from regard.serving.served_models import Models, ServedModel
from regard.tokens.language_directions import Direction

PLACES, PLACES_EACH = 24, 8
"""Maximum number of concurrent requests to explorers, in total and per address; a browser sends six at once."""
RUNS = 4
"""Number of runs that each explorer keeps with all their tensors."""


@dataclass(frozen=True)
class OpenExplorer:
    """An open explorer, and the state of the model when it was opened."""

    served: ServedModel
    app: ASGIApp


class ExplorerPages:
    """Opens an explorer for each direction on its first request, and again when the model has changed.

    It shows the model and what it computes, but no path, no checkpoint and no training text of its folder.
    """

    def __init__(self, models: Models, admission: Admission, deadlines: Deadlines) -> None:
        self.models, self.admission, self.deadlines = models, admission, deadlines
        self.device = models.options.get("device", "auto")
        self.places = Places(PLACES, PLACES_EACH)
        self.opening = asyncio.Lock()
        self._open: dict[Direction, OpenExplorer] = {}

    def routes(self) -> list[BaseRoute]:
        return [Mount("/look/{direction}", app=self)]

    def paths(self) -> dict[str, dict[str, str]]:
        """Returns the path of each explorer, keyed by the source and target language codes that clients use."""
        found: dict[str, dict[str, str]] = {}
        for each in self._served():
            pair = language_codes.public(each.source), language_codes.public(each.target)
            found.setdefault(pair[0], {})[pair[1]] = f"look/{name_of(each)}/"
        return found

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards a request to an explorer, unless its client exceeds the rate or the limit of concurrent requests."""
        if scope["type"] != "http":
            raise RefusedError(404, "Not Found")
        request = Request(scope)
        direction = next((each for each in self._served() if name_of(each) == scope["path_params"]["direction"]), None)
        if direction is None:
            raise RefusedError(404, "Not Found")
        with self.places.take(request.state.client):
            if request.method == "POST":
                self.admission.admit(request.state.client, bearer(request))
            async with self.deadlines.until(time.monotonic() + self.admission.limits.answering):
                app = await self._find(direction)
                await app(dict(scope), receive, send)

    def _served(self) -> dict[Direction, ServedModel]:
        return {direction: each for each in reversed(self.models.served) for direction in each.directions}

    async def _find(self, direction: Direction) -> ASGIApp:
        """Returns the explorer of a direction, and opens it if it does not exist or the model has changed."""
        async with self.opening:
            served, known = self._served()[direction], self._open.get(direction)
            if known is None or known.served is not served:
                known = OpenExplorer(served, await asyncio.to_thread(self._explore, served, direction))
                self._open[direction] = known
            return known.app

    def _explore(self, served: ServedModel, direction: Direction) -> ASGIApp:
        from regard.explorer.http_api import create_app
        from regard.explorer.model_explorer import Explorer
        from regard.weights import choose_device, read_folder

        contents: Any = read_folder(served.folder, choose_device(self.device))
        explorer = Explorer(contents, served.name, direction=direction, kept=RUNS)
        return create_app(explorer, hosts=None)


def name_of(direction: Direction) -> str:
    """Returns the name of a direction in URLs, such as "en-de"."""
    return f"{direction.source}-{direction.target}"
