"""The recipes resolve, and the benchmark of quality runs from files to a report, on a corpus of forty pairs."""

from __future__ import annotations

import json
import re
import shlex
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest
from benchmarks.plots import Line, draw, ticks
from benchmarks.program import ROOT
from benchmarks.quality_report import read_log
from benchmarks.recipes import RECIPES, kind_of
from benchmarks.tables import plain

from benchmarks import quality, quality_report as report
from regard.cli import build_parser
from regard.errors import RegardError
from regard.preparation.chosen_settings import load

TINY = {
    "tokenizer.vocabulary": "300",
    "model.width": "8",
    "model.hidden": "8",
    "model.heads": "2",
    "model.encoder_layers": "1",
    "model.decoder_layers": "1",
    "training.batch_tokens": "300",
    "training.steps": "4",
    "training.warmup": "1",
    "training.evaluate_every": "2",
    "training.evaluate_pairs": "4",
    "decoding.max_ratio": "0",
}
NUMBERS = "one two three four five six seven".split()  # noqa: SIM905
SIGNATURES = {"tokenised": "case:lc|eff:no|tok:none", "raw": "case:mixed|eff:no|tok:13a"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty pairs under the names of Multi30k's files, and of a corpus without a test set."""
    folder = tmp_path_factory.mktemp("data")
    for corpus, names in (("multi30k", ("train", "val", "test_2016_flickr")), ("gettext-en-de", ("train", "dev"))):
        (folder / corpus).mkdir()
        for name in names:
            rows = [f"{NUMBERS[i % 7]} {NUMBERS[i % 5]} [dogs] run | {i}" for i in range(40 if name == "train" else 25)]
            for language in ("en", "de", "fr") if corpus == "multi30k" else ("en", "de"):
                texts = [row if language == "en" else " ".join(reversed(row.split())) for row in rows]
                raw = "".join(f"{text.capitalize()}.\n" for text in texts)
                if language != "fr":
                    (folder / corpus / f"{name}.{language}").write_text(raw)
                (folder / corpus / f"{name}.lc.norm.tok.{language}").write_text("".join(f"{t} .\n" for t in texts))
    return folder


def arguments(data: Path, folder: Path, *more: str) -> list[str]:
    settings = [word for name, value in TINY.items() for word in ("--set", f"{name}={value}")]
    place = ["--output", str(folder / "kept"), "--report", str(folder / "docs" / "quality")]
    return ["--data", str(data), "--threads", "1", *place, *settings, *more]


def plan(data: Path, folder: Path, *more: str) -> list[quality.Run]:
    return list(quality.planned(quality.parse_arguments(arguments(data, folder, *more))))


# The recipes


@pytest.mark.parametrize("name", [name for name, recipe in RECIPES.items() if not recipe.first])
def test_a_recipe_resolves_and_names_its_own_command(name: str) -> None:
    path = RECIPES[name].path
    settings = load(path)
    assert name.endswith(f"{settings.data.source}-{settings.data.target}")
    commands = re.findall(r"^# regard (train .+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(commands) == 1
    given = build_parser().parse_args(shlex.split(commands[0]))
    assert (ROOT / given.settings).samefile(path)
    dev = "val" if name.startswith("multi30k") else "dev"
    for files, stem in ((given.files, "train"), (given.dev, dev)):
        assert files == [f"DATA/{stem}.{language}" for language in (settings.data.source, settings.data.target)]
    assert given.output == f"runs/{name}"


@pytest.mark.parametrize("part", ["first", "then"])
def test_the_recipe_in_two_parts_resolves_and_names_its_commands(part: str) -> None:
    path = ROOT / "recipes" / "multi30k-both" / f"{part}.toml"
    (command,) = re.findall(r"^# regard (train .+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    given = build_parser().parse_args(shlex.split(command))
    assert (ROOT / given.settings).samefile(path)
    settings, alone = load(path), load(RECIPES["multi30k-en-de"].path)
    assert settings.training.learning_rate == alone.training.learning_rate
    assert settings.decoding == alone.decoding
    languages = ["en", "de", "fr"] if part == "first" else ["en", "de"]
    assert (given.files, given.dev) == tuple([f"DATA/{name}.{each}" for each in languages] for name in ("train", "val"))
    assert (given.output, given.start) == (
        ("runs/multi30k-both", None) if part == "first" else ("runs/multi30k-both-de", "runs/multi30k-both")
    )


def test_the_page_of_recipes_names_them_all_and_scores_are_published_of_some() -> None:
    page = (ROOT / "recipes" / "README.md").read_text(encoding="utf-8")
    named = {(ROOT / "recipes" / path).resolve() for path in re.findall(r"\]\(([\w/-]+\.toml)\)", page)}
    assert named == {part.path for recipe in RECIPES.values() for part in (recipe, recipe.first) if part}
    levels = {
        "gettext-en-de": None,
        "multi30k-both-de": 41.02,
        "multi30k-both-fr": 61.80,
        "multi30k-en-de": 41.02,
        "multi30k-en-fr": 61.80,
        "tatoeba-en-zh": None,
    }
    assert {name: report.level(name, "tokenised") for name in RECIPES} == levels


def test_means_are_of_runs_of_one_length_and_one_kind() -> None:
    now = kind_of(RECIPES["gettext-en-de"].settings({"training.steps": "7", "training.seed": "3"}))
    other = kind_of(RECIPES["gettext-en-de"].settings({"training.weight_decay": "0.7"}))

    def run(name: str, steps: int, score: float, kind: dict[str, Any] | None = None) -> dict[str, Any]:
        sets = {name: {"BLEU": {"value": score + more}} for name, more in (("val", 1.0), ("test", 0.0))}
        about = {"recipe": "gettext-en-de", "form": "raw", "seed": name, "dev": "val", "tests": ["test"]}
        found = {**about, "name": name, "step": steps, "sets": sets, "before": {"step": 100}}
        return {**found, "kind": kind} if kind else found

    records = [run("a", 400, 20.0), run("b", 200, 10.0), run("c", 200, 13.0), run("h", 200, 10.0)]
    records += [run("d", 200, 30.0, json.loads(json.dumps(now))), run("e", 400, 5.0, other), run("f", 200, 32.0, now)]
    records += [run("g", 200, 31.0, now)]
    wanted = {
        True: [["100 + 200", "3", "31.00", "30.00 to 32.00"]],
        False: [
            ["100 + 200", "3", "11.00", "10.00 to 13.00"],
            ["100 + 400", "1", "", ""],
            ["100 + 400", "1", "", ""],
        ],
    }
    for as_it_is, told in wanted.items():
        lines = report.summary(report.grouped(records), as_it_is).splitlines()[2:]
        assert [line.strip("| ").split(" | ")[3:7] for line in lines] == told
    assert report.summary(report.grouped(records[4:5]), as_it_is=False) == ""


# The script


def here(run: quality.Run) -> None:
    assert quality.train(run, threading.Event())
    quality.measure(run)


def test_the_whole_script_from_files_to_the_report(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert quality.main(arguments(data, tmp_path, "--recipes", "gettext-en-de")) == 0
    monkeypatch.setattr(quality, "carry_out", here)  # a process of its own for one run is enough of them
    assert quality.main(arguments(data, tmp_path, "--recipes", "multi30k-en-de", "--curve")) == 0
    page = (tmp_path / "docs" / "quality.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in page.splitlines() if line.startswith("| ")]
    runs = {(row[0], row[1], row[7]): row for row in rows if len(row) > 8 and row[2] == "seed 1"}
    assert set(runs) == {
        ("gettext-en-de", "raw", "dev"),
        *(("multi30k-en-de", form, name) for form in ("tokenised", "raw") for name in ("val", "test_2016_flickr")),
    }
    assert all("(within 3,000,000)" in row[6] for (recipe, *_), row in runs.items() if recipe == "multi30k-en-de")
    for form, signature in SIGNATURES.items():
        line = next(line for line in page.splitlines() if line.startswith(f"- multi30k-en-de, {form}: BLEU"))
        assert signature in line
        assert ("chrF" in line) == (form == "raw")
    assert "41.02" not in page  # one seed is compared with nothing
    assert "Time to the published score" not in page
    assert "model.width = 8 instead of 128" in page.replace("&#95;", "_")
    outputs = page.partition("## Outputs: gettext-en-de")[2]
    assert outputs.count("&#91;dogs&#93; run &#124;") >= 20
    pictures = re.findall(r"\]\((images/.+\.svg)\)", page)
    assert len(pictures) == 3
    for picture in pictures:
        ElementTree.fromstring((tmp_path / "docs" / picture).read_text(encoding="utf-8"))  # noqa: S314 - our own
    record = json.loads((tmp_path / "kept" / "multi30k-en-de.tokenised.1" / "scores.json").read_text())
    assert set(record["curve"]) == {str(each["step"]) for each in record["evaluations"] if each["best"]}
    (tmp_path / "docs" / "quality.md").unlink()
    assert quality.main([*arguments(data, tmp_path), "--report-only"]) == 0
    assert (tmp_path / "docs" / "quality.md").read_text(encoding="utf-8") == page


def test_a_run_goes_on_with_its_clock_is_used_again_and_can_be_adopted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run,) = plan(data, tmp_path, "--recipes", "multi30k-en-de", "--form", "raw", "--curve")
    stop, write = threading.Event(), quality.Log.write

    def stop_at_three(log: quality.Log, event: str, values: dict[str, Any]) -> None:
        write(log, event, values)
        if values.get("step") == 3:
            stop.set()

    monkeypatch.setattr(quality.Log, "write", stop_at_three)
    assert not quality.train(run, stop)
    before = read_log(run.log)
    assert before[-1]["event"] == "Finished"
    assert not before[-1]["complete"]
    with run.log.open("a") as file:
        file.write('\n{"event": "Progr')  # as a kill leaves it
    assert quality.train(run, threading.Event())
    log = read_log(run.log)
    walls = [line["wall"] for line in log]
    assert walls == sorted(walls)
    assert walls[len(before)] >= before[-1]["wall"] > 0
    assert [line["step"] for line in log if line["event"] == "Evaluation"] == [2, 4]
    sessions = [line for line in log if line["event"] == "Session"]
    assert len(sessions) == 2
    assert sessions[0]["settings"]["training"]["seed"] == 1
    assert sessions[0]["versions"]["sacrebleu"]
    assert quality.train(run, threading.Event())  # complete: used again
    assert read_log(run.log) == log
    other = plan(data, tmp_path, "--recipes", "multi30k-en-de", "--form", "raw", "--set", "model.dropout=0.1")[0]
    with pytest.raises(RegardError, match=r"model.dropout = 0.3 instead of 0.1: remove it"):
        quality.train(other, threading.Event())

    (adopted,) = plan(data, tmp_path, "--adopt", f"multi30k-en-de={run.model}")
    assert (adopted.form, adopted.folder.name) == ("raw", "multi30k-en-de.raw.model")
    quality.measure(adopted)
    page = report.write_report(tmp_path / "kept", tmp_path / "quality").read_text(encoding="utf-8")
    assert re.search(r"\| model, seed 1 \| 4 \| – \| 0\.\d \|", page)
    scores = (adopted.folder / "scores.json").stat().st_mtime_ns
    monkeypatch.setattr(quality, "scores", None)  # nothing is scored twice
    quality.measure(adopted)
    assert (adopted.folder / "scores.json").stat().st_mtime_ns > scores


def test_a_recipe_in_two_parts_trains_the_first_once_and_counts_its_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = plan(data, tmp_path, "--recipes", "multi30k-both-de,multi30k-both-fr", "--form", "tokenised", "--curve")
    names = [run.folder.name.removeprefix("multi30k-") for run in runs]
    assert names == ["both.tokenised.1", "both-de.tokenised.1", "both-fr.tokenised.1"]
    first, german, _ = runs
    for run in (first, german):
        quality.work(run)
    assert not (first.folder / "scores.json").exists()
    record = json.loads((german.folder / "scores.json").read_text())
    assert record["differences"]  # none of them is of what the first part has decided
    assert not any(each.startswith(("data.", "tokenizer.tags")) for each in record["differences"])
    (whole,) = [line["wall"] for line in read_log(first.log) if line["event"] == "Finished"]
    assert record["before"]["wall"] == whole > 0
    evaluated = [line["scores"] for line in read_log(first.log) if line["event"] == "Evaluation"]
    assert [each["scores"]["bleu"] for each in record["before"]["evaluations"]] == [
        each["bleu en-de"] for each in evaluated
    ]
    page = report.write_report(tmp_path / "kept", tmp_path / "quality").read_text(encoding="utf-8")
    assert "| multi30k-both-de | tokenised | seed 1 | 4 + 4 |" in page
    assert [wall for wall, _, _ in report.test_course(record)] == sorted(
        whole + each["wall"] for each in (*(e for e in record["evaluations"] if e["best"]), record)
    )

    (adopted,) = plan(data, tmp_path, "--adopt", f"multi30k-both-de={german.model}")
    assert adopted.first is not None
    assert adopted.first.log == first.model / "log.jsonl"

    words = ["--recipes", "multi30k-both-de", "--form", "tokenised", "--set", "training.warmup=2"]
    other = plan(data, tmp_path, *words)[1]
    with pytest.raises(RegardError, match=r"training.warmup = 1 instead of 2: remove it"):
        quality.train(other, threading.Event())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--recipes", "multi30k-both-de", "--form", "raw"], "multi30k/train.fr is missing: put it there"),
        (
            ["--recipes", "gettext-en-de,tatoeba-en-zh"],
            "neither .*tatoeba-en-zh nor .*tatoeba exists: --data is the folder above",
        ),
        (["--recipes", "wmt"], "there is no recipe wmt: use gettext-en-de, "),
        (["--adopt", "multi30k-en-de"], "write RECIPE=FOLDER"),
        (["--adopt", "gettext-en-de:tokenised=x"], "write RECIPE=FOLDER"),
        (["--adopt", "multi30k-en-de=nowhere"], "nowhere: no finished training is logged there"),
        (["--recipes", "gettext-en-de", "--set", "model.widht=8"], "did you mean model.width"),
        (["--report-only"], "there are no runs yet"),
    ],
)
def test_missing_files_are_reported_before_anything_is_trained(
    data: Path, tmp_path: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quality.main(arguments(data, tmp_path, *words)) == 2
    assert re.search(f"^error: .*{told}", capsys.readouterr().err)
    assert not (tmp_path / "kept").exists()


# The report


def record(seed: int, test: float, dev: float, curve: dict[str, float], wall: float | None = 1.0) -> report.Record:
    def clock(step: int) -> float | None:
        return None if wall is None else 70.0 * step * wall

    scores = {name: {"BLEU": {"value": value, "signature": "s"}} for name, value in (("val", dev), ("test", test))}
    evaluations = [
        {"step": step, "wall": clock(step), "seconds": 60.0 * step, "scores": {"bleu": 39.0 + step}, "best": step != 2}
        for step in (1, 2, 3)
    ]
    return {
        "recipe": "multi30k-en-de",
        "form": "tokenised",
        "name": f"multi30k-en-de.tokenised.{seed}",
        "seed": seed,
        "adopted": wall is None,
        "differences": [],
        "parameters": 3_000_001,
        "step": 3,
        "wall": clock(3),
        "seconds": 180.0,
        "sets": scores,
        "dev": "val",
        "tests": ["test"],
        "evaluations": evaluations,
        "curve": curve,
        "samples": [],
        "machine": None,
        "decoding": {"beam": 5, "length_penalty": 0.6},
    }


def test_the_best_run_is_the_best_on_dev_and_times_are_those_of_the_curve(tmp_path: Path) -> None:
    records = [
        record(1, test=42.0, dev=40.0, curve={"1": 40.9, "3": 41.5}),
        record(2, test=41.0, dev=41.0, curve={"1": 40.9, "3": 40.95}),
        record(3, test=40.0, dev=39.0, curve={"3": 41.5}),
        record(4, test=40.0, dev=39.0, curve={}, wall=None),
    ]
    for each, score in zip(records, (41.75, 41.25), strict=False):
        each["agreed"] = {"test": {"BLEU": {"value": score, "signature": "s"}}}
    for each in records:
        (tmp_path / each["name"]).mkdir()
        (tmp_path / each["name"] / "scores.json").write_text(json.dumps(each))
    page = report.write_report(tmp_path, tmp_path / "quality").read_text(encoding="utf-8")
    row = "test | 3 | 4 | 40.75 | 40.00 to 42.00 | 41.02 |  |  |"
    assert f"| multi30k-en-de | tokenised | {row}" in page  # of two runs chosen by consensus there is no mean
    assert "| multi30k-en-de | 3 | 41.0 | 4 of 4 | 2.0 | 3 of 4 | at most 3.0 |" in page  # not every curve is kept
    assert "3,000,001 (**more than** 3,000,000)" in page
    assert report.label(records[0]) == "seed 1"
    assert report.label({**records[0], "name": "multi30k-en-de.tokenised.before"}) == "before, seed 1"
    drawn = (tmp_path / "images" / "quality-multi30k-en-de-tokenised.svg").read_text()
    assert "minutes of updates" in drawn
    assert drawn.count(", test<") == drawn.count(", dev, greedy<") == 4  # the end, where there is no more, is a point
    assert "published: 41.02" in drawn

    records[2]["kind"] = json.loads(json.dumps(kind_of(RECIPES["multi30k-en-de"].settings({}))))
    (tmp_path / records[2]["name"] / "scores.json").write_text(json.dumps(records[2]))
    report.write_report(tmp_path, tmp_path / "quality")
    drawn = (tmp_path / "images" / "quality-multi30k-en-de-tokenised.svg").read_text()
    assert "seed 3, test<" in drawn  # the recipe as it is, and no other
    assert "seed 1" not in drawn
    assert "published" not in drawn  # one seed


def test_fewer_than_three_seeds_have_no_mean_and_stand_beside_nothing_published() -> None:
    runs = [record(seed, test=score, dev=40.0, curve={}) for seed, score in ((1, 41.5), (2, 42.5), (2, 42.0))]
    groups = report.grouped(runs)
    (row,) = report.summary(groups, as_it_is=False).splitlines()[2:]
    assert row == "| multi30k-en-de | tokenised | test | 3 | 2 |  |  |  |  | 41.50, 42.50, 42.00 |"
    assert report.times(groups) == ""
    assert "published" not in report.plot("t", runs, 41.02)
    groups = report.grouped([*runs[:2], record(3, test=43.5, dev=40.0, curve={})])
    (row,) = report.summary(groups, as_it_is=False).splitlines()[2:]
    assert row == "| multi30k-en-de | tokenised | test | 3 | 3 | 42.50 | 41.50 to 43.50 | 41.02 |  |  |"
    assert "| multi30k-en-de | 3 | 41.0 | 3 of 3 | 2.0 | 3 of 3 |" in report.times(groups)


def test_text_in_the_report_is_never_markdown() -> None:
    assert plain("a|b `c` [d](e) _f_ <g> & *h*") == (
        "a&#124;b &#96;c&#96; &#91;d&#93;(e) &#95;f&#95; &lt;g&gt; &amp; &#42;h&#42;"
    )


# The plots


def test_ticks_are_round_and_enclose_the_values() -> None:
    assert ticks(23.1, 41.6) == [20, 25, 30, 35, 40, 45]
    assert ticks(0.0, 51.0) == [0, 10, 20, 30, 40, 50, 60]
    assert ticks(7.0, 7.0)[0] <= 7.0 < ticks(7.0, 7.0)[-1]


def test_a_plot_is_well_formed_and_has_no_background() -> None:
    lines = [Line("a < b", [(1.0, 20.0), (2.0, 30.0)]), Line("dev", [(1.0, 10.0)], 1, dashed=True)]
    picture = draw("x & y", "minutes", "BLEU", lines, ("published: 41.02", 41.02))
    root = ElementTree.fromstring(picture)  # noqa: S314 - our own
    words = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert {"x & y", "minutes", "BLEU", "a < b", "dev", "published: 41.02"} <= set(words)
    assert not list(root.iter("{http://www.w3.org/2000/svg}rect"))
    assert not re.search("black|white|#000|#fff", picture)
