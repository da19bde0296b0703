"""regard completion: a script with which a shell completes verbs and flags, made from the command's own parser."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args, get_origin

from regard.cli.setting_flags import Verbs
from regard.settings import Settings
from regard.settings.option_fields import options

ABOUT = """Prints a script for your shell; put it where the shell reads it when it starts:
  bash   echo 'eval "$(regard completion bash)"' >> ~/.bashrc
  zsh    echo 'eval "$(regard completion zsh)"' >> ~/.zshrc        (after compinit)
  fish   regard completion fish > ~/.config/fish/completions/regard.fish"""


def add(verbs: Verbs) -> None:
    parser = verbs.add_parser(
        "completion",
        help="let your shell complete verbs and flags",
        description=ABOUT,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("shell", choices=sorted(SHELLS), help="the shell to write for")
    parser.set_defaults(run=lambda arguments: run(arguments, verbs))


def run(arguments: argparse.Namespace, verbs: Verbs) -> int:
    print(SHELLS[arguments.shell](list(words_of(verbs))), end="")
    return 0


@dataclass(frozen=True)
class Word:
    """Something that can be typed: what it does, and, of a flag, which values it takes if they are few."""

    name: str
    help: str
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verb(Word):
    flags: tuple[Word, ...] = ()


def words_of(verbs: Verbs) -> Iterator[Verb]:
    """Every verb of the command, with its flags."""
    helps = {action.dest: action.help or "" for action in verbs._choices_actions}
    values_of = values_of_settings()
    for name, parser in verbs.choices.items():
        flags: list[Word] = []
        values: list[str] = []
        for action in parser._actions:
            choices = tuple(map(str, action.choices or values_of.get(action.dest, ())))
            flags += [Word(flag, first(action.help), choices) for flag in action.option_strings]
            values += [] if action.option_strings else choices
        yield Verb(name, first(helps[name]), tuple(values), tuple(flags))


def values_of_settings() -> dict[str, tuple[str, ...]]:
    """Of every setting that takes few values: these, by its dotted name; the parser itself takes any text for them."""
    found: dict[str, tuple[str, ...]] = {}
    for option in options(Settings):
        if option.type is bool:
            found[option.path] = ("true", "false")
        elif get_origin(option.type) is Literal:
            found[option.path] = get_args(option.type)
    return found


def first(text: str | None) -> str:
    """The help of a flag up to its first semicolon, on one line."""
    return " ".join((text or "").replace("%%", "%").split()).partition(";")[0]


def bash(verbs: list[Verb]) -> str:
    cases = "".join(
        f"    {verb.name}) words={quoted(' '.join([*(flag.name for flag in verb.flags), *verb.choices]))} ;;\n"
        for verb in verbs
    )
    values = "".join(
        f"    {verb}:{flag}) words={quoted(' '.join(choices))} ;;\n" for verb, flag, choices in chosen(verbs)
    )
    return f"""_regard() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} last=${{COMP_WORDS[COMP_CWORD-1]}} verb=${{COMP_WORDS[1]}} words=
  if [ "$COMP_CWORD" = 1 ]; then
    COMPREPLY=($(compgen -W {quoted(" ".join(verb.name for verb in verbs) + " --help --version")} -- "$word"))
    return
  fi
  case "$verb:$last" in
{values}  esac
  [ -n "$words" ] || case "$verb" in
{cases}  esac
  COMPREPLY=($(compgen -W "$words" -- "$word"))
}}
complete -o default -F _regard regard
"""


def zsh(verbs: list[Verb]) -> str:
    def described(words: Sequence[Word]) -> str:
        return " ".join(quoted(f"{word.name}:{word.help}") for word in words)

    cases = "".join(f"    {verb.name}) found=({described(verb.flags)}) ;;\n" for verb in verbs)
    given = [(verb.name, verb.name, verb.choices) for verb in verbs if verb.choices]
    every = [*chosen(verbs), *given]
    values = "".join(f"    {verb}:{flag}) found=({' '.join(choices)}) ;;\n" for verb, flag, choices in every)
    return f"""#compdef regard
_regard() {{
  local -a found
  if (( CURRENT == 2 )); then
    found=({described(verbs)})
    _describe verb found
    return
  fi
  case "$words[2]:$words[CURRENT-1]" in
{values}  esac
  if (( $#found )) && [[ "$words[CURRENT]" != -* ]]; then
    _describe value found
    return
  fi
  case "$words[2]" in
{cases}  esac
  if [[ "$words[CURRENT]" == -* ]]; then
    _describe flag found
  else
    _files
  fi
}}
compdef _regard regard
"""


def fish(verbs: list[Verb]) -> str:
    lines = [f"complete -c regard -n __fish_use_subcommand -f -a {verb.name} -d {quoted(verb.help)}" for verb in verbs]
    for verb in verbs:
        seen = f"complete -c regard -n '__fish_seen_subcommand_from {verb.name}'"
        if verb.choices:
            lines.append(
                f"complete -c regard -n '__fish_prev_arg_in {verb.name}' -f -a {quoted(' '.join(verb.choices))}"
            )
        for flag in verb.flags:
            kind = f"-l {flag.name[2:]}" if flag.name.startswith("--") else f"-s {flag.name[1:]}"
            takes = f" -x -a {quoted(' '.join(flag.choices))}" if flag.choices else ""
            lines.append(f"{seen} {kind}{takes} -d {quoted(flag.help)}")
    return "\n".join(lines) + "\n"


SHELLS: dict[str, Callable[[list[Verb]], str]] = {"bash": bash, "fish": fish, "zsh": zsh}


def chosen(verbs: list[Verb]) -> list[tuple[str, str, tuple[str, ...]]]:
    """Of every flag that takes few values: its verb, its name, and these."""
    return [(verb.name, flag.name, flag.choices) for verb in verbs for flag in verb.flags if flag.choices]


def quoted(text: str) -> str:
    """Text as one word of a shell."""
    return "'" + text.replace("'", "’") + "'"
