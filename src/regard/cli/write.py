"""regard write: continues a text, or scores it."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from regard.cli.shared_flags import Verbs, add_decoding, add_engine, decoding_options, engine_options
from regard.cli.text_lines import open_source
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.decoding.writer import Writer

DESCRIPTION = """Continues PROMPT, or standard input if there is no PROMPT, and prints each word as it is decoded.

  regard write runs/gpt "Once upon a time"
  regard write runs/gpt "Once" --alternatives 4 --json    five continuations
  regard write runs/gpt "To be, or not to be" --score     how probable the model finds this text"""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser("write", help="continue a text", description=DESCRIPTION, run=run)
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the text to continue (default: standard input)")
    text = "stop before the model writes TEXT; may be repeated"
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help=text)
    parser.add_argument("--score", action="store_true", help="score each token of PROMPT instead of continuing it")
    parser.add_argument("--json", action="store_true", help="print a JSON object: text, tokens, log-probabilities")
    add_engine(parser)
    add_decoding(parser)


def run(arguments: argparse.Namespace) -> int:
    from regard.decoding.model_loading import load_as
    from regard.decoding.writer import Writer

    prompt = arguments.prompt if arguments.prompt is not None else _read_prompt()
    writer = load_as(Writer, arguments.model, **engine_options(arguments))
    options = decoding_options(arguments)
    settings = writer.decoding(options)  # reports a bad option before printing anything
    if arguments.score:
        _print_score(writer, prompt, arguments.json)
        return 0
    length, longest = len(writer.prompt(prompt)), writer.settings.model.max_length
    if length >= longest:
        message = f"the prompt has {length:,} tokens; the model reads only the last {longest - 1:,}"
        print(f"regard: {message}", file=sys.stderr)
    has_several = settings.alternatives > 0 or (settings.temperature == 0 and settings.beam > 1)
    if not arguments.json and not has_several:
        print(prompt, end="", flush=True)
        for piece in writer.stream(prompt, arguments.stop, **options):
            print(piece, end="", flush=True)
        print()
        return 0
    result = writer.write([prompt], arguments.stop, **options)[0]
    if arguments.json:
        print(json.dumps({"prompt": prompt, **asdict(result)}, ensure_ascii=False))
        return 0
    for number, each in enumerate((result, *result.alternatives), 1):
        print(f"--- {number}: log-probability {each.log_probability:.2f}")
        print(prompt + each.text)
    return 0


def _read_prompt() -> str:
    with open_source(None) as source:
        try:
            return source.read().decode("utf-8-sig").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"standard input: not UTF-8 ({error.reason}): convert it with iconv") from None


def _print_score(writer: Writer, text: str, as_json: bool) -> None:
    """Prints each token with its log-probability, and the perplexity."""
    score = writer.score(text)
    if as_json:
        print(json.dumps({**asdict(score), "perplexity": score.perplexity}, ensure_ascii=False))
        return
    for token, value in zip(score.tokens, score.token_log_probabilities, strict=True):
        print(f"{value:9.4f}  {token}")
    nats = score.surprise / max(1, score.characters)
    print(
        f"perplexity {score.perplexity:.2f} per token ({len(score.tokens):,} tokens), "
        f"{nats:.4f} nats per character ({score.characters:,} characters)"
    )
