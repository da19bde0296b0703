"""Puts small faults into the source, one at a time, and tells which of them no test notices: `make mutants`."""

from __future__ import annotations

import argparse
import importlib
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.ignored import ignored_settings
from tests.mutants.mutations import Mutant, is_another_program, mutants_of
from tests.mutants.reach import ROOT, Reach, reach
from tests.mutants.running import Bench

PACKAGE = ROOT / "src" / "regard"
PAGE = ROOT / "docs" / "mutants.md"
PLACES = ("training", "decoding", "serving", "tokens", "files", "faithful")
EQUIVALENT = re.compile(r"^- `(.+?)`: `(.+)` → `(.*)`: .+$", re.MULTILINE)
GOOD = ("killed", "timed out")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--only", nargs="+", default=PLACES, help="folders or files of src/regard")
    parser.add_argument("--settings", nargs="*", metavar="SECTION", help="instead: each setting (of a section) ignored")
    parser.add_argument("--sample", type=int, default=40, help="mutants of each of them")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws others")
    parser.add_argument("--tests", nargs="+", help="folders or files of tests; without it, those of the package")
    parser.add_argument(
        "--seconds", type=float, default=20.0, help="of tests that are tried on a mutant, fastest first"
    )
    arguments = parser.parse_args()
    warm_up()
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        bench = Bench(PACKAGE, Path(folder))
        outcomes = {}
        for place, (mutants, tests) in chosen(arguments).items():
            reached = reach(test_files(arguments.tests or tests), PACKAGE)
            outcomes[place] = tried(bench, mutants, reached, arguments.seconds)
    report(outcomes)


def chosen(arguments: argparse.Namespace) -> dict[str, tuple[list[Mutant], list[str]]]:
    """What is asked for: the mutants of each place, and the folders of tests that are tried on them."""
    known = equivalent()
    if arguments.settings is None:
        found = {place: drawn(place, arguments.sample, arguments.seed, known) for place in arguments.only}
        return {place: (mutants, suites_of(place, mutants)) for place, mutants in found.items()}
    every = [mutant for mutant in ignored_settings(PACKAGE) if mutant.key not in known]
    sections = arguments.settings or sorted({mutant.before.partition(".")[0] for mutant in every})
    tests = [f"tests/{place}" for place in (*PLACES, "model")]
    return {name: ([each for each in every if each.before.startswith(name)], tests) for name in sections}


def suites_of(place: str, mutants: Sequence[Mutant]) -> list[str]:
    """The tests of a package, and those elsewhere that have the names of its modules."""
    names = {f"test_{Path(mutant.path).stem}.py" for mutant in mutants}
    named = {path.relative_to(ROOT).as_posix() for path in (ROOT / "tests").rglob("test_*.py") if path.name in names}
    folder = f"tests/{place.partition('/')[0]}"
    return [folder, *sorted(name for name in named if not name.startswith(f"{folder}/"))]


def warm_up() -> None:
    """Loads what takes long to load, once for all mutants; the package itself is loaded by each."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # threads do not survive a fork
    for name in (
        "torch",
        "hypothesis.strategies",
        "sacrebleu",
        "safetensors.torch",
        "tokenizers",
        "starlette.testclient",
        "rich.console",
    ):
        importlib.import_module(name)


def drawn(place: str, count: int, seed: int, known: set[tuple[str, str, str]]) -> list[Mutant]:
    """Some mutants of a folder or a file, the same for the same seed, in the order of the source."""
    root = PACKAGE / place
    paths = [root] if root.is_file() else sorted(root.rglob("*.py"))
    sources = {path.relative_to(PACKAGE).as_posix(): path.read_bytes() for path in paths}
    every = [mutant for path, source in sources.items() for mutant in mutants_of(path, source)]
    random.Random(seed).shuffle(every)
    found: list[Mutant] = []
    for mutant in every:
        if len(found) == count:
            break
        if mutant.key not in known and is_another_program(mutant, sources[mutant.path]):
            found.append(mutant)
    return sorted(found, key=lambda mutant: (mutant.path, mutant.line))


def equivalent() -> set[tuple[str, str, str]]:
    """The mutants that the page says no test can notice."""
    page = PAGE.read_text(encoding="utf-8").replace("\n  ", " ")  # entries may be wrapped
    return {(path, before, after) for path, before, after in EQUIVALENT.findall(page)}


def test_files(names: Sequence[str]) -> list[Path]:
    """The files of tests in these folders."""
    paths = [ROOT / name for name in names]
    return [file for path in paths for file in ([path] if path.is_file() else sorted(path.rglob("test_*.py")))]


def tried(bench: Bench, mutants: Sequence[Mutant], reached: Reach, seconds: float) -> list[tuple[Mutant, str]]:
    """Tries each mutant on the fastest tests that reach it, and prints those that no test notices."""
    began, found = time.monotonic(), []
    for number, mutant in enumerate(mutants, 1):
        tests = reached.fastest(mutant.lines, seconds)
        outcome = bench.try_out(mutant, tests, 30 + 5 * round(sum(reached.seconds[test] for test in tests)))
        found.append((mutant, outcome))
        if outcome not in GOOD:
            print(f"{outcome}: {mutant}", flush=True)
        remaining = (time.monotonic() - began) / number * (len(mutants) - number)
        line = f"{number} of {len(mutants)}, {remaining / 60:.0f} min left: {outcome} by {len(tests)} tests at most"
        print(f"{line}: {mutant.path}:{mutant.line}", file=sys.stderr, flush=True)
    return found


def report(outcomes: dict[str, list[tuple[Mutant, str]]]) -> None:
    """Prints how many mutants of each place were killed."""
    print(f"\n{'':20} mutants  killed  timed out  survived  not reached")
    for place, found in outcomes.items():
        counts = Counter(outcome for _, outcome in found)
        share = sum(counts[name] for name in GOOD) / max(1, len(found))
        killed, late, survived, missed = (counts[name] for name in (*GOOD, "survived", "not reached"))
        print(f"{place:20} {len(found):7} {killed:7} {late:10} {survived:9} {missed:12}  {share:.0%}")


if __name__ == "__main__":
    main()
