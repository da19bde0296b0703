"""Quality on small data: trains the recipes, scores them with sacrebleu, and writes a report with plots.

python benchmarks/quality.py --data PATH    (PATH holds multi30k/, tatoeba-en-zh/ and gettext-en-de/; see README.md)

Every run has its own process and folder, .bench/quality/NAME. The same command resumes a stopped or
killed run and reuses a complete one. Weights are chosen by the dev set alone: test sets are not used before a run is
complete.
"""

from __future__ import annotations

import argparse
import datetime
import hashlib
import json
import multiprocessing
import os
import shlex
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks.machine import describe_machine
from benchmarks.program import ROOT
from benchmarks.quality_report import course, finished, read_log, write_report
from benchmarks.recipes import FORMS, RECIPES, Corpus, Recipe, find_corpus, find_recipe, kind_of
from regard.atomic_files import write_text
from regard.cli.text_lines import read_text
from regard.cli.train import stop_on_interrupt
from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import InputError, RegardError
from regard.model_folder import SETTINGS, TRAINING, WEIGHTS, read_settings
from regard.model_manifest import write_manifest
from regard.preparation.prepared_folder import NEW, REQUEST
from regard.preparation.train_and_resume import resume, train as start_training
from regard.training.events import Evaluation, Finished, Note, Prepared, Progress, Stage
from regard.training.validation import snapshot_path
from regard.weights import read_folder

SAMPLES = 20
CONSENSUS = 24  # outputs of the beam, from which the second score of a model chooses; found on val (docs/log.md)


@dataclass(frozen=True)
class Run:
    """One training of a recipe, and its corpus.

    `adopted` is a model that was trained elsewhere, `first` the run that this one continues, which is not scored.
    """

    recipe: Recipe
    form: str
    corpus: Corpus
    overrides: dict[str, str]
    folder: Path
    threads: int | None
    curve: bool
    command: str
    adopted: Path | None = None
    first: Run | None = None

    @property
    def model(self) -> Path:
        return self.adopted or self.folder / "model"

    @property
    def log(self) -> Path:
        return (self.adopted or self.folder) / "log.jsonl"


def main(words: Sequence[str] | None = None) -> int:
    arguments = parse_arguments(words)
    try:
        if not arguments.report_only:
            for run in list(planned(arguments)):  # checks all of them before the first begins
                carry_out(run)
        page = write_report(arguments.output, arguments.report)
    except RegardError as error:
        say(f"error: {error}")
        return 2
    except KeyboardInterrupt:
        say("stopped: run the same command to continue")
        return 130
    say(f"written to {page}")
    return 0


def parse_arguments(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="folder with a folder for each corpus")
    parser.add_argument("--recipes", help=f"some of {','.join(RECIPES)}; default: all, or none with --adopt")
    parser.add_argument("--form", choices=[*FORMS, "both"], default="both", help="of Multi30k's text; default: both")
    parser.add_argument("--seeds", default="1", help="seeds, one run each; default: 1")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting over the recipe's")
    parser.add_argument("--threads", type=int, help="default: all cores")
    parser.add_argument("--curve", action="store_true", help="store the best weights of each moment and score them")
    parser.add_argument("--adopt", action="append", default=[], metavar="RECIPE[:FORM]=FOLDER", help="a trained model")
    parser.add_argument("--output", type=Path, default=ROOT / ".bench" / "quality", help="default: .bench/quality")
    parser.add_argument("--report", type=Path, default=ROOT / "docs" / "quality", help="default: docs/quality")
    parser.add_argument("--report-only", action="store_true", help="write the report on existing runs")
    arguments = parser.parse_args(words)
    arguments.command = shlex.join(["python", "benchmarks/quality.py", *(sys.argv[1:] if words is None else words)])
    return arguments


def planned(arguments: argparse.Namespace) -> Iterator[Run]:
    """Yields the runs that the command line asks for, with checked files; first parts before second ones."""
    if arguments.data is None:
        raise InputError("pass --data, the folder with multi30k/, tatoeba-en-zh/ and gettext-en-de/")
    common = {"threads": arguments.threads, "curve": arguments.curve, "command": arguments.command}
    threads = [f"training.threads={arguments.threads}"] if arguments.threads else []
    overrides = dict(setting.partition("=")[::2] for setting in [*arguments.set, *threads])
    begun: set[Path] = set()

    def begin(recipe: Recipe, form: str, seed: str, first: Run | None = None) -> Run:
        name, given = f"{recipe.name}.{form}.{seed}", {**overrides, "training.seed": seed}
        recipe.settings(given)  # raises an error if they are wrong
        corpus = find_corpus(arguments.data, recipe, form)
        return Run(recipe, form, corpus, given, arguments.output.resolve() / name, **common, first=first)

    def chain(recipe: Recipe, form: str, seed: str) -> list[Run]:
        earlier = chain(recipe.first, form, seed) if recipe.first else []
        return [*earlier, begin(recipe, form, seed, earlier[-1] if earlier else None)]

    names = arguments.recipes.split(",") if arguments.recipes else [] if arguments.adopt else list(RECIPES)
    for recipe in map(find_recipe, names):
        forms = [form for form in recipe.forms if arguments.form in (form, "both")]
        for form, seed in ((form, seed) for form in forms for seed in arguments.seeds.split(",")):
            for run in chain(recipe, form, seed):
                if run.folder not in begun:
                    begun.add(run.folder)
                    yield run
    for adoption in arguments.adopt:
        yield adopt(adoption, arguments, common)


