"""With a model to start from, a recipe sets everything except shape and vocabulary."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

import regard
from regard.errors import SettingsError
from regard.model_folder import read_settings
from regard.preparation.chosen_settings import find_shape_settings, gather, resolve
from regard.training.events import Note
from tests.training.corpora import SMALL, write_reversals

ROOT = Path(__file__).parents[2] / "recipes"
RECIPES = sorted(ROOT.rglob("*.toml"))
QUICK = {"training.steps": 2, "training.threads": 1, "training.device": "cpu", "training.precision": "float32"}
"""Settings that a recipe is run with here."""


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Writes files in three languages, one sentence per line."""
    source, target = write_reversals(tmp_path_factory.mktemp("corpus"), 300)
    files = [source.with_name(f"train.{language}") for language in ("en", "de", "fr")]
    for path, original in zip(files, (source, target, target), strict=True):
        path.write_text(original.read_text())
    return files


@pytest.fixture(scope="module")
def models(corpus: list[Path], tmp_path_factory: pytest.TempPathFactory) -> dict[bool, Path]:
    """Trains a model of several directions, and one of a single direction."""
    root = tmp_path_factory.mktemp("models")
    small = {**SMALL, "training.steps": 1}
    list(regard.train(corpus[:2], root / "one", overrides={**small, "data.source": "en", "data.target": "de"}))
    list(regard.train(corpus, root / "both", overrides={**small, "data.directions": "en-de,en-fr"}))
    return {False: root / "one", True: root / "both"}


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_sets_everything_except_the_shape(
    recipe: Path, corpus: list[Path], models: dict[bool, Path], tmp_path: Path
) -> None:
    tables = tomllib.loads(recipe.read_text())
    several = "directions" in tables.get("data", {})
    model, files = models[several], corpus if several else corpus[:2]
    events = list(
        regard.train(files, tmp_path / "run", settings_file=recipe, start=model, overrides=QUICK, prepare_only=True)
    )
    messages = [event.text for event in events if isinstance(event, Note) and str(recipe) in event.text]
    left_out = find_shape_settings(tables)
    assert messages == [
        f"{recipe}: these settings come from {model}, not from this file: {', '.join(left_out)}."
    ] * bool(left_out)
    assert "model.dropout" not in left_out
    settings, start = read_settings(tmp_path / "run"), read_settings(model)
    assert settings.tokenizer == start.tokenizer
    for table, keys in ((table, keys) for table, keys in tables.items() if isinstance(keys, dict)):
        for key, value in keys.items():
            name, found = f"{table}.{key}", getattr(getattr(settings, table), key)
            if name in left_out:
                assert found == getattr(getattr(start, table), key), name
            elif name not in QUICK:
                assert found == (tuple(value) if isinstance(value, list) else value), name


def test_every_recipe_with_a_shape_is_covered() -> None:
    assert sum(bool(find_shape_settings(tomllib.loads(path.read_text()))) for path in RECIPES) >= 5


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"preset": "tiny"}, "the preset tiny sets the model.s shape, .*: leave it out"),
        ({"model.width": "9"}, r"model\.width comes from the --from model \(32\) and cannot be changed"),
        ({"tokenizer.vocabulary": 700}, r"tokenizer\.vocabulary comes from the --from model \(300\)"),
        ({"model.widht": 9}, r"unknown setting model\.widht; did you mean model\.width\?"),
    ],
)
def test_settings_that_contradict_the_model_are_refused(
    flags: dict[str, Any], message: str, models: dict[bool, Path], corpus: list[Path], tmp_path: Path
) -> None:
    """A flag that contradicts the model is refused, beside a recipe too."""
    for recipe in (None, ROOT / "multi30k-en-de.toml"):
        with pytest.raises(SettingsError, match=message):
            list(regard.train(corpus[:2], tmp_path / "run", settings_file=recipe, start=models[False], overrides=flags))
        assert not (tmp_path / "run").exists()


def test_settings_that_agree_with_the_model_are_accepted(models: dict[bool, Path]) -> None:
    start = read_settings(models[False])
    given = gather(None, {"model.width": "32", "model.dropout": 0.4}, starting=True)
    assert resolve(given, start=start).model.width == 32


def test_a_misspelt_setting_in_a_file_is_refused(tmp_path: Path, models: dict[bool, Path]) -> None:
    (tmp_path / "own.toml").write_text("[model]\nwidht = 9\n")
    with pytest.raises(SettingsError, match=r"unknown setting model\.widht"):
        resolve(gather(tmp_path / "own.toml", starting=True), start=read_settings(models[False]))
