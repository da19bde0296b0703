"""Records of runs: how they came about, how programs store them, and that quoted figures come from them."""

from __future__ import annotations

import argparse
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.decoders.tables import compact_log, main_tables

from benchmarks import benchmarks_page, records, serving, tables, training
from tests.benchmarks.test_decoding import example_report
from tests.documentation import quoted_figures
from tests.documentation.pages import ROOT

NAMES = sorted(path.stem for path in records.MEASURED.glob("*.json"))


@pytest.mark.parametrize("name", NAMES)
def test_a_record_says_how_it_came_about(name: str) -> None:
    record = records.read(records.MEASURED / f"{name}.json")
    assert re.fullmatch(r"20\d\d-\d\d(-\d\d.*)?", record["date"])
    assert {"kind", "command", "machine", "versions", "settings", "tables"} <= record.keys()
    assert record["machine"]["processor"]
    assert all(table["rows"] for table in record["tables"])
    assert record["command"] or record.get("transcribed")
    assert not re.search(r"[\s'=]/\w+/", record["command"]), "a folder of somebody's machine"
    if record["kind"] == "training" and "log" in record:
        assert record["tables"] == training.tables_of(record["log"])


# Hand-written pages


def test_every_quoted_figure_has_its_record() -> None:
    pages = quoted_figures.checked_pages()
    assert len(pages) > 30
    assert [fault for each in pages for fault in quoted_figures.faults(each)] == []
    texts = [(each, each.read_text(encoding="utf-8")) for each in pages]
    assert sum(1 for each, text in texts for _ in quoted_figures.figures(text, each.name)) > 15


@pytest.mark.parametrize(
    "sentence",
    [
        "Regard reaches 48.7 BLEU on Multi30k.",
        "- the native engine has 9,999 sentences/s",
        "It is 7.3 times as fast as the others.",
        "Training peaks at 61 MiB.",
        "| engine | sentences/s |\n|---|---|\n| Regard | 31,415 |",
        "The server has 0.99 of the offline engine's speed.",
    ],
)
def test_a_figure_that_nobody_measured_is_found(sentence: str) -> None:
    (alone,) = quoted_figures.figures(f"# Page\n\n{sentence}\n", "page.md")
    assert "has no record" in alone.fault
    (pretended,) = quoted_figures.figures(f"{sentence}\n<!-- measured: serving-2026-11-17 -->\n", "page.md")
    assert "is not in serving-2026-11-17" in pretended.fault
    (invented,) = quoted_figures.figures(
        f"{sentence} ([figures](measured/never.json))\n\n<!-- measured: never -->", "page.md"
    )
    assert "there is no record never" in invented.fault


def test_a_figure_in_a_record_is_fine_however_it_is_rounded() -> None:
    text = "64 clients have 411 sentences/s, 0.77 of the offline speed.\n<!-- measured: serving-2026-11-17 -->"
    found = list(quoted_figures.figures(text, "page.md"))
    assert [figure.text for figure in found] == ["411", "0.77"]
    assert not any(figure.fault for figure in found)
    assert quoted_figures.same("41.0", 40.98)
    assert quoted_figures.same("44", 0.44)
    assert quoted_figures.same("1,317", 1317.2)
    assert not quoted_figures.same("41.1", 40.98)


GERMAN = [f"multi30k-both-de.tokenised.decay-de-{seed}" for seed in (2, 3, 4)]
ALONE = "multi30k-en-de.tokenised.decay"


def test_a_mean_of_three_seeds_and_the_published_score_may_be_written() -> None:
    text = f"It has 41.4 BLEU; the published score is 41.02 BLEU.\n<!-- measured: {', '.join(GERMAN)} -->"
    assert [figure.fault for figure in quoted_figures.figures(text, "page.md")] == ["", ""]
    assert not list(quoted_figures.weak_comparisons(text, "page.md"))
    mean, published = (figure.fault for figure in quoted_figures.figures(text.replace(GERMAN[2], ALONE), "page.md"))
    assert "41.4 is not in" in mean  # of two seeds
    assert "41.02 is not in" in published