def adopt(adoption: str, arguments: argparse.Namespace, common: dict[str, Any]) -> Run:
    """Returns the run of a model that was trained elsewhere, given as RECIPE=FOLDER or RECIPE:FORM=FOLDER."""
    name, _, path = adoption.partition("=")
    name, _, form = name.partition(":")
    recipe = find_recipe(name)
    if not path or form not in (*recipe.forms, ""):
        raise InputError(f"--adopt {adoption}: write RECIPE=FOLDER, or RECIPE:FORM=FOLDER with tokenised or raw")
    model = Path(path).resolve()
    if not finished(read_log(model / "log.jsonl")):
        raise InputError(f"{path}: no finished training is logged there: regard train --resume {path}")
    request = read_request(model)
    form = form or form_of(model, request)
    corpus = find_corpus(arguments.data, recipe, form)
    run = Run(recipe, form, corpus, {}, arguments.output.resolve() / f"{name}.{form}.{model.name}", **common)
    return replace(run, adopted=model, first=adopted_first(run, request))


def adopted_first(run: Run, request: dict[str, Any]) -> Run | None:
    """Returns the runs that an adopted model continues, as far as their folders exist."""
    if run.recipe.first is None or not request.get("start"):
        return None
    start = Path(request["start"])
    first = replace(run, recipe=run.recipe.first, folder=start, adopted=start)
    return replace(first, first=adopted_first(first, read_request(start)))


def read_request(model: Path) -> dict[str, Any]:
    """Returns the request of a training, as long as the folder has it."""
    path = model / "training" / "request.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.is_file() else {}


def form_of(model: Path, request: dict[str, Any]) -> str:
    """Returns the form of the text that a model was trained on, from its request."""
    if not request:
        raise InputError(f"{model}: training/request.json is missing: pass the form, --adopt RECIPE:FORM={model}")
    return "tokenised" if FORMS["tokenised"] in Path(request["files"][0]).name else "raw"


def carry_out(run: Run) -> None:
    """Trains and scores in a process of its own, which saves and ends when this one ends."""
    process = multiprocessing.get_context("spawn").Process(target=work, args=(run,))
    process.start()
    try:
        process.join()
    finally:
        process.terminate()  # has no effect on one that has ended
        process.join()
    if process.exitcode == 130:
        raise KeyboardInterrupt
    if process.exitcode:
        raise InputError(f"{run.folder.name} failed, for the reason above")


def work(run: Run) -> None:
    stop = threading.Event()
    stop_on_interrupt(stop)
    try:
        if run.adopted is None and not train(run, stop):
            sys.exit(130)
        if run.recipe.name not in RECIPES:  # a first part, which is not scored
            return
        for number in (signal.SIGINT, signal.SIGTERM):  # scores need no saving
            signal.signal(number, signal.SIG_DFL)
        measure(run)
    except RegardError as error:
        say(f"error: {error}")
        sys.exit(2)


# Training


