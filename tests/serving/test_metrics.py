"""Metrics: what Prometheus reads is what has happened."""

from __future__ import annotations

import re
from pathlib import Path

from starlette.testclient import TestClient

from regard.serving.application import create_app
from regard.serving.client_limits import KeyFile, make_key
from tests.serving.fakes import FakeModels


def test_requests_times_and_queues_are_counted() -> None:
    app = create_app(FakeModels("en-de", "de-en"), metrics=True)
    with TestClient(app, base_url="http://localhost") as client:
        for text in ("one", "two"):
            client.post("/translate", json={"q": text, "source": "en", "target": "de"})
        client.post("/translate", json={})
        client.get("/nowhere/1")
        client.get("/nowhere/2")
        answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    values = dict(line.rsplit(" ", 1) for line in answer.text.splitlines() if not line.startswith("#"))
    assert values['regard_requests_total{path="/translate",method="POST",status="200"}'] == "2"
    assert values['regard_requests_total{path="/translate",method="POST",status="400"}'] == "1"
    assert values['regard_requests_total{path="other",method="GET",status="404"}'] == "2"
    assert values["regard_characters_total"] == "6"
    assert values['regard_request_seconds_bucket{path="/translate",le="+Inf"}'] == "3"
    assert values['regard_request_seconds_count{path="/translate"}'] == "3"
    assert values['regard_waiting{model="en-de"}'] == "0"
    assert values['regard_scheduler_texts_total{model="de-en"}'] == "0"
    for line in answer.text.splitlines():
        assert re.fullmatch(r'# .*|[a-z_]+(\{([a-z]+="[^"\n]*",?)+\})? [\d.e+-]+', line), line


def test_metrics_need_a_flag_and_a_key(tmp_path: Path) -> None:
    with TestClient(create_app(FakeModels("en-de")), base_url="http://localhost") as client:
        assert client.get("/metrics").status_code == 404
    key = make_key(tmp_path / "keys")
    app = create_app(FakeModels("en-de"), keys=KeyFile(tmp_path / "keys"), metrics=True)
    with TestClient(app, base_url="http://localhost") as client:
        assert client.get("/metrics").status_code == 400
        assert client.get("/metrics", headers={"Authorization": f"Bearer {key}"}).status_code == 200
