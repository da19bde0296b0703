"""Markdown: what people read is filled in, and what machines read stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.files.formats import Document, format_by_suffix as files

PAGE = """---
title: Stays
---
# A title #

Some *text* with `code` and a [link](http://x.y "why").
It goes on here\x20\x20
after a hard break.

- item one
  continues here
- [ ] item two

  a paragraph in it

      code in it
  ```python
  x = "not text"
  ```
1. first
2. second
   - nested **thing**

> quoted text
> goes on

> [!NOTE]
> A note

| A head | B head |
|--------|:------:|
| cell | x \\| y |
| 42 | |

Setext title
============

<div align="center">
  <b>not text</b>
</div>

<!-- a comment
still -->

[ref]: http://example.com "Title"
[^1]: A footnote.

Text with a note[^1] and a [reference][ref], ![image](a.png) <br> and \\*.

    code

The year
1984. was not a list
***
~~~
not text
~~~
"""
TEXTS = [
    "A title",
    'Some *text* with `code` and a [link](http://x.y "why"). It goes on here',
    "after a hard break.",
    "item one continues here",
    "item two",
    "a paragraph in it",
    "first",
    "second",
    "nested **thing**",
    "quoted text goes on",
    "A note",
    "A head",
    "B head",
    "cell",
    "x \\| y",
    "Setext title",
    "A footnote.",
    "Text with a note[^1] and a [reference][ref], ![image](a.png) <br> and \\*.",
    "The year 1984. was not a list",
]


def opened(folder: Path, content: str | bytes) -> Document:
    (folder / "a.md").write_bytes(content.encode() if isinstance(content, str) else content)
    return files.open_document(folder / "a.md")


def test_units_are_what_people_read(tmp_path: Path) -> None:
    document = opened(tmp_path, PAGE)
    assert [unit.source for unit in document.units] == TEXTS
    assert [unit.where.line for unit in document.units][:4] == [4, 6, 8, 10]
    assert document.render({}).decode() == PAGE


def test_marks_are_what_has_to_survive(tmp_path: Path) -> None:
    units = opened(tmp_path, PAGE).units
    assert units[1].marks == ("*", "*", "`code`", "[", '](http://x.y "why")')
    assert units[8].marks == ("**", "**")
    assert units[17].marks == ("[^1]", "[", "][ref]", "![image](a.png)", "<br>", "\\*")


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_each_text_is_replaced_where_it_stands(tmp_path: Path, line_end: str) -> None:
    content = PAGE.replace("\n", line_end)
    document = opened(tmp_path, content)
    done = document.render({0: "Ein Titel", 3: "Posten eins geht hier noch weiter", 9: "Zitat", 14: "a|b"}).decode()
    assert done == content.replace("A title", "Ein Titel").replace(
        f"item one{line_end}  continues here", f"Posten eins{line_end}  geht hier noch{line_end}  weiter"
    ).replace(f"quoted text{line_end}> goes on", "Zitat").replace("x \\| y", "a\\|b")


@pytest.mark.parametrize(
    ("text", "written"),
    [("- a", "\\- a"), ("1. a", "1\\. a"), ("# a", "\\# a"), ("> a", "\\> a"), ("1.5 a", "1.5 a"), ("a - b", "a - b")],
)
def test_a_translation_does_not_become_something_else(tmp_path: Path, text: str, written: str) -> None:
    document = opened(tmp_path, "Just a text\n")
    assert document.render({0: text}).decode() == f"{written}\n"
    assert len(opened(tmp_path, document.render({0: text})).units) == 1


def test_a_line_that_would_become_a_list_is_not_begun(tmp_path: Path) -> None:
    content = "Some words that are\non two lines\n"
    done = opened(tmp_path, content).render({0: "Ein paar Wörter in - zwei # langen 3. Zeilen"}).decode()
    assert done == "Ein paar Wörter in -\nzwei # langen 3.\nZeilen\n"


lines = st.lists(st.sampled_from([*PAGE.splitlines(True), "\r\n", "\t", ">", "``", "- ", "a|b\n", "|-|\n", "[", "<p>"]))


@given(content=(lines.map("".join) | st.text(st.sampled_from("ab \n\t#>-*_`~|[]()<!\\\r1.=$:{%"))))
def test_anything_opens(content: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("page")
    document = opened(folder, content)
    assert document.render({}).decode() == content
    before = [unit.source for unit in document.units]
    assert all(source.strip() == source for source in before)


@given(words=st.lists(st.text(st.characters(categories=["L"]), min_size=1), min_size=1), data=st.data())
def test_a_translation_is_found_again_and_nothing_else_changes(
    words: list[str], data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("page")
    i = data.draw(st.integers(0, len(TEXTS) - 1))
    text = " ".join(words)
    after = opened(folder, opened(folder, PAGE).render({i: text}))
    assert [unit.source for unit in after.units] == [text if k == i else each for k, each in enumerate(TEXTS)]


def test_code_in_the_middle_of_a_word_stays_in_it(tmp_path: Path) -> None:
    document = opened(tmp_path, "One line\nand another one\n")
    written = document.render({0: "`a b`aa and (`c`)."}, "de").decode()
    assert written.replace("\n", " ") == "`a b`aa and (`c`). "
