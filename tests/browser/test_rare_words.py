"""Words that the model has hardly seen are underlined, with a sentence that says so."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import pytest

from regard.explorer.model_explorer import Explorer
from tests.browser.conftest import Watched
from tests.browser.models import SENTENCE, arranged

MARKED = "all => all.map(each => each.textContent).join('').replaceAll('▁', ' ').trim()"


@pytest.mark.parametrize(
    ("text", "words", "pieces"),
    [
        ("The elephant didn't cross the street.", ["elephant"], "elephant"),
        ("The animal is in Berlin.", ["in", "Berlin"], "in⟨42⟩erlin"),  # B is a byte of this vocabulary
        ("The 猫 is tired.", ["猫"], "⟨E7⟩⟨8C⟩⟨AB⟩"),
        (
            "The dog didn't cross a 猫熊 because it was naïve.",
            ["猫熊", "naïve"],
            "⟨E7⟩⟨8C⟩⟨AB⟩⟨E7⟩⟨86⟩⟨8A⟩ na⟨C3⟩⟨AF⟩ve",
        ),
    ],
)
def test_words_in_letters_and_bytes_are_underlined(
    watched: Watched, address: str, text: str, words: list[str], pieces: str
) -> None:
    page = watched.open(f"{address}#text={quote(text)}")
    assert page.locator("#top .rarely .rare").all_inner_texts() == words
    assert "nonsense" in page.inner_text("#top .rarely")
    chips = page.locator("#playhead .chips").first.locator(".rare")
    assert chips.evaluate_all(MARKED) == pieces
    assert "wavy" in chips.first.evaluate(
        "each => getComputedStyle(each).textDecorationLine + getComputedStyle(each).textDecorationStyle"
    )
    assert page.locator("#main .pieces .rare").evaluate_all(MARKED) == pieces


@pytest.mark.parametrize("text", ["The animal didn't cross the street because it was too tired.", "The mouse can't."])
def test_words_of_the_vocabulary_are_not(watched: Watched, address: str, text: str) -> None:
    page = watched.open(f"{address}#text={quote(text)}")
    assert page.locator(".rare").count() == 0


@pytest.mark.parametrize("name", ["GPT", "BERT", "classifier"])
def test_a_vocabulary_without_whole_words_says_nothing_by_single_letters(
    watched: Watched, serve: Callable[[Explorer], str], name: str
) -> None:
    explorer = arranged(name)
    text, address = SENTENCE[explorer.describe()["task"]], serve(explorer)
    page = watched.open(f"{address}#max_tokens=4&text={quote(text)}")
    assert page.locator(".rare").count() == 0  # a mask is no word either
    watched.open(f"{address}#max_tokens=4&text={quote('The 猫. ' + text)}")
    assert page.locator("#top .rarely .rare").all_inner_texts() == ["猫"]
