"""Training speed of regard and of its peers, in one run on the same ids, as ratios.

python benchmarks/training.py --data PATH    (PATH holds train.en and train.de of Multi30k; see README.md)

Each round runs every system in a process of its own, one after the other; the table shows medians over the
rounds. A peer is installed from PyPI into .bench/venvs/NAME when it is first asked for.
"""

import argparse
import datetime
import json
import os
import platform
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import records

ROOT = Path(__file__).resolve().parent.parent
BENCH = ROOT / ".bench"
TORCH = "torch==2.13.0"  # with this pin pip finds a CPU build where one is provided
SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
VOCABULARY_SIZE = 10_000
LABEL_SMOOTHING = 0.1
INSTALL_TIMEOUT = 3600.0
console = Console(highlight=False, width=None if sys.stdout.isatty() else 140)


@dataclass(frozen=True)
class Model:
    layers: int
    width: int
    feed_forward: int
    heads: int
    dropout: float
    target_tokens: int


@dataclass(frozen=True)
class Variant:
    name: str
    environment: dict[str, str] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class System:
    title: str
    runner: str  # a module of benchmarks.peers
    variants: dict[str, Variant]


MODELS = {
    "tiny": Model(layers=4, width=128, feed_forward=256, heads=4, dropout=0.3, target_tokens=4096),
    "base": Model(layers=6, width=512, feed_forward=2048, heads=8, dropout=0.1, target_tokens=2048),
}
STEPS = {"tiny": 40, "base": 12}

# glibc gives a freed block above 32 MiB (a batch's logits are 160 MB) back to the kernel at once, and faults
# its pages in again at the next step. Any user can tell it to keep them.
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
SHIPPED = Variant("as shipped")
COMMON = {"shipped": SHIPPED, "malloc": Variant("malloc tuned", KEEP_MEMORY)}
EPOCH_BUCKET = Variant("malloc tuned, bucket of one epoch", KEEP_MEMORY, {"bucket_size": 29_000})
LONGER_SIDE = Variant("malloc tuned, grouped by longer side", KEEP_MEMORY, {"length": "longer side"})
BFLOAT16 = Variant(
    "bfloat16 products", {}, {"precision": "bfloat16"}
)  # what training.precision = auto takes, where it can
REGARD = "regard"
SYSTEMS = {
    REGARD: System("regard", "ours", {"shipped": SHIPPED, "bfloat16": BFLOAT16}),
    "opennmt": System("OpenNMT-py", "opennmt", COMMON | {"settings": EPOCH_BUCKET}),
    "eole": System("Eole", "eole", COMMON | {"settings": EPOCH_BUCKET}),
    "marian": System("Marian", "marian", COMMON),
    "huggingface": System("Hugging Face transformers", "huggingface", COMMON | {"settings": LONGER_SIDE}),
}


class BenchmarkError(Exception):
    """Something a reader can act on, in one line."""


@dataclass(frozen=True)
class Corpus:
    """The prepared data: where the files are, and what is in them."""

    job: dict[str, object]  # the fields of a job that describe the data
    source_lengths: list[int]  # without begin and end
    target_lengths: list[int]  # with the end


def main() -> int:
    arguments = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we started is ended as well
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
        console.print("interrupted; what was measured so far:")
        show(report)
        return 130
    except BenchmarkError as error:
        console.print(f"error: {error}", markup=False)
        return 2
    show(report)
    console.print(f"written to {arguments.output}")
    if arguments.keep:
        keep(report, arguments)
    return 0


