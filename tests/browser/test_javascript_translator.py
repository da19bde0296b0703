"""The translator in JavaScript cuts, searches and joins as the one in Python, with tags of languages and slots too."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from regard.browser import compile_engine
from regard.decoding.native.compiled_library import PackedModel
from regard.decoding.native.native_search import NativeSearch
from regard.decoding.translator import Translator
from regard.interop.page import packed_model, page_settings
from regard.preparation.chosen_settings import resolve
from regard.settings import Settings, TokenizerSettings
from regard.tokens.placeholder_slots import SLOTS
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, build_model
from tests.browser.models import SHAPE
from tests.browser.node import run

SCRIPT = """
import { Translator } from "./translator.js";
const bytes = (text) => new Uint8Array(Buffer.from(text, "base64"));
const wasm = readFileSync(data.wasm), model = bytes(data.model);
const translator = await Translator.create(wasm, model, data.settings, data.vocabularies);
const last = (text, into) => [...translator.translate(text, into)].at(-1) ?? "";
result = data.texts.map(([text, into]) => last(text, into));
"""
LINES = ["A dog runs.", "The cat sees two dogs, and sleeps.", "", "漢字。かな", "x y z " * 40, "\ta\tb  ", "dogs " * 7]


def contents(settings: Settings, tags: tuple[str, ...]) -> Contents:
    """Returns an untrained model, whose outputs would contain special tokens if a search allowed them."""
    tokenizer = Tokenizer.train(LINES * 5, TokenizerSettings(vocabulary=400, tags=tags))
    vocabularies = Vocabularies(tokenizer, tokenizer)
    torch.manual_seed(2)
    model = build_model(settings, vocabularies).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5)
            if len(parameter) == tokenizer.size:
                parameter[[0, 1, 3, 4]] *= 6.0
    return Contents(settings, vocabularies, model)


@pytest.mark.parametrize(
    ("tags", "directions"), [((), ()), (("de", "fr"), ("en-de", "en-fr")), (SLOTS, ())], ids=["plain", "tags", "slots"]
)
def test_translations_are_those_of_python(tags: tuple[str, ...], directions: tuple[str, ...], tmp_path: Path) -> None:
    settings = resolve({"task": "translate", "model": {**SHAPE, "max_length": 40}})
    data = replace(settings.data, source="en", target="de", directions=directions)
    found = contents(replace(settings, data=data), tags)
    packed = packed_model(found)
    (tmp_path / "packed").write_bytes(packed)
    search = NativeSearch(PackedModel(tmp_path / "packed"), found.vocabularies.target.specials, longest=40, threads=1)
    translator = Translator(found.settings, found.vocabularies, search)
    targets = ["de", "fr"] if directions else ["de"]
    texts = [(text, into) for text in [*LINES, "\n\n".join(LINES) + "\n", "\r\n".join(LINES)] for into in targets]
    given = {
        "wasm": str(compile_engine.ENGINE),
        "model": base64.b64encode(packed).decode(),
        "settings": page_settings("test", found.settings),
        "vocabularies": json.loads(found.vocabularies.to_json()),
        "texts": texts,
    }
    expected = [translator(text, target=into) for text, into in texts]
    assert run(SCRIPT, given, tmp_path) == expected
    assert len(set(expected)) > 5
