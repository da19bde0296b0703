"""The explorer beside the translation page: what it shows, whom it answers, and what it cannot be made to cost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from regard.demo import GLASS
from regard.explorer.model_explorer import Explorer
from regard.serving import explorer_pages
from regard.serving.application import create_app
from regard.serving.client_limits import Admission, Deadlines, ServingLimits
from regard.serving.explorer_pages import ExplorerPages
from regard.serving.served_models import Models
from regard.tokens.language_directions import Direction
from tests.serving.running import running

TIRED = "The animal didn't cross the street because it was too tired."
FRENCH = "L'animal n'a pas traversé la rue parce qu'il était trop fatigué."


@pytest.fixture
def models() -> Models:
    return Models([GLASS])


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(Models([GLASS]), look=True, hosts=["testserver"])) as client:
        yield client


def test_a_translation_can_be_looked_into(client: TestClient) -> None:
    assert client.get("/frontend/settings").json()["look"] == {"en": {"fr": "look/en-fr/"}}
    page = client.get("/look/en-fr/")
    assert "explorer-app.js" in page.text
    assert "script-src 'self' 'sha256-" in page.headers["content-security-policy"]
    assert page.headers["x-frame-options"] == "DENY"
    assert client.get("/look/en-fr/static/explorer-app.js").status_code == 200
    run = client.post("/look/en-fr/api/run", json={"text": TIRED}).json()
    assert (
        run["text"]
        == FRENCH
        == client.post("/translate", json={"q": TIRED, "source": "en", "target": "fr"}).json()["translatedText"]
    )
    assert client.get(f"/look/en-fr/api/run/{run['run']}/tensors?names=logits").status_code == 200


def test_it_shows_neither_paths_nor_training_texts(client: TestClient) -> None:
    about = client.get("/look/en-fr/api/model").json()
    assert (about["path"], about["checkpoints"]) == (None, [])
    assert about["examples"] == [TIRED]  # Regard's own
    asked = {"text": TIRED, "checkpoint": "step-00000800"}
    assert client.post("/look/en-fr/api/run", json=asked).status_code == 404
    assert client.get("/look/en-fr/api/embeddings/map?side=source").json()["texts"] is None


def test_it_is_off_unless_the_operator_turns_it_on(models: Models) -> None:
    with TestClient(create_app(models)) as client:
        assert client.get("/frontend/settings").json()["look"] == {}
        assert client.get("/look/en-fr/").status_code == 404


@pytest.mark.parametrize("path", ["/look/en-de/", "/look/..%2f..%2fetc/", "/look/en-fr/static/..%2f..%2fhttp_api.py"])
def test_no_other_path_leads_anywhere(client: TestClient, path: str) -> None:
    assert client.get(path).status_code == 404


def test_other_names_and_pages_of_other_origins_are_refused(client: TestClient) -> None:
    assert client.get("/look/en-fr/", headers={"host": "evil.example"}).status_code == 400
    for headers in ({"origin": "http://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert client.post("/look/en-fr/api/run", headers=headers, json={"text": TIRED}).status_code == 403
    assert client.get("/look/en-fr/", headers={"sec-fetch-site": "cross-site"}).status_code == 200  # a link from there
    assert client.get("/look/en-fr/api/model", headers={"sec-fetch-site": "cross-site"}).status_code == 403


def test_pages_of_other_origins_are_refused_even_where_they_may_translate(models: Models) -> None:
    headers = {"origin": "http://evil.example", "sec-fetch-site": "cross-site"}
    with TestClient(create_app(models, look=True, origin="*")) as client:
        asked = {"q": TIRED, "source": "en", "target": "fr"}
        assert client.post("/translate", json=asked, headers=headers).status_code == 200
        assert client.post("/look/en-fr/api/run", json={"text": TIRED}, headers=headers).status_code == 403


def test_runs_count_towards_the_rate_and_files_do_not(models: Models) -> None:
    with TestClient(create_app(models, ServingLimits(rate=2), look=True)) as client:
        assert [client.get("/look/en-fr/static/style.css").status_code for _ in range(5)] == [200] * 5
        codes = [client.post("/look/en-fr/api/run", json={"text": TIRED}).status_code for _ in range(3)]
        assert codes == [200, 200, 429]


def test_places_are_few_and_translations_need_none_of_them(models: Models, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explorer_pages, "PLACES_EACH", 0)
    with TestClient(create_app(models, look=True)) as client:
        assert client.get("/look/en-fr/api/model").status_code == 429
        assert client.post("/translate", json={"q": TIRED, "source": "en", "target": "fr"}).status_code == 200


def test_a_slow_run_ends_at_the_deadline_and_what_waited_for_it_is_never_run(
    models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    hold, begun, texts = threading.Event(), threading.Event(), []
    usual = Explorer.run

    def run(self: Explorer, fields: Any) -> Any:
        texts.append(fields["text"])
        begun.set()
        hold.wait(60)
        return usual(self, fields)

    monkeypatch.setattr(Explorer, "run", run)
    app = create_app(models, ServingLimits(answering=5.0), look=True)
    with running(app) as address, httpx.Client(base_url=address, timeout=60) as client:
        client.get("look/en-fr/api/health")  # opens the model
        codes: list[int] = []

        def ask(text: str) -> None:
            codes.append(httpx.post(f"{address}look/en-fr/api/run", json={"text": text}, timeout=60).status_code)

        first = threading.Thread(target=ask, args=("first",))
        first.start()
        assert begun.wait(30)
        others = [threading.Thread(target=ask, args=(f"other {i}",)) for i in range(3)]
        for each in others:
            each.start()
        assert client.post("translate", json={"q": TIRED, "source": "en", "target": "fr"}).status_code == 200
        for each in (first, *others):
            each.join(60)
        assert codes == [504] * 4
        hold.set()
        assert client.post("look/en-fr/api/run", json={"text": TIRED}).status_code == 200
    assert texts == ["first", TIRED]


def test_a_changed_model_is_opened_again(models: Models) -> None:
    async def check() -> None:
        pages = ExplorerPages(models, Admission(ServingLimits()), Deadlines())
        direction = Direction("en", "fr")
        before = await pages._find(direction)
        assert await pages._find(direction) is before
        (served,) = models.served
        models._served[served.name] = replace(served)
        try:
            assert await pages._find(direction) is not before
        finally:
            models._served[served.name] = served

    asyncio.run(check())
