"""The comparison of decoding engines: its figures, its choice, its processes, and a whole run on a toy."""

from __future__ import annotations

import argparse
import json
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from benchmarks.decoders import agreement, measures, tuning
from benchmarks.decoders.adapters import ENGINES, Adapter, Job, Output, build, until
from benchmarks.decoders.engine_process import EngineProcess
from benchmarks.decoders.engine_server import replies
from benchmarks.decoders.measures import WORKLOADS
from benchmarks.decoders.tables import every_table, main_tables
from benchmarks.decoders.tuning import Way
from benchmarks.plots import Bars, draw_bars
from benchmarks.program import BenchmarkError
from benchmarks.tables import show, spread

from benchmarks import decoding
from regard.interop.config_writing import describe
from regard.preparation.chosen_settings import load
from regard.weights import read_folder
from tests.interop.toys import SHAPES, SOURCES, settings_of, write_model

SPEEDS = {"native-float32": 500, "ct2-float32": 400, "native-int8": 900, "ct2-int8": 450, "torch": 200, "hf": 100}
SPEEDS |= {"native-float32-short": 600, "native-int8-short": 1000}
BLEUS = {"native-int8": 34.9, "ct2-int8": 34.6}


def example_report() -> dict[str, Any]:
    """A whole report of made-up figures: three rounds, the second on a slower machine."""
    runs, loads, same = [], [], []
    for model in ("small", "base"):
        for workload in WORKLOADS:
            for engine, speed in SPEEDS.items():
                place = {"model": model, "workload": workload, "engine": engine}
                loads.append({**place, "import_seconds": 0.5, "construct_seconds": 100 / speed, "loaded_mib": 90.0})
                same.append({**place, "equal": 990, "ties": 10, "of": 1000, "gaps": []})
                for number, slower in enumerate((1.0, 2.0, 1.0), 1):
                    run = {**place, "round": number, "sentences": 1000, "bleu": BLEUS.get(engine, 35.0)}
                    run |= {"peak_mib": 40_000 / speed, "search_seconds": 900 / speed}
                    if WORKLOADS[workload].single:
                        run["latencies"] = [slower / speed] * 90 + [5 * slower / speed] * 10
                    else:
                        run["seconds"] = 1000 * slower / speed
                    runs.append(run)
    shape = {"width": 4, "hidden": 8, "encoder_layers": 1, "decoder_layers": 1, "vocabulary": 10}
    about = {"shape": shape, "heads": 2, "parameters": 1234}
    way = Way(1, 2, 64).record()
    return {
        "date": "2026-11-17T00:00:00+00:00",
        "command": "python benchmarks/decoding.py",
        "machine": {"processor": "P", "cores": 2, "memory_gib": 4, "python": "3.12", "flags": ["avx2", "avx512_vnni"]},
        "versions": {"ctranslate2": "4.8.4"},
        "signature": "tok:none",
        "threads": 2,
        "sentences": 1000,
        "gemm_gflops": [100.0, 120.0],
        "models": {"small": about, "base": about},
        "tuning": [
            {
                "model": "small",
                "workload": "beam",
                "engine": "ct2-int8",
                "chosen": way,
                "tried": [{**way, "seconds": 2.0}],
            }
        ],
        "loads": loads,
        "runs": runs,
        "same": same,
        "failures": [],
    }


# Figures


def test_ratios_are_taken_within_a_round_and_more_is_better_everywhere() -> None:
    report = example_report()
    assert measures.advantage(report, "small", "native-float32", "greedy", measures.sentences_per_second) == [1.25] * 3
    assert measures.advantage(report, "base", "native-int8", "one-beam", measures.median_milliseconds) == [2.0] * 3
    assert measures.quotients({1: 4.0, 2: 9.0, 3: 1.0}, {1: 2.0, 3: 4.0}) == [2.0, 0.25]


