"""Faults are put in where they matter, and only what no test notices is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from regard.settings import Settings
from regard.settings.option_fields import options
from tests.mutants.__main__ import PACKAGE, PAGE, drawn, equivalent, suites_of
from tests.mutants.ignored import ignored_settings
from tests.mutants.mutations import Mutant, is_another_program, mutants_of
from tests.mutants.reach import ROOT, Reach


def changes(source: str) -> set[str]:
    """What the lines of a file can become."""
    found = mutants_of("a.py", source.encode())
    return {mutant.after for mutant in found if is_another_program(mutant, source.encode())}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a = b < c", {"a = b <= c"}),
        ("a = b is not c", {"a = b is c"}),
        ("a = b not in c", {"a = b in c"}),
        ("a = b <= c == d", {"a = b < c == d", "a = b <= c != d"}),
        ("a = (b) or c", {"a = (b) and c"}),
        ("a = not b", {"a = b"}),
        ("a = b - 1", {"a = b + 1", "a = b - 2"}),
        ("a = True", {"a = False"}),
        ("a = 0.0, 0.5", {"a = 1.0, 0.5", "a = 0.0, 1.0"}),
        ("a = 'chrf'", {"a = 'chrfx'"}),
        ("b(c, d=e)", {"b(c, )", "pass"}),
        ("if a: b = c", {"if not (a): b = c"}),
        ("a += b", {"a -= b"}),
        ("def a() -> bool: return b", {"def a() -> bool: return not (b)"}),
        ("def a() -> list[str]: return b", {"def a() -> list[str]: return []"}),
        ("async def a(): await b()", {"async def a(): pass"}),
    ],
)
def test_a_line_becomes(source: str, expected: set[str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        '"""What it is."""',
        "a = 'a message of many words'",
        "raise ValueError(1 + 2)",
        "assert a == 1",
        "a = f'{b + 1} of {c}'",
        "__all__ = ['a']",
        "def a(b: Literal['c']) -> Annotated[int, 1]: ...",
        "if TYPE_CHECKING: a = 1",
        "T = TypeVar('T', bound='a')",
        "@lru_cache(maxsize=1)\ndef a(): ...",
        "a = zip(b, strict=True)",
    ],
)
def test_what_only_people_read_stays(source: str) -> None:
    assert changes(source) == set()


def test_text_that_is_not_ascii_does_not_shift_an_edit() -> None:
    assert changes("a = 'Wörter', b < c  # é") == {"a = 'Wörterx', b < c # é", "a = 'Wörter', b <= c # é"}


def test_a_constant_of_a_file_is_reached_where_it_is_used() -> None:
    (mutant,) = mutants_of("a.py", b"MOST = 5\n\ndef a(b):\n    c(b)\n    return None if b > MOST else d")[:1]
    assert mutant.lines == {("a.py", 5)}


def test_the_tests_of_a_module_may_stand_elsewhere() -> None:
    (mutant, *_) = drawn("tokens/tokenizer.py", 1, 1, set())
    assert suites_of("files", [mutant]) == ["tests/files", "tests/tokens/test_tokenizer.py"]


def test_tests_are_tried_fastest_first_as_long_as_there_is_time() -> None:
    seconds = {"slow": 9.0, "fast": 0.1, "middle": 2.0, "other": 0.0}
    reach = Reach(seconds, {("a.py", 1): {"slow", "fast"}, ("a.py", 2): {"middle", "fast"}, ("a.py", 3): {"other"}})
    assert reach.fastest([("a.py", 1), ("a.py", 2)], 20) == ["fast", "middle", "slow"]
    assert reach.fastest([("a.py", 1), ("a.py", 2)], 3) == ["fast", "middle"]
    assert reach.fastest([("a.py", 1)], 0) == ["fast"], "one at least"
    assert reach.fastest([("b.py", 1)], 20) == []


def test_the_same_seed_draws_the_same_and_what_is_equivalent_is_not_drawn() -> None:
    place = "training/weight_running_mean.py"
    first = drawn(place, 5, 1, set())
    assert first == drawn(place, 5, 1, set()) != drawn(place, 5, 2, set())
    others = drawn(place, 5, 1, {first[0].key})
    assert first[0] not in others
    assert len(others) == 5


def test_every_line_of_the_page_about_an_equivalent_mutant_is_understood() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert len(equivalent()) == page.count("→") > 5
    found = {mutant.key for path in {key[0] for key in equivalent()} for mutant in mutants_in(path)}
    assert equivalent() <= found, "an entry is about a line that the source no longer has"


def mutants_in(path: str) -> list[Mutant]:
    file = PACKAGE / path
    return mutants_of(path, file.read_bytes()) if file.exists() else []


def test_every_setting_that_python_reads_can_be_ignored() -> None:
    found = {mutant.before: mutant for mutant in ignored_settings(PACKAGE)}
    unread = {option.path for option in options(Settings)} - set(found)
    shape = {"model.key_width", "model.value_width", "model.key_value_heads"}
    assert unread == {"training.timeout", *shape}, "which are read in other ways"
    clip = found["training.clip"]
    source = (PACKAGE / "training" / "loop.py").read_bytes()
    assert [edit.path for edit in clip.edits] == ["training/loop.py"]
    assert clip.after == "always 1.0"
    assert b", (1.0) or math.inf)" in clip.edits[0].applied(source)
    assert {edit.path for edit in found["decoding.patience"].edits} == {
        "decoding/native/native_search.py",
        "decoding/pytorch_engine.py",
        "interop/page.py",
    }


SOURCE = """
def larger(a, b):
    return a if a > b else b


def count(limit):
    number = 0
    while number < limit:
        number += 1
    return number


def unused():
    return 1
"""
TESTS = """
from package.module import count, larger


def test_larger():
    assert larger(1, 2) == 2
    assert larger(2, 1) == 2


def test_count():
    assert count(3) == 3
"""
SCRIPT = """
import hypothesis.strategies, json, sys
from pathlib import Path
from tests.mutants import reach as module
from tests.mutants.mutations import mutants_of
from tests.mutants.running import Bench

here = Path.cwd()
module.KEPT = here / "kept"
reach = module.reach([here / "test_module.py"], here / "src/package")
bench = Bench(here / "src/package", here / "bench")
for mutant in mutants_of("module.py", (here / "src/package/module.py").read_bytes()):
    if mutant.after in sys.argv[1:]:
        outcome = bench.try_out(mutant, reach.fastest(mutant.lines, 20), 3)
        print("OUTCOME", json.dumps([mutant.after, outcome]))
assert (here / "bench/src/package/module.py").read_text() == (here / "src/package/module.py").read_text()
"""


def test_a_mutant_is_killed_survives_hangs_or_is_not_reached(tmp_path: Path) -> None:
    package = tmp_path / "src" / "package"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "module.py").write_text(SOURCE)
    (tmp_path / "test_module.py").write_text(TESTS)
    expected = {
        "return a if a < b else b": None,
        "return a if a >= b else b": "survived",
        "while number <= limit:": "killed",
        "number -= 1": "timed out",
        "return 2": "not reached",
    }
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    output = subprocess.run(
        [sys.executable, "-c", SCRIPT, *expected],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    found = dict(json.loads(line.removeprefix("OUTCOME")) for line in output.splitlines() if line.startswith("OUTCOME"))
    assert found == {after: outcome for after, outcome in expected.items() if outcome}
