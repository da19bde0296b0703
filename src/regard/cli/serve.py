"""regard serve: serves models over HTTP, with the APIs of LibreTranslate, OpenAI and Hugging Face."""

from __future__ import annotations

import argparse
import ipaddress
import json
import logging
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING, Any

from regard.cli.look import add_address, listen
from regard.cli.shared_flags import Verbs, add_engine, add_shortlist, engine_options, number
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.serving.client_limits import KeyFile, ServingLimits
    from regard.serving.served_models import Models

DESCRIPTION = """Serves models over HTTP, only to this machine unless you pass --host. The server offers a web page, the
API of LibreTranslate for models that translate, the API of OpenAI for models that write or embed, and the API of
Hugging Face for models that fill gaps or classify. It logs each request as a line of JSON on standard error, without
the text or the key."""

LOOPBACK = ("127.0.0.1", "::1", "localhost")


def add(verbs: Verbs) -> None:
    about = "serve models with the APIs of LibreTranslate, OpenAI and Hugging Face"
    parser = verbs.add_parser("serve", help=about, description=DESCRIPTION, run=run)
    parser.add_argument("models", nargs="*", metavar="MODEL", help="model folders")
    add_address(parser, 5000)
    text = "translate by way of this language if no model translates directly"
    parser.add_argument("--pivot", metavar="LANGUAGE", help=text)
    text = "answer the test request of Weblate (English to German) even without an en-de model"
    parser.add_argument("--weblate-probe", action="store_true", help=text)
    text = "store translated files in this folder; all servers behind one address must share it"
    parser.add_argument("--files", type=Path, metavar="FOLDER", help=text)
    text = "let people look inside a translation on the page; loads each model a second time, in PyTorch"
    parser.add_argument("--look", action="store_true", help=text)
    parser.add_argument("--metrics", action="store_true", help="serve metrics for Prometheus at /metrics")
    _add_access(parser)
    _add_limits(parser)
    add_engine(parser)
    add_shortlist(parser)