def test_percentiles_and_spreads() -> None:
    run = {"latencies": [0.001] * 19 + [0.1]}
    assert measures.median_milliseconds(run) == 1.0
    assert measures.p95_milliseconds(run) == 100.0
    assert measures.percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert spread([3.0, 1.0, 2.0], 1) == [2.0, 1.0, 3.0]
    assert spread([1.5], 1) == 1.5
    assert spread([], 1) is None


# Tuning


def test_the_fastest_way_is_chosen_and_then_its_environment() -> None:
    asked = []

    def attempt(way: Way) -> float:
        asked.append(way)
        if way.batch == 32 and way.workers == 1:
            raise BenchmarkError("ended by SIGILL")
        return (
            (1.0 if way.workers == 2 else 2.0) + abs(way.batch - 128) - (0.5 if "CT2_USE_MKL" in way.environment else 0)
        )

    chosen, tried = tuning.tune(tuning.batch_ways(2, beam=1), attempt)
    assert chosen == Way(2, 1, 128, {"CT2_USE_MKL": "0"})
    assert len(asked) == len(tried) == 2 * 3 + 2 + 2
    assert asked[6:8] == [Way(2, 1, 128), Way(1, 2, 128)]  # the fastest once more
    assert [each["error"] for each in tried if "error" in each] == ["ended by SIGILL"]
    assert str(chosen) == "2 × 1 threads, batch 128, CT2_USE_MKL=0"


def test_where_no_way_works_tuning_says_why() -> None:
    def attempt(way: Way) -> float:
        raise BenchmarkError("ended by SIGILL")

    with pytest.raises(BenchmarkError, match="any way: ended by SIGILL"):
        tuning.tune(tuning.single_ways(2), attempt)


def test_ways_use_all_threads_but_for_one_sentence() -> None:
    assert tuning.splits(1) == [(1, 1)]
    assert tuning.splits(4) == [(1, 4), (2, 2), (4, 1)]
    assert [way.batch for way in tuning.batch_ways(1, beam=5)] == [16, 32, 64]
    assert [way.threads for way in tuning.single_ways(2)] == [1, 2]
    assert [way.threads for way in tuning.single_ways(1)] == [1]


# Processes


class Parrot(Adapter):
    """An engine that says what it hears, in capitals if it has a beam."""

    def prepare(self) -> None:
        time.sleep(0.3)

    def load(self) -> None:
        self.loaded = True

    def translate(self, texts: Sequence[str], beam: int, **options: Any) -> list[Output]:
        if "" in texts:
            raise ValueError("nothing\nto say")
        self.searched += 0.5
        return [Output(text.upper() if beam > 1 else text, text.split()) for text in texts]

    def versions(self) -> dict[str, str]:
        return {"parrot": "1"}


def test_commands_are_answered_and_so_are_errors() -> None:
    commands: list[dict[str, Any]] = [
        {"do": "load"},
        {"do": "batch", "texts": ["a b", "c"], "beam": 5},
        {"do": "single", "texts": ["a b", "c"], "beam": 1},
        {"do": "batch", "texts": [""], "beam": 1},
    ]
    loaded, batch, single, error = replies(Parrot(Job("native-float32", "", "", 1)), iter(map(json.dumps, commands)))
    assert loaded["import_seconds"] >= 0.3 > loaded["construct_seconds"]
    assert loaded["versions"] == {"parrot": "1"}
    assert loaded["loaded_mib"] > 1
    assert (batch["outputs"], batch["tokens"]) == (["A B", "C"], [["a", "b"], ["c"]])
    assert batch["search_seconds"] == 0.5
    assert single["outputs"] == ["a b", "c"]
    assert len(single["latencies"]) == 2
    assert single["search_seconds"] == 1.0
    assert error == {"error": "ValueError: nothing to say"}


