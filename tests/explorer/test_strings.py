"""The sentences of the page: in both languages, each used, each loaded by the view that says it."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path

import pytest

import regard

PAGE = Path(regard.__file__).parent / "explorer" / "page"
ENTRY = re.compile(r'(?:^|[{,])\s*(?:"([\w.-]+)"|(\w+)): ("(?:[^"\\]|\\.)*")', re.M)
KEYS = re.compile(r"[\"`]((?:[\w-]|\$\{[^}]*\})+(?:\.(?:[\w-]|\$\{[^}]*\})*)*)[\"`]")
PARTS = ("", ".journey", ".views", ".published")


@cache
def table(part: str, language: str) -> dict[str, str]:
    """The sentences of one file, by their keys."""
    text = (PAGE / f"strings{part}.{language}.js").read_text(encoding="utf-8")
    return {quoted or plain: json.loads(said) for quoted, plain, said in ENTRY.findall(text)}


@cache
def source(name: str) -> str:
    return (PAGE / name).read_text(encoding="utf-8")


def modules(name: str, found: set[str]) -> set[str]:
    """A module and all that it loads, at once or later."""
    if name not in found:
        found.add(name)
        for other in re.findall(r'(?:from|import\() ?"regard/(.*?)"', source(name)):
            if name != "explorer-app.js" or not other.startswith("views/"):
                modules(other, found)
    return found


def used(names: set[str], known: set[str]) -> set[str]:
    """The keys among those known that modules name, in full or with gaps: `j.${key}.story`."""
    found: set[str] = set()
    for literal in {each for name in names for each in KEYS.findall(source(name))}:
        if "${" not in literal:
            found |= {literal} & known
        elif re.match(r"[a-z]+\.", literal):
            pattern = re.compile(re.sub(r"\\\$\\\{.*?\\\}", r"[\\w.-]*", re.escape(literal)))
            found |= {key for key in known if pattern.fullmatch(key)}
    return found


@pytest.mark.parametrize("part", PARTS)
def test_both_languages_have_the_same_sentences_with_the_same_gaps(part: str) -> None:
    english, chinese = table(part, "en"), table(part, "zh")
    assert english.keys() == chinese.keys()
    assert len(english) > (3 if part == ".published" else 20)
    for key, said in english.items():
        gaps = [set(re.findall(r"\{(\w+)\}", each)) for each in (said, chinese[key])]
        assert gaps[0] == gaps[1], key


def test_each_sentence_is_defined_once_and_used() -> None:
    tables = [set(table(part, "en")) for part in PARTS]
    known = set().union(*tables)
    assert len(known) == sum(map(len, tables))
    everything = {path.relative_to(PAGE).as_posix() for path in PAGE.rglob("*.js") if "strings." not in path.name}
    assert known - used(everything, known) == set()


def test_each_view_loads_the_sentences_that_it_shows() -> None:
    known = {key: part for part in PARTS for key in table(part, "en")}
    frame = modules("explorer-app.js", set())
    for name in re.findall(r'import\("regard/(views/.*?)"\)', source("explorer-app.js")):
        own = ".journey" if name == "views/sentence-journey.js" else ".views"
        for module in modules(name, set()) | frame:
            said = re.findall(r'(?<![\w.])t\((?:[^()"`]*\? )?"([\w.-]+)"(?: : "([\w.-]+)")?', source(module))
            loaded = {"", ".published" if module == "engine-client.js" else own}
            assert {known[key] for pair in said for key in pair if key} <= loaded, (name, module)
