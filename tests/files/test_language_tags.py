"""Texts in the wrong language are found, names and short strings are left alone."""

from __future__ import annotations

import random

import pytest

from regard.files.character_arrays import Characters
from regard.files.language_classifier import Identifier, find_foreign, without_names

ENGLISH = "the house which they bought last year stands near a river and should have been painted with that white"
GERMAN = "das haus welches sie voriges jahr gekauft haben steht nahe einem fluss und sollte weiß gestrichen werden"
SURE = 0.99


def sentences(words: str, count: int, seed: int) -> list[str]:
    dice = random.Random(seed)
    return [" ".join(dice.choices(words.split(), k=8)) for _ in range(count)]


@pytest.fixture(scope="module")
def identifier() -> Identifier:
    return Identifier(Characters(sentences(ENGLISH, 300, 1)), Characters(sentences(GERMAN, 300, 2)))


def strays(identifier: Identifier, sources: list[str], targets: list[str]) -> tuple[set[int], set[int]]:
    """The sources that are no English, and the targets that are no German."""
    return (
        find_foreign(sources, targets, Characters(sources), -1, identifier, SURE),
        find_foreign(targets, sources, Characters(targets), 1, identifier, SURE),
    )


def test_texts_in_their_own_language_are_left_alone(identifier: Identifier) -> None:
    assert strays(identifier, sentences(ENGLISH, 200, 3), sentences(GERMAN, 200, 4)) == (set(), set())


def test_texts_in_the_other_language_are_found(identifier: Identifier) -> None:
    english, german = sentences(ENGLISH, 50, 5), sentences(GERMAN, 50, 6)
    assert strays(identifier, german, english) == (set(range(50)), set(range(50)))
    assert strays(identifier, english, english[1:] + english[:1])[1] == set(range(50))


def test_what_is_short_is_not_judged(identifier: Identifier) -> None:
    sources, targets = ["haus", "OK", "", "7"], ["the", "last year", "", "8"]
    assert strays(identifier, sources, targets) == (set(), set())


def test_names_and_identical_texts_are_not_judged(identifier: Identifier) -> None:
    sources = ["they bought The White House With That River", "the house which they bought last year"]
    targets = ["gekauft: The White House With That River", "the house which they bought last year"]
    assert strays(identifier, sources, targets) == (set(), set())


def test_a_third_of_the_corpus_may_be_wrong() -> None:
    english, german = sentences(ENGLISH, 300, 7), sentences(GERMAN, 200, 8)
    targets = [*german, *sentences(ENGLISH, 100, 9)]
    wrong = strays(Identifier(Characters(english), Characters(targets)), english, targets)
    assert wrong[0] == set()
    assert len(wrong[1]) > 90
    assert min(wrong[1]) >= 200


def test_too_little_text_teaches_nothing() -> None:
    small = Identifier(Characters(["the house"]), Characters(["das haus"]))
    assert not small.is_able
    assert small.evidence(Characters(["the house which they bought"])).tolist() == [0.0]
    assert not Identifier(Characters([]), Characters([])).is_able


def test_one_language_on_both_sides_is_not_judged() -> None:
    one, other = sentences(ENGLISH, 300, 10), sentences(ENGLISH, 300, 11)
    assert strays(Identifier(Characters(one), Characters(other)), one, other) == (set(), set())


def test_scripts_are_told_apart() -> None:
    chinese = ["他们去年买的房子在河边", "这座房子应该刷成白色的", "我不知道他为什么这样做"]
    english = sentences(ENGLISH, 300, 12)
    identifier = Identifier(Characters(english), Characters(chinese * 600))
    assert strays(identifier, ["they bought Tom a house"], ["他们为Tom买了房子"]) == (set(), set())
    assert strays(identifier, ["the house near a river"], ["they have bought a white house"]) == (set(), {0})


def test_names_are_taken_out() -> None:
    assert without_names("Tom 把Mary拉出水", "Tom pulled Mary out").split() == ["把", "拉出水"]
    assert without_names("use file_name with care", "file_name, mit care") == "use   with care"