def keep(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    """The figures, for the page."""
    settings = {name: getattr(arguments, name) for name in ("threads", "rounds", "warmup", "steps")}
    settings["steps"] = settings["steps"] or {model: STEPS[model] for model in arguments.models}
    versions = {name: number for run in report["runs"] for name, number in run.get("versions", {}).items()}
    log = {name: report[name] for name in ("gemm_gflops", "flops_per_token", "threads", "runs")}
    records.keep("training", tables(log), versions=versions, machine=report["machine"], settings=settings, log=log)


def tables(log: dict[str, Any]) -> list[dict[str, Any]]:
    """What a log of runs says, model by model: medians over the rounds, ratios within each."""
    made = []
    for model in dict.fromkeys(run["model"] for run in log["runs"]):
        runs = [run for run in log["runs"] if run["model"] == model]
        kinds = dict.fromkeys((run["system"], run["variant"]) for run in runs)
        rows = [figures(name, variant, runs) for name, variant in kinds]
        slowest, fastest = (limit(log["gemm_gflops"]) * 1e9 / log["flops_per_token"][model] for limit in (min, max))
        note = (
            f"Nothing but products would allow {slowest:,.0f} to {fastest:,.0f} tokens/s: the best float32 matrix "
            f"product of each round reached {min(log['gemm_gflops']):.0f} to {max(log['gemm_gflops']):.0f} GFLOP/s. "
            f"{max(run['round'] for run in runs)} rounds; medians, and in brackets the range."
        )
        bars = {"names": ["system", "variant"], "values": ["tokens/s"], "unit": "tokens a second: longer is better"}
        made.append(records.table(model.upper(), rows, note, bars))
    return made


def figures(name: str, variant: str, runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A row of the page."""
    its = [run for run in runs if (run["system"], run["variant"]) == (name, variant)]
    measured = [run for run in its if "error" not in run]
    title = SYSTEMS[name].title
    if not measured:
        return {"system": title, "variant": f"{variant}: failed"}
    ours = [run for run in runs if (run["system"], run["variant"]) == (REGARD, SHIPPED.name) and "error" not in run]
    steps = sum(run["steps"] for run in measured)
    found = {
        "system": f"{title[:1].upper()}{title[1:]} {next(iter(measured[0]['versions'].values()))}",
        "variant": variant,
        "tokens/s": records.spread([tokens_per_second(run) for run in measured], 0),
        "padding %": round(100 * share, 1) if (share := padding(measured)) is not None else "",
        "target tokens a step": round(sum(run["target_tokens"] for run in measured) / steps),
        "peak MiB": round(statistics.median(run["peak_rss_mib"] for run in measured)),
    }
    compared = records.spread(ratios(measured, ours), 2) if (name, variant) != (REGARD, SHIPPED.name) else None
    return found | ({"Regard ÷ it": compared} if compared is not None else {})


DATA = Path("data/multi30k")


def parse_arguments() -> argparse.Namespace:
    peers = [name for name in SYSTEMS if name != REGARD]
    parser = argparse.ArgumentParser(description="Training speed of regard and of its peers, in one run.")
    parser.add_argument(
        "--data",
        type=Path,
        required=not DATA.is_dir(),
        default=DATA,
        help=f"folder with Multi30k's train.en and train.de; default: {DATA}, if it is there",
    )
    parser.add_argument("--models", type=names_from(MODELS), default=list(MODELS), help="default: tiny,base")
    parser.add_argument("--peers", type=names_from(peers), default=peers, help=f"default: {','.join(peers)}")
    variants = ["shipped", "malloc", "settings"]
    parser.add_argument("--variants", type=names_from(variants), default=variants, help="default: all three")
    parser.add_argument("--steps", type=positive, help="timed steps a run; default: 40 for tiny, 12 for base")
    parser.add_argument("--warmup", type=positive, default=3, help="steps before them; default: 3")
    parser.add_argument("--rounds", type=positive, default=3, help="default: 3")
    parser.add_argument("--threads", type=positive, default=2, help="default: 2")
    parser.add_argument("--timeout", type=float, default=1200, help="seconds a run may take; default: 1200")
    parser.add_argument("--output", type=Path, default=BENCH / "training.json")
    parser.add_argument("--without-regard", action="store_true", help="run the peers only")
    records.add_keep(parser)
    return parser.parse_args()


def names_from(allowed: Iterable[str]) -> Callable[[str], list[str]]:
    """A parser of comma-separated names."""
    known = list(allowed)

    def names(text: str) -> list[str]:
        chosen = [name for name in text.split(",") if name]
        for name in chosen:
            if name not in known:
                raise argparse.ArgumentTypeError(f"{name!r} is not one of {', '.join(known)}")
        return chosen

    return names


def positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def prepare(data: Path) -> Corpus:
    """Learn a joint BPE and write the ids in the two forms that the runners read."""
    files = [data / "train.en", data / "train.de"]
    for file in files:
        if not file.is_file():
            raise BenchmarkError(f"{file} is missing: --data is the folder with train.en and train.de")
    tokenizer = Tokenizer(models.BPE(unk_token=SPECIALS[1]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Metaspace(), pre_tokenizers.Punctuation()])
    tokenizer.train(
        [str(file) for file in files],
        trainers.BpeTrainer(vocab_size=VOCABULARY_SIZE, special_tokens=SPECIALS, show_progress=False),
    )
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
    """Floating-point operations of a training step per real token: 6 per weight used, attention included."""
    square, feed_forward = model.width**2, 2 * model.width * model.feed_forward
    layer = 6 * square + feed_forward  # a source token also gives keys and values to the decoder
    source_weights = model.layers * layer
    target_weights = model.layers * layer + model.width * VOCABULARY_SIZE
    pairs = list(zip(corpus.source_lengths, corpus.target_lengths, strict=True))
    looks = sum(source**2 + target**2 + source * target for source, target in pairs)
    attention = model.layers * 2 * model.width * looks
    source_tokens, target_tokens = sum(corpus.source_lengths), sum(corpus.target_lengths)
    total = source_weights * source_tokens + target_weights * target_tokens + attention
    return 6 * total / (source_tokens + target_tokens)


def install(peers: list[str]) -> dict[str, str]:
    """Make each peer's environment where it is missing or out of date; what failed, and why."""
    failures = {}
    for name in peers:
        requirements = ROOT / "benchmarks" / "peers" / f"{name}.txt"
        wanted = f"{TORCH}\n{requirements.read_text(encoding='utf-8')}"
        folder = BENCH / "venvs" / name
        stamp = folder / "installed.txt"
        if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
            continue
        console.print(f"installing {SYSTEMS[name].title} into {folder.relative_to(ROOT)}")
        pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet"]
        try:
            shutil.rmtree(folder, ignore_errors=True)
            for command in (
                [sys.executable, "-m", "venv", str(folder)],
                [*pip, TORCH],
                [*pip, "--no-deps", "--requirement", str(requirements)],
            ):
                run(command, f"install-{name}", INSTALL_TIMEOUT, {"PIP_REQUIRE_VIRTUALENV": "1"})
        except BenchmarkError as error:
            failures[name] = f"not installed: {error}"
            console.print(f"  {failures[name]}", markup=False)
        else:
            stamp.write_text(wanted, encoding="utf-8")
    return failures


def measure(arguments: argparse.Namespace, corpus: Corpus, failures: dict[str, str], report: dict[str, Any]) -> None:
    """Run the rounds; every other one in reverse order, so that a drift of the machine favours nobody."""
    entries = [] if arguments.without_regard else [(REGARD, SHIPPED), (REGARD, BFLOAT16)]
    for name in arguments.peers:
        variants = SYSTEMS[name].variants
        entries += [(name, variants[key]) for key in arguments.variants if key in variants]
    for number in range(1, arguments.rounds + 1):
        report["gemm_gflops"].append(measure_gemm(arguments.threads))
        for model in arguments.models:
            for name, variant in entries if number % 2 else reversed(entries):
                record: dict[str, Any] = {"round": number, "model": model}
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
                console.print(f"{place}: {outcome}", markup=False)
                report["runs"].append(record)
                write(arguments.output, report)


def measure_gemm(threads: int) -> float:
    command = [sys.executable, "-m", "benchmarks.peers.gemm", str(threads)]
    return float(run_json(command, "gemm", timeout=60)["gflops"])


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
        return run_json(command, f"{model}-{name}", arguments.timeout, environment)


def run_json(command: list[str], log: str, timeout: float, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command whose last line of output is a JSON object."""
    lines = run(command, log, timeout, environment).strip().splitlines()
    try:
        result: dict[str, Any] = json.loads(lines[-1])
    except (IndexError, json.JSONDecodeError):
        raise BenchmarkError(f"no result printed (.bench/logs/{log}.log)") from None
    return result


def run(command: list[str], log: str, timeout: float, environment: dict[str, str] | None = None) -> str:
    """Run a command in a process group of its own, which never outlives us; its standard output."""
    path = BENCH / "logs" / f"{log}.log"
    path.parent.mkdir(parents=True, exist_ok=True)
    # A variant's environment is exactly its own: what the shell says of malloc would change "as shipped".
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("MALLOC_")}
    with path.open("w", encoding="utf-8") as errors:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            cwd=ROOT,
            env=inherited | (environment or {}),
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise BenchmarkError(f"took more than {timeout:.0f} s (.bench/logs/{log}.log)") from None
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    if process.returncode:
        written = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
        reason = written[-1].strip()[:200] if written else f"exit status {process.returncode}"
        raise BenchmarkError(f"{reason} (.bench/logs/{log}.log)")
    return output


def write(path: Path, report: dict[str, Any]) -> None:
    """Replace the file whole, so that a kill leaves the last one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(path.name + ".partial")
    partial.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def show(report: dict[str, Any]) -> None:
    """Print a table per model: medians over the rounds, ratios within each round."""
    if not report["gemm_gflops"]:
        return
    slowest, fastest = min(report["gemm_gflops"]), max(report["gemm_gflops"])
    for model in dict.fromkeys(run["model"] for run in report["runs"]):
        flops = report["flops_per_token"][model]
        ceiling = f"{slowest * 1e9 / flops:,.0f} to {fastest * 1e9 / flops:,.0f}"
        caption = (
            f"ceiling {ceiling} tokens/s: {slowest:.0f} to {fastest:.0f} GFLOP/s of float32 matrix products "
            f"on {report['threads']} threads, {flops / 1e6:.2f} M FLOPs a real token"
        )
        table = Table(title=f"{model.upper()}, whole training steps", caption=caption)
        table.add_column("system")
        table.add_column("version")
        table.add_column("variant")
        for title in ("real tokens/s", "padding", "target/step", "peak MiB", "regard ÷ it"):
            table.add_column(title, justify="right", no_wrap=True)
        runs = [run for run in report["runs"] if run["model"] == model]
        for name, variant in dict.fromkeys((run["system"], run["variant"]) for run in runs):
            table.add_row(*row(name, variant, runs))
        console.print(table)


def row(name: str, variant: str, runs: list[dict[str, Any]]) -> list[str]:
    its = [run for run in runs if (run["system"], run["variant"]) == (name, variant)]
    measured = [run for run in its if "error" not in run]
    if not measured:
        return [SYSTEMS[name].title, "", f"{variant}: failed: {its[-1]['error']}"]
    version = next(iter(measured[0]["versions"].values()))
    steps = sum(run["steps"] for run in measured)
    return [
        SYSTEMS[name].title,
        version,
        variant if len(measured) == len(its) else f"{variant} ({len(measured)} of {len(its)} rounds)",
        f"{statistics.median(map(tokens_per_second, measured)):,.0f}",
        "" if (share := padding(measured)) is None else f"{share:.1%}",
        f"{sum(run['target_tokens'] for run in measured) / steps:,.0f}",
        f"{statistics.median(run['peak_rss_mib'] for run in measured):,.0f}",
        ratio(
            measured,
            [run for run in runs if (run["system"], run["variant"]) == (REGARD, SHIPPED.name) and "error" not in run],
        ),
    ]


def padding(measured: list[dict[str, Any]]) -> float | None:
    """The share of padding; none, where a system does not tell of it."""
    positions = sum(run["positions"] for run in measured)
    return sum(run["padding"] for run in measured) / positions if positions else None


def ratio(measured: list[dict[str, Any]], ours: list[dict[str, Any]]) -> str:
    """regard's speed divided by theirs, round by round: the median, and the range."""
    found = ratios(measured, ours)
    if not found:
        return "–"
    if len(found) == 1:
        return f"{found[0]:.2f}"
    return f"{statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})"


def ratios(measured: list[dict[str, Any]], ours: list[dict[str, Any]]) -> list[float]:
    speeds = {run["round"]: tokens_per_second(run) for run in ours}
    return [speeds[run["round"]] / tokens_per_second(run) for run in measured if run["round"] in speeds]


def tokens_per_second(run: dict[str, Any]) -> float:
    return float((run["source_tokens"] + run["target_tokens"]) / run["seconds"])


def describe_machine() -> dict[str, Any]:
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8").splitlines() if cpuinfo.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": names[0] if names else platform.processor(),
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1),
        "system": platform.platform(),
        "libc": " ".join(platform.libc_ver()),
        "python": platform.python_version(),
    }


if __name__ == "__main__":
    sys.exit(main())
