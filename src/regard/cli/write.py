"""regard write: continue a text."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from regard.cli.setting_flags import Verbs, add_decoding, add_engine, decoding_options, engine_options
from regard.cli.translate import open_source
from regard.errors import InputError

if TYPE_CHECKING:
    from regard.decoding.writer import Writer

DESCRIPTION = """Continues PROMPT, or standard input where there is none, and prints the words as they come.

  regard write runs/gpt "Once upon a time"
  regard write runs/gpt "Once" --alternatives 4 --json    five continuations
  regard write runs/gpt "To be, or not to be" --score     how probable the model finds this text"""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "write",
        help="continue a text",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("model", metavar="MODEL", help="a model folder")
    parser.add_argument("prompt", nargs="?", metavar="PROMPT", help="the text to continue (standard input)")
    parser.add_argument("--stop", action="append", default=[], metavar="TEXT", help="end before this; may be repeated")
    parser.add_argument("--score", action="store_true", help="score PROMPT, token by token, instead of continuing it")
    parser.add_argument("--json", action="store_true", help="print a JSON object: text, tokens, log-probabilities")
    add_engine(parser)
    add_decoding(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from regard.decoding.model_loading import load_as
    from regard.decoding.writer import Writer

    prompt = arguments.prompt if arguments.prompt is not None else read_prompt()
    writer = load_as(Writer, arguments.model, **engine_options(arguments))
    options = decoding_options(arguments)
    settings = writer.decoding(options)  # a bad option is refused before anything is printed
    if arguments.score:
        show_score(writer, prompt, arguments.json)
        return 0
    length, longest = len(writer.prompt(prompt)), writer.settings.model.max_length
    if length >= longest:
        print(f"regard: the prompt has {length:,} tokens; the model reads the last {longest - 1:,}", file=sys.stderr)
    if arguments.json:
        found = writer.write([prompt], arguments.stop, **options)[0]
        print(json.dumps({"prompt": prompt, **asdict(found)}, ensure_ascii=False))
        return 0
    if settings.alternatives or (settings.temperature == 0 and settings.beam > 1):
        found = writer.write([prompt], arguments.stop, **options)[0]
        for number, each in enumerate((found, *found.alternatives), 1):
            print(f"--- {number}: log-probability {each.log_probability:.2f}")
            print(prompt + each.text)
        return 0
    print(prompt, end="", flush=True)
    for piece in writer.stream(prompt, arguments.stop, **options):
        print(piece, end="", flush=True)
    print()
    return 0


def read_prompt() -> str:
    with open_source(None) as source:
        try:
            return source.read().decode("utf-8-sig").removesuffix("\n")
        except UnicodeDecodeError as error:
            raise InputError(f"standard input: not UTF-8 ({error.reason}): convert it with iconv") from None


def show_score(writer: Writer, text: str, as_json: bool) -> None:
    """Prints each token with its log-probability, and the perplexity."""
    found = writer.score(text)
    if as_json:
        print(json.dumps({**asdict(found), "perplexity": found.perplexity}, ensure_ascii=False))
        return
    for token, value in zip(found.tokens, found.token_log_probabilities, strict=True):
        print(f"{value:9.4f}  {token}")
    per_character = found.surprise / max(1, found.characters)
    print(
        f"perplexity {found.perplexity:.2f} per token ({len(found.tokens):,} tokens), "
        f"{per_character:.4f} nats per character ({found.characters:,} characters)"
    )
