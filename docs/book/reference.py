"""Writes the page of the commands from their parsers."""

from __future__ import annotations

import argparse
import inspect
import re

from regard.cli import build_parser


def verbs() -> dict[str, argparse.ArgumentParser]:
    """Returns the parser of each verb of the command."""
    for action in build_parser()._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    raise LookupError("the command has no verbs")


def commands() -> str:
    """Returns every verb with its arguments as Markdown; settings have a page of their own."""
    return "\n".join(line for verb, parser in verbs().items() for line in command(verb, parser))


def command(verb: str, parser: argparse.ArgumentParser) -> list[str]:
    about = inspect.cleandoc(parser.description or "")
    lines = [f"## regard {verb}\n", *(f"{description(part)}\n" for part in about.split("\n\n"))]
    rows, settings = [], "--model.width" in parser._option_string_actions  # all of them, or the few that it names
    for action in parser._actions:
        if isinstance(action, argparse._HelpAction) or action.help == argparse.SUPPRESS:
            continue
        if not settings or not any(re.match(r"--[a-z]+\.", name) for name in action.option_strings):
            rows.append(f"| {usage(action)} | {plain((action.help or '') % {'default': action.default})} |")
    if rows:
        lines += ["| argument | what |", "|---|---|", *rows, ""]
    if settings:
        lines.append("And a flag for each [setting](settings.md), such as `--model.width 256`.\n")
    return lines


def description(part: str) -> str:
    """Returns a part of a description: prose as prose, two columns as a table or, if narrow, as they are."""
    lines = part.split("\n")
    if not any(COLUMNS.match(line) for line in lines):
        return plain(part)
    if max(map(len, lines)) <= NARROW:
        return f"```text\n{part}\n```"
    rows: list[list[str]] = []
    for line in lines:
        found = COLUMNS.match(line)
        if found and (not rows or not line.startswith(" " * DEEP)):
            rows.append([found[1], found[2]])
        elif rows and line.startswith(" " * DEEP):
            rows[-1][1] += f" {line.strip()}"
        else:
            rows.append([line.strip(), ""])
    return "\n".join(["| | |", "|---|---|", *(f"| `{cell(left)}` | {plain(right)} |" for left, right in rows)])


COLUMNS = re.compile(r" *(\S+(?: \S+)*) {2,}(\S.*)")
NARROW, DEEP = 80, 8
"""Characters of a line that fits beside the navigation, and of the indentation of a continued line."""


def usage(action: argparse.Action) -> str:
    """Returns a flag or an argument as one types it."""
    names = ", ".join(f"`{name}`" for name in action.option_strings)
    if action.nargs == 0:
        return names
    shown = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = " ".join(shown) if isinstance(shown, tuple) else str(shown)
    return f"{names} `{cell(value)}`" if names and value else names or f"`{cell(value)}`"


def plain(text: str) -> str:
    return cell(" ".join(text.split())).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def cell(text: str) -> str:
    return text.replace("|", "\\|")
