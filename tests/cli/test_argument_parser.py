"""Flags stand anywhere among the arguments of a verb, and a misspelt word gets the right suggestion."""

from __future__ import annotations

import argparse

import pytest

from regard.cli import build_parser
from tests.cli.running import call


def parsers() -> dict[str, argparse.ArgumentParser]:
    return dict(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]


def words_for(parser: argparse.ArgumentParser) -> list[str]:
    """Arguments of a verb, two where it takes several."""
    words: list[str] = []
    for action in parser._get_positional_actions():
        count = 2 if action.nargs in ("*", "+") else 1
        words += [str(next(iter(action.choices or [f"{action.dest}{number}"]))) for number in range(count)]
    return words


def flags_for(parser: argparse.ArgumentParser) -> list[list[str]]:
    """A flag with a value and one without, if the verb has both, and then all flags that it needs."""
    values = {None: ["value"], 0: []}
    chosen = [
        next((a for a in parser._get_optional_actions() if a.nargs == nargs and not (a.type or a.choices)), None)
        for nargs in values
    ]
    flags = [[action.option_strings[-1], *values[action.nargs]] for action in chosen if action]  # type: ignore[index]
    required = [action for action in parser._get_optional_actions() if action.required]
    needed = [[a.option_strings[-1], next(iter(a.choices or ["value"]))] for a in required]
    return [flag for flag in flags if flag not in needed and flag != ["--help"]] + needed


@pytest.mark.parametrize("verb", parsers())
def test_a_flag_may_stand_at_every_place_among_the_arguments(verb: str) -> None:
    words, flags = words_for(parsers()[verb]), flags_for(parsers()[verb])
    before = [word for flag in flags for word in flag]
    expected = build_parser().parse_args([verb, *before, *words])
    for flag in flags:
        others = [word for other in flags if other != flag for word in other]
        for place in range(len(words) + 1):
            line = [verb, *others, *words[:place], *flag, *words[place:]]
            assert build_parser().parse_args(line) == expected, line


@pytest.mark.parametrize("verb", ["translate", "write", "embed"])
def test_all_that_follows_two_hyphens_is_an_argument(verb: str) -> None:
    parser = build_parser()
    for line in (["--", "model", "--json"], ["model", "--", "--json"], ["--json", "model", "--", "--json"]):
        found = parser.parse_args([verb, *line])
        rest = next(getattr(found, name) for name in ("files", "prompt", "file") if hasattr(found, name))
        assert (found.model, rest, found.json) == (
            "model",
            ["--json"] if verb == "translate" else "--json",
            len(line) > 3,
        )


def test_numbers_below_zero_and_one_hyphen_are_arguments() -> None:
    assert build_parser().parse_args(["write", "model", "--json", "-1"]).prompt == "-1"
    assert build_parser().parse_args(["translate", "model", "--json", "-"]).files == ["-"]


def test_a_flag_between_model_and_file_translates(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    text = tmp_path_factory.mktemp("text") / "f.txt"
    text.write_text("a dog\nthe cat\n")
    between = call(capsys, "translate", model, "--beam", "1", str(text))
    assert (between.code, between.out.count("\n")) == (0, 2)
    assert between == call(capsys, "translate", model, str(text), "--beam", "1")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("trian a b", "unknown verb trian; did you mean regard train?"),
        ("frobnicate", "unknown verb frobnicate: regard --help lists the verbs"),
        ("train a b --steps 3", "unknown option --steps; did you mean --training.steps?"),
        ("plan a b --step 3", "unknown option --step; did you mean --training.steps?"),
        ("distill m a --batch-tokens 3", "; did you mean --training.batch_tokens or --decoding.batch_tokens?"),
        ("train --dropout 0.1 a b", "unknown option --dropout; did you mean --model.dropout?"),
        ("translate --beem 4 m", "unknown option --beem; did you mean --beam?"),
        ("translate m -beam 4", "unknown option -beam; did you mean --beam?"),
        ("bench --client 4 serve m", "unknown option --client; did you mean --clients?"),
        ("embed m --colour 4", "unknown option --colour: see regard embed --help"),
        ("info a b", "unknown argument b: see regard info --help"),
        ("--verbose", "unknown option --verbose: see regard --help"),
    ],
)
def test_what_is_misspelt_gets_the_right_suggestion(
    capsys: pytest.CaptureFixture[str], line: str, message: str
) -> None:
    done = call(capsys, *line.split())
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert message in done.err
