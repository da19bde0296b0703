"""Training speed of regard and of its peers, in one run on the same ids, as ratios.

python benchmarks/training.py --data PATH    (PATH holds train.en and train.de of Multi30k; see README.md)

Each round runs every system in a process of its own, one after the other; the table shows medians over the
rounds. A peer is installed from PyPI into .bench/venvs/NAME on first use.
"""

import argparse
import datetime
import json
import os
import shlex
import shutil
import statistics
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from benchmarks.machine import describe_machine
from benchmarks.program import BENCH, KEEP_MEMORY, ROOT, BenchmarkError, positive

TORCH = "torch==2.13.0"  # with this pin pip finds a CPU build where one is provided
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
VOCABULARY_SIZE = 10_000
LABEL_SMOOTHING = 0.1
INSTALL_TIMEOUT = 3600.0


@dataclass(frozen=True)
class Model:
    """The shape of a model, and the target tokens of an average batch."""

    layers: int
    width: int
    feed_forward: int
    heads: int
    dropout: float
    target_tokens: int


@dataclass(frozen=True)
class Variant:
    """One way to run a system: environment variables and options of its runner."""

    name: str
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    """A toolkit; `runner` is a module of benchmarks.peers."""

    title: str
    runner: str
    variants: dict[str, Variant]


MODELS = {
    "tiny": Model(layers=4, width=128, feed_forward=256, heads=4, dropout=0.3, target_tokens=4096),
    "base": Model(layers=6, width=512, feed_forward=2048, heads=8, dropout=0.1, target_tokens=2048),
}
STEPS = {"tiny": 40, "base": 12}
SHIPPED = Variant("as shipped")
COMMON = {"shipped": SHIPPED, "malloc": Variant("malloc tuned", KEEP_MEMORY)}
EPOCH_BUCKET = Variant("malloc tuned, bucket of one epoch", KEEP_MEMORY, {"bucket_size": 29_000})
LONGER_SIDE = Variant("malloc tuned, grouped by longer side", KEEP_MEMORY, {"length": "longer side"})
BFLOAT16 = Variant("bfloat16 products", {}, {"precision": "bfloat16"})  # as training.precision = auto, where it can
REGARD = "regard"
SYSTEMS = {
    REGARD: System("regard", "regard_trainer", {"shipped": SHIPPED, "bfloat16": BFLOAT16}),
    "opennmt": System("OpenNMT-py", "opennmt", COMMON | {"settings": EPOCH_BUCKET}),
    "eole": System("Eole", "opennmt", COMMON | {"settings": EPOCH_BUCKET}),
    "marian": System("Marian", "marian", COMMON),
    "huggingface": System("Hugging Face transformers", "huggingface", COMMON | {"settings": LONGER_SIDE}),
}

Run = dict[str, Any]


@dataclass(frozen=True)
class Corpus:
    """The prepared data."""

    job: dict[str, object]  # the fields of a job that describe the data
    source_lengths: list[int]  # without begin and end
    target_lengths: list[int]  # with the end


def main() -> int:
    arguments = parse_arguments()
    program.exit_on_terminate()
    report: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "command": shlex.join([Path(sys.executable).name, *sys.argv]),
        "machine": describe_machine(),
        "threads": arguments.threads,
        "gemm_gflops": [],
        "runs": [],
    }
    try:
        corpus = prepare(arguments.data)
        report["flops_per_token"] = {name: flops_per_token(MODELS[name], corpus) for name in arguments.models}
        failures = install(arguments.peers)
        measure(arguments, corpus, failures, report)
    except KeyboardInterrupt:
        print("interrupted; measured so far:")
        tables.show(tables_of(report))
        return 130
    except BenchmarkError as error:
        print(f"error: {error}")
        return 2
    tables.show(tables_of(report))
    print(f"written to {arguments.output}")
    if arguments.keep:
        keep(report, arguments)
    return 0


