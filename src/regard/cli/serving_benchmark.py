"""regard bench serve: load-tests a server, and compares its answers with offline translations."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.shared_flags import Verbs, add_engine, count, engine_options, positive_number
from regard.cli.text_lines import read_text
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.cli.load_generator import LoadReport, Question
    from regard.decoding.translator import Translator

DESCRIPTION = """Measures the speed of a translation server, first with one client that sends one request after another,
then with many clients at once. Each request is one sentence. If you pass model folders, the command starts a server,
translates the same sentences offline and compares every answer. If you pass the address of a server, it measures that
server; if you also pass the model folders, it compares the answers with offline translations, and otherwise with the
first answer to the same sentence. The exit code is 1 if any answer is lost, refused or different."""

MIB = 2**20
WARM_UP_SECONDS = 3.0
ONE_CLIENT_SECONDS = 20.0

Languages = tuple[str, str]  # source and target
Offline = tuple[float, dict[tuple[str, str, str], str]]  # sentences per second; translations by languages and text


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("bench", help="measure a server under load", description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("what", choices=["serve"], metavar="serve", help="what to measure; serve is the only choice")
    add("targets", nargs="+", metavar="MODEL|URL", help="model folders, or the address of a server")
    text = "a file with one sentence per line (default: generated English or French sentences)"
    add("--texts", type=Path, metavar="FILE", help=text)
    add("--lines", type=count, default=1000, metavar="N", help="number of sentences (default: 1000)")
    add("--clients", type=count, default=64, metavar="N", help="concurrent clients (default: 64)")
    add("--seconds", type=positive_number, default=30.0, metavar="N", help="seconds under load (default: 30)")
    add("--from", dest="source", metavar="LANGUAGE", help="language to translate from, if there are several directions")
    add("--to", dest="target", metavar="LANGUAGE", help="language to translate into, if there are several directions")
    add("--json", action="store_true", help="print the figures as a JSON object")
    add("--key", help="API key for the server at an address")
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    from regard.cli.load_generator import load
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    addresses = [target for target in arguments.targets if "://" in target]
    folders = [target for target in arguments.targets if "://" not in target]
    if len(addresses) > 1 or any(not address.startswith("http://") for address in addresses):
        raise InputError(f"{addresses[-1]}: pass one address that begins with http://")
    translators = [load_as(Translator, folder, **engine_options(arguments)) for folder in folders]
    if not translators and (arguments.source is None or arguments.target is None):
        raise InputError(f"{addresses[0]}: specify the languages with --from and --to, or pass the model folder too")
    directions = [_choose_direction(translator, arguments) for translator in translators]
    directions = directions or [(arguments.source, arguments.target)]
    texts = {direction: _sentences(arguments, direction[0]) for direction in directions}
    rate_before, answers = _translate_offline(translators, texts)
    with _server(folders, addresses, arguments) as (address, process):
        questions = _make_questions(address, texts, answers, arguments.key)
        many, longest = arguments.clients, arguments.seconds
        load(address, questions, clients=many, seconds=min(WARM_UP_SECONDS, longest))
        reports = {"one": load(address, questions, clients=1, seconds=min(ONE_CLIENT_SECONDS, longest))}
        memory_before = _resident_bytes(process)
        reports["many"] = load(address, questions, clients=many, seconds=longest)
        memory_after = _resident_bytes(process)
    rate_after, _ = _translate_offline(translators, texts)
    figures: dict[str, Any] = {"offline": max(rate_before, rate_after)}
    figures |= {"memory_before": memory_before, "memory_after": memory_after}
    figures["one"] = {"who": "one client", **_figures(reports["one"])}
    figures["many"] = {"who": f"{many} clients", **_figures(reports["many"])}
    if arguments.json:
        print(json.dumps(figures))
    else:
        _print_report(figures)
    return int(any(figures[name]["errors"] or figures[name]["differ"] for name in reports))


def _choose_direction(translator: Translator, arguments: argparse.Namespace) -> Languages:
    from regard.tokens.language_directions import directions_of

    known = [(each.source, each.target) for each in directions_of(translator.settings.data)]
    source, target = arguments.source, arguments.target
    matching = [each for each in known if source in (None, each[0]) and target in (None, each[1])]
    if not matching:
        raise InputError(f"no model translates from {source} to {target}")
    return matching[0]


def _sentences(arguments: argparse.Namespace, language: str) -> list[str]:
    """Returns the sentences to send, without those that contain placeholders, which the server handles differently."""
    from regard.tokens.protected_pieces import find

    lines = invent_sentences(language) if arguments.texts is None else read_text(arguments.texts)
    plain = [line.strip() for line in lines if any(map(str.isalpha, line)) and not find(line)]
    if not plain:
        raise DataError("the file contains no sentences to send", arguments.texts)
    return list(dict.fromkeys(plain))[: arguments.lines]


def invent_sentences(language: str) -> list[str]:
    """Returns test sentences of the demo in English or French."""
    from regard.demo.sentence_generator import generate_splits

    if language not in ("en", "fr"):
        raise InputError(f"Regard has no sentences in {language}: pass a file of sentences with --texts")
    return [pair.source if language == "en" else pair.target for pair in generate_splits(train=0, dev=0).test]


def _translate_offline(translators: Sequence[Translator], texts: Mapping[Languages, Sequence[str]]) -> Offline:
    """Translates all sentences in large batches; returns the sentences per second and the translations."""
    answers, seconds = dict[tuple[str, str, str], str](), 0.0
    for translator, ((source, target), sentences) in zip(translators, texts.items(), strict=False):
        translator.translate(sentences[:16], source=source, target=target)
        start = time.perf_counter()
        translations = translator.translate(sentences, source=source, target=target)
        seconds += time.perf_counter() - start
        pairs = zip(sentences, translations, strict=True)
        answers.update({(source, target, text): each.text.strip() for text, each in pairs})
    return len(answers) / seconds if seconds else 0.0, answers


def _make_questions(
    address: str, texts: Mapping[Languages, Sequence[str]], answers: Mapping[tuple[str, str, str], str], key: str | None
) -> list[Question]:
    from regard.cli.load_generator import question

    about = {"format": "text", **({"api_key": key} if key else {})}
    return [
        question(address, {"q": text, "source": source, "target": target, **about}, answers.get((source, target, text)))
        for (source, target), sentences in texts.items()
        for text in sentences
    ]


@contextmanager
def _server(
    folders: Sequence[str], addresses: Sequence[str], arguments: argparse.Namespace
) -> Iterator[tuple[str, subprocess.Popen[str] | None]]:
    """Yields the address of the server, and its process if this function starts one."""
    if addresses:
        yield addresses[0], None
        return
    engine = {name: value for name, value in engine_options(arguments).items() if value is not None}
    flags = [part for name, value in engine.items() for part in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "regard", "serve", *folders, "--port", "0", *flags]
    command += ["--max-concurrent", str(8 * arguments.clients)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        try:
            address = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
            if address is None:
                raise InputError(f"the server does not start: run regard serve {' '.join(folders)} to see the reason")
            yield address[0], process
        finally:
            process.terminate()


def _resident_bytes(process: subprocess.Popen[str] | None) -> int:
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8") if process else ""
    except OSError:
        return 0
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    return 1024 * int(resident[1]) if resident else 0


def _figures(report: LoadReport) -> dict[str, Any]:
    """Returns the rate (sentences/s), the response times (ms) and the error counts of a load test."""
    kinds = {**report.errors, **({"refused": report.refused} if report.refused else {})}
    times = {name: report.quantile(share) if report.seconds else None for name, share in (("p50", 0.5), ("p99", 0.99))}
    counts = {"errors": sum(kinds.values()), "kinds": kinds, "differ": report.wrong}
    return {"rate": report.rate, "answers": len(report.seconds), **times, **counts}


def _print_report(figures: Mapping[str, Any]) -> None:
    """Prints the figures and their ratios, which are less sensitive to other load on the machine."""
    offline, one, many = (figures[name] for name in ("offline", "one", "many"))
    if offline:
        print(f"offline      {offline:.1f} sentences/s, in large batches")
    for each in (one, many):
        times = f"p50 {each['p50']:.0f} ms, p99 {each['p99']:.0f} ms" if each["answers"] else "no answer in time"
        kinds = "".join(f", {count} × {kind}" for kind, count in sorted(each["kinds"].items()))
        errors = f"{each['errors']} errors{kinds}, {each['differ']} answers that differ"
        print(f"{each['who']:<12} {each['rate']:.1f} sentences/s, {times}, {errors}")
    ratio = f"{many['rate'] / offline:.2f} of offline, " if offline else ""
    if one["rate"]:
        print(f"ratios       {ratio}{many['rate'] / one['rate']:.2f} times one client")
    if figures["memory_before"] and figures["memory_after"]:
        before, after = (figures[f"memory_{when}"] / MIB for when in ("before", "after"))
        print(f"memory       {before:.0f} MiB before, {after:.0f} MiB after")
