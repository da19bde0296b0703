"""The files of the page: what is given out, with which rights, and whether its words are complete."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from regard.serving.application import create_app
from regard.serving.translation_page import PAGE
from tests.serving.fakes import FakeModels

CODE = {path.name: path.read_text(encoding="utf-8") for path in PAGE.iterdir()}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(create_app(FakeModels("en-de"))) as client:
        yield client


def test_the_page_loads_its_own_files_and_nothing_else(client: TestClient) -> None:
    answer = client.get("/")
    policy = answer.headers["content-security-policy"]
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "require-trusted-types-for 'script'" in policy
    named = re.findall(r'(?:href|src)="([^"]+)"', answer.text)
    assert {name for name in named if name.startswith("static/")} == set(named) - {"docs"}
    for name in named:
        assert client.get(f"/{name}").status_code == 200, name
    for name, code in CODE.items():
        assert set(re.findall(r"https?://[\w./]+", code)) <= {"http://www.w3.org/2000/svg"}, name


@pytest.mark.parametrize(
    "name", ["page.py", "../page.py", "..%2fpage.py", "%2e%2e/page.py", "/etc/passwd", "a\0b", "", "x" * 5000]
)
def test_no_path_leads_out_of_the_folder(client: TestClient, name: str) -> None:
    assert client.get(f"/static/{name.replace(chr(0), '%00')}").status_code == 404


def test_every_word_is_in_both_tables_and_used() -> None:
    english, chinese = (
        dict(re.findall(r'^  (\w+): "(.*)",$', CODE[f"strings.{name}.js"], re.M)) for name in ("en", "zh")
    )
    assert list(english) == list(chinese)
    for key, words in english.items():
        assert sorted(re.findall(r"\{\w+\}", words)) == sorted(re.findall(r"\{\w+\}", chinese[key])), key
    used = set(re.findall(r'data-(?:t|label|placeholder)="(\w+)"', CODE["index.html"]))
    for name, code in CODE.items():
        if name.endswith(".js") and not name.startswith("strings."):
            used |= {
                word
                for call in re.findall(r"\bt\(((?:[^(){},]|\([^()]*\))*)", code)
                for word in re.findall(r'"(\w+)"', call)
            }
    assert used - {"true"} == set(english) - {"title"}


def test_texts_never_become_markup() -> None:
    for name, code in CODE.items():
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b", code), name
    assert not re.search(r"\son\w+=|<style|style=|<script(?![^>]*src)", CODE["index.html"])