def keep(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    settings = {name: getattr(arguments, name) for name in ("threads", "rounds", "warmup", "steps")}
    settings["steps"] = settings["steps"] or {model: STEPS[model] for model in arguments.models}
    versions = {name: number for run in report["runs"] for name, number in run.get("versions", {}).items()}
    log = {name: report[name] for name in ("gemm_gflops", "flops_per_token", "threads", "runs")}
    records.keep("training", tables_of(log), versions=versions, machine=report["machine"], settings=settings, log=log)


def tables_of(log: dict[str, Any]) -> list[tables.Table]:
    """Returns a table for each model: medians over the rounds, ratios within each."""
    found = []
    for model in dict.fromkeys(run["model"] for run in log["runs"]):
        runs = [run for run in log["runs"] if run["model"] == model]
        rows = [row(*kind, runs) for kind in dict.fromkeys((run["system"], run["variant"]) for run in runs)]
        products, rounds = log["gemm_gflops"], max(run["round"] for run in runs)
        most = span([rate * 1e9 / log["flops_per_token"][model] for rate in products])
        note = (
            f"If training were only products, {most} tokens/s would be possible: the best float32 matrix product of "
            f"each round reached {span(products)} GFLOP/s. {rounds} {'rounds' if rounds > 1 else 'round'}; medians, "
            "with the range in brackets."
        )
        bars = {"names": ["system", "variant"], "values": ["tokens/s"], "unit": "tokens a second: longer is better"}
        found.append(tables.build(model.upper(), rows, note, bars))
    return found


def span(values: Sequence[float]) -> str:
    """Returns the least and the greatest value, or one number if they are the same when rounded."""
    return " to ".join(dict.fromkeys(f"{value:,.0f}" for value in (min(values), max(values))))


def row(name: str, variant: str, runs: list[Run]) -> tables.Row:
    measured, ours = (
        [run for run in runs if (run["system"], run["variant"]) == kind and "error" not in run]
        for kind in ((name, variant), (REGARD, SHIPPED.name))
    )
    title = SYSTEMS[name].title
    if not measured:
        return {"system": title, "variant": f"{variant}: failed"}
    found = {
        "system": f"{title[:1].upper()}{title[1:]} {next(iter(measured[0]['versions'].values()))}",
        "variant": variant,
        "tokens/s": tables.spread([tokens_per_second(run) for run in measured], 0),
        "padding %": round(100 * share, 1) if (share := padding(measured)) is not None else "",
        "target tokens a step": round(
            sum(run["target_tokens"] for run in measured) / sum(r["steps"] for r in measured)
        ),
        "peak MiB": round(statistics.median(run["peak_rss_mib"] for run in measured)),
    }
    compared = tables.spread(ratios(measured, ours), 2) if (name, variant) != (REGARD, SHIPPED.name) else None
    return found | ({"Regard ÷ it": compared} if compared is not None else {})


def padding(measured: list[Run]) -> float | None:
    """Returns the share of padding, or None if the system does not report it."""
    positions = sum(run["positions"] for run in measured)
    return sum(run["padding"] for run in measured) / positions if positions else None


def ratios(measured: list[Run], ours: list[Run]) -> list[float]:
    """Returns regard's speed divided by theirs, round by round."""
    speeds = {run["round"]: tokens_per_second(run) for run in ours}
    return [speeds[run["round"]] / tokens_per_second(run) for run in measured if run["round"] in speeds]


def tokens_per_second(run: Run) -> float:
    return float((run["source_tokens"] + run["target_tokens"]) / run["seconds"])


def parse_arguments() -> argparse.Namespace:
    peers, variants = [name for name in SYSTEMS if name != REGARD], ["shipped", "malloc", "settings"]
    parser = program.argument_parser("Training speed of regard and of its peers, in one run.")
    program.add_data(parser, "train.en and train.de")
    parser.add_argument("--models", type=program.names_from(MODELS), default=list(MODELS), help="default: tiny,base")
    parser.add_argument("--peers", type=program.names_from(peers), default=peers, help=f"default: {','.join(peers)}")
    parser.add_argument("--variants", type=program.names_from(variants), default=variants, help="default: all three")
    parser.add_argument("--steps", type=positive, help="timed steps per run; default: 40 for tiny, 12 for base")
    parser.add_argument("--warmup", type=positive, default=3, help="steps before them; default: 3")
    parser.add_argument("--rounds", type=positive, default=3, help="default: 3")
    parser.add_argument("--threads", type=positive, default=2, help="default: 2")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds a run may take; default: 1200")
    parser.add_argument("--output", type=Path, default=BENCH / "training.json")
    parser.add_argument("--without-regard", action="store_true", help="run the peers only")
    return parser.parse_args()


def prepare(data: Path) -> Corpus:
    """Learns a joint BPE and writes the ids in the two forms that the runners read."""
    files = [data / "train.en", data / "train.de"]
    for file in files:
        if not file.is_file():
            raise BenchmarkError(f"{file} is missing: --data is the folder with train.en and train.de")
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    trainer = trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=SPECIALS, show_progress=False)
    tokenizer.train([str(file) for file in files], trainer=trainer)
    lines = [file.read_text(encoding="utf-8").splitlines() for file in files]
    source, target = ([encoding.ids for encoding in tokenizer.encode_batch(side)] for side in lines)
    if len(source) != len(target):
        raise BenchmarkError(f"{files[0]} has {len(source)} lines, {files[1]} has {len(target)}")
    folder = BENCH / "data"
    folder.mkdir(parents=True, exist_ok=True)
    paths = {name: folder / name for name in ("ids.json", "source.txt", "target.txt", "vocabulary.txt")}
    paths["ids.json"].write_text(json.dumps({"source": source, "target": target}), encoding="utf-8")
    write_numbers(paths["source.txt"], source)
    write_numbers(paths["target.txt"], target)
    write_numbers(paths["vocabulary.txt"], ([number] for number in range(len(SPECIALS), VOCABULARY_SIZE)))
    tokenizer.save(str(folder / "tokenizer.json"))
    job: dict[str, object] = {path.stem: str(path) for path in (*paths.values(), folder / "tokenizer.json")}
    job |= {"vocabulary_size": tokenizer.get_vocab_size(), "label_smoothing": LABEL_SMOOTHING}
    job |= {"pad": 0, "unknown": 1, "begin": 2, "end": 3}
    return Corpus(job, [len(ids) for ids in source], [len(ids) + 1 for ids in target])