class Log:
    """The log of a run: one JSON object per line, with the seconds since its start, summed over its sessions."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = read_log(path)
        self.path, self.before, self.began = path, lines[-1]["wall"] if lines else 0.0, time.monotonic()

    def write(self, event: str, values: dict[str, Any]) -> None:
        wall = round(self.before + time.monotonic() - self.began, 2)
        with self.path.open("a", encoding="utf-8") as file:  # first a new line, as a kill may have cut off the last one
            file.write("\n" + json.dumps({"event": event, "wall": wall, **values}, ensure_ascii=False))


def train(run: Run, stop: threading.Event) -> bool:
    """Trains or resumes until the run is complete; returns False if it was stopped before."""
    prepared = (run.model / TRAINING).exists()
    if prepared and (others := run.recipe.differences(read_settings(run.model), run.overrides)):
        raise RegardError(f"{run.folder}: has {'; '.join(others)}: remove it, or choose another --output")
    if finished(read_log(run.log)):
        return True
    log, complete = Log(run.log), False
    if prepared or (run.model / NEW / REQUEST).exists():
        threads = {"training.threads": run.threads} if prepared and run.threads else None
        events = resume(run.model, overrides=threads, stop=stop)
    else:
        dev, start = run.corpus.files(run.corpus.dev), run.first.model if run.first else None
        how: dict[str, Any] = {"settings_file": run.recipe.path, "overrides": run.recipe.own(run.overrides)}
        events = start_training(run.corpus.files("train"), run.model, dev=dev, start=start, stop=stop, **how)
    every = 1
    for event in events:
        if isinstance(event, Prepared):
            settings = read_settings(run.model)
            every = max(1, settings.training.evaluate_every // 10)
            log.write("Session", describe_session(run) | {"settings": asdict(settings)})
            say(f"{run.folder.name}: {event.parameters:,} parameters, update {event.step:,} of {event.steps:,}")
        elif isinstance(event, Evaluation):
            if run.curve and event.best:  # before the log has it
                (run.folder / "curve").mkdir(exist_ok=True)
                shutil.copyfile(run.model / WEIGHTS, snapshot_path(run.folder / "curve", event.step))
            say(f"{run.folder.name}: update {event.step:,}, dev BLEU {event.scores['bleu']:.2f} (greedy)")
        elif isinstance(event, Note):
            say(f"{run.folder.name}: {event.text}")
        elif isinstance(event, Finished):
            complete = event.complete
        if not isinstance(event, Stage) and (not isinstance(event, Progress) or event.step % every == 0):
            log.write(type(event).__name__, asdict(event))
    return complete


def describe_session(run: Run) -> dict[str, Any]:
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    versions = {package: version(package) for package in ("regard", "torch", "tokenizers", "sacrebleu")}
    machine = {**describe_machine(), "load_average": os.getloadavg()[0]}
    return {"date": date, "command": run.command, "machine": machine, "versions": versions}


# Scoring


def measure(run: Run) -> None:
    """Scores a finished model; keeps earlier scores if the weights are still the same."""
    contents, kept = read_folder(run.model), run.folder / "scores.json"
    weights = hashlib.sha256((run.model / WEIGHTS).read_bytes() + (run.model / SETTINGS).read_bytes()).hexdigest()
    record = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    if record.get("weights") != weights:
        record = {"weights": weights, "sets": {}, "curve": {}, "samples": []}
    corpus, settings, size = run.corpus, contents.settings, sum(each.numel() for each in contents.model.parameters())
    record |= course(read_log(run.log)) | {"recipe": run.recipe.name, "form": run.form, "name": run.folder.name}
    record |= {"adopted": run.adopted is not None, "differences": run.recipe.differences(settings, {})}
    record["kind"] = kind_of(settings)
    if run.first:
        record["before"] = course_before(run.first, run.recipe.direction)
    record |= {"seed": settings.training.seed, "parameters": size, "decoding": asdict(settings.decoding)}
    record |= {"dev": corpus.dev, "tests": corpus.tests}

    def score(name: str, what: str, model: Path, **how: Any) -> tuple[list[list[str]], dict[str, Any]]:
        source, reference = (read_text(path) for path in corpus.files(name))
        say(f"{run.folder.name}: translating {name} with {what}")
        translator = load_as(Translator, model, threads=run.threads)
        output = [translation.text for translation in translator.translate(source, **how)]
        return [list(lines) for lines in zip(source, output, reference, strict=True)], scores(output, reference, run)

    for name in (corpus.dev, *corpus.tests):
        if name not in record["sets"]:
            lines, record["sets"][name] = score(name, "the final weights", run.model)
            if name == corpus.dev and not corpus.tests:  # the page shows outputs where there is no test set
                record["samples"] = lines[:: max(1, len(lines) // SAMPLES)][:SAMPLES]
        if name not in record.setdefault("agreed", {}):  # early records lack it
            what = f"the final weights, by a consensus of {CONSENSUS}"
            record["agreed"][name] = score(name, what, run.model, consensus=CONSENSUS)[1]
        write_text(kept, json.dumps(record, ensure_ascii=False))
    for path in sorted((run.folder / "curve").glob("step-*")) if corpus.tests else []:
        step = str(int(path.stem.removeprefix("step-")))
        if step not in record["curve"]:
            with tempfile.TemporaryDirectory(dir=run.folder) as place:
                model = Path(place) / "model"
                shutil.copytree(run.model, model, ignore=shutil.ignore_patterns("training", "native"))
                shutil.copyfile(path, model / WEIGHTS)
                write_manifest(model)
                found = score(corpus.tests[0], f"the weights of update {step}", model)[1]
            record["curve"][step] = found["BLEU"]["value"]
            write_text(kept, json.dumps(record, ensure_ascii=False))


def course_before(run: Run, direction: str) -> dict[str, Any]:
    """Returns the course of a part that another continues, in the direction of that one, with earlier parts."""
    several = run.recipe.first is None and len(run.recipe.languages) > 2
    found = course(read_log(run.log), direction if several else "")
    return found | ({"before": course_before(run.first, direction)} if run.first else {})


def scores(output: Sequence[str], reference: Sequence[str], run: Run) -> dict[str, Any]:
    """Returns BLEU as published for lower-cased tokens, or BLEU and chrF of the text as people write it."""
    from sacrebleu import BLEU, CHRF

    if run.form == "tokenised":
        metrics: dict[str, Any] = {"BLEU": BLEU(tokenize="none", lowercase=True, force=True)}
    else:
        metrics = {"BLEU": BLEU(trg_lang=run.corpus.languages[1], force=True), "chrF": CHRF()}
    return {
        name: {"value": metric.corpus_score(output, [reference]).score, "signature": str(metric.get_signature())}
        for name, metric in metrics.items()
    }


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a run is asked to save
    sys.exit(main())
