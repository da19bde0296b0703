"""The documentation says what the source says."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

from regard.cli import build_parser
from regard.options import options
from regard.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]


def test_the_page_of_settings_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert page == module.page(), "run: python docs/generate.py"
    assert all(f"| `{option.path.rpartition('.')[2]}` |" in page for option in options(Settings))


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
