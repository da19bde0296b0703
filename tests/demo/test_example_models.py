"""The models that `regard look` offers: small, undecided where several answers are right, and each with its point."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from statistics import mean

import pytest

from regard.decoding.fill_classify_embed import Filler
from regard.decoding.model_loading import load_as
from regard.decoding.writer import Writer
from regard.demo.example_models import EXAMPLE_MODELS, FOLDER, GAPS, PROMPTS
from regard.demo.sentence_generator import generate_splits
from regard.demo.train_example_models import NAMES, generate_corpus, settings_of
from regard.explorer.model_explorer import Explorer
from regard.model_folder import CARD, NATIVE
from regard.preparation.chosen_settings import load
from regard.weights import read_folder


def size(folder: Path) -> int:
    files = [path for path in folder.rglob("*") if path.is_file() and path.parent.name != NATIVE]
    return sum(path.stat().st_size for path in files)


def test_they_are_small() -> None:
    sizes = {name: size(FOLDER / name) for name in NAMES}
    assert max(sizes.values()) <= 2_000_000
    assert sum(sizes.values()) <= 4_000_000


@pytest.mark.parametrize("name", NAMES)
def test_each_is_what_its_settings_say(name: str) -> None:
    asked, recorded = load(settings_of(name)), read_folder(FOLDER / name).settings
    assert (asked.task, asked.model, asked.training) == (recorded.task, recorded.model, recorded.training)
    assert asked.tokenizer.kind == recorded.tokenizer.kind
    assert "make models" in (FOLDER / name / CARD).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", EXAMPLE_MODELS)
def test_the_first_example_is_shown_as_the_page_starts(name: str) -> None:
    example = EXAMPLE_MODELS[name]
    explorer = Explorer.open(example.folder, "cpu", name, example.examples, about=example.about, start=example.start)
    about = explorer.describe()
    assert about["examples"][: len(example.examples)] == list(example.examples)
    run = explorer.run({"text": about["examples"][0]})
    assert not run.answer["warnings"]


# BERT and GPT


@cache
def bigrams() -> frozenset[tuple[str, ...]]:
    """Returns all pairs of neighbouring words and marks in sentences of the grammar."""
    sentences = generate_splits(60_000, 400, 1_000)
    return frozenset(each for sentence in [*sentences.train, *sentences.test] for each in sequences(sentence.source))


def sequences(text: str) -> list[tuple[str, ...]]:
    words = ["^", *re.findall(r"[\w']+|[.,?]", text.lower()), "$"]
    return list(pairwise(words))


def grammatical(text: str) -> bool:
    return all(each in bigrams() for each in sequences(text))


def test_the_gpt_continues_sentences_of_the_grammar() -> None:
    writer = load_as(Writer, FOLDER / "writer", "cpu")
    sources = [source for source, _ in generate_corpus("writer")["test"][:100]]
    prompts = [*PROMPTS, *(" ".join(source.split()[:3]) for source in sources)]
    likely = [prompt + writer.write([prompt], temperature=0.0)[0].text for prompt in prompts]
    assert mean(map(grammatical, likely)) >= 0.95
    drawn = [prompt + writer.write([prompt], temperature=0.8, seed=1)[0].text for prompt in prompts]
    assert mean(map(grammatical, drawn)) >= 0.8
    assert mean(map(grammatical, (" ".join(reversed(text.split())) for text in drawn))) < 0.05  # the check can fail


def test_the_bert_fills_gaps_with_graded_probabilities() -> None:
    filler = load_as(Filler, FOLDER / "gaps", "cpu")
    sure, right, known = [], [], []
    for source, _ in generate_corpus("gaps")["test"][:150]:
        words = source[:-1].split()
        text = " ".join("[MASK]" if i == len(words) // 2 else word for i, word in enumerate(words)) + source[-1]
        best = filler.fill(text)[0][0]
        sure.append(best.probability)
        right.append(best.text == source)
        known.append(grammatical(best.text))
    assert 0.3 <= mean(sure) <= 0.97
    assert abs(mean(sure) - mean(right)) <= 0.1
    assert mean(known) >= 0.8
    for text in GAPS:
        best, second = filler.fill(text)[0][:2]
        assert 0.02 < second.probability < best.probability < 0.97
