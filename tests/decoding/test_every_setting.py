"""No setting of decoding is ignored: with another value something else is found, or a test that is named here fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.model_loading import load_as
from regard.decoding.pytorch_engine import translator_of, writer_of
from regard.decoding.translator import Translator
from regard.settings import DecodingSettings, EmbeddingSettings
from regard.settings.option_fields import options
from tests.decoding.conftest import CORPUS
from tests.decoding.toys import toy

ROOT = Path(__file__).parents[2]
TEXTS = [source for source, _ in CORPUS][:12]
TRANSLATORS = [translator_of(toy("translate", sharpness, max_length=40)) for sharpness in (0.5, 1.0)]
WRITER = writer_of(toy("write", max_length=64))
EMBEDDER = Embedder(toy("embed"))
DRAWN = {"temperature": 1.0}

OTHERS: dict[str, list[tuple[Any, Any, dict[str, Any]]]] = {
    "beam": [(1, 2, {}), (2, 3, {})],
    "length_penalty": [(0.0, 3.0, {"beam": 4, "patience": 0.0})],
    "penalty": [("google", "power", {"beam": 4, "length_penalty": 2.0, "patience": 0.0})],
    "alternatives": [(0, 1, {})],
    "alignment": [(False, True, {"beam": 1})],
    "temperature": [(0.0, 1.0, {}), (1.0, 0.3, {})],
    "top_k": [(0, 2, DRAWN)],
    "top_p": [(1.0, 0.3, DRAWN)],
    "min_p": [(0.0, 0.5, DRAWN)],
    "seed": [(0, 1, DRAWN)],
    "repetition_penalty": [(1.0, 3.0, {"beam": 1})],
    "max_ratio": [(2.0, 0.0, {"beam": 1})],
    "max_tokens": [(3, 4, {})],
    "consensus": [(0, 8, {})],
}
"""Two values each, and what else has to be so that they matter."""
ELSEWHERE = {
    "batch_tokens": "decoding/test_translator.py::test_batches_keep_to_their_budget",
    "patience": "decoding/test_every_setting.py::test_patience_finds_more_outputs",
}


def found(how: dict[str, Any]) -> list[object]:
    """What is translated and, with settings that only writers have, written."""
    if "max_tokens" in how or "repetition_penalty" in how:
        return [*WRITER.write(TEXTS[:4], **{"max_tokens": 12, **how})]
    return [each for translator in TRANSLATORS for each in translator.translate(TEXTS, **{"max_ratio": 0.5, **how})]


@pytest.mark.parametrize(
    ("setting", "number"), [(name, i) for name, cases in OTHERS.items() for i in range(len(cases))]
)
def test_another_value_finds_something_else(setting: str, number: int) -> None:
    first, other, beside = OTHERS[setting][number]
    once, again = found({**beside, setting: first}), found({**beside, setting: first})
    assert once == again
    assert once != found({**beside, setting: other})


def test_patience_finds_more_outputs(folder: Path) -> None:
    """Of a model that has learnt to end: the first output that ends is not the one that scores highest in the end."""
    translator = load_as(Translator, folder, engine="torch")
    how: dict[str, Any] = {"beam": 8, "length_penalty": 8.0}
    assert translator.translate(TEXTS, patience=0.125, **how) != translator.translate(TEXTS, patience=0.0, **how)


@pytest.mark.parametrize(("setting", "other"), [("pooling", "first"), ("normalize", False)])
def test_another_value_gives_other_vectors(setting: str, other: Any) -> None:
    assert EMBEDDER(TEXTS).tolist() != EMBEDDER(TEXTS, **{setting: other}).tolist()


def test_every_setting_is_tried_or_names_its_test() -> None:
    assert {*OTHERS, *ELSEWHERE} == {option.path for option in options(DecodingSettings)}
    assert {option.path for option in options(EmbeddingSettings)} == {"pooling", "normalize"}
    for place in ELSEWHERE.values():
        file, _, name = place.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), place
