"""The OpenAPI document: any request that it allows, and many that it does not, is answered, and as it says."""

from __future__ import annotations

from typing import Any

import schemathesis
from hypothesis import HealthCheck
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from regard.decoding.reader import Embedder
from regard.decoding.reference import writer_of
from regard.serving.app import create_app
from tests.examples import examples

from ..decoding.toys import toy
from .fakes import FakeModels

MODELS = FakeModels(
    *("en-de", "de-en"),
    writers={"gpt": writer_of(toy("write"))},
    embedders={"bert": Embedder(toy("embed", tie="none"))},
)
APP = create_app(MODELS)
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
SCHEMA = schemathesis.openapi.from_asgi("/spec", APP)


@SCHEMA.parametrize()
@examples(12, suppress_health_check=list(HealthCheck))
def test_no_request_makes_the_server_fail(case: schemathesis.Case[Any]) -> None:
    response = case.call()
    case.validate_response(response, checks=CHECKS)
