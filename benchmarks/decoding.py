"""Decoding speed of regard's engines, CTranslate2 and Hugging Face: one trained model, in one run, as ratios.

python benchmarks/decoding.py --data PATH    (PATH holds Multi30k's *.lc.norm.tok.en and .de; see README.md)

Every engine has a process of its own, which loads the model in the form of that engine and takes turns with the
others; load time and peak memory are that process's. `--train` makes the two models where they are missing.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ctranslate2
from sacrebleu import BLEU

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from benchmarks.decoders.adapters import ENGINES, REFERENCE, Job
from benchmarks.decoders.agreement import compare, ids_of
from benchmarks.decoders.engine_process import EngineProcess, serve
from benchmarks.decoders.measures import WORKLOADS, Workload, median_milliseconds, sentences_per_second
from benchmarks.decoders.tables import compact_log, every_table, main_tables
from benchmarks.decoders.tuning import Way, batch_ways, single_ways, tune
from benchmarks.machine import cpu_flags, describe_machine
from benchmarks.program import BENCH, ROOT, BenchmarkError, names_from, positive
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import RegardError
from regard.interop import ctranslate2 as to_ctranslate2, huggingface
from regard.jobs.shortlist_learning import learn_shortlist
from regard.model_folder import SHORTLIST, TRAINING
from regard.weights import read_folder

SETTINGS = {name: ROOT / "benchmarks" / "decoders" / f"{name}.toml" for name in ("small", "base")}
TEST = "test_2016_flickr.lc.norm.tok"
ROUNDS = {"small": 3, "base": 2}
WARM_UP = 16  # sentences before the first round
PAUSE = 0.3  # seconds between engines: threads of the previous one spin for a while when their work is done
PATIENT = 2  # of a second beam search of CTranslate2, not timed, which searches longer

Report = dict[str, Any]


@dataclass
class Bench:
    """One run of this script: its arguments, the sentences, and the report so far."""

    arguments: argparse.Namespace
    sources: list[str]
    references: list[str]
    report: Report

    def save(self) -> None:
        program.write_json(self.arguments.output, self.report)

    def texts(self, engine: str, workload: Workload) -> tuple[list[str], list[str]]:
        """Returns the sentences that an engine translates, and their references; single ones are evenly spaced."""
        places = list(range(len(self.sources)))
        if workload.single:
            count = min(self.arguments.single, len(places))
            alone = [len(places) * number // count for number in range(count)]
            places = alone[:: ENGINES[engine].every]
        return [self.sources[place] for place in places], [self.references[place] for place in places]


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(words)
    program.exit_on_terminate()
    try:
        bench = begin(arguments)
        for model in arguments.models:
            measure_model(bench, model)
        for model in arguments.models:
            tables.show(every_table(bench.report, model))
        print(f"written to {arguments.output}")
        if arguments.keep:
            keep(bench)
    except KeyboardInterrupt:
        return 130
    except (BenchmarkError, RegardError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def keep(bench: Bench) -> None:
    names, report = ("sentences", "single", "tuning", "threads"), bench.report
    settings = {"rounds": bench.arguments.rounds or ROUNDS} | {name: getattr(bench.arguments, name) for name in names}
    about = {"versions": report["versions"], "machine": report["machine"], "settings": settings}
    records.keep("decoding", main_tables(report), log=compact_log(report), **about)


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = program.argument_parser(__doc__)
    program.add_data(parser, "*.lc.norm.tok.en and .de")
    parser.add_argument("--models", type=names_from(SETTINGS), default=list(SETTINGS), help="default: small,base")
    parser.add_argument("--engines", type=names_from(ENGINES), default=list(ENGINES), help="default: all")
    parser.add_argument("--workloads", type=names_from(WORKLOADS), default=list(WORKLOADS), help="default: all")
    parser.add_argument("--rounds", type=positive, help=f"default: {', '.join(f'{ROUNDS[m]} of {m}' for m in ROUNDS)}")
    parser.add_argument("--sentences", type=positive, default=1000, help="of the test set; default: 1000")
    parser.add_argument("--single", type=positive, default=100, help="sentences translated alone; default: 100")
    parser.add_argument("--tuning", type=positive, default=256, help="sentences that tuning tries; default: 256")
    parser.add_argument("--threads", type=positive, default=2, help="default: 2")
    parser.add_argument("--train", action="store_true", help="train missing models")
    parser.add_argument("--checkpoints", type=Path, default=BENCH / "decoding", help="default: .bench/decoding")
    parser.add_argument("--output", type=Path, default=BENCH / "decoding.json")
    return parser.parse_args(words)


def begin(arguments: argparse.Namespace) -> Bench:
    """Reads the sentences, trains what is missing, and measures the machine."""
    sides = [arguments.data / f"{TEST}.{language}" for language in ("en", "de")]
    for path in sides:
        if not path.is_file():
            raise BenchmarkError(f"{path} is missing: --data is the folder with Multi30k")
    sources, references = (path.read_text(encoding="utf-8").splitlines()[: arguments.sentences] for path in sides)
    for model in arguments.models:
        train(model, arguments)
    report: Report = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "machine": {**describe_machine(), "flags": cpu_flags()},
        "threads": arguments.threads,
        "sentences": len(sources),
        "gemm_gflops": [],
        "versions": {},
        "models": {},
        **{name: [] for name in ("tuning", "loads", "runs", "same", "failures")},
    }
    return Bench(arguments, sources, references, report)


def train(model: str, arguments: argparse.Namespace) -> None:
    """Trains a missing model if --train allows it."""
    folder = arguments.checkpoints / model
    if (folder / "weights.safetensors").is_file():
        return
    if not arguments.train:
        raise BenchmarkError(f"{folder} has no model yet: --train makes it (small: some twenty minutes, base: longer)")
    files, dev = (
        [str(arguments.data / f"{name}.lc.norm.tok.{side}") for side in ("en", "de")] for name in ("train", "val")
    )
    command = [sys.executable, "-m", "regard", "train", "--settings", str(SETTINGS[model]), *files]
    print(f"training {model}; its log is {folder / 'log.jsonl'}", flush=True)
    done = subprocess.run([*command, "--dev", *dev, "-o", str(folder)], cwd=ROOT, check=False)
    if done.returncode:
        raise BenchmarkError(f"training {model} failed with status {done.returncode}")


# A model


def measure_model(bench: Bench, model: str) -> None:
    folder = bench.arguments.checkpoints / model
    contents = read_folder(folder)
    forms = export(folder, contents)
    if any(engine.endswith("-short") for engine in bench.arguments.engines):
        make_shortlist(folder, bench.arguments.data)
    settings = contents.settings.model
    names = ("width", "hidden", "encoder_layers", "decoder_layers")
    bench.report["models"][model] = {
        "shape": {name: getattr(settings, name) for name in names} | {"vocabulary": contents.vocabularies.target.size},
        "heads": settings.heads,
        "parameters": sum(each.numel() for each in contents.model.parameters()),
        "weights": hashlib.sha256((folder / "weights.safetensors").read_bytes()).hexdigest(),
    }
    bench.report["gemm_gflops"].append(program.measure_products(bench.arguments.threads))
    for name in bench.arguments.workloads:
        measure_workload(bench, model, name, forms, contents)
    bench.report["gemm_gflops"].append(program.measure_products(bench.arguments.threads))
    bench.save()


def export(folder: Path, contents: Any) -> dict[str, Path]:
    """Writes the model in the form of each engine; CTranslate2's int8 is on disk too, as its users have it."""
    others = sorted({engine.form for engine in ENGINES.values()} - {"regard"})
    forms = {"regard": folder, **{name: folder.with_name(f"{folder.name}-{name}") for name in others}}
    to_ctranslate2.export_model(folder, forms["ctranslate2-float32"], overwrite=True)
    try:
        huggingface.export_model(folder, forms["huggingface"], overwrite=True)
    except RegardError as error:  # Marian has one arrangement
        print(f"{folder}: not measured with Hugging Face ({error})")
        del forms["huggingface"]
    for precision in ("float32", "int8"):  # packs the weights, as the first use does
        load_as(Translator, folder, "cpu", engine="native", precision=precision)
    spec = to_ctranslate2.build_spec(ctranslate2.specs, contents)
    spec.validate()
    spec.optimize(quantization="int8")
    forms["ctranslate2-int8"].mkdir(exist_ok=True)
    spec.save(str(forms["ctranslate2-int8"]))
    return forms


