"""Lessons in a real browser: every question has an answer, a guess is compared with it, and a worksheet hides it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import expect

from regard.explorer.lessons import read_lesson
from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched, running_explorer
from tests.explorer.test_lessons import LESSONS, NAMES

ANSWERS = """async (name) => {
  const names = ["lesson-format", "lesson-answers", "lesson-panel", "model-data-client", "selection-in-url"];
  const modules = await Promise.all(names.map((each) => import(`regard/${each}.js`)));
  const [{ parseLesson }, { answerOf }, { changesOf }, data, selection] = modules;
  const lesson = parseLesson(await data.lessonText(name, "en"));
  const own = { ...selection.state, text: lesson.text };
  const ask = (changes) => data.run(selection.request({ ...own, ...changes }));
  return Promise.all(lesson.blocks.filter(({ kind }) => kind === "question").map(async (each) => ({
    ...each, value: await answerOf(each.answer, await ask(each.with ? changesOf(each.with) : {}), await ask({})),
  })));
}"""


@pytest.mark.parametrize("name", NAMES)
def test_every_question_of_a_lesson_has_an_answer(watched: Watched, address: str, name: str) -> None:
    questions: list[dict[str, Any]] = watched.open(address).evaluate(ANSWERS, name)
    assert len(questions) >= 2
    for each in questions:
        value = {True: "yes", False: "no"}.get(each["value"], str(each["value"]))
        assert not each["choices"] or value in each["choices"], each


def test_a_reader_guesses_follows_a_link_and_prints(watched: Watched, address: str) -> None:
    page = watched.open(f"{address}#lesson=scaling&text=It%20is%20red.")
    assert page.locator("input[name=text]").input_value() == "It is red."  # a link decides
    page.goto("about:blank")
    page = watched.open(f"{address}#lesson=scaling")
    expect(page.locator("input[name=text]")).to_have_value(
        read_lesson(LESSONS / "en" / "scaling.md").text.split("text: ")[1].split("\n")[0]
    )
    assert page.locator("#lesson h2").inner_text() == "Why divide by the square root of d?"
    question = page.locator(".question").first
    assert question.locator(".answer").inner_text() == ""
    question.locator("input").fill("8")
    question.get_by_text("Ask the model").click()
    expect(question.locator(".answer")).to_contain_text("2.83 ✗ not as you guessed")
    question.locator("input").fill("2.8")
    question.get_by_text("Ask the model").click()
    question.get_by_text("✓ as you guessed").wait_for()
    page.get_by_role("link", name="after the division").click()
    expect(page).to_have_url(re.compile("stage=scaled"))
    expect(page).to_have_url(re.compile("lesson=scaling"))
    watched.settle()
    assert "as you guessed" in question.inner_text()  # the lesson stays as it is
    page.emulate_media(media="print")
    assert page.locator("#lesson").is_visible()
    assert not page.locator("main").is_visible()
    assert page.locator(".blank").first.is_visible()
    page.emulate_media(media="screen")
    page.get_by_text("close the lesson").click()
    page.locator("#lesson").wait_for(state="hidden")


def test_a_teachers_own_lesson(watched: Watched, serve: Any, tmp_path: Path) -> None:
    from regard.demo import GLASS

    text = (LESSONS / "zh" / "mask.md").read_text(encoding="utf-8")
    (tmp_path / "mine.md").write_text(text.replace("```question\nask", "```question\nwhat", 1), encoding="utf-8")
    explorer = Explorer.open(GLASS, "cpu")
    explorer.lessons = {"mine": read_lesson(tmp_path / "mine.md")}
    page = watched.open(f"{serve(explorer)}#lesson=mine")
    line = text.split("```question")[0].count("\n") + 2
    assert (
        page.locator("#lesson .error").inner_text()
        == f"mine: line {line}: expected one of ask: choices: with: answer: why:"
    )
    assert page.locator("[data-key=choice-Lesson] option").all_text_contents()[1] == "掩码：不许偷看后面"


def test_a_lesson_leads_to_its_model(watched: Watched) -> None:
    from regard.demo import GLASS

    other, glass = (Explorer.open(GLASS, "cpu", name) for name in ("other", "glass"))
    with running_explorer(other, glass) as address:
        page = watched.open(f"{address}#lesson=mask&lang=en")
        expect(page.locator("#lesson .warning")).to_contain_text("This lesson is about the model glass")
        page.get_by_role("link", name="Open it with glass.").click()
        expect(page).to_have_url(re.compile("models/glass/.*lesson=mask"))
        expect(page.locator("#lesson h2")).to_contain_text("The mask")
        assert page.locator("#lesson .warning").count() == 0
        watched.settle()
