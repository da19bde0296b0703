"""The tutorials can be typed from first line to last: here with toys; `make tutorials` runs them as they are."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import regard
from regard.demo import GLASS
from tests.documentation.pages import ROOT, Block, Runner, blocks, commands, plain_call, quickly

TUTORIALS = sorted((ROOT / "docs" / "tutorials").glob("*.md"))


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    """`regard train` takes Ctrl-C for itself, and pages may switch things."""
    before, threads = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)), torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    signal.signal(signal.SIGINT, before[0])
    signal.signal(signal.SIGTERM, before[1])


@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_from_its_first_line_to_its_last(page: Path, tmp_path: Path) -> None:
    assert Runner(tmp_path, quick=True).page(page) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_as_it_is_typed_shows_what_it_says(page: Path, tmp_path: Path) -> None:
    """With the models that a reader trains: what the page shows is checked for its meaning."""
    assert any(block.kind == "check" for block in blocks(page.read_text(encoding="utf-8")))
    Runner(tmp_path, quick=False).page(page)


SHOWN = re.compile(r"^```(?:sh|python)\n(?P<code>.*?)^```\n(?P<between>[^`]*?)^```text\n", re.MULTILINE | re.DOTALL)


def test_an_output_that_a_page_shows_has_a_check() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *TUTORIALS]
    shown = [(page.name, match) for page in pages for match in SHOWN.finditer(page.read_text(encoding="utf-8"))]
    assert len(shown) >= 2
    assert [name for name, match in shown if "<!-- check: " not in match["between"]] == []


def test_the_glass_model_does_what_the_tutorial_leads_the_reader_to_see() -> None:
    """docs/tutorials/look-inside.md: il becomes elle, *tired* looks at *animal*, and each head does something else."""
    sentence = "The animal didn't cross the street because it was too tired."
    run = regard.look(GLASS, sentence)
    assert run.answer["text"].endswith("parce qu'il était trop fatigué.")
    assert regard.look(GLASS, sentence.replace("tired", "wide")).answer["text"].endswith("qu'elle était trop large.")
    tokens = [token["display"] for token in run.answer["tokens"]["source"]]
    row = run["encoder.layers.1.self_attention.weights"][0, tokens.index("▁tired")]
    assert tokens[int(row.argmax())] == "▁animal"
    said = [
        regard.look(GLASS, sentence, patch=[{"site": f"decoder.layers.{layer}.{part}", "head": head, "op": "zero"}])
        for part in ("self_attention", "cross_attention")
        for layer in (0, 1)
        for head in (0, 1)
    ]
    texts = [each.answer["text"] for each in said]
    for words in ("parce qu'elle était", "L'ours", "traversé le rue", run.answer["text"]):
        assert sum(words in text for text in texts) >= 1, words


def test_there_are_five_tutorials_and_each_trains_or_looks() -> None:
    assert len(TUTORIALS) == 5
    for page in TUTORIALS:
        kinds = [block.kind for block in blocks(page.read_text(encoding="utf-8"))]
        assert {"sh", "python"} <= set(kinds)


PAGE = """text
```python
x = 1
```
<!-- not run: it would take a day -->
```sh
regard train big.txt
```
<!-- runs on -->
```sh
regard look
```
```text
what is shown
```
```sh
echo one
```
<!-- check: test 1 = 1 -->
"""


def test_blocks_are_found_with_what_is_said_of_them() -> None:
    assert blocks(PAGE) == [
        Block("python", "x = 1\n", 3),
        Block("sh", "regard train big.txt\n", 7, skipped=True),
        Block("sh", "regard look\n", 11, stays=True),
        Block("sh", "echo one\n", 17),
        Block("check", "test 1 = 1\n", 19),
    ]


def test_commands_are_told_apart() -> None:
    text = "cat > a <<'END'\nx = 1\n\ny\nEND\nregard train a \\\n  -o b\nls  # all\n"
    assert list(commands(text)) == ["cat > a <<'END'\nx = 1\n\ny\nEND", "regard train a \\\n  -o b", "ls  # all"]
    assert plain_call("regard write m 'a b' --seed 1  # again") == ["write", "m", "a b", "--seed", "1"]
    for other in ("echo a | regard translate m", "regard translate m a > b", "ls", "regard check *.po"):
        assert plain_call(other) is None
    assert quickly(["look"]) == ["look"]
    assert "--model.width" in quickly(["train", "a"])
    assert "--model.width" not in quickly(["train", "a", "--from", "b"])


@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize(
    "wrong", ["```python\n1 / 0\n```\n", "```sh\nfalse\n```\n", "```sh\nregard info nothing\n```\n"]
)
def test_what_fails_in_a_page_fails_here(wrong: str, quick: bool, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(wrong)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        Runner(tmp_path, quick).page(page)


def test_a_check_is_made_where_a_page_is_run_as_it_is(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\ntrue\n```\n<!-- check: false -->\n")
    Runner(tmp_path, quick=True).page(page)
    with pytest.raises(AssertionError, match=r"page.md:4"):
        Runner(tmp_path, quick=False).page(page)
