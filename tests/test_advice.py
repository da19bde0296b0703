"""Every verb and every flag that a message names is there, on the verb that it is named with or shown by."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import regard
from regard.cli import build_parser
from regard.settings import Settings
from regard.settings.option_fields import options
from regard.settings.recorded_settings import REMOVED

SOURCE = Path(regard.__file__).parent
VERBS = dict(build_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]
FLAGS = {verb: {*parser._option_string_actions} for verb, parser in VERBS.items()}

TRAINING = ("train", "distill")
CORPUS = ("train", "distill", "plan", "check", "shortlist", "evaluate")
TRANSLATING = ("translate", "evaluate")
SHOWN_BY = {
    "cli/translate_bulk.py": ("translate",),
    "cli/progress_display.py": TRAINING,
    "cli/translate_documents.py": ("translate",),
    "cli/import_export.py": ("import", "export"),
    "cli/encoder_verbs.py": ("fill", "classify", "embed"),
    "cli/argument_parser.py": (),
    "cli/welcome.py": (),
    "preparation/chosen_settings.py": ("train",),
    "jobs/ray_cluster.py": ("translate",),
    "decoding": TRANSLATING,
    "demo": ("demo",),
    "explorer": ("look",),
    "model_folder.py": TRAINING,
    "interop": ("import",),
    "serving": ("serve",),
    "settings/__init__.py": ("train",),
    "tokens/language_directions.py": TRANSLATING,
    "files/formats/jsonl.py": ("translate",),  # what it says to those who train names the verb
    "text": CORPUS,
    "tokens/token_shards.py": ("train",),
    "training": ("train",),
}
"""The verbs that show the messages of a module: a flag that one names by itself is there on all of them."""

OF_ONE_VERB = {
    ("cli/import_export.py", "--tokenizer"): "import",
    ("training/final_weights.py", "--to"): "translate",
    ("cli/encoder_verbs.py", "--nearest"): "embed",
    ("cli/encoder_verbs.py", "--count"): "fill",
}
MAKERS = ("shared_flags", "completion")
"""Modules that make flags, or list them."""
NAMES = {"--training"}  # settings by the name of their table


def messages(path: Path) -> Iterator[tuple[int, str]]:
    """Every text of a module but its docstrings, with the line; what is filled in is {}."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    apart: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr):
            apart.add(id(node.value))
        elif isinstance(node, ast.JoinedStr):
            apart |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in apart:
            continue
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def shown_by(module: str) -> tuple[str, ...]:
    if module in SHOWN_BY:
        return SHOWN_BY[module]
    if module.startswith("cli/"):
        return tuple(verb for verb in VERBS if verb == Path(module).stem)
    return next((SHOWN_BY[each] for each in SHOWN_BY if module.startswith(f"{each}/")), ())


COMMAND = re.compile(r"\bregard ([a-z]+)\b([^\n;:)`]*)")
FLAG = re.compile(r"(?<![\w-])--[a-z][\w.-]*[a-z_](?![\w{*])")


def wrong_advice(module: str, text: str) -> Iterator[str]:
    """What a message names that is not there."""
    for verb, rest in COMMAND.findall(text):
        if verb not in VERBS:
            yield f"regard {verb}"
        else:
            yield from (f"regard {verb} {flag}" for flag in FLAG.findall(rest) if flag not in FLAGS[verb])
    for flag in FLAG.findall(COMMAND.sub("", text)):
        if module == "browser/compile_engine.py" or (module, flag) == ("cli/publish.py", "--directory"):
            continue  # flags of a compiler, and of Python's web server
        verbs = (OF_ONE_VERB[module, flag],) if (module, flag) in OF_ONE_VERB else shown_by(module)
        anywhere = any(flag in flags for flags in FLAGS.values()) or flag in (*NAMES, "--version")
        if not anywhere or not all(flag in FLAGS[verb] for verb in verbs if flag not in NAMES):
            yield f"{flag} of {' and '.join(verbs)}"


PATHS = [path for path in sorted(SOURCE.rglob("*.py")) if path.parent.name != "cli" or path.stem not in MAKERS]


@pytest.mark.parametrize("path", PATHS, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_flag_and_verb_that_is_named_is_there(path: Path) -> None:
    module = path.relative_to(SOURCE).as_posix()
    helps = {action.help for parser in VERBS.values() for action in parser._actions}
    helps |= {parser.description for parser in VERBS.values()} | {option.help for option in options(Settings)}
    for line, text in messages(path):
        declared = FLAG.fullmatch(text) is not None and text in set().union(*FLAGS.values())
        if not declared and text not in helps:
            assert not list(wrong_advice(module, text)), f"{module}:{line}: {text}"


def test_the_help_of_a_verb_names_flags_that_are_there() -> None:
    everywhere = set().union(*FLAGS.values())
    for verb, parser in VERBS.items():
        for text in [parser.description or "", *(action.help or "" for action in parser._actions)]:
            named = {*FLAG.findall(COMMAND.sub("", text))}
            for other, rest in COMMAND.findall(text):
                assert other in VERBS, f"{verb}: {text}"
                assert {*FLAG.findall(rest)} <= FLAGS[other], f"{verb}: {text}"
            assert named <= everywhere, f"{verb}: {text}"


def test_every_setting_that_is_named_is_there() -> None:
    known = {option.path for option in options(Settings)} | {*REMOVED}
    tables = {name.partition(".")[0] for name in known if "." in name}
    setting = re.compile(rf"(?<![\w./-])(?:--)?((?:{'|'.join(tables)})\.[a-z_]+)(?![\w./(])")
    seen = 0
    for path in sorted(SOURCE.rglob("*.py")):
        if path.relative_to(SOURCE).parts[0] in ("interop", "model") or path == SOURCE / "__init__.py":
            continue  # which speak of tensors and modules of these names
        for line, text in messages(path):
            for name in setting.findall(text):
                seen += 1
                assert name in known or name in FILES, f"{path}:{line}: {text}"
    assert seen > 60


FILES = {
    "data.pkl",
    "model.toml",
    "model.safetensors",
    "model.bin",
    "training.new",
    "tokenizer.json",
    "tokenizer.js",
    "model.json",
    "embedding.tokens",
}


def test_every_page_that_an_error_names_is_there() -> None:
    docs = Path(__file__).parents[1] / "docs"
    for path in sorted(SOURCE.rglob("*.py")):
        for line, text in messages(path):
            for page in re.findall(r"docs/([\w/-]+\.md)", text):
                assert (docs / page).exists(), f"{path}:{line}: {text}"
    for error in vars(regard.errors).values():
        if page := getattr(error, "page", ""):
            assert (docs / page).exists(), page


def test_wrong_advice_is_noticed() -> None:
    assert list(wrong_advice("cli/plan.py", "name it with --reverse")) == ["--reverse of plan"]
    assert list(wrong_advice("training/loop.py", "go on with regard distill --resume X")) == ["regard distill --resume"]
    assert list(wrong_advice("files/corpus.py", "see regard trian --source")) == ["regard trian"]
    assert not list(wrong_advice("files/corpus.py", "see regard train --source"))
