"""Encoders at work: gaps, labels and vectors are the same alone and in company, and right against plain sums."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import regard
from regard.atomic_files import write_text
from regard.decoding import fill_classify_embed as reader
from regard.decoding.fill_classify_embed import (
    Classifier,
    Embedder,
    EncoderInput,
    Filler,
    Reader,
    Text,
    nearest,
    shorten,
)
from regard.decoding.model_loading import TASKS, load, load_as
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError, ModelError
from regard.model_folder import SETTINGS, TOKENIZER, WEIGHTS
from regard.settings.option_fields import dump
from regard.tokens.tokenizer import Specials, Tokenizer
from regard.tokens.vocabulary_learning import BOS, EOS, MASK, PAD
from regard.weights import Contents, parameters, write_tensors
from tests.decoding.toys import TOKENIZER as VOCABULARY, toy
from tests.examples import examples

ENGINES = {
    "translate": Translator,
    "write": Writer,
    "fill": Filler,
    "classify": Classifier,
    "embed": Embedder,
}
FILLER = Filler(toy("fill"))
CLASSIFIER = Classifier(toy("classify", data={"labels": ["good", "bad", "so-so"]}))
LABELLER = Classifier(toy("classify", data={"labels": ["O", "B-x", "I-x"], "carrier": "word"}))
EMBEDDER = Embedder(toy("embed"))
LONGEST = FILLER.longest
WORDS = ["A", "dog", "She", "reads", "garden", ".", "Katze", "zoo", "日本", "🙂", "é"]
texts = st.lists(st.sampled_from(WORDS), max_size=9).map(" ".join)
pairs: st.SearchStrategy[Text] = st.one_of(texts, st.tuples(texts, texts))


def states_of(engine: Reader, ids: list[int], segments: list[int] | None = None) -> Tensor:
    """[T, D], by one forward over one row."""
    given_segments = None if segments is None else torch.tensor([segments])
    with torch.no_grad():
        return engine.model(torch.tensor([ids]), None, given_segments)[0]


# Rows


@given(
    first=st.lists(st.integers(5, 99), max_size=30),
    second=st.lists(st.integers(5, 99), max_size=30),
    longest=st.integers(6, 24),
    between=st.integers(1, 2),
)
def test_a_row_fits_and_the_longer_text_loses_its_end(
    first: list[int], second: list[int], longest: int, between: int
) -> None:
    vocabulary = Tokenizer(VOCABULARY.model)
    vocabulary.specials = Specials(between=between)
    row = shorten(first, second, vocabulary, longest)
    assert len(row.ids) == len(row.segments) <= longest
    kept = [token for token, segment in zip(row.ids, row.segments, strict=True) if token > 4 and segment == 0]
    rest = [token for token, segment in zip(row.ids, row.segments, strict=True) if token > 4 and segment == 1]
    assert (kept, rest) == (first[: len(kept)], second[: len(rest)])
    assert row.shortened == (len(kept) < len(first) or len(rest) < len(second))
    if row.shortened:
        assert len(row.ids) == longest  # no room is wasted
        if len(kept) < len(first):
            assert len(kept) >= len(rest) - 1
        if len(rest) < len(second):
            assert len(rest) >= len(kept) - 1
    else:
        assert (row.ids, row.segments) == vocabulary.specials.join(first, second)


@examples(15)
@given(several=st.lists(pairs, min_size=1, max_size=6), size=st.sampled_from([1, 20, 8192]))
def test_a_row_has_the_same_states_alone_and_in_any_batch(several: list[Text], size: int) -> None:
    rows = FILLER.rows(several)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader, "BATCH_TOKENS", size)
        found = FILLER.read(rows, lambda states, _: states)
    assert len(found) == len(rows)
    for row, states in zip(rows, found, strict=True):
        expected = states_of(FILLER, row.ids, row.segments)
        torch.testing.assert_close(states[: len(row.ids)], expected, atol=1e-4, rtol=1e-4)


def test_padding_is_told() -> None:
    rows = [EncoderInput([BOS, 9, EOS], [0, 0, 0]), EncoderInput([BOS, EOS], [0, 0])]
    assert [keep.tolist() for keep in FILLER.read(rows, lambda _, keep: keep)] == [[True] * 3, [True, True, False]]
    assert FILLER.read([], lambda states, _: states) == []


# Gaps


def plain_guess(ids: list[int], place: int) -> tuple[int, float]:
    head = FILLER.model.fill
    assert head is not None
    with torch.no_grad():
        logits = head(states_of(FILLER, ids))[place]
    logits[[PAD, BOS, EOS, 3, MASK]] = -torch.inf
    probabilities = logits.softmax(-1)
    return int(probabilities.argmax()), float(probabilities.max())


@pytest.mark.parametrize(
    ("text", "before", "after"),
    [
        ("A dog [MASK] a book.", "A dog", " a book."),
        ("[MASK] dog reads", "", " dog reads"),
        ("A dog [MASK]", "A dog", ""),
        ("[MASK]", "", ""),
        ("A dog reads [MASK].", "A dog reads", "."),
        ("A dog <mask> a book.", "A dog", " a book."),
        ("re[MASK]ing", "re", "ing"),
    ],
)
def test_a_gap_anywhere(text: str, before: str, after: str) -> None:
    first = VOCABULARY.encode(before).ids if before else []
    ids = [BOS, *first, MASK, *VOCABULARY.encode_continuation(after), EOS]
    assert FILLER.gaps(text) == (ids, [len(first) + 1])
    token, probability = plain_guess(ids, len(first) + 1)
    (found,) = FILLER.fill(text, 3)
    assert len(found) == 3
    assert found[0].token == VOCABULARY.decode([token]).strip()
    assert found[0].probability == pytest.approx(probability, abs=1e-5)
    assert found[0].probability >= found[1].probability >= found[2].probability
    assert found[0].text == FILLER(text) == VOCABULARY.decode([*first, token, *VOCABULARY.encode_continuation(after)])


def test_two_gaps_are_filled_each_by_itself() -> None:
    ids, gaps = FILLER.gaps("[MASK] dog [MASK] in the garden")
    assert [ids[gap] for gap in gaps] == [MASK, MASK]
    assert ids.count(MASK) == 2
    first, second = FILLER.fill("[MASK] dog [MASK] in the garden", 2)
    best = [plain_guess(ids, gap)[0] for gap in gaps]
    words = [VOCABULARY.decode([token]) for token in best]
    assert [first[0].token, second[0].token] == [word.strip() for word in words]
    assert first[0].text == f"{words[0]} dog [MASK] in the garden"
    assert second[0].text == "[MASK]" + VOCABULARY.decode([9, *middle(best[1])])[len(VOCABULARY.decode([9])) :]
    assert FILLER("[MASK] dog [MASK] in the garden") == VOCABULARY.decode([best[0], *middle(best[1])])


def middle(token: int) -> list[int]:
    return [*VOCABULARY.encode_continuation(" dog"), token, *VOCABULARY.encode_continuation(" in the garden")]


def test_as_many_fillings_as_there_are_tokens() -> None:
    (found,) = FILLER.fill("A [MASK]", 10**6)
    assert len(found) == VOCABULARY.size
    assert sum(filling.probability for filling in found) == pytest.approx(1.0, abs=1e-4)


def test_what_cannot_be_filled_is_refused() -> None:
    with pytest.raises(InputError, match=r"there is no gap .* write \[MASK\]"):
        FILLER.fill("A dog reads")
    with pytest.raises(InputError, match=rf"has \d+ tokens, but this model reads at most {LONGEST}"):
        FILLER("A dog [MASK] " + "in the garden " * 9)
    with pytest.raises(InputError, match="surrogate"):
        FILLER("A dog [MASK] \ud800")
    with pytest.raises(InputError, match="surrogate"):
        FILLER("\ud800 [MASK]")
    blind = Filler(toy("fill"))
    blind.vocabulary = Tokenizer(VOCABULARY.model)
    blind.vocabulary.specials = Specials(mask=None)
    with pytest.raises(InputError, match=r"no \[MASK\] token"):
        blind("A [MASK]")


# Labels


@examples(15)
@given(several=st.lists(pairs, max_size=5))
def test_labels_are_the_same_alone_and_in_company(several: list[Text]) -> None:
    together = CLASSIFIER.classify(several)
    for text, found in zip(several, together, strict=True):
        (row,) = CLASSIFIER.rows([text])
        with torch.no_grad():
            assert CLASSIFIER.model.label is not None
            state = CLASSIFIER.model.pool(states_of(CLASSIFIER, row.ids, row.segments)[None], None)
            expected = CLASSIFIER.model.label(state)[0].softmax(-1).tolist()
        assert list(found.probabilities) == ["good", "bad", "so-so"]
        assert list(found.probabilities.values()) == pytest.approx(expected, abs=1e-4)
        assert found.probability == max(found.probabilities.values())
        assert found.probabilities[found.label] == found.probability
        assert CLASSIFIER(text) == found.label


def test_two_texts_are_not_one() -> None:
    one, two = CLASSIFIER.classify(["A dog reads", ("A dog", "reads")])
    assert one.probabilities != pytest.approx(two.probabilities, abs=1e-4)
    assert CLASSIFIER.classify([("A dog", "")]) == CLASSIFIER.classify(["A dog"])


def test_of_a_text_that_is_too_long_the_beginning_is_read() -> None:
    long = "A dog reads in the garden. " * 9
    (row,) = CLASSIFIER.rows([long])
    assert row.shortened
    assert row.ids == [BOS, *VOCABULARY.encode(long).ids[: LONGEST - 2], EOS]
    assert CLASSIFIER.classify([long])[0].probabilities == pytest.approx(
        CLASSIFIER.classify([long + "!"])[0].probabilities
    )


@examples(15)
@given(several=st.lists(st.lists(st.sampled_from(["A", "dog", "garden", "é", "zz"]), max_size=4), max_size=4))
def test_a_word_has_the_label_of_its_first_token(several: list[list[str]]) -> None:
    found = LABELLER.label_words(several)
    for words, labels in zip(several, found, strict=True):
        assert len(labels) == len(words)
        pieces = VOCABULARY.encode_words(words)
        ids = [BOS, *(token for word in pieces for token in word), EOS]
        with torch.no_grad():
            assert LABELLER.model.label is not None
            expected = LABELLER.model.label(states_of(LABELLER, ids)).softmax(-1)
        place = 1
        for word, label in zip(pieces, labels, strict=True):
            assert list(label.probabilities.values()) == pytest.approx(expected[place].tolist(), abs=1e-4)
            place += len(word)
    if several:
        assert LABELLER(" ".join(several[0])) == " ".join(label.label for label in found[0])


def test_more_words_than_fit_are_refused() -> None:
    fitting = ["A"] * (LONGEST - 2)
    assert len(LABELLER.label_words([fitting])[0]) == LONGEST - 2
    with pytest.raises(InputError, match=f"a text of {LONGEST - 1} words is longer than {LONGEST} tokens: split it"):
        LABELLER.label_words([[*fitting, "A"]])


def test_words_and_texts_are_not_taken_for_each_other() -> None:
    with pytest.raises(InputError, match="labels words, not texts: use label_words"):
        LABELLER.classify(["A dog"])
    with pytest.raises(InputError, match="labels texts, not words: use classify"):
        CLASSIFIER.label_words([["A", "dog"]])


# Vectors


@examples(15)
@given(several=st.lists(texts, max_size=5), normalize=st.booleans(), pooling=st.sampled_from(["mean", "first"]))
def test_vectors_equal_plain_sums(several: list[str], normalize: bool, pooling: str) -> None:
    found = EMBEDDER.embed(several, pooling=pooling, normalize=normalize)
    assert found.shape == (len(several), 16)
    assert found.dtype == np.float32
    for text, vector in zip(several, found, strict=True):
        states = states_of(EMBEDDER, EMBEDDER.rows([text])[0].ids).numpy()
        expected = states[0] if pooling == "first" else sum(states) / len(states)
        if normalize:
            expected = expected / np.sqrt((expected**2).sum())
        np.testing.assert_allclose(vector, expected, atol=1e-4)


def test_the_settings_of_the_model_say_how_texts_become_vectors() -> None:
    several = ["A dog", "She reads in the garden"]
    own = EMBEDDER.settings.embedding
    assert (own.pooling, own.normalize) == ("mean", True)
    assert np.array_equal(EMBEDDER(several), EMBEDDER.embed(several, pooling="mean", normalize=True))
    assert not np.allclose(EMBEDDER(several), EMBEDDER(several, pooling="first"), atol=1e-3)


def test_what_is_no_list_or_no_pooling_is_refused() -> None:
    with pytest.raises(InputError, match="put it in a list"):
        EMBEDDER("A dog")
    with pytest.raises(InputError, match="pooling must be mean or first, not max"):
        EMBEDDER(["A dog"], pooling="max")


vectors = st.lists(st.lists(st.integers(-3, 3), min_size=3, max_size=3), min_size=1, max_size=8)


@given(rows=vectors, query=st.lists(st.integers(-3, 3), min_size=3, max_size=3), count=st.integers(1, 9))
def test_the_nearest_are_those_with_the_highest_cosine(rows: list[list[int]], query: list[int], count: int) -> None:
    found = nearest(np.array(query, np.float32), np.array(rows, np.float32), count)

    def cosine(row: list[int]) -> float:
        lengths = np.linalg.norm(row) * np.linalg.norm(query)
        return float(np.dot(row, query) / lengths) if lengths else 0.0

    assert len(found) == min(count, len(rows))
    assert [value for _, value in found] == pytest.approx(sorted(map(cosine, rows), reverse=True)[:count], abs=1e-5)
    assert all(value == pytest.approx(cosine(rows[i]), abs=1e-5) for i, value in found)
    assert len({i for i, _ in found}) == len(found)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_a_text_is_nearest_to_itself(pooling: str) -> None:
    several = ["A dog", "She reads in the garden", "Katze", "zoo 日本", "A dog reads"]
    made = EMBEDDER(several, pooling=pooling, normalize=False)
    for number, text in enumerate(several):
        (best, cosine), *_ = EMBEDDER.nearest(text, made, pooling=pooling)
        assert best == number
        assert cosine == pytest.approx(1.0, abs=1e-4)


# Folders


def write(folder: Path, contents: Contents) -> Path:
    write_text(folder / SETTINGS, dump(contents.settings))
    write_text(folder / TOKENIZER, contents.vocabularies.to_json())
    write_tensors(folder / WEIGHTS, parameters(contents.model))
    return folder


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    made = tmp_path_factory.mktemp("models")
    tasks: dict[str, Any] = {
        "translate": toy("translate"),
        "write": toy("write"),
        "fill": toy("fill"),
        "classify": toy("classify", data={"labels": ["a", "b"]}),
        "embed": toy("embed"),
    }
    return {task: write(made / task, contents) for task, contents in tasks.items()}


def test_a_folder_becomes_what_it_is_for(folders: dict[str, Path]) -> None:
    assert list(ENGINES) == list(TASKS.values())
    for task, engine in ENGINES.items():
        assert type(load_as(engine, folders[task], "cpu")) is engine
        assert type(load(folders[task], "cpu")) is engine
    assert regard.load(folders["fill"])("A [MASK]") == FILLER("A [MASK]")


def test_an_engine_refuses_a_model_for_something_else(folders: dict[str, Path]) -> None:
    for verb, engine in ENGINES.items():
        for task, folder in folders.items():
            if task == verb or (verb == "embed" and task in ("fill", "classify")):
                continue
            with pytest.raises(InputError) as caught:
                load_as(engine, folder)
            assert str(caught.value) == f"{folder}: has the task {task}, not {verb}: use regard {task} {folder}"


def test_any_encoder_embeds(folders: dict[str, Path]) -> None:
    for task in ("fill", "classify", "embed"):
        assert load_as(Embedder, folders[task], "cpu")(["A dog"]).shape == (1, 16)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    engines: list[Any] = [Writer, Translator, Filler, Classifier, Embedder]
    for engine in engines:
        with pytest.raises(ModelError, match="no such folder"):
            load_as(engine, tmp_path / "none")
    with pytest.raises(ModelError, match="not a Regard model"):
        load_as(Writer, tmp_path)