PROGRAM = """import json, os, signal, sys, time
for line in sys.stdin:
    match json.loads(line):
        case {"do": "say", "what": what}: print(json.dumps({"said": what, "ct2": os.environ.get("CT2_X")}), flush=True)
        case {"do": "fail"}: print(json.dumps({"error": "cannot"}), flush=True)
        case {"do": "crash"}: os.kill(os.getpid(), signal.SIGILL)
        case {"do": "sleep"}: time.sleep(60)
"""


def test_an_engine_process_answers_and_its_end_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CT2_X", "from the shell")  # would tune an engine unseen
    command = [sys.executable, "-c", PROGRAM]
    with EngineProcess(command, tmp_path / "log") as child:
        assert child.ask("say", what="ü") == {"said": "ü", "ct2": None}
        with pytest.raises(BenchmarkError, match="cannot"):
            child.ask("fail")
        with pytest.raises(BenchmarkError, match="crash: ended by SIGILL"):
            child.ask("crash")
        with pytest.raises(BenchmarkError, match="say: ended by SIGILL"):
            child.ask("say", what="more")
    with EngineProcess(command, tmp_path / "log", {"CT2_X": "ours"}) as child:
        assert child.ask("say", what="")["ct2"] == "ours"
        with pytest.raises(BenchmarkError, match="out of time"):
            child.ask("sleep", timeout=0.2)


# Engines on a toy


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A toy in the place of SMALL's checkpoint."""
    place = tmp_path_factory.mktemp("checkpoints") / "small"
    return write_model(place, settings_of("translate", **SHAPES["marian"]))


def test_engines_give_the_same_outputs_for_a_toy_model(folder: Path) -> None:
    contents = read_folder(folder)
    forms = decoding.export(folder, contents)
    limits: dict[str, dict[str, Any]] = {  # a toy does not end by itself
        "torch": {"max_ratio": 0.0},
        "ct2-float32": {"max_decoding_length": 20},
        "hf": {"max_new_tokens": 20},
    }
    told = {}
    for name, limit in limits.items():
        adapter = build(Job(name, str(forms[ENGINES[name].form]), str(folder / "tokenizer.json"), 1))
        adapter.prepare()
        adapter.load()
        outputs = adapter.translate(SOURCES, 1, **limit)
        assert adapter.searched > 0
        told[name] = [agreement.ids_of(contents, output.tokens) for output in outputs]
        assert [output.text for output in outputs] == list(map(contents.vocabularies.target.decode, told[name]))
        assert len(adapter.translate(SOURCES, 5, **limit)) == len(SOURCES)
    assert told["torch"] == told["ct2-float32"] == told["hf"]
    sizes = [(forms[f"ctranslate2-{kind}"] / "model.bin").stat().st_size for kind in ("int8", "float32")]
    assert sizes[0] < sizes[1]


def test_differences_of_outputs_are_ties_or_not(folder: Path) -> None:
    contents = read_folder(folder)
    tokens = contents.vocabularies.target.encode_batch(["Ein Hund liest."])[0]
    other = [*tokens[:-1], tokens[0]]
    found = agreement.compare(contents, ["A dog."] * 2, [tokens, tokens], [tokens, other], ties=True)
    assert (found["equal"], found["of"]) == (1, 2)
    assert found["gaps"][0] == pytest.approx(agreement.gap(contents, "A dog.", other, tokens))
    assert found["ties"] == (found["gaps"][0] <= agreement.TIE)
    assert agreement.gap(contents, "A dog.", tokens, tokens[:-1]) > 0
    pieces = contents.vocabularies.target.pieces(tokens)
    assert agreement.ids_of(contents, pieces) == agreement.ids_of(contents, tokens) == tokens


def test_what_follows_the_end_is_no_output() -> None:
    assert until([5, 6, 3, 0, 0], 3) == [5, 6]
    assert until([5, 6], 3) == [5, 6]


@pytest.mark.parametrize(("name", "width"), [("small", 256), ("base", 512)])
def test_the_settings_are_those_of_the_models_that_are_compared(name: str, width: int) -> None:
    settings = load(decoding.SETTINGS[name])
    assert (settings.model.width, settings.model.hidden) == (width, 4 * width)
    assert settings.tokenizer.vocabulary == 10_000