def make_shortlist(folder: Path, data: Path) -> None:
    """Learns the shortlist of a model without one."""
    if not (folder / SHORTLIST).is_file():
        files = [data / f"train.lc.norm.tok.{side}" for side in ("en", "de")]
        learn_shortlist(folder, [] if (folder / TRAINING / "train").is_dir() else files)


def measure_workload(bench: Bench, model: str, name: str, forms: dict[str, Path], contents: Any) -> None:
    """Tunes CTranslate2, loads every engine, then the rounds; every other one in reverse order."""
    place = {"model": model, "workload": name}
    engines, ways = [e for e in bench.arguments.engines if ENGINES[e].form in forms], dict[str, Way]()
    for engine in [each for each in engines if each.startswith("ct2")]:
        with recording_failure(bench, {**place, "engine": engine}):
            ways[engine] = choose_way(bench, forms, {**place, "engine": engine})
    outputs: dict[str, list[list[int]]] = {}
    with ExitStack() as stack:
        children: dict[str, EngineProcess] = {}
        for engine in engines:
            if engine.startswith("ct2") and engine not in ways:
                continue
            with recording_failure(bench, {**place, "engine": engine}):
                child = stack.enter_context(start(bench, forms, engine, ways.get(engine)))
                load(bench, child, {**place, "engine": engine})
                children[engine] = child
        for number in range(1, (bench.arguments.rounds or ROUNDS[model]) + 1):
            for engine in list(children) if number % 2 else list(reversed(children)):
                if number <= (ENGINES[engine].rounds or number):
                    where = {**place, "engine": engine, "round": number}
                    with recording_failure(bench, where, children):
                        outputs.setdefault(engine, run_round(bench, children[engine], where, contents))
            bench.save()
        if "ct2-float32" in children and name == "beam":
            with recording_failure(bench, {**place, "engine": "ct2-float32"}):
                texts, _ = bench.texts("ct2-float32", WORKLOADS[name])
                answer = children["ct2-float32"].ask("batch", texts=texts, beam=WORKLOADS[name].beam, patience=PATIENT)
                outputs[f"ct2-float32, patience {PATIENT}"] = answer["tokens"]
    compare_outputs(bench, place, outputs, contents)


