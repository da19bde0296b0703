"""The OpenAPI document: any request that it allows, and many that it does not, is answered, and as it says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from starlette.testclient import TestClient

from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.pytorch_engine import writer_of
from regard.serving.application import create_app
from regard.serving.openapi import document
from tests.decoding.toys import toy
from tests.examples import examples
from tests.serving.fakes import FakeModels

MODELS = FakeModels(
    *("en-de", "de-en"),
    writers={"gpt": writer_of(toy("write", max_length=64))},
    encoders={
        "bert": Embedder(toy("embed", tie="none")),
        "gaps": Filler(toy("fill")),
        "texts": Classifier(toy("classify", data={"labels": ["good", "bad"]})),
        "words": Classifier(toy("classify", data={"labels": ["O", "B-x"], "carrier": "word"})),
    },
)
APP = create_app(MODELS)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_asgi("/spec", APP)


def beyond(field: dict[str, Any]) -> Iterator[Any]:
    """Values that a field must not have."""
    for each in field.get("anyOf", [field]):
        if "maximum" in each:
            yield from (each["maximum"] + 1, float("nan"))
        if "minimum" in each:
            yield each["minimum"] - 1
        if "maxItems" in each:
            yield ["a"] * (each["maxItems"] + 1)
        if "enum" in each:
            yield "something else"
        if each.get("type") in ("boolean", "integer", "number"):
            yield "a text"
    yield {"an": ["object"]}


ENCODERS = {
    "/v1/embeddings": "bert",
    "/fill-mask": "gaps",
    "/text-classification": "texts",
    "/token-classification": "words",
}


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/translate", "/detect", *ENCODERS])
def test_values_that_the_document_forbids_are_refused(path: str) -> None:
    """Each field of the types in the document, a step beyond each of its bounds."""
    found = document()
    content = found["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    fields = found["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]["properties"]
    right: dict[str, Any] = {"prompt": "a", "input": "a", "inputs": "[MASK]", "q": "a", "source": "en", "target": "de"}
    right["model"] = ENCODERS.get(path, "gpt")
    right = {name: value for name, value in right.items() if name in fields}
    if "messages" in fields:
        right["messages"] = [{"role": "user", "content": "a"}]
    with TestClient(APP, base_url="http://localhost") as client:
        assert client.post(path, json=right).status_code == 200
        for name, field in fields.items():
            for value in beyond(field):
                if name in ("glossary", "stream_options", "response_format") and value == {"an": ["object"]}:
                    continue
                body = json.dumps({**right, name: value})
                answer = client.post(path, content=body, headers={"Content-Type": "application/json"})
                assert answer.status_code == 400, (name, value)
                assert name in answer.text or "NaN" in body, (name, value)


@SCHEMA.parametrize()
@examples(12, suppress_health_check=list(HealthCheck))
def test_no_request_makes_the_server_fail(case: schemathesis.Case[Any]) -> None:
    response = case.call()
    case.validate_response(response, checks=CHECKS)
