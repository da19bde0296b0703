"""Of several translations the one most like the others: likeness as sacrebleu has it, and what is made of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from sacrebleu import BLEU

from regard.decoding.minimum_bayes_risk import candidate_settings, has_spaces, rank_by_consensus, ranked, sentence_bleu
from regard.decoding.model_loading import load_as
from regard.decoding.search_interface import Hypothesis
from regard.decoding.translator import Translator
from regard.settings import DecodingSettings
from tests.decoding.conftest import CORPUS

SOURCES = [source for source, _ in CORPUS][:12]
words = st.lists(st.sampled_from("abcde"), min_size=4, max_size=9)


@given(st.lists(words, min_size=1, max_size=5))
def test_likeness_is_bleu_of_sentences(texts: list[list[str]]) -> None:
    bleu = BLEU(tokenize="none", smooth_method="add-k", smooth_value=1)
    lines = [" ".join(text) for text in texts]
    wanted = [[bleu.sentence_score(text, [other]).score / 100 for other in lines] for text in lines]
    assert sentence_bleu(texts) == pytest.approx(np.array(wanted), abs=1e-6)


@given(st.lists(words.map(" ".join), min_size=1, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_texts_makes_no_difference(texts: list[str], dice: object) -> None:
    means = [-0.1 * len(text) for text in texts]
    turned = list(range(len(texts)))
    dice.shuffle(turned)  # type: ignore[attr-defined]
    again = ranked([texts[number] for number in turned], [means[number] for number in turned])
    assert sorted(again) == list(range(len(texts)))
    first, other = texts[ranked(texts, means)[0]], texts[turned[again[0]]]
    value = sentence_bleu([text.split() for text in texts]) @ np.exp(12 * (np.array(means) - max(means)))
    assert value[texts.index(first)] == pytest.approx(value[texts.index(other)])


def test_what_most_agree_on_is_first_unless_one_is_far_likelier() -> None:
    texts = ["ein hund rennt schnell weg", "ein hund rennt schnell", "ein hund läuft schnell", "der kater schläft hier"]
    assert ranked(texts, [-0.5] * 4)[0] == 1
    assert ranked(texts, [-0.5, -0.5, -0.5, -0.49])[0] == 1
    assert ranked(texts, [-0.5, -0.5, -0.5, -0.1])[0] == 3
    assert ranked([""], [-1.0]) == [0]
    assert ranked(["", "", "ein"], [-1.0, -1.0, -1.0])[0] == 2


def test_texts_without_spaces_are_compared_by_their_characters() -> None:
    texts = [
        "一只狗在公园里跑得很快而且很高兴地叫着",
        "一只狗在公园里跑得很快并且很高兴地叫着",
        "她昨天在海边的小镇上买了一本关于鸟的书",
    ]
    assert has_spaces(["a dog runs", "ein Hund"])
    assert not has_spaces(texts)
    assert not has_spaces(["我喜欢苹果。", "我爱苹果。"])
    assert ranked(texts, [-0.5] * 3)[2] == 2


def test_as_many_come_back_as_are_asked_for() -> None:
    found = [Hypothesis((number,), (-1.0, -0.1 * number), -float(number), True) for number in range(5)]
    texts = ["a b c d", "a b c d e", "a b c d e f", "x", "y"]
    asked = DecodingSettings(consensus=3, alternatives=3)
    assert candidate_settings(asked) == replace(asked, consensus=0, beam=5, alternatives=3)
    assert candidate_settings(DecodingSettings(consensus=9)) == DecodingSettings(beam=9, alternatives=8)
    made = rank_by_consensus(found, lambda tokens: texts[tokens[0]], asked)
    assert len(made) == 4
    assert {each.tokens[0] for each in made[:3]} == {0, 1, 2}  # what is beyond has no say
    assert made[3].tokens == (3,)


def test_of_two_spellings_of_a_text_one_comes_back() -> None:
    found = [Hypothesis((number,), (-1.0, -0.1 * number), -float(number), True) for number in range(4)]
    texts = ["a b c d", "a b c d", "a b c d e", "x"]
    made = rank_by_consensus(found, lambda tokens: texts[tokens[0]], DecodingSettings(consensus=4, alternatives=2))
    assert [texts[each.tokens[0]] for each in made] == ["a b c d", "a b c d e", "x"]
    assert made[0].tokens == (0,)


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_a_translator_takes_the_one_most_like_the_others(folder: Path, engine: str) -> None:
    translator = load_as(Translator, folder, engine=engine)
    plain = translator.translate(SOURCES, beam=6, alternatives=5)
    chosen = translator.translate(SOURCES, consensus=6, alternatives=1)
    assert [each.text for each in translator.translate(SOURCES, consensus=1, beam=1)] == [
        each.text for each in translator.translate(SOURCES, beam=1)
    ]
    for one, other in zip(plain, chosen, strict=True):
        assert other.text in {one.text, *(each.text for each in one.alternatives)}
        assert len(other.alternatives) <= 1
    assert [translator(source, consensus=6) for source in SOURCES] == [each.text for each in chosen]
    assert [each.text for each in chosen] != [each.text for each in plain]