@contextmanager
def recording_failure(bench: Bench, where: Report, children: dict[str, EngineProcess] | None = None) -> Iterator[None]:
    """Records the failure of an engine, and leaves it out."""
    try:
        yield
    except BenchmarkError as error:
        bench.report["failures"].append({**where, "error": str(error)})
        print(f"{describe_place(where)}: failed: {error}", flush=True)
        if children is not None:
            children.pop(where["engine"], None)


def describe_place(where: Report) -> str:
    return "  ".join(str(where[key]) for key in ("model", "workload", "round", "engine") if key in where)


def start(bench: Bench, forms: dict[str, Path], engine: str, way: Way | None) -> EngineProcess:
    folder, tokenizer = str(forms[ENGINES[engine].form].resolve()), str((forms["regard"] / "tokenizer.json").resolve())
    job = Job(engine, folder, tokenizer, bench.arguments.threads, way.options if way else {})
    return serve(job, BENCH / "logs", way.environment if way else None)


def load(bench: Bench, child: EngineProcess, where: Report) -> None:
    """Loads an engine and warms it up."""
    answer = child.ask("load")
    bench.report["versions"] |= answer.pop("versions")
    bench.report["loads"].append({**where, **answer})
    workload = WORKLOADS[where["workload"]]
    child.ask(workload.command, texts=bench.sources[:WARM_UP], beam=workload.beam)