def write_numbers(path: Path, rows: Iterable[list[int]]) -> None:
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows), encoding="utf-8")


def flops_per_token(model: Model, corpus: Corpus) -> float:
    """Returns the operations of a training step per real token: 6 per weight used, attention included."""
    square, feed_forward = model.width**2, 2 * model.width * model.feed_forward
    layer = 6 * square + feed_forward  # a source token also gives keys and values to the decoder
    source_weights = model.layers * layer
    target_weights = model.layers * layer + model.width * VOCABULARY_SIZE
    pairs = list(zip(corpus.source_lengths, corpus.target_lengths, strict=True))
    scores = sum(source**2 + target**2 + source * target for source, target in pairs)
    attention = model.layers * 2 * model.width * scores
    source_tokens, target_tokens = sum(corpus.source_lengths), sum(corpus.target_lengths)
    total = source_weights * source_tokens + target_weights * target_tokens + attention
    return 6 * total / (source_tokens + target_tokens)


def install(peers: list[str]) -> dict[str, str]:
    """Makes each peer's environment where it is missing or out of date; returns the failures and their reasons."""
    failures = {}
    for name in peers:
        requirements = ROOT / "benchmarks" / "peers" / f"{name}.txt"
        wanted = f"{TORCH}\n{requirements.read_text(encoding='utf-8')}"
        folder = BENCH / "venvs" / name
        stamp = folder / "installed.txt"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            continue
        print(f"installing {SYSTEMS[name].title} into {folder.relative_to(ROOT)}", flush=True)
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        packages = [*pip, "--no-deps", "--requirement", str(requirements)]
        try:
            shutil.rmtree(folder, ignore_errors=True)
            for command in ([sys.executable, "-m", "venv", str(folder)], [*pip, TORCH], packages):
                program.run(command, f"install-{name}", INSTALL_TIMEOUT, {"PIP_REQUIRE_VIRTUALENV": "1"})
        except BenchmarkError as error:
            failures[name] = f"not installed: {error}"
            print(f"  {failures[name]}", flush=True)
        else:
            stamp.write_text(wanted, encoding="utf-8")
    return failures


def measure(arguments: argparse.Namespace, corpus: Corpus, failures: dict[str, str], report: dict[str, Any]) -> None:
    """Runs the rounds, every other one in reverse order, so that a drift of the machine favours nobody."""
    entries = [] if arguments.without_regard else [(REGARD, SHIPPED), (REGARD, BFLOAT16)]
    for name in arguments.peers:
        variants = SYSTEMS[name].variants
        entries += [(name, variants[key]) for key in arguments.variants if key in variants]
    for number in range(1, arguments.rounds + 1):
        report["gemm_gflops"].append(program.measure_products(arguments.threads))
        for model in arguments.models:
            for name, variant in entries if number % 2 else reversed(entries):
                record: Run = {"round": number, "model": model}
                record |= {"system": name, "variant": variant.name, "load_average": os.getloadavg()[0]}
                try:
                    if name in failures:
                        raise BenchmarkError(failures[name])  # noqa: TRY301 - recorded like a run that fails
                    record |= run_job(name, variant, model, corpus, number, arguments)
                    outcome = f"{tokens_per_second(record):,.0f} tokens/s"
                except BenchmarkError as error:
                    record |= {"error": str(error)}
                    outcome = f"failed: {error}"
                place = f"round {number}/{arguments.rounds}  {model}  {SYSTEMS[name].title}, {variant.name}"
                print(f"{place}: {outcome}", flush=True)
                report["runs"].append(record)
                program.write_json(arguments.output, report)


def run_job(
    name: str, variant: Variant, model: str, corpus: Corpus, number: int, arguments: argparse.Namespace
) -> dict[str, Any]:
    python = sys.executable if name == REGARD else str(BENCH / "venvs" / name / "bin" / "python")
    threads = str(arguments.threads)
    with tempfile.TemporaryDirectory(dir=BENCH) as scratch:
        job = corpus.job | asdict(MODELS[model]) | {"options": variant.options, "scratch": scratch}
        job |= {"steps": arguments.steps or STEPS[model], "warmup": arguments.warmup}
        job |= {"threads": arguments.threads, "seed": number}
        command = [python, "-m", f"benchmarks.peers.{SYSTEMS[name].runner}", json.dumps(job)]
        environment = {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads} | variant.environment
        return program.run_json(command, f"{model}-{name}", arguments.timeout, environment)


if __name__ == "__main__":
    sys.exit(main())