def test_the_small_one_is_a_translator_that_hugging_face_takes_too(folder: Path) -> None:
    form = describe(load(decoding.SETTINGS["small"]), read_folder(folder).vocabularies)
    assert form.files["config.json"]["model_type"] == "marian"


# The script and its tables


def test_single_sentences_are_evenly_spaced_and_the_slow_engine_has_some_of_them() -> None:
    texts = [str(number) for number in range(100)]
    bench = decoding.Bench(argparse.Namespace(single=20), texts, [text * 2 for text in texts], {})
    chosen, references = bench.texts("torch", WORKLOADS["one-greedy"])
    assert chosen == texts[::5]
    assert references == [text * 2 for text in chosen]
    assert bench.texts("hf", WORKLOADS["one-greedy"])[0] == texts[::25]
    assert bench.texts("hf", WORKLOADS["greedy"])[0] == texts


def test_a_record_has_the_speeds_of_a_whole_run() -> None:
    report = example_report()
    batches = main_tables(report)[0]["rows"]
    regard = next(row for row in batches if (row["engine"], row["precision"]) == ("Regard, native", "float32"))
    assert regard["greedy, sentences/s"] == [500, 250, 500]
    assert regard["greedy ÷ CTranslate2"] == [1.25, 1.25, 1.25]
    rows = every_table(report, "small")[3]["rows"]
    assert "990 of 1,000, 10 ties" in [row["greedy"] for row in rows]


def test_tables_of_a_part_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    report = example_report()
    report["models"].pop("base")
    report["runs"] = [run for run in report["runs"] if run["engine"] == "torch" and run["workload"] == "greedy"]
    report["failures"] = [{"model": "small", "engine": "ct2-int8", "workload": "beam", "error": "ended by SIGILL"}]
    show(every_table(report, "small"))
    printed = capsys.readouterr().out
    assert "SIGILL" in printed


def test_bars_are_drawn_to_scale() -> None:
    drawing = draw_bars("A & B", "speed", [Bars("one", [("x", 50.0), ("<y>", 100.0)])])
    root = ElementTree.fromstring(drawing)  # noqa: S314 - our own
    first, second = (float(each.get("width", 0)) for each in root.iter("{http://www.w3.org/2000/svg}rect"))
    assert second == pytest.approx(2 * first, rel=0.01)


@pytest.mark.slow
def test_the_whole_script_on_a_toy(folder: Path, tmp_path: Path) -> None:
    for language in ("en", "de"):
        (tmp_path / f"{decoding.TEST}.{language}").write_text(
            "".join(f"{text}\n" for text in SOURCES), encoding="utf-8"
        )
    record = tmp_path / "record.json"
    words = ["--data", str(tmp_path), "--models", "small", "--checkpoints", str(folder.parent), "--threads", "1"]
    words += ["--engines", "ct2-float32,torch", "--workloads", "greedy,one-greedy", "--rounds", "2", "--single", "2"]
    words += ["--output", str(record), "--no-keep"]
    assert decoding.main(words) == 0
    report = json.loads(record.read_text(encoding="utf-8"))
    assert not report["failures"]
    places = [(run["workload"], run["round"], run["engine"]) for run in report["runs"]]
    assert places == [
        (workload, number, engine)
        for workload in ("greedy", "one-greedy")
        for number, engine in ((1, "ct2-float32"), (1, "torch"), (2, "ct2-float32"))  # PyTorch has one round
    ]
    assert [len(run["latencies"]) for run in report["runs"] if "latencies" in run] == [2] * 3
    assert len(report["tuning"]) == 2
    assert set(report["models"]) == {"small"}
    assert all(load["loaded_mib"] < 200 for load in report["loads"] if load["engine"] == "ct2-float32")  # no torch
