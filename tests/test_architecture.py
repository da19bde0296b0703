"""Who may import whom, what costs seconds to import, and how long a function may be."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src"
FILES = sorted((SOURCE / "regard").rglob("*.py"))
every_file = pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))

LEVELS = [  # each may import those above it in this list, and of its own line only itself
    ["errors", "files_of_other_programs"],
    ["argument_checks", "atomic_files", "untrusted_files"],
    ["settings"],
    ["tokens", "model"],
    ["model_folder"],
    ["model_manifest"],
    ["weights"],
    ["evaluation", "decoding"],
    ["training"],  # the last of the ground floor
    ["files"],
    ["faithful", "browser"],
    ["jobs"],
    ["preparation"],
    ["interop", "demo", "explorer"],
    ["serving"],
    ["cli"],
    ["__init__", "__main__"],
]
LEVEL = {name: level for level, names in enumerate(LEVELS) for name in names}
WITHOUT_TORCH = [
    "errors",
    "files_of_other_programs",
    "argument_checks",
    "atomic_files",
    "untrusted_files",
    "settings",
    "files",
    "faithful",
    "model_folder",
    "model_manifest",
    "evaluation",
]
TORCH_WHEN_NEEDED = [
    "cli",
    "__init__",
    "decoding.translator",
    "decoding.search_interface",
    "decoding.model_loading",
    "jobs.worker_processes",
    "jobs.corpus_encoding",
    "tokens.tokenizer",
    "tokens.token_shards",
    "training.batch_order",
    "serving",
]
"""Quick to import too: `regard --help`, `import regard`, and a translation that PyTorch has no part in."""
LONGEST_FUNCTION, LONGEST_FILE = 60, 400


def imports(tree: ast.AST) -> Iterator[str]:
    """The dotted name of everything imported anywhere, in functions and for the type checker too."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names):
                yield from (alias.name for alias in names)
            case ast.ImportFrom(module, names, 0) if module is not None:
                yield from (f"{module}.{alias.name}" for alias in names)
            case ast.ImportFrom(level=level) if level:
                yield "." * level  # relative: nobody does, and the walk below would not follow it
            case ast.Attribute(ast.Name("regard"), name):
                yield f"regard.{name}"


def home(dotted: str) -> str:
    """The module or package of regard that a dotted name lies in; the lazy public names lie at the top."""
    part = dotted.split(".")[1]
    return part if part in LEVEL else "__init__"


def steps_down(module: str, tree: ast.AST) -> list[str]:
    """Imports of `module`, a file's place such as model.layers, that its level forbids."""
    own = module.split(".")[0]
    wrong = []
    for dotted in imports(tree):
        if dotted.startswith("."):
            wrong.append(dotted)
        elif dotted.startswith("regard.") and dotted != "regard.__version__":
            other = home(dotted)
            if other != own and LEVEL[other] >= LEVEL[own]:
                wrong.append(dotted)
    return wrong


def place(path: Path) -> str:
    """src/regard/model/layers.py -> model.layers"""
    return ".".join(path.relative_to(SOURCE / "regard").with_suffix("").parts)


def prints(tree: ast.AST) -> list[int]:
    """The lines on which something is printed."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [call.lineno for call in calls if isinstance(call.func, ast.Name) and call.func.id == "print"]


def long_functions(tree: ast.AST) -> list[str]:
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lengths = {node.name: (node.end_lineno or 0) - node.lineno + 1 for node in functions}
    return [f"{name}: {lines} lines" for name, lines in lengths.items() if lines > LONGEST_FUNCTION]


# The source


@every_file
def test_every_module_has_its_level(path: Path) -> None:
    assert place(path).split(".")[0] in LEVEL


@every_file
def test_imports_go_up_only(path: Path) -> None:
    assert steps_down(place(path), ast.parse(path.read_text(encoding="utf-8"))) == []


@every_file
def test_modules_that_must_start_quickly_do_not_name_torch(path: Path) -> None:
    if place(path).split(".")[0] in WITHOUT_TORCH:
        names = imports(ast.parse(path.read_text(encoding="utf-8")))
        assert not [name for name in names if name.split(".")[0] in ("torch", "transformers")]


@pytest.mark.parametrize("package", WITHOUT_TORCH + TORCH_WHEN_NEEDED)
def test_modules_that_must_start_quickly_do_not_import_torch(package: str) -> None:
    names = [
        f"regard.{place(path)}".removesuffix(".__init__")
        for path in FILES
        if f"{place(path)}.".startswith(f"{package}.")
    ]
    assert names
    program = (
        "import importlib, sys\n"
        "for name in sys.argv[1:]: importlib.import_module(name)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, *names], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@every_file
def test_nothing_is_printed_below_the_command_line(path: Path) -> None:
    if place(path).split(".")[0] != "cli":
        assert prints(ast.parse(path.read_text(encoding="utf-8"))) == []


@every_file
def test_functions_and_files_stay_short(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert long_functions(ast.parse(text)) == []
    assert len(text.splitlines()) <= LONGEST_FILE


def test_the_page_about_it_has_the_same_levels() -> None:
    page = (SOURCE.parent / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("## Who may import whom")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| \d+ \| (.+?) \|", section, re.MULTILINE)
    assert [re.findall(r"`(\w+)/?`", row) for row in rows] == LEVELS


# The tests themselves


@pytest.mark.parametrize(
    ("module", "line", "wrong"),
    [
        ("model.layers", "from regard.settings import ModelSettings", []),
        ("model.layers", "from regard.model.attention import Attention", []),
        ("model.layers", "import torch.nn", []),
        ("model.layers", "from regard import __version__", []),
        ("model.layers", "import regard; regard.__version__", []),
        ("files.corpus", "from regard.settings import DataSettings", []),
        ("training.loop", "from regard.decoding.model_loading import load", []),
        ("training.loop", "from regard.evaluation import translation_scores", []),
        ("cli.train", "def f():\n    from regard.training.loop import train_model", []),
        ("__init__", "from regard.cli import main", []),
        ("model.layers", "from regard.training.loop import train_model", ["regard.training.loop.train_model"]),
        ("model.layers", "def f():\n    import regard.cli", ["regard.cli"]),
        ("model.layers", "from regard import decoding", ["regard.decoding"]),
        ("model.layers", "from regard import Translator", ["regard.Translator"]),
        ("model.layers", "import regard; regard.load()", ["regard.load"]),
        ("settings", "from regard.files import corpus", ["regard.files.corpus"]),
        ("errors", "from regard.settings.option_fields import build", ["regard.settings.option_fields.build"]),
        ("decoding.writer", "from regard.training.batches import Batch", ["regard.training.batches.Batch"]),
        ("evaluation.translation_scores", "from regard.decoding import writer", ["regard.decoding.writer"]),
        ("training.loop", "from regard.files import corpus", ["regard.files.corpus"]),
        ("files.corpus", "from . import corpus_doctor", ["."]),
    ],
)
def test_a_step_down_is_found(module: str, line: str, wrong: list[str]) -> None:
    assert steps_down(module, ast.parse(line)) == wrong


def test_a_print_and_a_long_function_are_found() -> None:
    body = "    pass\n" * LONGEST_FUNCTION
    assert prints(ast.parse("x = 1\nif x:\n    print(x)")) == [3]
    assert long_functions(ast.parse(f"def f():\n{body}")) == ["f: 61 lines"]
    assert long_functions(ast.parse(f"class C:\n  async def f(self):\n{body}")) == ["f: 61 lines"]
    assert long_functions(ast.parse("def f():\n" + body.replace("    pass\n", "", 1))) == []
