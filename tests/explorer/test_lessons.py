"""The lessons of the package agree in both languages; a teacher's file is read, or rejected with its line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import regard
from regard.errors import InputError
from regard.explorer.lessons import MAX_BYTES, read_lesson, read_lessons

LESSONS = Path(regard.__file__).parent / "explorer" / "page" / "lessons"
INDEX = json.loads((LESSONS / "index.json").read_text(encoding="utf-8"))
NAMES = [each["name"] for each in INDEX if each["language"] == "en"]
GOOD = "---\ntitle: Mine\n---\n\nText.\n"


def fields(language: str, name: str) -> list[str]:
    """Returns the model, the text, the answers and the links of a lesson, which do not depend on its language."""
    text = (LESSONS / language / f"{name}.md").read_text(encoding="utf-8")
    return re.findall(r"^(?:model|text|with|answer): .*$|(?<=\]\()#[^)]*", text, re.MULTILINE)


def test_the_index_lists_every_lesson_with_its_title() -> None:
    assert len(NAMES) == 10
    files = {(path.parent.name, path.stem): read_lesson(path).title for path in LESSONS.glob("*/*.md")}
    assert files == {(each["language"], each["name"]): each["title"] for each in INDEX}


@pytest.mark.parametrize("name", NAMES)
def test_the_lessons_ask_the_same_in_both_languages(name: str) -> None:
    assert len(fields("en", name)) > 5
    assert sorted(fields("en", name)) == sorted(fields("zh", name))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"# Title\n", "lesson.md:1: a lesson starts with a header"),
        (b"---\ntext: a\n---\n", "lesson.md:1: a lesson starts with a header"),
        (b"---\ntitle: a\n", "lesson.md:1: a lesson starts with a header"),
        (b"---\ntitle: \xff\n---\n", "lesson.md:2: not UTF-8"),
        (b"---\ntitle: a\n---\n" + b"x" * MAX_BYTES, "a lesson has at most"),
    ],
)
def test_a_faulty_lesson_is_rejected(tmp_path: Path, content: bytes, problem: str) -> None:
    path = tmp_path / "lesson.md"
    path.write_bytes(content)
    with pytest.raises(InputError, match=re.escape(problem)):
        read_lesson(path)


def test_two_lessons_need_two_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    for path in (tmp_path / "a.md", tmp_path / "b" / "a.md"):
        path.write_text(GOOD, encoding="utf-8")
    assert read_lessons([tmp_path / "a.md"])["a"].title == "Mine"
    with pytest.raises(InputError, match="another lesson is called a"):
        read_lessons([tmp_path / "a.md", tmp_path / "b" / "a.md"])
    with pytest.raises(InputError, match="cannot read this lesson"):
        read_lessons([tmp_path / "missing.md"])
