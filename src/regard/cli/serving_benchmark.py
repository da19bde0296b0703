"""regard bench serve: load on a server, beside the same models offline and asked one request at a time."""

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

from regard.cli.setting_flags import Verbs, add_engine, engine_options
from regard.errors import DataError, InputError
from regard.files.formats.format_by_suffix import require_plain

if TYPE_CHECKING:
    from regard.decoding.translator import Translator
    from regard.serving.load_generator import LoadReport

MIB = 2**20
WARM_UP = 3.0
ALONE = 20.0
"""Seconds at most for one client that asks one request after the other."""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "bench",
        help="put load on a server, and compare its answers with the offline ones",
        description="Puts load on a server that translates: first one client, one request after the other, then many "
        "at once; a sentence a request. Given model folders, it starts a server of its own for them, translates the "
        "same sentences offline and compares every answer. Given an address, it asks the server there, and compares "
        "its answers with the offline ones of the folders named too, or else with its own first ones. Exits with 1 if "
        "anything is lost, refused or different.",
        allow_abbrev=False,
    )
    parser.add_argument("what", choices=["serve"], metavar="serve", help="what is measured: a server")
    parser.add_argument("targets", nargs="+", metavar="MODEL|URL", help="model folders, or the address of a server")
    parser.add_argument("--texts", type=Path, metavar="FILE", help="a sentence a line (made-up English or French ones)")
    parser.add_argument("--lines", type=int, default=1000, metavar="N", help="sentences to ask for (1000)")
    parser.add_argument("--clients", type=int, default=64, metavar="N", help="clients at once (64)")
    parser.add_argument("--seconds", type=float, default=30.0, metavar="N", help="how long (30)")
    parser.add_argument("--from", dest="source", metavar="LANGUAGE", help="direction, if there are several")
    parser.add_argument("--to", dest="target", metavar="LANGUAGE", help="the same")
    parser.add_argument("--json", action="store_true", help="print the figures as one JSON object")
    parser.add_argument("--key", help="key that the server at an address asks for")
    add_engine(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True)
class Offline:
    """What models make of some sentences without a server."""

    rate: float  # sentences a second, all at once
    answers: Mapping[tuple[str, str, str], str]  # of source, target and text


def run(arguments: argparse.Namespace) -> int:
    from regard.serving.load_generator import load, question

    if arguments.clients < 1 or arguments.seconds <= 0 or arguments.lines < 1:
        raise InputError("--clients, --seconds and --lines: must be more than 0")
    addresses = [target for target in arguments.targets if "://" in target]
    folders = [target for target in arguments.targets if "://" not in target]
    if len(addresses) > 1 or any(not address.startswith("http://") for address in addresses):
        raise InputError(f"{addresses[-1]}: name one address that begins with http://")
    translators = opened(folders, arguments)
    ways = [way_of(translator, arguments) for translator in translators] or [asked_of(addresses[0], arguments)]
    texts = {way: sentences(arguments, way[0]) for way in ways}
    before = measured(translators, ways, texts)
    with serving(folders, addresses, arguments) as (address, process):
        questions = []
        for source, target in ways:
            for text in texts[source, target]:
                body = {"q": text, "source": source, "target": target, "format": "text"}
                right = before.answers.get((source, target, text))
                questions.append(question(address, body | ({"api_key": arguments.key} if arguments.key else {}), right))
        load(address, questions, clients=arguments.clients, seconds=min(WARM_UP, arguments.seconds))
        alone = load(address, questions, clients=1, seconds=min(ALONE, arguments.seconds))
        start = memory(process)
        many = load(address, questions, clients=arguments.clients, seconds=arguments.seconds)
        end = memory(process)
    after = measured(translators, ways, texts)
    every, offline = {"one client": alone, f"{arguments.clients} clients": many}, max(before.rate, after.rate)
    if arguments.json:
        print(json.dumps(figures(every, offline, start, end)))
    else:
        report(every, offline)
        if start and end:
            print(f"memory       {start / MIB:.0f} MiB before, {end / MIB:.0f} MiB after")
    return int(any(seen.wrong or seen.errors or seen.refused for seen in (alone, many)))


def figures(every: Mapping[str, LoadReport], offline: float, start: int, end: int) -> dict[str, Any]:
    """The same as an object for programs: rates are sentences a second, times milliseconds, memory bytes."""
    found: dict[str, Any] = {"offline": offline, "memory_before": start, "memory_after": end}
    for name, (title, seen) in zip(("one", "many"), every.items(), strict=True):
        times = {key: seen.quantile(share) if seen.seconds else None for key, share in (("p50", 0.5), ("p99", 0.99))}
        failed = {"errors": seen.errors.total() + seen.refused, "differ": seen.wrong}
        found[name] = {"who": title, "rate": seen.rate, "answers": len(seen.seconds), **times, **failed}
    return found


