"""Every block of Python on every page, and every example of a public name, runs against real models, if small ones."""

from __future__ import annotations

import contextlib
import io
import re
import shutil
from collections.abc import Iterator
from doctest import DocTestParser
from pathlib import Path
from typing import Any

import pytest
import torch

import regard
from regard.interop import huggingface
from regard.jobs.shortlist_learning import learn_shortlist
from regard.serving.application import create_app
from regard.serving.served_models import Models
from tests.cli.conftest import write_corpus
from tests.documentation.pages import ROOT, Runner, blocks, chdir, quick_training
from tests.interop.toys import settings_of, write_model
from tests.serving import toys
from tests.serving.running import running

FENCE = re.compile(r"^ *```(py.*)$", re.MULTILINE)
RENDERED = "tests/documentation/test_generated_pages.py::test_a_page_and_its_plots_are_what_the_generator_makes"
ELSEWHERE = {  # pages that another test runs, with the commands between their blocks
    "docs/engines.md": "tests/interop/test_ctranslate2.py::test_the_code_in_the_documentation_runs",
    "docs/transformer.md": RENDERED,
    "docs/zh/transformer.md": RENDERED,
    "docs/tutorials/": "tests/documentation/test_tutorials.py::test_a_tutorial_runs_from_its_first_line_to_its_last",
    "docs/zh/tutorials/": "tests/documentation/test_reference.py::test_a_translated_page_has_the_code_of_its_twin",
}
WRITTEN = sorted(str(path.relative_to(ROOT)) for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
WITH_PYTHON = [name for name in WRITTEN if FENCE.search((ROOT / name).read_text(encoding="utf-8"))]
PAGES = [name for name in WITH_PYTHON if not name.startswith(tuple(ELSEWHERE))]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files and models that pages speak of; the models have random weights."""
    folder = tmp_path_factory.mktemp("stage")
    runs = folder / "runs"
    torch.set_num_threads(1)
    corpus = write_corpus(folder)
    english, german = (Path(name).read_text(encoding="utf-8") for name in corpus)
    (folder / "input.txt").write_text("".join(english.splitlines(keepends=True)[:5]), encoding="utf-8")
    (folder / "mono.de").write_text(german.replace("1", "7"), encoding="utf-8")
    (folder / "terms.csv").write_text("source,target\ndog,Hund\nfile,Datei\n", encoding="utf-8")
    for name in ("en-de", "demo"):
        write_model(runs / name, settings_of("translate"))
    for name, direction in (("big", "en-de"), ("de-en", "de-en")):
        toys.write_model(runs / name, direction)  # their outputs end, so that others can learn from them
    toys.write_model(runs / "three", "en-de", "de-en", "en-fr", "fr-en")
    for name, task in {"gpt": "write", "bert": "fill", "reviews": "classify", "minilm": "embed"}.items():
        write_model(runs / name, settings_of(task, max_length=200))
    write_model(runs / "names", settings_of("classify", carrier="word", max_length=200))
    learn_shortlist(runs / "en-de", corpus)
    huggingface.export_model(runs / "en-de", folder / "en-de-hf")
    return folder


@pytest.fixture
def stage(prepared: Path, tmp_path: Path) -> Iterator[Path]:
    """A copy of them, as the current folder."""
    folder = Path(shutil.copytree(prepared, tmp_path / "stage"))
    with chdir(folder):
        yield folder


def test_every_page_with_python_is_run_by_a_test() -> None:
    assert len(PAGES) >= 12
    for place, test in ELSEWHERE.items():
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8")
        assert any(page.startswith(place) for page in WITH_PYTHON), place
    for page in WITH_PYTHON:
        text = (ROOT / page).read_text(encoding="utf-8")
        assert set(FENCE.findall(text)) == {"python"}, page
        assert not [block for block in blocks(text) if block.kind == "python" and block.skipped], page


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, stage: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    with contextlib.ExitStack() as stack:
        if "127.0.0.1:5000" in text:
            models = Models.load([f"runs/{name}" for name in ("gpt", "bert", "reviews", "names", "en-de")])
            text = text.replace("http://127.0.0.1:5000/", stack.enter_context(running(create_app(models))))
        (stage / "page.md").write_text(text, encoding="utf-8")
        assert Runner(stage, quick=True).page(stage / "page.md", ["python"]) == len(FENCE.findall(text))


@pytest.mark.parametrize("name", ["regard", *regard.__all__])
def test_the_example_of_a_public_name_runs(name: str, stage: Path) -> None:
    """What it shows as printed is printed."""
    written = regard.__doc__ if name == "regard" else getattr(regard, name).__doc__
    names: dict[str, Any] = {"regard": regard, "translator": regard.load("runs/en-de")}
    examples = DocTestParser().get_examples(written or "")
    assert examples
    with quick_training():
        if name == "resume":  # what it goes on with
            list(regard.train(["train.en", "train.de"], "runs/en-de"))
        for example in examples:
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(example.source, f"{name}:{example.lineno}", "single"), names)  # noqa: S102 - it is ours
            assert not example.want or printed.getvalue() == example.want
