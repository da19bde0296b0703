"""regard completion: prints a script with which a shell completes verbs, flags and their values."""

from __future__ import annotations

import argparse
from functools import partial

from regard.cli.argument_parser import Parser
from regard.cli.shared_flags import Verbs

ABOUT = """Prints a completion script. Add it to the start-up files of your shell:
  bash   echo 'eval "$(regard completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(regard completion zsh)"' >> ~/.zshrc        (after compinit)
  fish   regard completion fish > ~/.config/fish/completions/regard.fish"""


def add(verbs: Verbs, parser: Parser) -> None:
    start, about = partial(run, verbs=verbs, parser=parser), "print a completion script for your shell"
    verb = verbs.add_parser("completion", help=about, description=ABOUT, run=start)
    verb.add_argument("shell", choices=("bash", "fish", "zsh"), help="shell to generate the completion script for")


def run(arguments: argparse.Namespace, verbs: Verbs, parser: Parser) -> int:
    import shtab

    for choice in verbs._choices_actions:
        verb = verbs.choices[choice.dest]
        verb.description = choice.help  # the shell shows one line beside the verb
        for action in verb._actions:
            action.choices = action.choices or _list_values(action.metavar)
            if action.nargs != 0 and not action.choices:
                action.complete = shtab.FILE
    print(shtab.complete(parser, arguments.shell))
    return 0


def _list_values(metavar: object) -> list[str] | None:
    is_list = isinstance(metavar, str) and metavar.startswith("{")
    return str(metavar).strip("{}").split(",") if is_list else None
