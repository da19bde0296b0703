"""One name means one thing in the package, a docstring is a sentence with a verb, and no sentence is in a dialect."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "regard"
FILES = sorted(SOURCE.rglob("*.py"))
PACKAGES = sorted({path.relative_to(SOURCE).parts[0] for path in FILES if path.parent != SOURCE} | {"regard"})

CLAUSES = {"as", "from", "how", "of", "that", "what", "when", "where", "whether", "which", "who", "whoever", "why"}
"""First words of a docstring that is a clause and not a sentence: "What was found"."""

PLURAL_NOUNS = """
accents answers batches bytes chances characters directions documents edges files groups heads items keys
languages layers lines log-probabilities logits matrices messages models numbers pairs parts pieces positions
products queries requests rows sentences settings sines states steps tensors terms texts tokens translations units
values vectors weights words
"""
NO_VERBS = {*PLURAL_NOUNS.split(), "always", "its", "others", "ours", "perhaps", "plus", "theirs", "this", "thus"}
"""Words in -s that are not verbs; every other word in -s at the beginning of a docstring is taken for one."""

DIALECT = {
    "told": r"\btold\b",
    "so many": r"\bso many\b",
    "so manieth": r"\bmanieth\b",
    "is none": r"(?<!there )(?<!that )\b(?:is|are) none\b(?! of)",
    "that is there": r"\bthat (?:is|are|was|were) there\b",
    "in one another": r"\bin one another\b",
    "the wilder": r"\bthe wilder\b",
    "of before": r"\bof before\b",
    "leave away": r"\b(?:leav(?:e|es|ing)|left)\b[^.]{0,60}\baway\b",
}

Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def is_sentence(docstring: str, *, of_function: bool) -> bool:
    """Reports whether a docstring begins like a sentence; that of a function with a verb, as in "Returns ...".

    Instead of a verb, a function may have an arrow, as in "[B, T] tokens -> [B, T, V] logits", and a class, a module
    or a property a noun, as in "One setting: its name, type and help".
    """
    first = re.split(r"[\s,.:;]", docstring.strip(), maxsplit=1)[0].lower()
    if not of_function:
        return first not in CLAUSES
    return "->" in docstring.partition("\n")[0] or (first.endswith("s") and first not in NO_VERBS | CLAUSES)


def faults(path: Path) -> Iterator[str]:
    """Yields the docstrings of a file that are no sentences, and the words of the dialect in its texts."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, Documented) and (docstring := ast.get_docstring(node)):
            decorators = [ast.unparse(each) for each in getattr(node, "decorator_list", ())]
            is_property = any("property" in name for name in decorators)
            of_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not is_property
            if not is_sentence(docstring, of_function=of_function):
                yield f"{path.relative_to(SOURCE)}:{getattr(node, 'lineno', 1)}: {docstring.partition(chr(10))[0]}"
    for line, words in texts_of(text):
        for name, pattern in DIALECT.items():
            if re.search(pattern, words, re.IGNORECASE):
                yield f"{path.relative_to(SOURCE)}:{line}: {name!r} in {words.strip()!r}"


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yields the comments and strings of a file with their lines; names in braces of a format are left out."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            yield token.start[0], " ".join(re.sub(r"\{[^{}]*\}", "{}", token.string).split())


def package_of(path: Path) -> str:
    return "regard" if path.parent == SOURCE else path.relative_to(SOURCE).parts[0]


@pytest.mark.parametrize("package", PACKAGES)
def test_texts_of_a_package_are_plain_sentences(package: str) -> None:
    found = [fault for path in FILES if package_of(path) == package for fault in faults(path)]
    assert not found, "\n".join(found)


def test_no_two_modules_have_the_same_name() -> None:
    names = Counter(path.stem for path in FILES if path.stem not in ("__init__", "__main__"))
    assert not [name for name, count in names.items() if count > 1]


def public_types(path: Path) -> Iterator[str]:
    """Yields the classes and type aliases that a module defines for others."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            is_variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec")
            if isinstance(target, ast.Name) and re.fullmatch(r"[A-Z][a-z]+\w*", target.id) and not is_variable:
                yield target.id


def test_a_public_class_or_type_has_a_name_of_its_own() -> None:
    homes = defaultdict(list)
    for path in FILES:
        for name in public_types(path):
            homes[name].append(str(path.relative_to(SOURCE)))
    shared = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert not shared, "\n".join(f"{name}: {', '.join(paths)}" for name, paths in shared.items())


@pytest.mark.parametrize(
    ("docstring", "of_function", "expected"),
    [
        ("Returns the best hypotheses.", True, True),
        ("[B, T] tokens -> [B, T, V] logits.", True, True),
        ("One setting: its name and help.", False, True),
        ("The size of a file.", True, False),
        ("Lines of a file.", True, False),
        ("What was found.", True, False),
        ("What was found.", False, False),
        ("Whether it is whole.", False, False),
    ],
)
def test_a_sentence_is_recognised(docstring: str, of_function: bool, expected: bool) -> None:
    assert is_sentence(docstring, of_function=of_function) == expected


@pytest.mark.parametrize("text", ["# it was told", 'x = f"{told} of so many"', "'''is none'''", '"left it away"'])
def test_a_word_of_the_dialect_is_found(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.SOURCE", tmp_path)
    (tmp_path / "module.py").write_text(text)
    assert list(faults(tmp_path / "module.py"))
    (tmp_path / "module.py").write_text('f"{told} settings"')
    assert not list(faults(tmp_path / "module.py"))