def _add_access(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("access")
    text = "require an API key; FILE contains the digests of the valid keys"
    group.add_argument("--keys", type=Path, metavar="FILE", help=text)
    text = "create an API key for NAME, add its digest to --keys FILE, print the key and exit"
    group.add_argument("--make-key", metavar="NAME", help=text)
    group.add_argument(
        "--hosts", nargs="+", metavar="NAME", help="host names accepted in requests, for example behind a proxy"
    )
    text = "origin whose web pages may call the server; *: any (default: none, or any if --host is not this machine)"
    group.add_argument("--cors", metavar="ORIGIN", help=text)
    group.add_argument("--proxy", action="store_true", help="trust X-Forwarded-For from a proxy on this machine")
    text = "also trust X-Forwarded-For from these addresses or networks (10.0.0.0/8)"
    group.add_argument("--proxies", nargs="+", metavar="ADDRESS", help=text)
    group.add_argument("--tls-cert", metavar="FILE", help="TLS certificate, for HTTPS")
    group.add_argument("--tls-key", metavar="FILE", help="private key of the certificate")


def _add_limits(parser: argparse.ArgumentParser) -> None:
    from regard.serving.client_limits import ServingLimits

    group, standard = parser.add_argument_group("limits"), ServingLimits()
    for flag, name, lowest, text in (
        ("--rate", "rate", 0, "maximum requests per minute for each key or address; 0: no limit"),
        ("--max-characters", "characters", -1, "maximum characters per request; -1: no limit"),
        ("--max-batch", "batch", -1, "maximum texts per request; -1: no limit"),
        ("--max-bytes", "bytes", 1, "maximum bytes per request"),
        ("--max-upload", "upload", 1, "maximum bytes per file"),
        ("--max-concurrent", "concurrent", 1, "maximum concurrent requests"),
        ("--timeout", "answering", 0.001, "maximum seconds to answer a request or translate a file"),
    ):
        value = getattr(standard, name)
        options: dict[str, Any] = {"type": number(lowest, kind=type(value)), "default": value, "metavar": "N"}
        group.add_argument(flag, dest=f"limit_{name}", help=f"{text} (default: {value:,.10g})", **options)


def run(arguments: argparse.Namespace) -> int:
    from regard.serving.client_limits import KeyFile, ServingLimits, make_key

    if arguments.make_key is not None:
        if arguments.keys is None:
            raise InputError("--make-key writes the digest of the key to a file: add --keys FILE")
        print(make_key(arguments.keys, arguments.make_key))
        print(f"its digest is in {arguments.keys}; the key itself is not stored", file=sys.stderr)
        return 0
    if not arguments.models:
        raise InputError("pass one or more model folders, as in regard serve runs/en-de")
    if (arguments.tls_cert is None) != (arguments.tls_key is None):
        raise InputError("--tls-cert and --tls-key must be used together")
    if arguments.look and arguments.keys is not None:
        raise InputError("--look: the explorer does not support keys; leave out --look, or --keys")
    limits = {name.removeprefix("limit_"): value for name, value in vars(arguments).items() if "limit_" in name}
    limits["concurrent_each"] = max(1, limits["concurrent"] // 4)
    keys = None if arguments.keys is None else KeyFile(arguments.keys)
    with listen(arguments.host, arguments.port) as listener:
        from regard.serving.served_models import Models

        models = Models.load(arguments.models, **engine_options(arguments))
        return _serve(models, ServingLimits(**limits), keys, listener, arguments)


def _serve(
    models: Models, limits: ServingLimits, keys: KeyFile | None, listener: socket, arguments: argparse.Namespace
) -> int:
    from regard.serving.application import create_app
    from regard.serving.uvicorn_server import Server, configure

    hosts, origin = arguments.hosts, arguments.cors
    if arguments.host in LOOPBACK:
        hosts = hosts or []
    else:
        origin = origin or "*"
    logging.basicConfig(handlers=[_JsonHandler()], level=logging.WARNING, force=True)
    app = create_app(
        models,
        limits,
        keys,
        pivot=arguments.pivot,
        hosts=hosts,
        origin=origin,
        weblate_probe=arguments.weblate_probe,
        files=arguments.files,
        metrics=arguments.metrics,
        look=arguments.look,
        note=_log,
    )
    config = configure(app, ssl_certfile=arguments.tls_cert, ssl_keyfile=arguments.tls_key, **_proxy_options(arguments))
    scheme = "http" if arguments.tls_cert is None else "https"
    name = f"[{arguments.host}]" if ":" in arguments.host else arguments.host
    served = ", ".join(models.names)
    print(f"{scheme}://{name}:{listener.getsockname()[1]}/  {served}  (Ctrl+C stops the server)", flush=True)
    Server(config).run(sockets=[listener])
    return 0


def _proxy_options(arguments: argparse.Namespace) -> dict[str, Any]:
    for address in arguments.proxies or ():
        try:
            ipaddress.ip_network(address)
        except ValueError:
            message = f"--proxies {address}: not an IP address or a network such as 10.0.0.0/8"
            raise InputError(message) from None
    trusted = [*(["127.0.0.1", "::1"] if arguments.proxy else []), *(arguments.proxies or ())]
    return {"proxy_headers": bool(trusted), "forwarded_allow_ips": ",".join(trusted) or "127.0.0.1"}


def _log(record: dict[str, Any]) -> None:
    now = datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds")
    print(json.dumps({"time": now, **record}, ensure_ascii=False), file=sys.stderr, flush=True)


class _JsonHandler(logging.Handler):
    """Writes the log messages of libraries as lines of JSON too."""

    def emit(self, record: logging.LogRecord) -> None:
        fields = {"level": record.levelname.lower(), "message": record.getMessage()}
        if record.exc_info:
            fields["traceback"] = logging.Formatter().formatException(record.exc_info)
        _log(fields)