def report(every: Mapping[str, LoadReport], offline: float) -> None:
    """Prints the figures, the last ones as ratios, which a busy machine changes less."""
    if offline:
        print(f"offline      {offline:.1f} sentences/s, all at once")
    for name, seen in every.items():
        times = f"p50 {seen.quantile(0.5):.0f} ms, p99 {seen.quantile(0.99):.0f} ms"
        kinds = "".join(f", {count} × {kind}" for kind, count in sorted(seen.errors.items()))
        errors = f"{seen.errors.total() + seen.refused} errors{kinds}, {seen.wrong} answers that differ"
        print(f"{name:<12} {seen.rate:.1f} sentences/s, {times}, {errors}")
    alone, many = every.values()
    ratio = f"{many.rate / offline:.2f} of offline, " if offline else ""
    if alone.rate:
        print(f"ratios       {ratio}{many.rate / alone.rate:.2f} times one client")


def opened(folders: Sequence[str], arguments: argparse.Namespace) -> list[Translator]:
    from regard.decoding.model_loading import load_as
    from regard.decoding.translator import Translator

    return [load_as(Translator, folder, **engine_options(arguments)) for folder in folders]


def way_of(translator: Translator, arguments: argparse.Namespace) -> tuple[str, str]:
    """The direction that a model is asked for: the one that is named, or its first."""
    from regard.tokens.directions import directions_of

    known = [(each.source, each.target) for each in directions_of(translator.settings.data)]
    wanted = [way for way in known if arguments.source in (None, way[0]) and arguments.target in (None, way[1])]
    if not wanted:
        raise InputError(f"no model translates from {arguments.source} to {arguments.target}")
    return wanted[0]


def asked_of(address: str, arguments: argparse.Namespace) -> tuple[str, str]:
    if arguments.source is None or arguments.target is None:
        raise InputError(f"{address}: say the languages, with --from and --to, or name the model folder too")
    return arguments.source, arguments.target


def sentences(arguments: argparse.Namespace, language: str) -> list[str]:
    """What is asked for; a server keeps placeholders in a way of its own, so texts with any are left out."""
    from regard.tokens.protected_pieces import find

    if arguments.texts is None:
        lines = made_up(language)
    else:
        require_plain(arguments.texts, "give a file with a sentence a line")
        try:
            lines = arguments.texts.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"cannot be read ({error})", arguments.texts) from None
    plain = [line.strip() for line in lines if any(map(str.isalpha, line)) and not find(line)]
    found = list(dict.fromkeys(plain))[: arguments.lines]
    if not found:
        raise DataError("has no sentence to ask for", arguments.texts)
    return found


def made_up(language: str) -> list[str]:
    """Sentences of the demo, which are in two languages."""
    from regard.demo.sentence_generator import generate_splits

    if language not in ("en", "fr"):
        raise InputError(f"which texts? Name a file with sentences of {language}, with --texts")
    return [each.source if language == "en" else each.target for each in generate_splits(train=0, dev=0).test]


def measured(
    translators: Sequence[Translator], ways: Sequence[tuple[str, str]], texts: Mapping[tuple[str, str], Sequence[str]]
) -> Offline:
    """Sentences a second when all are there, and what becomes of each."""
    answers, count, seconds = dict[tuple[str, str, str], str](), 0, 0.0
    for translator, (source, target) in zip(translators, ways, strict=False):
        some = texts[source, target]
        translator.translate(some[:16], source=source, target=target)
        start = time.perf_counter()
        made = translator.translate(some, source=source, target=target)
        seconds += time.perf_counter() - start
        count += len(some)
        answers.update({(source, target, text): each.text.strip() for text, each in zip(some, made, strict=True)})
    return Offline(count / seconds if count else 0.0, answers)


@contextmanager
def serving(
    folders: Sequence[str], addresses: Sequence[str], arguments: argparse.Namespace
) -> Iterator[tuple[str, subprocess.Popen[str] | None]]:
    """The address of a server: the one that was named, or one of our own in a process of its own."""
    if addresses:
        yield addresses[0], None
        return
    given = {f"--{name}": value for name, value in engine_options(arguments).items() if value is not None}
    flags = [str(part) for pair in given.items() for part in pair]
    places = ["--port", "0", "--max-concurrent", str(8 * arguments.clients)]
    command = [sys.executable, "-m", "regard", "serve", *folders, *places, *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:  # noqa: S603
        try:
            found = re.search(r"http://\S+", process.stdout.readline() if process.stdout else "")
            if found is None:
                raise InputError(f"the server does not start: try regard serve {' '.join(folders)}")
            yield found[0], process
        finally:
            process.terminate()


def memory(process: subprocess.Popen[str] | None) -> int:
    """Bytes of a process, where Linux tells them."""
    try:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8") if process else ""
    except OSError:
        return 0
    found: list[Any] = re.findall(r"VmRSS:\s+(\d+)", status)
    return 1024 * int(found[0]) if found else 0
