"""Mutants in which a setting is ignored: wherever the package reads it, its default stands in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tests.mutants.mutations import Edit, Mutant, Mutations, name_of

DECLARED = "settings/__init__.py"
BEFORE = (
    DECLARED,
    "settings/option_fields.py",
    "settings/recorded_settings.py",
    "preparation/chosen_settings.py",
    "cli/setting_flags.py",
)
"""Files that hand settings on, and do nothing by them."""

Read = tuple[str, str, int, Edit]
"""An attribute that is read: what of, its name, its line and its place."""


def ignored_settings(package: Path) -> list[Mutant]:
    """A mutant for each setting."""
    reads = [read for path in sorted(package.rglob("*.py")) for read in attributes(path, package)]
    every = list(declared(package / DECLARED))
    training = {name for section, name, *_ in every if section == "training"}
    return [mutant for each in every if (mutant := ignoring(*each, reads, training)) is not None]


def declared(path: Path) -> Iterator[tuple[str, str, int, str]]:
    """The section, name, line and default of each setting."""
    source = path.read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    sections = {
        name_of(field.annotation): name_of(field.target)
        for node in classes if node.name == "Settings" for field in node.body if isinstance(field, ast.AnnAssign)
    }  # fmt: skip
    for node in classes:
        for field in node.body:
            if (
                isinstance(field, ast.AnnAssign)
                and field.value is not None
                and name_of(field.annotation) == "Annotated"
            ):
                default = ast.get_source_segment(source, field.value) or ""
                yield sections.get(node.name, ""), name_of(field.target), field.lineno, default


def attributes(path: Path, package: Path) -> Iterator[Read]:
    """What a file reads."""
    name = path.relative_to(package).as_posix()
    if name in BEFORE:
        return
    places = Mutations(name, path.read_bytes())
    for node in ast.walk(places.tree):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield name_of(node.value), node.attr, node.lineno, places.replace(node, "")


def ignoring(section: str, name: str, line: int, default: str, reads: list[Read], training: set[str]) -> Mutant | None:
    """The mutant in which this setting is ignored; none if nothing in Python reads it.

    What is just named settings are those of training in training/, if they have one of this name.
    """
    edits, lines = [], set()
    for of, read, number, edit in reads:
        here = edit.path.startswith("training/") and name in training
        if read == name and (of == (section or "settings") or (of == "settings" and here == (section == "training"))):
            edits.append(replace(edit, text=f"({default})"))
            lines.add((edit.path, number))
    path = f"{section}.{name}".lstrip(".")
    return Mutant(DECLARED, line, path, f"always {default}", tuple(edits), frozenset(lines)) if edits else None
