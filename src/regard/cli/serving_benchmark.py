"""regard bench serve: measures a server under load, and compares its answers with offline translations."""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.shared_flags import Verbs, add_engine, count, engine_options, positive_number
from regard.cli.text_lines import read_text
from regard.errors import DataError, InputError

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.serving.load_generator import LoadReport

DESCRIPTION = """Measures a server that translates: first with one client that sends one request after another, then
with many clients at once; each request is one sentence. For model folders, it starts a server, translates the same
sentences offline and compares every answer. For an address, it measures the server there; if you also name its model
folders, it compares the answers with offline translations, and otherwise with the first answer to the same sentence.
The exit code is 1 if any answer is lost, refused or different."""

MIB = 2**20
WARM_UP_SECONDS = 3.0
ONE_CLIENT_SECONDS = 20.0

Languages = tuple[str, str]  # from and to


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("bench", help="measure a server under load", description=DESCRIPTION, run=run)
    add = parser.add_argument
    add("what", choices=["serve"], metavar="serve", help="what to measure: a server")
    add("targets", nargs="+", metavar="MODEL|URL", help="model folders, or the address of a server")
    text = "a file with one sentence per line (default: invented English or French sentences)"
    add("--texts", type=Path, metavar="FILE", help=text)
    add("--lines", type=count, default=1000, metavar="N", help="number of sentences (default: 1000)")
    add("--clients", type=count, default=64, metavar="N", help="concurrent clients (default: 64)")
    add("--seconds", type=positive_number, default=30.0, metavar="N", help="seconds under load (default: 30)")
    add("--from", dest="source", metavar="LANGUAGE", help="language to translate from, if there are several directions")
    add("--to", dest="target", metavar="LANGUAGE", help="language to translate into, if there are several directions")
    add("--json", action="store_true", help="print the figures as a JSON object")
    add("--key", help="API key for the server at an address")
    add_engine(parser)


@dataclass(frozen=True)
class _Offline:
    """The translations of a model without a server, and their speed."""

    rate: float  # sentences per second, in large batches
    answers: Mapping[tuple[str, str, str], str]  # by source language, target language and text


def run(arguments: argparse.Namespace) -> int:
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator
    from regard.serving.load_generator import load, question

    addresses = [target for target in arguments.targets if "://" in target]
    folders = [target for target in arguments.targets if "://" not in target]
    if len(addresses) > 1 or any(not address.startswith("http://") for address in addresses):
        raise InputError(f"{addresses[-1]}: name one address that begins with http://")
    translators = [load_as(Translator, folder, **engine_options(arguments)) for folder in folders]
    if not translators and (arguments.source is None or arguments.target is None):
        raise InputError(f"{addresses[0]}: name the languages with --from and --to, or name the model folder too")
    directions = [_choose_direction(translator, arguments) for translator in translators]
    directions = directions or [(arguments.source, arguments.target)]
    texts = {direction: _sentences(arguments, direction[0]) for direction in directions}
    before = _translate_offline(translators, directions, texts)
    with _server(folders, addresses, arguments) as (address, process):
        questions = []
        for source, target in directions:
            for text in texts[source, target]:
                body = {"q": text, "source": source, "target": target, "format": "text"}
                expected = before.answers.get((source, target, text))
                key = {"api_key": arguments.key} if arguments.key else {}
                questions.append(question(address, body | key, expected))
        load(address, questions, clients=arguments.clients, seconds=min(WARM_UP_SECONDS, arguments.seconds))
        one = load(address, questions, clients=1, seconds=min(ONE_CLIENT_SECONDS, arguments.seconds))
        memory = [_memory(process)]
        many = load(address, questions, clients=arguments.clients, seconds=arguments.seconds)
        memory.append(_memory(process))
    after = _translate_offline(translators, directions, texts)
    reports, offline = {"one client": one, f"{arguments.clients} clients": many}, max(before.rate, after.rate)
    if arguments.json:
        print(json.dumps(_figures(reports, offline, memory)))
    else:
        _print_report(reports, offline)
        if all(memory):
            print(f"memory       {memory[0] / MIB:.0f} MiB before, {memory[1] / MIB:.0f} MiB after")
    return int(any(report.wrong or report.errors or report.refused for report in (one, many)))


