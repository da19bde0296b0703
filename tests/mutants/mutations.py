"""Small faults that can be put into a Python file: each is one edit of its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

SWAPS: dict[type[ast.AST], tuple[str, str]] = {
    ast.Lt: ("<", "<="), ast.LtE: ("<=", "<"), ast.Gt: (">", ">="), ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="), ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"), ast.IsNot: (r"is\s+not", "is"), ast.In: ("in", "not in"), ast.NotIn: (r"not\s+in", "in"),
    ast.And: ("and", "or"), ast.Or: ("or", "and"),
    ast.Add: (r"\+", "-"), ast.Sub: ("-", "+"), ast.Mult: (r"\*", "+"), ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "*"), ast.Mod: ("%", "+"), ast.Pow: (r"\*\*", "*"),
}  # fmt: skip
DEFAULTS = {"str": '""', "int": "0", "float": "0.0", "list": "[]", "dict": "{}", "tuple": "()", "set": "set()"}
HARMLESS = {"strict", "encoding", "daemon"}
"""Keyword arguments that no test on this machine can miss."""
TYPES = {"TypeVar", "cast", "NewType", "ParamSpec"}


@dataclass(frozen=True)
class Edit:
    """Bytes of a file of the package that are replaced."""

    path: str
    start: int
    end: int
    text: str

    def applied(self, source: bytes) -> bytes:
        return source[: self.start] + self.text.encode() + source[self.end :]


@dataclass(frozen=True)
class Mutant:
    """The package with one fault."""

    path: str
    line: int
    before: str  # the source of the edit's lines, on one line
    after: str
    edits: tuple[Edit, ...]
    lines: frozenset[tuple[str, int]]  # a test reaches the mutant if it runs one of them; line 0: any of the file

    @property
    def key(self) -> tuple[str, str, str]:
        return self.path, self.before, self.after

    def __str__(self) -> str:
        return f"{self.path}:{self.line}\n  - {self.before}\n  + {self.after}"


def is_another_program(mutant: Mutant, source: bytes) -> bool:
    """Whether a mutant of this file can be parsed, and says something else."""
    try:
        return ast.dump(ast.parse(mutant.edits[0].applied(source))) != ast.dump(ast.parse(source))
    except SyntaxError:
        return False


def mutants_of(path: str, source: bytes) -> list[Mutant]:
    """All mutants of a file, in the order of its lines."""
    return sorted(Mutations(path, source).found, key=lambda mutant: (mutant.line, mutant.edits[0].start))


class Mutations(ast.NodeVisitor):
    """Collects the mutants of one file; what only people read (docstrings, types, messages) stays as it is."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path, self.source, self.found = path, source, list[Mutant]()
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.uses: dict[str, list[int]] = {}
        self.tree = ast.parse(source)
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Name) and not is_stored(node):
                self.uses.setdefault(node.id, []).append(node.lineno)
        self.statement: ast.stmt | None = None
        self.functions: list[ast.FunctionDef | ast.AsyncFunctionDef] = []
        self.visit(self.tree)

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.Raise | ast.Assert | ast.JoinedStr | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.stmt):
            before, self.statement = self.statement, node
            if not is_for_readers(node):
                super().visit(node)
            self.statement = before
        else:
            super().visit(node)

    def generic_visit(self, node: ast.AST) -> None:
        for edit in self.edits(node):
            self.add(node, edit)
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "pattern"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    self.visit(child)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self.functions.append(node)
        self.generic_visit(node)
        self.functions.pop()

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815

    def visit_Call(self, node: ast.Call) -> None:
        if name_of(node.func) not in TYPES and not name_of(node.func).endswith("Error"):
            self.generic_visit(node)

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg not in HARMLESS:
            self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        if not name_of(node.value)[:1].isupper():  # else a type
            self.generic_visit(node)

    def edits(self, node: ast.AST) -> Iterator[Edit]:
        """What can be put in the place of a node, or of a part of it."""
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                sides = [left, *comparators]
                yield from (self.swap(*pair, op) for pair, op in zip(pairwise(sides), ops, strict=True))
            case ast.BoolOp(op=op, values=values):
                yield from (self.swap(*pair, op) for pair in pairwise(values))
            case ast.BinOp(left=left, op=op, right=right) if type(op) in SWAPS and not (
                is_text(left) or is_text(right)
            ):
                yield self.swap(left, right, op)
            case ast.UnaryOp(op=ast.Not()):
                yield Edit(self.path, self.start(node), self.start(node) + 3, "")
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
                if isinstance(test, ast.Name | ast.Attribute | ast.Call | ast.NamedExpr | ast.Subscript):
                    yield Edit(self.path, self.start(test), self.end(test), f"not ({self.text(test)})")
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())):
                yield self.replace(node, "pass")
            case ast.Return(value=ast.expr() as value):
                yield self.replace(value, self.other_result(value))
            case ast.AugAssign(target=target, op=ast.Add() | ast.Sub() as op, value=value):
                yield self.swap(target, value, op)
            case ast.keyword(arg=str()):
                rest = re.match(rb"\s*,?", self.source[self.end(node) :])
                yield Edit(self.path, self.start(node), self.end(node) + len(rest[0] if rest else b""), "")
            case ast.Constant(value=value) if (other := other_value(value)) is not None:
                yield self.replace(node, other)

    def other_result(self, value: ast.expr) -> str:
        """Another value of the type that the function returns."""
        returns = self.functions[-1].returns if self.functions else None
        kind = name_of(returns) if returns is not None else ""
        return f"not ({self.text(value)})" if kind == "bool" else DEFAULTS.get(kind, "None")

    def swap(self, first: ast.AST, second: ast.AST, operator: ast.AST) -> Edit:
        """Another operator between two operands."""
        start, end = self.end(first), self.start(second)
        old, new = SWAPS[type(operator)]
        word = rf"\b{old}\b" if old[0].isalpha() else old
        return Edit(self.path, start, end, re.sub(word, new, self.source[start:end].decode(), count=1))

    def replace(self, node: ast.AST, text: str) -> Edit:
        return Edit(self.path, self.start(node), self.end(node), text)

    def start(self, node: Any) -> int:
        return self.starts[node.lineno - 1] + int(node.col_offset)

    def end(self, node: Any) -> int:
        return self.starts[node.end_lineno - 1] + int(node.end_col_offset)

    def text(self, node: ast.AST) -> str:
        return self.source[self.start(node) : self.end(node)].decode()

    def add(self, node: Any, edit: Edit) -> None:
        first = self.source.rfind(b"\n", 0, edit.start) + 1
        last = (self.source + b"\n").find(b"\n", edit.end)
        before, tail = self.source[first:last].decode(), self.source[edit.end : last].decode()
        after = self.source[first : edit.start].decode() + edit.text + tail
        line = self.source.count(b"\n", 0, edit.start) + 1
        reached = frozenset((self.path, number) for number in self.lines(node) or {0})
        self.found.append(Mutant(self.path, line, " ".join(before.split()), " ".join(after.split()), (edit,), reached))

    def lines(self, node: Any) -> set[int]:
        """The lines of which a test must run one; what runs when the file is imported counts where it is used."""
        if not self.functions:
            names = {name_of(name) for name in ast.walk(self.statement or node) if is_stored(name)}
            return {line for name in names for line in self.uses.get(name, ())}
        function = self.functions[-1]
        if self.statement is function:  # a default value
            return set(range(function.body[0].lineno, (function.end_lineno or 0) + 1))
        return {*range(node.lineno, node.end_lineno + 1), self.statement.lineno if self.statement else node.lineno}


def is_for_readers(node: ast.stmt) -> bool:
    """Whether it is a docstring, a list of names or an import for types."""
    match node:
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name.startswith("__")
        case ast.If(test=test):
            return name_of(test) == "TYPE_CHECKING"
    return False


def is_stored(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def name_of(node: ast.AST) -> str:
    """The last part of a name, `c` of `a.b.c`, without what is in brackets behind it."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case ast.Subscript(value=value):
            return name_of(value)
    return ""


def other_value(value: object) -> str | None:
    """Another value of the same type, as source; none for a message."""
    match value:
        case bool():
            return str(not value)
        case int():
            return str(value + 1)
        case float():
            return repr(2 * value or 1.0)
        case str() if value.count(" ") < 2:
            return repr(value + "x" if value else "x")
    return None