@pytest.mark.parametrize(
    ("sentence", "names", "fault"),
    [
        ("It has 41.0 BLEU, where the published model has 41.0.", [ALONE], "published score without naming runs of 3"),
        ("In one run it has 41.0 BLEU, the published score.", [ALONE], "published score without naming runs of 3"),
        ("The published Transformer has 41.0 BLEU.", [], "published score without naming runs of 3"),
        ("它有 41.0 BLEU（一个随机种子），公开发表的为 41.0。", [ALONE], "published score without naming runs of 3"),
        ("It has 41.0 BLEU.", [ALONE], "has fewer than 3 seeds here, which the paragraph does not say"),
        ("One run has 41.0 BLEU, where it had 40.2.", [ALONE], "compares scores of multi30k-en-de, which has fewer"),
        ("One run has 41.3 BLEU, 41.2 without it.", GERMAN[:2], "compares scores of multi30k-both-de, which has fewer"),
        ("One run has 41.0 BLEU.", [ALONE], ""),
        ("It has 41.4 BLEU, which is better than the published score.", GERMAN, ""),
    ],
)
def test_a_comparison_of_scores_names_runs_of_three_seeds(sentence: str, names: list[str], fault: str) -> None:
    text = f"# Page\n\n{sentence}\n<!-- measured: {', '.join(names)} -->\n" if names else sentence
    found = list(quoted_figures.weak_comparisons(text, "page.md"))
    assert len(found) == (1 if fault else 0)
    assert fault in "".join(found)


def test_the_next_release_claims_no_scores() -> None:
    """They change with the seed, and live on the page of quality and in the log."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    entries = re.split(r"\n- ", text.partition("## [Unreleased]")[2].partition("\n## [")[0])
    assert len(entries) > 100
    assert [each for each in entries if re.search(r"\bBLEU\b", each) and re.search(r"\d\d\.\d", each)] == []


def test_what_is_no_figure_needs_no_record() -> None:
    text = "Files of 4 MB, BLEU with 13a, a width of 512.\n\n```\n99 BLEU\n```\n\n<!-- measured: x -->"
    assert [figure.text for figure in quoted_figures.figures(text, "page.md")] == []


# Keeping


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where records and the page go in a test."""
    (tmp_path / "docs" / "quality").mkdir(parents=True)
    monkeypatch.setattr(records, "ROOT", tmp_path)
    monkeypatch.setattr(records, "MEASURED", tmp_path / "docs" / "measured")
    monkeypatch.setattr(benchmarks_page, "QUALITY", tmp_path / "docs" / "quality")
    monkeypatch.setattr(benchmarks_page.write_page, "__defaults__", (tmp_path / "docs" / "benchmarks.md",))
    return tmp_path / "docs"


def training_report() -> dict[str, Any]:
    """Two rounds of two systems, and one that fails."""
    runs: list[dict[str, Any]] = []
    for number in (1, 2):
        for system, variant, seconds in (("regard", "as shipped", 1.0), ("opennmt", "as shipped", 2.0 + number)):
            counts = {"source_tokens": 500, "target_tokens": 500, "positions": 1100, "padding": 100, "steps": 2}
            where = {"round": number, "model": "tiny", "system": system, "variant": variant}
            runs.append({**where, **counts, "seconds": seconds, "peak_rss_mib": 800.4, "versions": {system: "1.0"}})
        runs.append({"round": number, "model": "tiny", "system": "eole", "variant": "as shipped", "error": "no"})
    machine = {"processor": "P", "cores": 2, "system": "a name"}
    return {
        "machine": machine,
        "gemm_gflops": [100.0, 120.0],
        "flops_per_token": {"tiny": 1e7},
        "threads": 2,
        "runs": runs,
    }


def test_a_run_of_training_is_kept_and_stands_on_the_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = argparse.Namespace(threads=2, rounds=2, warmup=3, steps=None, models=["tiny"])
    for _ in range(2):  # the same command on the same day has one record
        training.keep(training_report(), arguments)
    (path,) = (place / "measured").glob("training-*.json")
    record = records.read(path)
    assert record["tables"][0]["rows"] == [
        {
            "system": "Regard 1.0",
            "variant": "as shipped",
            "tokens/s": [1000, 1000, 1000],
            "padding %": 9.1,
            "target tokens a step": 250,
            "peak MiB": 800,
        },
        {
            "system": "OpenNMT-py 1.0",
            "variant": "as shipped",
            "tokens/s": [292, 250, 333],
            "padding %": 9.1,
            "target tokens a step": 250,
            "peak MiB": 800,
            "Regard ÷ it": [3.5, 3.0, 4.0],
        },
        {"system": "Eole", "variant": "as shipped: failed"},
    ]
    assert record["versions"]["opennmt"] == "1.0"
    assert "system" not in record["machine"]
    assert training.tables_of(record["log"]) == record["tables"]
    told = (place / "benchmarks.md").read_text(encoding="utf-8")
    assert "| OpenNMT-py 1.0 | as shipped | 292 (250 to 333) | 9.1 | 250 | 800 | 3.50 (3.00 to 4.00) |" in told
    assert [each.name for each in (place / "images").iterdir()] == [f"{benchmarks_page.PICTURES}{path.stem}-1.svg"]
    assert "docs/measured/training-" in capsys.readouterr().out