def choose_way(bench: Bench, forms: dict[str, Path], where: Report) -> Way:
    """Finds the fastest way to run CTranslate2 for a workload."""
    workload, engine = WORKLOADS[where["workload"]], where["engine"]
    threads = bench.arguments.threads
    ways = single_ways(threads) if workload.single else batch_ways(threads, workload.beam)
    texts = bench.sources[: bench.arguments.tuning // (16 if workload.single else 1 if workload.beam == 1 else 2)]

    def attempt(way: Way) -> float:
        with start(bench, forms, engine, way) as child:
            child.ask("load")
            child.ask(workload.command, texts=bench.sources[:WARM_UP], beam=workload.beam)
            answer = child.ask(workload.command, texts=texts, beam=workload.beam)
        return sum(answer["latencies"]) if workload.single else float(answer["seconds"])

    chosen, tried = tune(ways, attempt)
    bench.report["tuning"].append({**where, "chosen": chosen.record(), "tried": tried})
    print(f"{describe_place(where)}: tuned: {chosen}", flush=True)
    return chosen


def run_round(bench: Bench, child: EngineProcess, where: Report, contents: Any) -> list[list[int]]:
    """Runs an engine once; returns its outputs as ids."""
    workload = WORKLOADS[where["workload"]]
    texts, references = bench.texts(where["engine"], workload)
    time.sleep(PAUSE)
    busy = os.getloadavg()[0]
    answer = child.ask(workload.command, texts=texts, beam=workload.beam)
    outputs, tokens = answer.pop("outputs"), answer.pop("tokens")
    value, bench.report["signature"] = score(outputs, references)
    measured = {"sentences": len(texts), "output_tokens": sum(map(len, tokens)), "bleu": value, "load_average": busy}
    run = {**where, **answer, **measured}
    bench.report["runs"].append(run)
    speed = f"{median_milliseconds(run):.1f} ms" if workload.single else f"{sentences_per_second(run):.1f} sentences/s"
    print(f"{describe_place(where)}: {speed}, BLEU {value:.2f}", flush=True)
    return [ids_of(contents, row) for row in tokens]


def score(outputs: Sequence[str], references: Sequence[str]) -> tuple[float, str]:
    """Returns BLEU as published for lower-cased tokens, and its signature."""
    metric = BLEU(tokenize="none", lowercase=True, force=True)
    return metric.corpus_score(list(outputs), [list(references)]).score, str(metric.get_signature())


def compare_outputs(bench: Bench, place: Report, outputs: dict[str, list[list[int]]], contents: Any) -> None:
    """Compares the outputs of all engines with those of regard by PyTorch."""
    if REFERENCE not in outputs:
        return
    name = place["workload"]
    texts, _ = bench.texts(REFERENCE, WORKLOADS[name])
    expected = dict(zip(texts, outputs[REFERENCE], strict=True))
    for engine, tokens in outputs.items():
        if engine != REFERENCE:
            known = ENGINES[engine.split(",")[0]]
            its, _ = bench.texts(engine.split(",")[0], WORKLOADS[name])
            exact = known.precision == "float32" and not engine.endswith("-short")
            greedy = WORKLOADS[name].beam == 1 and exact  # elsewhere no single token decides
            found = compare(contents, its, [expected[text] for text in its], tokens, ties=greedy)
            bench.report["same"].append({**place, "engine": engine, **found})


if __name__ == "__main__":
    sys.exit(main())
