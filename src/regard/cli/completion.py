"""regard completion: prints a script that lets a shell complete verbs, flags and their values."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Literal, get_args, get_origin

from regard.cli.argument_parser import Parser
from regard.cli.shared_flags import Verbs
from regard.settings import Settings
from regard.settings.option_fields import options

ABOUT = """Prints a completion script. Add it to the start-up files of your shell:
  bash   echo 'eval "$(regard completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(regard completion zsh)"' >> ~/.zshrc        (after compinit)
  fish   regard completion fish > ~/.config/fish/completions/regard.fish"""


def add(verbs: Verbs, parser: Parser) -> None:
    start, about = partial(run, verbs=verbs, parser=parser), "let your shell complete verbs and flags"
    verb = verbs.add_parser("completion", help=about, description=ABOUT, run=start)
    verb.add_argument("shell", choices=("bash", "fish", "zsh"), help="the shell that will read the script")


def run(arguments: argparse.Namespace, verbs: Verbs, parser: Parser) -> int:
    import shtab

    values = setting_values()
    for choice in verbs._choices_actions:
        verb = verbs.choices[choice.dest]
        verb.description = choice.help  # which a shell shows beside the verb, in one line
        for action in verb._actions:
            action.choices = action.choices or values.get(action.dest)
            if action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE
    print(shtab.complete(parser, arguments.shell))
    return 0


def setting_values() -> dict[str, tuple[str, ...]]:
    """Returns the permitted values of each setting that has a few; the parser itself accepts any text for them."""
    values: dict[str, tuple[str, ...]] = {}
    for option in options(Settings):
        if option.type is bool:
            values[option.path] = ("true", "false")
        elif get_origin(option.type) is Literal:
            values[option.path] = get_args(option.type)
    return values
