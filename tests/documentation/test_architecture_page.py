"""What the page about the architecture names exists: functions in the order of their calls, modules, files, tests."""

from __future__ import annotations

import ast
import re

import pytest

from tests.documentation.pages import ROOT

SOURCE = ROOT / "src" / "regard"
PAGES = ("docs/architecture.md", "docs/zh/architecture.md")
PACKAGES = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
OUTPUTS = {"training/"}  # a folder of a model, not of the source


def named(page: str) -> list[str]:
    """Returns the names in code spelling outside of blocks of code."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def exists(dotted: str) -> bool:
    """Reports whether a package, a module, or a class or function in one has this name."""
    parts, place = dotted.split("."), SOURCE
    while parts and (place / parts[0]).is_dir():
        place /= parts.pop(0)
    if not parts:
        return (place / "__init__.py").exists()
    module = place / f"{parts.pop(0)}.py"
    if not module.exists():
        return False
    body = ast.parse(module.read_text(encoding="utf-8")).body
    for part in parts:
        kinds = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        node = next((each for each in body if isinstance(each, kinds) and each.name == part), None)
        if node is None:
            return False
        body = node.body
    return True


@pytest.mark.parametrize("page", PAGES)
def test_every_function_that_is_named_exists(page: str) -> None:
    dotted = [name for name in named(page) if re.fullmatch(r"\w+(\.\w+)+", name) and name.split(".")[0] in PACKAGES]
    assert [name for name in dotted if not exists(name)] == []
    assert len(dotted) > 20


@pytest.mark.parametrize("page", PAGES)
def test_every_file_and_folder_that_is_named_exists(page: str) -> None:
    paths = [name for name in named(page) if re.fullmatch(r"[\w-]+(/[\w.-]*)+", name) and name not in OUTPUTS]
    assert [name for name in paths if not ((SOURCE / name).exists() or (ROOT / name).exists())] == []
    files = [name for name in named(page) if re.fullmatch(r"\w+\.(py|cpp|h|toml)", name)]
    assert [name for name in files if not list(SOURCE.rglob(name))] == []
    assert len(paths) > 20


def test_what_does_not_exist_is_found() -> None:
    assert exists("training.loop.update")
    assert exists("decoding.translator.Translator.search")
    assert exists("model.observe")
    for wrong in ("training.loop.upgrade", "decoding.translator.Translator.searched", "model.observer"):
        assert not exists(wrong)


def test_the_drawing_has_every_package() -> None:
    drawing = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").split("```")[1]
    assert {name for name in PACKAGES if not re.search(rf"\b{name}\b", drawing)} == set()
