"""The parser of the command: flags stand anywhere, and a mistake is one line that says what to type instead."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from regard.errors import InputError, SettingsError


class Parser(argparse.ArgumentParser):
    """A parser of a verb, or of the verb itself, that raises `RegardError` instead of printing its usage."""

    flags_only = False
    refused: Mapping[str, str] = {}  # flags of other verbs, and why this one does not have them

    def error(self, message: str) -> NoReturn:
        raise InputError(f"{message}: see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Reads the flags of a verb first and then its arguments, so that flags may stand between arguments.

        Everything after `--` is an argument.
        """
        if args is None or self._subparsers is not None:
            return super().parse_known_args(args, namespace)
        given = list(args)
        end = given.index("--") if "--" in given else len(given)
        with self._reading_flags_only():
            namespace, words = super().parse_known_args(given[:end], namespace)
        self.require_known(words)
        with _optional([action for action in self._actions if action.option_strings]):
            return super().parse_known_args([*words, *given[end:]], namespace)

    def require_known(self, words: Sequence[str]) -> None:
        """Refuses the first flag among words that the parser did not understand, or else the first word."""
        for word in words:
            if word.startswith("-") and len(word) > 1 and " " not in word and not re.fullmatch(NEGATIVE_NUMBER, word):
                raise self.unknown_flag(word)

    def unknown_flag(self, word: str) -> SettingsError:
        """An error that names the flags of this parser that look or end like the unknown one."""
        name = word.split("=")[0]
        if name in self.refused:
            return SettingsError(self.refused[name])
        close = self.similar_flags(name)
        hint = f"; did you mean {' or '.join(close)}?" if close else f": see {self.prog} --help"
        kind = "setting" if "." in name and name.startswith("--") else "option"
        return SettingsError(f"unknown {kind} {name}{hint}")

    def similar_flags(self, name: str) -> list[str]:
        """The flags with the same last part, as --training.steps for --steps, or else the most similar one."""
        flags = [flag for flag in self._option_string_actions if flag.startswith("--")]
        if same := [flag for flag in flags if _leaf(flag) == _leaf(name)]:
            return same[:3]
        wholes = {flag.lstrip("-"): flag for flag in flags}
        leaves = {_leaf(flag): flag for flag in reversed(flags)}  # of equals, the flag that was added first
        for known, word in ((wholes, name.lstrip("-")), (leaves, _leaf(name))):
            if close := difflib.get_close_matches(word, known, 1, CLOSE):
                return [known[close[0]]]
        return []

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if isinstance(action, argparse._SubParsersAction) and value not in action.choices:
            close = difflib.get_close_matches(value, list(action.choices), 1)
            hint = f"; did you mean regard {close[0]}?" if close else ": regard --help lists the verbs"
            raise InputError(f"unknown verb {value}{hint}")
        super()._check_value(action, value)

    def _get_positional_actions(self) -> list[argparse.Action]:
        return [] if self.flags_only else super()._get_positional_actions()

    @contextmanager
    def _reading_flags_only(self) -> Iterator[None]:
        positionals = self._get_positional_actions()
        self.flags_only = True
        try:
            with _optional(positionals):
                yield
        finally:
            self.flags_only = False


NEGATIVE_NUMBER = r"-\d+|-\d*\.\d+"  # which argparse takes for an argument
CLOSE = 0.75
"""How similar two flags have to be for one to be suggested instead of the other."""


def _leaf(flag: str) -> str:
    """--training.batch_tokens -> batch-tokens"""
    return flag.lstrip("-").rpartition(".")[2].replace("_", "-")


@contextmanager
def _optional(actions: Sequence[argparse.Action]) -> Iterator[None]:
    """Lets the parser do without these for a while."""
    required = [action for action in actions if action.required]
    for action in required:
        action.required = False
    try:
        yield
    finally:
        for action in required:
            action.required = True
