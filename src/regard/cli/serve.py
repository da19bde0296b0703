"""regard serve: models over HTTP, in the interfaces that clients already speak."""

from __future__ import annotations

import argparse
import ipaddress
import json
import logging
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.look import listen
from regard.cli.setting_flags import Verbs, add_engine, add_shortlist, engine_options
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.serving.client_limits import KeyFile, ServingLimits
    from regard.serving.served_models import Models

PORT = 5000
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "serve",
        help="serve models over HTTP: a page, LibreTranslate's interface and OpenAI's",
        description="Serves model folders over HTTP, on this machine alone unless --host says otherwise: a page for "
        "people, LibreTranslate's interface for models that translate, OpenAI's for those that write or embed. A line "
        "of JSON on stderr tells of each request; no text and no key is in it.",
        allow_abbrev=False,
    )
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model folders")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (127.0.0.1: this machine alone)")
    parser.add_argument("--port", type=int, default=PORT, help=f"port to listen on, 0: any free one ({PORT})")
    parser.add_argument(
        "--pivot", metavar="LANGUAGE", help="translate through this language where no model goes directly"
    )
    parser.add_argument("--weblate-probe", action="store_true", help="answer Weblate's en-de test without such a model")
    parser.add_argument(
        "--files", type=Path, metavar="FOLDER", help="keep translated files here, as several servers for one name need"
    )
    parser.add_argument("--metrics", action="store_true", help="answer /metrics, for Prometheus")
    add_access(parser)
    add_limits(parser)
    add_engine(parser)
    add_shortlist(parser)
    parser.set_defaults(run=run)


def add_access(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access")
    group.add_argument("--keys", type=Path, metavar="FILE", help="let in only who has a key; its digest is in FILE")
    group.add_argument(
        "--make-key", metavar="NAME", help="make a key, put its digest into --keys FILE, and print it once"
    )
    group.add_argument("--hosts", nargs="+", metavar="NAME", help="names to answer to, as behind a proxy")
    group.add_argument("--cors", default="*", metavar="ORIGIN", help="whose pages may ask (*: anybody's)")
    group.add_argument("--proxy", action="store_true", help="believe a proxy on this machine who its clients are")
    group.add_argument(
        "--proxies",
        nargs="+",
        metavar="ADDRESS",
        help="the same of proxies elsewhere: addresses or networks (10.0.0.0/8)",
    )
    group.add_argument("--tls-cert", metavar="FILE", help="certificate, for HTTPS")
    group.add_argument("--tls-key", metavar="FILE", help="its key")


def add_limits(parser: argparse.ArgumentParser) -> None:
    from regard.serving.client_limits import ServingLimits

    standard = ServingLimits()
    group = parser.add_argument_group("limits")
    for flag, name, text in (
        ("--rate", "rate", "requests a minute of one key or address; 0: any number"),
        ("--max-characters", "characters", "characters of a request; -1: any number"),
        ("--max-batch", "batch", "texts of a request; -1: any number"),
        ("--max-bytes", "bytes", "bytes of a request"),
        ("--max-upload", "upload", "bytes of a file"),
        ("--max-concurrent", "concurrent", "requests that are answered at the same time"),
        ("--timeout", "answering", "seconds for an answer; files have no limit"),
    ):
        value = getattr(standard, name)
        group.add_argument(
            flag, dest=f"limit_{name}", type=type(value), default=value, metavar="N", help=f"{text} ({value:g})"
        )


def run(arguments: argparse.Namespace) -> int:
    if arguments.make_key is not None:
        return make_key(arguments)
    if not arguments.models:
        raise InputError("which models? Name their folders, as in regard serve runs/en-de")
    if not 0 <= arguments.port <= 65_535:
        raise InputError(f"--port {arguments.port}: a port is a number from 0 to 65535")
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise InputError("--tls-cert and --tls-key belong together")
    limits, keys = limits_of(arguments), keys_of(arguments)
    waiting = listen(arguments.host, arguments.port)
    from regard.serving.served_models import Models

    with waiting:
        models = Models.load(arguments.models, **engine_options(arguments))
        return serve(models, limits, keys, waiting, arguments)


def make_key(arguments: argparse.Namespace) -> int:
    from regard.serving.client_limits import make_key

    if arguments.keys is None:
        raise InputError("--make-key: say where its digest goes, with --keys FILE")
    print(make_key(arguments.keys, arguments.make_key))
    print(f"its digest is in {arguments.keys}; the key itself is nowhere kept", file=sys.stderr)
    return 0


def limits_of(arguments: argparse.Namespace) -> ServingLimits:
    from regard.serving.client_limits import ServingLimits

    given = {name.removeprefix("limit_"): value for name, value in vars(arguments).items() if name.startswith("limit_")}
    return ServingLimits(**given, concurrent_each=max(1, given["concurrent"] // 4))


def keys_of(arguments: argparse.Namespace) -> KeyFile | None:
    from regard.serving.client_limits import KeyFile

    return None if arguments.keys is None else KeyFile(arguments.keys)


def serve(
    models: Models, limits: ServingLimits, keys: KeyFile | None, waiting: Any, arguments: argparse.Namespace
) -> int:
    from regard.serving.application import create_app
    from regard.serving.uvicorn_server import Server, configure

    hosts = arguments.hosts
    if hosts is None and arguments.host in LOOPBACK:
        hosts = []
    logging.basicConfig(handlers=[Handler()], level=logging.WARNING, force=True)
    app = create_app(
        models,
        limits,
        keys,
        pivot=arguments.pivot,
        hosts=hosts,
        origin=arguments.cors,
        weblate_probe=arguments.weblate_probe,
        files=arguments.files,
        metrics=arguments.metrics,
        note=note,
    )
    config = configure(app, ssl_certfile=arguments.tls_cert, ssl_keyfile=arguments.tls_key, **proxies(arguments))
    scheme = "http" if arguments.tls_cert is None else "https"
    name = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    served = ", ".join(models.names)
    print(f"{scheme}://{name}:{waiting.getsockname()[1]}/  {served}  (Ctrl+C ends it)", flush=True)
    Server(config).run(sockets=[waiting])
    return 0


def proxies(arguments: argparse.Namespace) -> dict[str, Any]:
    """Whom uvicorn believes who its clients are."""
    for address in arguments.proxies or ():
        try:
            ipaddress.ip_network(address)
        except ValueError:
            raise InputError(f"--proxies {address}: is no address or network, such as 10.0.0.0/8") from None
    believed = [*(["127.0.0.1", "::1"] if arguments.proxy else []), *(arguments.proxies or ())]
    return {"proxy_headers": bool(believed), "forwarded_allow_ips": ",".join(believed) or "127.0.0.1"}


def note(record: dict[str, Any]) -> None:
    """A line of the log."""
    now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, **record}, ensure_ascii=False), file=sys.stderr, flush=True)


class Handler(logging.Handler):
    """What libraries have to say, as lines of the same log."""

    def emit(self, record: logging.LogRecord) -> None:
        told = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            told["traceback"] = logging.Formatter().formatException(record.exc_info)
        note(told)
