"""The documentation says what the source says."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from regard import errors, model_folder as folder
from regard.cli import build_parser
from regard.files.formats import format_by_suffix as files
from regard.preparation.chosen_settings import load

ROOT = Path(__file__).parents[2]
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def test_what_the_page_of_training_says_of_the_preset_for_little_text_is_so() -> None:
    """A row names settings, of one section where only the first has one, and their values."""
    page = (ROOT / "docs" / "train.md").read_text(encoding="utf-8")
    table = page.partition("| setting | `tiny` |")[2].partition("\n\n")[0]
    preset, found = load(preset="tiny"), {}
    for names, values in re.findall(r"^\| (`[^|]+) \| ([^|]+) \|", table, re.MULTILINE):
        section = ""
        paths = re.findall(r"`([^`]+)`", names)
        said = values.split(", ") if len(paths) > 1 else [values.replace(", ", ",")]
        for path, value in zip(paths, said, strict=True):
            section = path.partition(".")[0] if "." in path else section
            name = path.rpartition(".")[2]
            is_so = getattr(getattr(preset, section), name)
            shown = ",".join(map(str, is_so)) if isinstance(is_so, tuple) else str(is_so)
            found[f"{section}.{name}"] = (value, shown.lower().removesuffix(".0"))
    assert {said for said in found.values() if said[0] != said[1]} == set()
    assert len(found) > 15


def test_links_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert target.startswith("http") or (page.parent / target).exists(), f"{page.name}: {target}"


def test_commands_in_the_documentation_exist() -> None:
    """Every `regard VERB ... --flag` in a code block or in code spelling is a verb and a flag that there is."""
    parser = build_parser()
    verbs = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    seen = 0
    for page in PAGES:
        for verb, rest in re.findall(r"\bregard ([a-z]+)((?: [^\n`|#(]+)?)", code_of(page)):
            assert verb in verbs, f"{page.name}: regard {verb}"
            seen += 1
            for flag in re.findall(r"(?<=\s)--?[a-z][\w.-]*", rest):
                assert flag in verbs[verb]._option_string_actions, f"{page.name}: regard {verb} {flag}"  # type: ignore[index]
    assert seen > 10


def code_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"```\w*\n(.*?)```", text, re.DOTALL)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))])


def test_every_verb_is_documented() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8") + "".join(p.read_text() for p in ROOT.glob("docs/*.md"))
    parser = build_parser()
    verbs = parser._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    for verb in verbs:
        assert f"regard {verb}" in readme


def test_commands_in_the_files_for_containers_exist() -> None:
    compose = (ROOT / "docs" / "replicas" / "compose.yaml").read_text(encoding="utf-8")
    image = (ROOT / "docs" / "replicas" / "Containerfile").read_text(encoding="utf-8")
    found = re.search(r"command: >\n\s+regard ((?:.+\n)+?)\s+volumes:", compose)
    assert found is not None
    listed = re.search(r'CMD \["regard", (.+)\]', image)
    assert listed is not None
    for words in (found[1].split(), re.findall(r'"([^"]+)"', listed[1])):
        assert build_parser().parse_args(words).host == "0.0.0.0"  # noqa: S104


def pages() -> str:
    """All that is written, in English."""
    return "\n".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/*.md")])


def test_every_flag_has_help_and_every_verb_a_description() -> None:
    verbs = build_parser()._subparsers._group_actions[0].choices  # type: ignore[union-attr]
    assert verbs is not None
    for verb, parser in dict(verbs).items():
        assert parser.description, verb
        assert all(action.help for action in parser._actions), verb


def test_every_address_of_the_servers_is_documented() -> None:
    written, found = pages(), [*addresses("serving"), *addresses("explorer")]
    assert len(found) > 25
    for address in found:
        assert f"{address.methods[0]} {address.path}`" in written, f"{address.methods[0]} {address.path}"


def test_no_address_is_documented_that_is_not_there() -> None:
    known = {f"{each.methods[0]} {each.path}" for package in ("serving", "explorer") for each in addresses(package)}
    page = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
    for address in re.findall(r"`((?:GET|POST) /[^`]*)`", page):
        assert address in known, address


def test_every_error_is_documented_with_what_it_means() -> None:
    page = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    names = [kind.__name__ for kind in error_classes()]
    assert len(names) >= 5
    assert all(f"## {name}\n" in page for name in names if name != "RegardError")
    tree = re.findall(r"[├└]── \w+Error .*", (ROOT / "src/regard/errors.py").read_text(encoding="utf-8"))
    assert tree
    assert all(line in page for line in tree)


def test_every_file_of_a_model_folder_and_every_format_is_documented() -> None:
    written = (ROOT / "docs" / "model-folder.md").read_text(encoding="utf-8")
    for name in (folder.SETTINGS, folder.WEIGHTS, folder.TOKENIZER, folder.CARD, folder.MEMORY):
        assert f"`{name}`" in written
    for name in (folder.CONFIDENCE, folder.CANARY):
        assert f"`{name}`" in written
    for name in (folder.LOG, folder.HISTORY, folder.TRAINING, folder.NATIVE):
        assert f"`{name}" in written
    written = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
    for suffix in {**files.PAIRED, **files.ALONE}:
        assert f"`{suffix}`" in written or f"`*{suffix}`" in written, suffix


@dataclass(frozen=True)
class Address:
    """An address that a server answers."""

    path: str
    methods: tuple[str, ...]
    handler: str
    file: Path


def addresses(package: str) -> list[Address]:
    """Returns every `Route(path, handler, ...)` in the source of a package."""
    found = []
    for file in sorted((ROOT / "src" / "regard" / package).glob("*.py")):
        for call in calls(ast.parse(file.read_text(encoding="utf-8")), "Route"):
            path, handler = call.args[0], call.args[1]
            given = [keyword.value for keyword in call.keywords if keyword.arg == "methods"]
            methods = tuple(ast.literal_eval(given[0])) if given else ("GET",)
            name = handler.attr if isinstance(handler, ast.Attribute) else ast.unparse(handler)
            found.append(Address(re.sub(r":path\}", "}", ast.literal_eval(path)), methods, name, file))
    return found


def calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def error_classes() -> list[type[errors.RegardError]]:
    """Returns the classes of errors.py, from the root of their tree."""
    every = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, errors.RegardError)]
    return sorted(every, key=lambda kind: (len(kind.__mro__), inspect.getsourcelines(kind)[1]))


NUMBER = r"(?:\d[\d,]*|two|three|four|five|six|seven|eight|nine|ten|\w+teen|eleven|twelve|\w+ty)"
OURS = "views|checks|tutorials|formats|verbs|presets|recipes|modules|rooms|tests|addresses"
CHINESE = r"(?:\d+|[三四五六七八九十百千][一二三四五六七八九十百千]*) ?"
COUNTS = re.compile(
    rf"\b{NUMBER} (?:{OURS})\b|(?:src/regard|model/|[Tt]he source)[^.\n]{{0,80}}\b{NUMBER} (?:files|lines)\b"
    rf"|{CHINESE}(?:个视图|项检查|个教程|种格式|个模块)|(?:model/|源代码)[^。\n]{{0,40}}{CHINESE}(?:行|个文件)"
)
"""How many there are of what changes with the source: a number that nothing computes is wrong before long."""


def test_no_page_counts_what_changes_with_the_source() -> None:
    pages = [page for page in PAGES if page.name not in ("log.md", "benchmarks.md", "quality.md")]
    found = [(page.name, match[0]) for page in pages for match in COUNTS.finditer(page.read_text(encoding="utf-8"))]
    assert found == []
    for wrong in (
        "All thirteen views",
        "`src/regard/model/` has five files",
        "整个 `model/` 不到 800 行",
        "十三个视图",
    ):
        assert COUNTS.search(wrong), wrong


def test_a_translated_page_has_the_code_of_its_twin() -> None:
    """Blocks, quotations and claims are the same, in the same order; figures have captions of their own."""
    found = list((ROOT / "docs" / "zh").rglob("*.md"))
    assert len(found) >= 6
    for page in found:
        twin = ROOT / "docs" / page.relative_to(ROOT / "docs" / "zh")
        assert code_in(page) == code_in(twin), page
    templates = ROOT / "docs" / "book" / "templates"
    for page in (templates / "zh").iterdir():
        assert code_in(page) == code_in(templates / page.name), page


def code_in(page: Path) -> list[str]:
    text = page.read_text(encoding="utf-8")
    return re.findall(r"^```.*?^```$|^<!-- .*? -->$|(?:quote|claim)\([^\n]*?\) ?\}\}", text, re.MULTILINE | re.DOTALL)


def test_the_log_says_in_a_line_what_each_section_found() -> None:
    log = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    headings = re.findall(r"^## (.+)$", log, re.MULTILINE)
    listed = re.findall(r"^- \[(.+)\]\(#[^)]+\): .+\.$", log, re.MULTILINE)
    assert headings[0] == "What each section found"
    assert sorted(headings[1:]) == sorted(listed)
