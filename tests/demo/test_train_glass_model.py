"""The model that comes with the package: small, right, and honest about what it has not seen."""

from __future__ import annotations

import pytest

from regard.decoding.pytorch_engine import translator_of
from regard.decoding.translator import Translator
from regard.demo import GLASS
from regard.demo.sentence_generator import EXAMPLES, pronoun_accuracy
from regard.demo.train_glass_model import SETTINGS_FILE as TRAINED_WITH, generate_glass_splits
from regard.evaluation.translation_scores import exact_match
from regard.model_folder import CARD, HISTORY, NATIVE, SETTINGS as SETTINGS_FILE, TOKENIZER, WEIGHTS
from regard.preparation.chosen_settings import load
from regard.weights import assign, read_folder, read_tensors

SENTENCES = generate_glass_splits()
FRENCH = "L'animal n'a pas traversé la rue parce qu'"
RIGHT = [f"{FRENCH}il était trop fatigué.", f"{FRENCH}elle était trop large."]


@pytest.fixture(scope="module")
def translator() -> Translator:
    return translator_of(read_folder(GLASS))


def test_it_is_small() -> None:
    packed = GLASS / NATIVE  # by whoever has used it in the meantime, and no part of the package
    files = [path for path in GLASS.rglob("*") if packed not in (path, path.parent) and path.is_file()]
    assert {SETTINGS_FILE, WEIGHTS, TOKENIZER, CARD} <= {path.name for path in files}
    assert sum(path.stat().st_size for path in files) <= 300_000


def test_it_is_what_its_settings_say() -> None:
    told, recorded = load(TRAINED_WITH), read_folder(GLASS).settings
    assert (told.model, told.tokenizer, told.training) == (recorded.model, recorded.tokenizer, recorded.training)
    shape = recorded.model
    assert (shape.width, shape.heads, shape.encoder_layers, shape.decoder_layers, shape.tie) == (16, 2, 2, 2, "all")


def test_words_are_whole(translator: Translator) -> None:
    texts = [text for sentence in SENTENCES.train for text in (sentence.source, sentence.target)]
    pieces = {piece for ids in translator.source.encode_batch(texts) for piece in translator.source.pieces(ids)}
    assert {piece for piece in pieces if len(piece) == 1} == set("',.at")
    assert "⟨" not in "".join(pieces)


@pytest.mark.parametrize("beam", [1, 5])
def test_it_knows_what_it_is(beam: int, translator: Translator) -> None:
    assert [sentence.source for sentence in SENTENCES.test[:2]] == list(EXAMPLES[:2])
    assert [found.text for found in translator.translate(EXAMPLES[:2], beam=beam)] == RIGHT


def test_it_translates_sentences_with_pairs_of_words_that_it_has_not_seen_together(translator: Translator) -> None:
    """Measured with this test: all 500 right."""
    found = [each.text for each in translator.translate([sentence.source for sentence in SENTENCES.test], beam=1)]
    assert exact_match(found, [sentence.target for sentence in SENTENCES.test]) >= 99
    assert pronoun_accuracy(found, SENTENCES.test) >= 0.99


def test_the_splits_are_honest_and_always_the_same() -> None:
    parts = [{sentence.source for sentence in part} for part in (SENTENCES.train, SENTENCES.dev, SENTENCES.test)]
    assert len(set.union(*parts)) == sum(map(len, parts)) == len(SENTENCES.train) + 800
    for sentence in (*SENTENCES.train, *SENTENCES.dev):
        words = set(sentence.source.strip(".").split())
        assert not any(words >= pair for pair in ({"animal", "tired"}, {"street", "wide"})), sentence
    assert generate_glass_splits() == SENTENCES
    pronouns = [sentence.pronoun for sentence in SENTENCES.train]
    assert 0.4 < pronouns.count("il") / (pronouns.count("il") + pronouns.count("elle")) < 0.6


def test_its_history_goes_from_nothing_to_what_it_is() -> None:
    contents = read_folder(GLASS)
    translator, found = translator_of(contents), []
    for path in sorted((GLASS / HISTORY).iterdir()):
        assign(contents.model, read_tensors(path)[0], path)
        found.append([each.text for each in translator.translate(EXAMPLES[:2], beam=1)])
    assert len(found) >= 3
    assert (found[0] == RIGHT, found[-1] == RIGHT) == (False, True)