def test_the_program_keeps_a_run_unless_told_not_to(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measure(_arguments: Any, _corpus: Any, _failures: Any, report: dict[str, Any]) -> None:
        report |= {key: value for key, value in training_report().items() if key != "flops_per_token"}

    corpus = training.Corpus({}, [3, 4], [4, 5])
    for name, fake in (("prepare", lambda _: corpus), ("install", lambda _: {}), ("measure", measure)):
        monkeypatch.setattr(training, name, fake)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    for flags, kept in ((["--no-keep"], 0), ([], 1)):
        words = ["benchmarks/training.py", "--data", str(tmp_path), "--models", "tiny", *flags]
        monkeypatch.setattr(sys, "argv", words)
        assert training.main() == 0
        found = list((place / "measured").glob("training-*.json"))
        assert len(found) == kept
    assert records.read(found[0])["command"] == f"python benchmarks/training.py --data {tmp_path.name} --models tiny"


def test_the_newest_of_two_tables_is_shown_and_the_other_is_named(place: Path) -> None:
    for day, value in (("2026-01-02", 2), ("2026-01-01", 1)):
        record = {
            "kind": "odd",
            "date": day,
            "command": "c",
            "machine": {"processor": "P"},
            "versions": {},
            "settings": {},
        }
        table = tables.build("T", [{"what": "x", "tokens/s": value}])
        records.write(place / "measured" / f"odd-{day}.json", record | {"tables": [table]})
    told, _ = benchmarks_page.make_page()
    assert "## Odd\n" in told
    assert "| x | 2 |" in told
    assert "| x | 1 |" not in told
    assert "Earlier records: [2026-01-01](measured/odd-2026-01-01.json)." in told


def test_a_run_of_decoding_is_kept(place: Path) -> None:
    report = example_report()
    log = compact_log(report)
    path = records.keep("decoding", main_tables(report), machine=report["machine"], log=log, command="c")
    record = records.read(path)
    assert [table["title"] for table in record["tables"]][:2] == [
        "SMALL on P, all sentences at once",
        "SMALL on P, one sentence at a time",
    ]
    first = record["tables"][0]["rows"][0]
    assert first["greedy, sentences/s"] == [500, 250, 500]
    assert first["greedy ÷ CTranslate2"] == [1.25, 1.25, 1.25]
    assert first["beam 5 BLEU"] == 35.0
    assert (place / "benchmarks.md").read_text(encoding="utf-8").count("SMALL on P") >= 3


def test_a_test_keeps_nothing_in_the_documentation() -> None:
    before = sorted(records.MEASURED.iterdir())
    with pytest.raises(RuntimeError, match="--no-keep"):
        records.keep("decoding", [], machine={})
    assert sorted(records.MEASURED.iterdir()) == before


def test_a_row_of_serving_has_its_ratios() -> None:
    seen = {"who": "4 clients", "rate": 50.0, "answers": 100, "p50": 9.6, "p99": None, "errors": 1, "differ": 0}
    found = {"offline": 100.0, "one": seen | {"who": "one client", "rate": 20.0}, "many": seen}
    row = serving.row("m", found | {"memory_before": 2**20, "memory_after": 2**21})
    assert row["4 clients ÷ offline"] == 0.5
    assert row["4 clients ÷ one"] == 2.5
    assert row["4 clients, p50 ms"] == 10
    assert "4 clients, p99 ms" not in row
    assert (row["failed"], row["server, MiB after"]) == (2, 2)


def test_no_folder_of_a_machine_is_kept() -> None:
    words = ["/x/benchmarks/training.py", "--data", "/home/me/multi30k", "--output=/tmp/a.json", "--steps", "4"]
    assert records.command_line(words) == "python benchmarks/training.py --data multi30k --output=a.json --steps 4"


PROGRAMS = "training decoding serving memory plan bulk scaling writing interop engines look package".split()  # noqa: SIM905
NEEDS = {"look": "playwright", "engines": "onnxruntime"}
ASK = """
import contextlib, io, json, os, runpy, sys
found, path = {}, sys.path[1:]
for script in sys.argv[1:]:
    sys.argv, sys.path = [script, "--help"], [os.path.dirname(script), *path]  # as Python starts a script
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        del sys.modules[name]
    with contextlib.redirect_stdout(io.StringIO()) as said:
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            found[script] = [end.code, said.getvalue()]
print(json.dumps(found))
"""


def test_every_benchmark_keeps_its_figures_unless_told_not_to() -> None:
    """All in one process, where PyTorch is loaded once; each finds what it imports by itself."""
    programs = [name for name in PROGRAMS if importlib.util.find_spec(NEEDS.get(name, "regard"))]
    scripts = [str(ROOT / "benchmarks" / f"{program}.py") for program in programs]
    done = subprocess.run([sys.executable, "-c", ASK, *scripts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    told = {Path(script).stem: (code, "--no-keep" in said) for script, (code, said) in found.items()}
    assert told == dict.fromkeys(programs, (0, True))
