"""Finds the recipes whose quality is measured, and the files of their corpora."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.records import ROOT
from regard.errors import InputError
from regard.preparation.chosen_settings import FREE, gather, resolve
from regard.settings import Settings

FORMS = {"tokenised": ".lc.norm.tok", "raw": ""}  # and the end of their files' names before the language
OF_THE_RUN = ("seed", "threads", "device", "precision")  # settings in which runs of one recipe may differ
OF_THE_LENGTH = ("steps", "evaluate_every", "evaluate_pairs")  # and those in which runs of one kind may
OF_THE_DATA = ("source", "target", "tags")  # which a second part takes from the first


@dataclass(frozen=True)
class Recipe:
    """A file of settings and the languages of its corpus; a later part continues the model of its first part."""

    name: str
    path: Path
    languages: tuple[str, ...]
    first: Recipe | None = None
    narrows: bool = False  # continues with one direction of several

    @property
    def direction(self) -> str:
        return "-".join(self.languages)

    def own(self, overrides: Mapping[str, str]) -> dict[str, str]:
        """Returns the settings over the file; of a later part, those that its first part does not determine."""
        if self.first is None:
            return dict(overrides)
        given = {"data.directions": self.direction} if self.narrows else {}
        for name, value in overrides.items():
            table, _, key = name.partition(".")
            if table not in ("model", "tokenizer") or key in FREE:
                given[name] = value
        return given

    def settings(self, overrides: Mapping[str, str], preset: str | None = None) -> Settings:
        start = self.first.settings(overrides) if self.first else None
        return resolve(gather(self.path, self.own(overrides)), preset, start)

    def differences(self, found: Settings, overrides: Mapping[str, str]) -> list[str]:
        """Lists the settings of a model that are not those of the recipe."""
        wanted = asdict(self.settings(overrides, found.preset))
        free = (*OF_THE_RUN, *(OF_THE_DATA if self.first else ()))
        return [
            f"{table}.{key} = {value} instead of {wanted[table][key]}"
            for table in ("data", "tokenizer", "model", "training", "decoding")
            for key, value in asdict(found)[table].items()
            if value != wanted[table][key] and key not in free
        ]

    def is_as(self, kind: Mapping[str, Any]) -> bool:
        """Tells whether a run of this kind has the recipe's settings; removed settings must have been 0."""
        now = kind_of(self.settings({}))
        return bool(kind) and all(now[t].get(key, 0) == value for t, its in kind.items() for key, value in its.items())

    @property
    def forms(self) -> list[str]:
        return list(FORMS) if self.name.startswith("multi30k") else ["raw"]


def kind_of(settings: Settings) -> dict[str, dict[str, Any]]:
    """Returns the settings that runs must have in common to be averaged."""
    tables = json.loads(json.dumps(asdict(settings)))  # as a record keeps them
    free = {*OF_THE_RUN, *OF_THE_LENGTH}
    return {name: {k: v for k, v in tables[name].items() if k not in free} for name in ("model", "training")}


@dataclass(frozen=True)
class Corpus:
    """The files of a recipe in one form."""

    folder: Path
    suffix: str
    languages: tuple[str, ...]

    def files(self, name: str) -> tuple[Path, ...]:
        return tuple(self.folder / f"{name}{self.suffix}.{language}" for language in self.languages)

    @property
    def dev(self) -> str:
        return "val" if self.files("val")[0].is_file() else "dev"

    @property
    def tests(self) -> list[str]:
        """Lists the test sets with files in all languages; the oldest, whose scores are published, first."""
        found = (path.name.split(".")[0] for path in self.folder.glob(f"test*{self.suffix}.{self.languages[1]}"))
        return sorted(name for name in set(found) if all(path.is_file() for path in self.files(name)))


def all_recipes(folder: Path) -> Iterator[Recipe]:
    """Yields a recipe for each file, and for a folder one in two parts for every direction of its first part."""
    for path in folder.glob("*.toml"):
        data = gather(path)["data"]
        yield Recipe(path.stem, path, (data["source"], data["target"]))
    for path in folder.glob("*/first.toml"):
        directions = [tuple(direction.split("-")) for direction in gather(path)["data"]["directions"]]
        languages = tuple(dict.fromkeys(language for direction in directions for language in direction))
        first = Recipe(path.parent.name, path, languages)
        for direction in directions:
            yield Recipe(f"{first.name}-{direction[1]}", path.with_name("then.toml"), direction, first, narrows=True)


RECIPES = {recipe.name: recipe for recipe in sorted(all_recipes(ROOT / "recipes"), key=lambda each: each.name)}


def find_recipe(name: str) -> Recipe:
    if name not in RECIPES:
        raise InputError(f"there is no recipe {name}: use {', '.join(RECIPES)}")
    return RECIPES[name]


def find_corpus(data: Path, recipe: Recipe, form: str) -> Corpus:
    """Finds the corpus of a recipe in the folder of its name, or of the first word of its name."""
    folders = [data / recipe.name, data / recipe.name.partition("-")[0]]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise InputError(f"neither {folders[0]} nor {folders[1]} exists: --data is the folder above them")
    corpus = Corpus(folder.resolve(), FORMS[form], recipe.languages)
    for path in (*corpus.files("train"), *corpus.files(corpus.dev)):
        if not path.is_file():
            raise InputError(f"{path} is missing: put it there, or choose others with --recipes and --form")
    return corpus
