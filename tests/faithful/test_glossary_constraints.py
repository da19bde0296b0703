"""A search with a glossary spells terms in every necessary way, and uses them where the model would not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from regard.decoding.model_loading import load_as
from regard.decoding.search_interface import Constraints, Hypothesis
from regard.decoding.translator import Translator
from regard.faithful.glossary import Glossary, Term
from regard.faithful.glossary_constraints import Terminology, constraints_for, word_boundaries
from regard.settings import DecodingSettings

SOURCES = ["A dog reads.", "She sees a cat in the garden!", "The old woman sings, and it rains.", "", "She sings."]
TERMS = [Term("dog", ("Katze",), ("Hund",)), Term("garden", ("café",)), Term("rain", ("Regen", "regnet"))]
GLOSSARY = Glossary(TERMS, "en", "de")


@pytest.fixture(scope="module", params=["torch", "native"])
def either(request: pytest.FixtureRequest, folder: Path) -> Translator:
    return load_as(Translator, folder, "cpu", engine=request.param)


@pytest.mark.parametrize("options", [{}, {"beam": 1}, {"temperature": 0.5}], ids=["beam", "greedy", "drawn"])
def test_terms_are_used_and_the_rest_is_left_alone(either: Translator, options: dict[str, Any]) -> None:
    plain = [each.text for each in either.translate(SOURCES, **options)]
    found = either.translate(SOURCES, glossary=GLOSSARY, **options)
    assert [each.text for each in either.translate_stream(SOURCES, glossary=GLOSSARY, **options)] == [
        each.text for each in found
    ]
    assert "Katze" in found[0].text
    assert "Hund" not in found[0].text
    assert "café" in found[1].text.lower()
    assert [found[i].text for i in (3, 4)] == [plain[i] for i in (3, 4)]
    if "regnet" in plain[2]:
        assert found[2].text == plain[2]
    assert [[each.state for each in one.glossary] for one in found] == [["placed"], ["placed"], ["placed"], [], []]


def test_each_line_of_a_text_has_its_terms(either: Translator) -> None:
    (found,) = either.translate([f"{SOURCES[0]}\n{SOURCES[1]}"], glossary=GLOSSARY)
    first, second = found.text.split("\n")
    assert "Katze" in first
    assert "café" in second.lower()
    assert [each.source for each in found.glossary] == ["dog", "garden"]


def test_a_glossary_and_other_constraints_both_hold(either: Translator) -> None:
    rains = constraints_for(Glossary([Term("dog", ("regnet",))]), "dog", either.target)
    (found,) = either.translate(SOURCES[:1], glossary=GLOSSARY, constrain=lambda _: rains)
    assert "regnet" in found.text
    assert "Katze" in found.text


def test_alternatives_use_the_terms_too(either: Translator) -> None:
    (found,) = either.translate(SOURCES[:1], glossary=GLOSSARY, alternatives=2)
    assert len(found.alternatives) == 2
    assert all("Katze" in each.text for each in found.alternatives)


def test_terms_are_spelt_as_in_a_sentence_and_behind_a_bracket(translator: Translator) -> None:
    tokenizer = translator.target
    found = constraints_for(Glossary([Term("dog", ("hund",), ("katze",))]), "A dog.", tokenizer)
    (item,) = found.required
    assert {tokenizer.decode(ids) for ids in item} == {"hund", "Hund"}
    assert {"".join(tokenizer.pieces(ids)) for ids in item} == {"▁hund", "▁Hund", "hund", "Hund"}
    assert {tokenizer.decode(ids) for ids in found.forbidden} == {"katze", "Katze"}
    assert not constraints_for(GLOSSARY, "Nothing.", tokenizer)


def test_what_is_required_is_not_forbidden(translator: Translator) -> None:
    glossary = Glossary([Term("dog", ("alte Katze",)), Term("cat", ("Hund",), ("Katze",))])
    found = constraints_for(glossary, "dog cat", translator.target)
    tokens = [ids for item in found.required for ids in item]
    assert found.forbidden
    assert not any(tuple(ids[i:]) == bad for ids in tokens for i in range(len(ids)) for bad in found.forbidden)


def test_words_by_their_tokens(translator: Translator) -> None:
    words, encode = word_boundaries(translator.target), translator.target.encode_continuation
    (bracket,), (stop,), (letter,) = encode("("), encode("."), encode("n")
    space = encode(" n")[0]
    assert words.continues_word(letter, letter)
    assert not words.continues_word(letter, space)
    assert not words.continues_word(stop, letter)
    assert words.can_begin(bracket, letter)
    assert words.can_begin(None, letter)
    assert words.can_begin(letter, space)
    assert not words.can_begin(letter, letter)
    assert not words.can_begin(stop, letter)


def test_a_forbidden_word_that_is_spelt_otherwise_is_forbidden_too(translator: Translator) -> None:
    tokenizer = translator.target
    spelt = (*tokenizer.encode("Ein").ids, *tokenizer.encode_continuation(" H"), *tokenizer.encode_continuation("und"))
    usual = tuple(tokenizer.encode("Ein Hund").ids)
    other = tuple(tokenizer.encode("Ein Baum").ids)
    asked = []

    def found(tokens: tuple[int, ...]) -> list[Hypothesis]:
        return [Hypothesis(tokens, (0.0,) * len(tokens), 0.0, True)]

    def search(numbers: object, wanted: object, _: object) -> list[list[Hypothesis]]:
        asked.append((numbers, wanted))
        return [found((usual, spelt, other)[len(asked) - 1])]

    terms = Terminology(Glossary([Term("dog", (), ("Hund",))]), translator.source, tokenizer)
    kept = terms.keep(["A cat", "A dog"], [found(usual), found(usual)], search, DecodingSettings())
    assert kept == [found(usual), found(other)]
    assert [numbers for numbers, _ in asked] == [[1], [1], [1]]
    assert spelt != usual


def test_a_term_takes_the_place_of_the_word_that_looked_at_it(translator: Translator) -> None:
    """The search returns this draft among its outputs."""
    glossary = Glossary([Term("dog", ("Vogel",))])
    target, text = translator.target, "A dog sees a dog."
    tokens = tuple(target.encode("Hund sieht eine Katze.").ids)
    ids = translator.source.encode(text)
    dogs = [text[start:end].strip() == "dog" for start, end in ids.offsets]
    first, second = (place for place, dog in enumerate(dogs) if dog)
    looks = [[0.0] * (len(dogs) + 1) for _ in range(len(tokens) + 1)]
    looks[0][first] = looks[target.pieces(tokens).index("▁Katze")][second] = 1.0
    found = Hypothesis(tokens, (0.0,) * len(looks), 0.0, True, tuple(map(tuple, looks)))
    asked: list[Constraints] = []

    def search(_: object, wanted: Sequence[Constraints], __: object) -> list[list[Hypothesis]]:
        asked.extend(wanted)
        return [[found]]

    assert Terminology(glossary, translator.source, target).keep([text], [[found]], search, DecodingSettings()) == [
        [found]
    ]
    assert asked[0] == Constraints()
    assert [target.decode(draft) for draft in asked[1].drafts] == ["Vogel sieht eine Vogel."]
