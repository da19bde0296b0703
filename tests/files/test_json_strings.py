"""Tables of strings: values are filled in where they stand, and keys and all else stay."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files.formats import Document, format_by_suffix as files

TABLE = """\ufeff{ "title" : "Good morning",
  "menu": {"open_one": "{{count}} file\\n", "list": ["One", 2, null, "3", {"deep": "Two"}]},
\t"$schema": "a schema", "empty": "" }
"""
ARB = """{
  "@@locale": "en",
  "hello": "Hello, {name}!",
  "@hello": {"description": "A greeting", "placeholders": {"name": {"example": "Ann"}}}
}"""


def opened(folder: Path, content: str, name: str = "en.json") -> Document:
    (folder / name).write_text(content, encoding="utf-8", newline="")
    return files.open_document(folder / name)


def test_values_are_units_and_keys_are_their_contexts(tmp_path: Path) -> None:
    document = opened(tmp_path, TABLE)
    assert [(unit.source, unit.context, unit.where.line) for unit in document.units] == [
        ("Good morning", "title", 1),
        ("{{count}} file\n", "menu.open_one", 2),
        ("One", "menu.list.0", 2),
        ("Two", "menu.list.4.deep", 2),
    ]


def test_only_the_values_change(tmp_path: Path) -> None:
    document = opened(tmp_path, TABLE)
    assert document.render({}).decode() == TABLE
    done = document.render({0: 'Guten "Tag" für', 2: "Eins"}, "de").decode()
    assert done == TABLE.replace("Good morning", 'Guten \\"Tag\\" für').replace('"One"', '"Eins"')


def test_a_file_that_spells_characters_by_their_numbers_goes_on_so(tmp_path: Path) -> None:
    assert opened(tmp_path, '{"a": "caf\\u00e9"}').render({0: "für"}).decode() == '{"a": "f\\u00fcr"}'


def test_arb_keeps_what_it_tells_about_its_texts_and_gets_the_language(tmp_path: Path) -> None:
    document = opened(tmp_path, ARB, "app_en.arb")
    assert [unit.source for unit in document.units] == ["Hello, {name}!"]
    assert document.source_language == "en"
    assert document.render({}, "de").decode() == ARB
    done = document.render({0: "Hallo, {name}!"}, "de").decode()
    assert done == ARB.replace("Hello,", "Hallo,").replace('"en"', '"de"')


def test_descriptions_beside_messages_are_not_translated(tmp_path: Path) -> None:
    content = '{"a": {"message": "Hello", "description": "A greeting"}, "b": {"message": "Bye"}}'
    assert [unit.source for unit in opened(tmp_path, content).units] == ["Hello", "Bye"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "en.json:1: not JSON: Expecting value"),
        ('{"a": "b",\n "c" "d"}', "en.json:2: not JSON: Expecting ':' delimiter, not '\"d\"}'"),
        ("[" * 100_000, "en.json: cannot be read as JSON: maximum recursion depth exceeded"),
    ],
)
def test_faults_are_told_with_their_line(tmp_path: Path, content: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        opened(tmp_path, content)
    assert str(caught.value).startswith(f"{tmp_path}/{message}")
    assert "\n" not in str(caught.value)


texts = st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: f"a{text}")
tables = st.recursive(
    st.none() | st.booleans() | st.integers() | texts,
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner),
)


@given(table=tables, indent=st.none() | st.integers(0, 3), escaped=st.booleans(), data=st.data())
def test_a_translation_is_found_again_and_nothing_else_changes(
    table: object, indent: int | None, escaped: bool, data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("json")
    content = json.dumps(table, indent=indent, ensure_ascii=escaped)
    before = opened(folder, content)
    assert before.render({}).decode() == content
    targets = data.draw(st.dictionaries(st.sampled_from(range(len(before.units))), texts)) if before.units else {}
    after = opened(folder, before.render(targets).decode())
    expected = [targets.get(i, unit.source) for i, unit in enumerate(before.units)]
    assert [unit.source for unit in after.units] == expected
    assert [unit.context for unit in after.units] == [unit.context for unit in before.units]


@given(content=st.text(st.sampled_from('{}[]",:\\ua1 \n')))
def test_anything_opens_or_is_refused(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    try:
        document = opened(tmp_path_factory.mktemp("json"), content)
    except DataError:
        return
    assert document.render({}).decode() == content
