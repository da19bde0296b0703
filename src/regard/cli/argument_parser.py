"""The command-line parser: flags may appear anywhere on the line, and an error is one line with a suggestion."""

from __future__ import annotations

import argparse
import difflib
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from regard.errors import InputError, SettingsError

NEGATIVE_NUMBER = r"-\d+|-\d*\.\d+"  # argparse treats negative numbers as arguments, not as flags
SIMILAR = 0.75
"""Minimum similarity (0 to 1) between an unknown flag and a known one that the error message suggests."""


class Parser(argparse.ArgumentParser):
    """Parses the command line of `regard` or of one verb; raises `RegardError` instead of printing the usage."""

    flags_only = False
    rejected_flags: Mapping[str, str] = {}  # flags of other verbs, each with the error message if it is used here

    def __init__(self, *, run: Callable[[argparse.Namespace], int] | None = None, **options: Any) -> None:
        super().__init__(formatter_class=_HelpFormatter, allow_abbrev=False, **options)
        self.set_defaults(run=run)

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}: see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parses all flags first and then the positional arguments, so that flags may stand between arguments.

        Every word after `--` is a positional argument.
        """
        if args is None or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        words = list(args)
        end = words.index("--") if "--" in words else len(words)
        with _not_required(self._get_positional_actions()):
            self.flags_only = True
            try:
                namespace, arguments = super().parse_known_args(words[:end], namespace)
            finally:
                self.flags_only = False
        self.require_known(arguments)
        with _not_required([action for action in self._actions if action.option_strings]):
            return super().parse_known_args([*arguments, *words[end:]], namespace)

    def require_known(self, words: Sequence[str]) -> None:
        """Raises an error if one of these unparsed words looks like a flag."""
        for word in words:
            if word.startswith("-") and len(word) > 1 and " " not in word and not re.fullmatch(NEGATIVE_NUMBER, word):
                raise self.unknown_flag(word)

    def unknown_flag(self, word: str) -> SettingsError:
        """Returns an error that suggests known flags with a similar name."""
        name = word.split("=")[0]
        if name in self.rejected_flags:
            return SettingsError(self.rejected_flags[name])
        similar = self.similar_flags(name)
        hint = f"; did you mean {' or '.join(similar)}?" if similar else f": see {self.prog} --help"
        kind = "setting" if "." in name and name.startswith("--") else "option"
        return SettingsError(f"unknown {kind} {name}{hint}")

    def similar_flags(self, name: str) -> list[str]:
        """Returns flags with the same ending (--training.steps for --steps) or beginning, or the most similar flag."""
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        if same := [flag for flag in flags if _last_part(flag) == _last_part(name)]:
            return same[:3]
        if longer := [flag for flag in flags if flag.startswith(name) and len(name) > len("--")]:
            return longer[:3]
        by_name = {flag.lstrip("-"): flag for flag in flags}
        by_last_part = {_last_part(flag): flag for flag in reversed(flags)}  # the flag that was added first wins
        for known, word in ((by_name, name.lstrip("-")), (by_last_part, _last_part(name))):
            if similar := difflib.get_close_matches(word, known, 1, SIMILAR):
                return [known[similar[0]]]
        return []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            similar = difflib.get_close_matches(value, list(action.choices), 1)
            hint = f"; did you mean regard {similar[0]}?" if similar else ": regard --help lists the verbs"
            raise InputError(f"unknown verb {value}{hint}")
        if action.choices is not None and value not in action.choices:
            *others, last = action.choices
            known = f"{', '.join(others)} or {last}" if others else last
            self.error(f"{'/'.join(action.option_strings) or self.prog} needs {known}, not {value!r}")

    def _get_positional_actions(self) -> list[argparse.Action]:
        return [] if self.flags_only else super()._get_positional_actions()


class _HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Wraps the paragraphs of descriptions, but keeps the line breaks of tables and examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=32)

    def add_usage(self, usage: Any, actions: Iterable[argparse.Action], groups: Any, prefix: Any = None) -> None:
        """Shows all settings as one flag, --SETTING, because a hundred of them would hide the other flags."""
        shown = [action for action in actions if not _is_setting(action)]
        if len(shown) < len(list(actions)):
            shown.append(argparse.Action(["--SETTING"], "", metavar="VALUE"))
        super().add_usage(usage, shown, groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        """Widens the column of verbs, so that long verbs stay on the same line as their help."""
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):
            self._action_max_length += self._indent_increment

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(text, width, break_on_hyphens=False)  # keeps en-de and --flags on one line

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.split("\n\n")
        return "\n\n".join(
            part if "  " in part else textwrap.fill(part, width, break_on_hyphens=False) for part in paragraphs
        )


def _is_setting(action: argparse.Action) -> bool:
    return action.dest.startswith("decoding.") or any("." in flag for flag in action.option_strings)


def _last_part(flag: str) -> str:
    """--training.batch_tokens -> batch-tokens"""
    return flag.lstrip("-").rpartition(".")[2].replace("_", "-")


@contextmanager
def _not_required(actions: Sequence[argparse.Action]) -> Iterator[None]:
    """Makes required flags or arguments optional within a `with` block."""
    required = [action for action in actions if action.required]
    for action in required:
        action.required = False
    try:
        yield
    finally:
        for action in required:
            action.required = True