def _choose_direction(translator: Translator, arguments: argparse.Namespace) -> Languages:
    """Returns the direction that the flags name, or the first one of the model."""
    from regard.tokens.directions import directions_of

    known = [(each.source, each.target) for each in directions_of(translator.settings.data)]
    source, target = arguments.source, arguments.target
    matching = [each for each in known if source in (None, each[0]) and target in (None, each[1])]
    if not matching:
        raise InputError(f"no model translates from {source} to {target}")
    return matching[0]


def _sentences(arguments: argparse.Namespace, language: str) -> list[str]:
    """Returns the sentences to send; those with placeholders are left out, since servers treat them differently."""
    from regard.tokens.protected_pieces import find

    lines = invent_sentences(language) if arguments.texts is None else read_text(arguments.texts)
    plain = [line.strip() for line in lines if any(map(str.isalpha, line)) and not find(line)]
    if not plain:
        raise DataError("contains no sentence to send", arguments.texts)
    return list(dict.fromkeys(plain))[: arguments.lines]


def invent_sentences(language: str) -> list[str]:
    """Returns sentences of the demo, which exist in English and French."""
    from regard.demo.sentence_generator import generate_splits

    if language not in ("en", "fr"):
        raise InputError(f"no sentences in {language} come with Regard: name a file of them with --texts")
    return [pair.source if language == "en" else pair.target for pair in generate_splits(train=0, dev=0).test]


def _translate_offline(
    translators: Sequence[Translator], directions: Sequence[Languages], texts: Mapping[Languages, Sequence[str]]
) -> _Offline:
    """Translates all sentences in large batches and measures the speed."""
    answers, count, seconds = dict[tuple[str, str, str], str](), 0, 0.0
    for translator, (source, target) in zip(translators, directions, strict=False):
        sentences = texts[source, target]
        translator.translate(sentences[:16], source=source, target=target)
        start = time.perf_counter()
        translations = translator.translate(sentences, source=source, target=target)
        seconds += time.perf_counter() - start
        count += len(sentences)
        pairs = zip(sentences, translations, strict=True)
        answers.update({(source, target, text): each.text.strip() for text, each in pairs})
    return _Offline(count / seconds if count else 0.0, answers)


@contextmanager
def _server(
    folders: Sequence[str], addresses: Sequence[str], arguments: argparse.Namespace
) -> Iterator[tuple[str, subprocess.Popen[str] | None]]:
    """Yields the address of a server: the given one, or that of a new process, which is yielded too."""
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
                raise InputError(f"the server does not start: try regard serve {' '.join(folders)}")
            yield address[0], process
        finally:
            process.terminate()


def _memory(process: subprocess.Popen[str] | None) -> int:
    """Returns the resident memory of a process in bytes; 0 if the system does not report it."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8") if process else ""
    except OSError:
        return 0
    resident = re.search(r"VmRSS:\s+(\d+)", status)
    return 1024 * int(resident[1]) if resident else 0


def _figures(reports: Mapping[str, LoadReport], offline: float, memory: Sequence[int]) -> dict[str, Any]:
    """Returns the figures as an object: rates in sentences per second, times in milliseconds, memory in bytes."""
    figures: dict[str, Any] = {"offline": offline, "memory_before": memory[0], "memory_after": memory[1]}
    for name, (title, report) in zip(("one", "many"), reports.items(), strict=True):
        shares = (("p50", 0.5), ("p99", 0.99))
        times = {key: report.quantile(share) if report.seconds else None for key, share in shares}
        failed = {"errors": report.errors.total() + report.refused, "differ": report.wrong}
        figures[name] = {"who": title, "rate": report.rate, "answers": len(report.seconds), **times, **failed}
    return figures


def _print_report(reports: Mapping[str, LoadReport], offline: float) -> None:
    """Prints the figures; the last line has ratios, which depend less on other load of the machine."""
    if offline:
        print(f"offline      {offline:.1f} sentences/s, in large batches")
    for name, report in reports.items():
        times = f"p50 {report.quantile(0.5):.0f} ms, p99 {report.quantile(0.99):.0f} ms"
        kinds = "".join(f", {count} × {kind}" for kind, count in sorted(report.errors.items()))
        errors = f"{report.errors.total() + report.refused} errors{kinds}, {report.wrong} answers that differ"
        print(f"{name:<12} {report.rate:.1f} sentences/s, {times}, {errors}")
    one, many = reports.values()
    ratio = f"{many.rate / offline:.2f} of offline, " if offline else ""
    if one.rate:
        print(f"ratios       {ratio}{many.rate / one.rate:.2f} times one client")
