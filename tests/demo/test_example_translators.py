"""The translators that `regard look` offers: undecided where several answers are right, and each with its point."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from statistics import mean

import pytest

from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.demo.chinese_sentences import CHINESE_EXAMPLES, ChineseSentence, generate_chinese_splits
from regard.demo.example_models import EXAMPLE_MODELS, FOLDER
from regard.demo.sentence_generator import generate_splits, pronoun_accuracy
from regard.demo.train_example_models import generate_corpus, train_example_model
from regard.explorer.model_explorer import Explorer
from regard.weights import read_folder
from tests.demo.pronoun_pairs import HeadInSentence, head_in_sentence, held_out_pairs

PAIRS = 60


@cache
def translator(name: str) -> Translator:
    return load_as(Translator, EXAMPLE_MODELS[name].folder, "cpu", engine="torch")


# Probabilities


def chosen_probability(name: str, sources: Iterable[str]) -> float:
    """Returns the mean probability of the tokens that greedy search chooses."""
    found = translator(name).translate(list(sources), beam=1)
    return mean(math.exp(each) for translation in found for each in translation.token_log_probabilities)


@pytest.mark.parametrize("name", ["pronouns", "chinese"])
def test_a_translator_is_sure_but_not_certain(name: str) -> None:
    sources = [source for source, _ in generate_corpus(name)["test"][:150]]
    assert 0.8 <= chosen_probability(name, sources) <= 0.97


def test_a_beam_holds_other_right_translations() -> None:
    source, accepted = next(iter(CHINESE_EXAMPLES.items()))
    best = translator("chinese").translate([source], beam=4, alternatives=3)[0]
    assert best.text in accepted
    assert len({each.text for each in (best, *best.alternatives)} & set(accepted)) >= 2
    assert math.exp(best.log_probability) < 0.9


# What "it" is


@cache
def measured() -> list[HeadInSentence]:
    """Measures the head that the page shows first, in both sentences of each pair."""
    start, contents = EXAMPLE_MODELS["pronouns"].start, read_folder(FOLDER / "pronouns")
    layer, head = int(start["layer"]), int(start["head"])
    sentences = [sentence for pair in held_out_pairs()[:PAIRS] for sentence in pair]
    return [head_in_sentence(contents, sentence, layer, head) for sentence in sentences]


def test_the_page_opens_at_the_head_that_finds_what_it_is() -> None:
    example = EXAMPLE_MODELS["pronouns"]
    assert next(iter(EXAMPLE_MODELS)) == "pronouns"
    run = Explorer.open(example.folder, "cpu").run({"text": example.examples[0]})
    assert (example.start["stack"], example.start["kind"]) == ("encoder", "self_attention")
    assert run.answer["tokens"]["source"][int(example.start["q"])]["text"].strip() == "it"


def test_in_pairs_of_sentences_the_pronouns_are_right() -> None:
    pairs = held_out_pairs()
    assert len(pairs) > 200
    sentences = [sentence for pair in pairs[:PAIRS] for sentence in pair]
    found = translator("pronouns").translate([sentence.source for sentence in sentences], beam=1)
    words = [re.findall(r"\w+", each.text) for each in found]
    right = [sentence.pronoun in each for sentence, each in zip(sentences, words, strict=True)]
    assert mean(right) >= 0.95


def test_attention_and_ablation_agree_in_pairs_that_training_does_not_have() -> None:
    trained = {source for source, _ in generate_corpus("pronouns")["train"]}
    assert not trained & {sentence.source for pair in held_out_pairs()[:PAIRS] for sentence in pair}
    assert mean(each.matters for each in measured()) >= 0.95
    assert mean(each.noun > each.other for each in measured()) >= 0.85
    assert mean(each.looks and each.matters for each in measured()) >= 0.75
    assert mean(each.whole - each.silenced for each in measured()) >= 0.3


def test_a_test_translation_has_the_right_pronoun() -> None:
    sentences = [each for each in generate_splits().test if each.pronoun in ("il", "elle")][:100]
    found = translator("pronouns").translate([each.source for each in sentences], beam=1)
    assert pronoun_accuracy([each.text for each in found], sentences) >= 0.95


# Chinese


@cache
def chinese_test() -> tuple[ChineseSentence, ...]:
    return tuple(generate_chinese_splits()[2])


def test_chinese_sentences_get_an_accepted_translation() -> None:
    sentences, examples = chinese_test()[:150], len(CHINESE_EXAMPLES)
    assert [each.source for each in sentences[:examples]] == list(CHINESE_EXAMPLES)
    found = translator("chinese").translate([each.source for each in sentences], beam=4)
    right = [each.text in sentence.accepted for each, sentence in zip(found, sentences, strict=True)]
    assert all(right[:examples])
    assert mean(right) >= 0.95


# Training


@pytest.mark.slow
def test_trained_again_a_model_is_as_good(tmp_path: Path) -> None:
    train_example_model("chinese", tmp_path / "chinese")
    sentences = chinese_test()[:200]
    again, shipped = load_as(Translator, tmp_path / "chinese", "cpu"), translator("chinese")
    shares = []
    for each in (again, shipped):
        found = each.translate([sentence.source for sentence in sentences], beam=4)
        shares.append(mean(one.text in sentence.accepted for one, sentence in zip(found, sentences, strict=True)))
    assert shares[0] >= shares[1] - 0.03
