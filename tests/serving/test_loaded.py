"""Folders of all tasks served side by side, each in the interface that it is for."""

from __future__ import annotations

from pathlib import Path

import pytest
from starlette.testclient import TestClient

from regard.decoding.engine import load
from regard.demo.glass import GLASS
from regard.errors import InputError, ModelError
from regard.folder import SETTINGS, TOKENIZER, WEIGHTS, write_text
from regard.options import dump
from regard.serving.app import create_app
from regard.serving.loaded import Loaded
from regard.weights import Contents, parameters, write_tensors

from ..decoding.toys import toy


def write_folder(folder: Path, contents: Contents) -> None:
    write_text(folder / SETTINGS, dump(contents.settings))
    write_text(folder / TOKENIZER, contents.vocabularies.to_json())
    write_tensors(folder / WEIGHTS, parameters(contents.model))


def test_folders_are_served_by_their_tasks(tmp_path: Path) -> None:
    write_folder(tmp_path / "gpt", toy("write"))
    write_folder(tmp_path / "bert", toy("fill"))
    models = Loaded.load([str(GLASS), str(tmp_path / "gpt"), str(tmp_path / "bert")])
    assert models.names == ["en → fr", "gpt", "bert"]
    app = create_app(models, writers=models.writers, embedders=models.embedders)
    with TestClient(app, base_url="http://localhost") as client:
        made = client.post("/translate", json={"q": "The bear is happy.", "source": "en", "target": "fr"}).json()
        assert made["translatedText"] == load(GLASS)("The bear is happy.")
        asked = {"model": "gpt", "prompt": "A dog", "max_tokens": 3, "temperature": 0}
        written = client.post("/v1/completions", json=asked).json()["choices"][0]["text"]
        assert written == load(tmp_path / "gpt")("A dog", max_tokens=3, temperature=0.0, beam=1)
        vectors = client.post("/v1/embeddings", json={"model": "bert", "input": "A dog"}).json()["data"]
        assert len(vectors[0]["embedding"]) == 16
    with pytest.raises(InputError, match="called gpt too"):
        Loaded.load([str(tmp_path / "gpt"), str(tmp_path / "gpt")])
    with pytest.raises(ModelError):
        Loaded.load([str(tmp_path / "none")])
