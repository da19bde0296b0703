"""The language to translate into is a token before every piece of the source, and counts against its length."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from regard.decoding.pytorch_engine import translator_of
from regard.decoding.translator import Translator
from regard.errors import InputError, ModelError
from regard.settings import DataSettings, DecodingSettings, ModelSettings, Settings, TokenizerSettings
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies
from regard.weights import Contents, build_model
from tests.decoding.conftest import CORPUS

LONG = " ".join(["She reads, and it rains."] * 6)


def make(directions: tuple[str, ...], tags: tuple[str, ...]) -> Translator:
    settings = Settings(
        data=DataSettings(source="en", target="de", directions=directions),
        tokenizer=TokenizerSettings(vocabulary=400, tags=tags),
        model=ModelSettings(width=16, heads=2, hidden=32, encoder_layers=1, decoder_layers=1, max_length=24),
        decoding=DecodingSettings(beam=1, max_ratio=0.0),
    )
    pairs = [Pair(source, target, Location("corpus", 1)) for source, target in CORPUS]
    vocabularies = Vocabularies.train(lambda: pairs, settings.tokenizer)
    torch.manual_seed(3)
    return translator_of(Contents(settings, vocabularies, build_model(settings, vocabularies).eval()))


@pytest.fixture(scope="module")
def translator() -> Translator:
    return make(("en-de", "en-zh", "de-en"), ("de", "zh", "en"))


def test_every_piece_begins_with_the_tag(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Sequence[int]] = []
    search = translator.search

    def watch(sources: Sequence[Sequence[int]], settings: DecodingSettings, _constraints: object) -> object:
        seen.extend(sources)
        return search(sources, settings)

    monkeypatch.setattr(translator, "search", watch)
    translator.translate([LONG, "", "A dog sings.\nShe sings."], target="zh")
    assert len(seen) > 3
    tag = translator.source.tags["zh"]
    assert {ids[0] for ids in seen} == {tag}
    assert all(tag not in ids[1:] and len(ids) < translator.settings.model.max_length for ids in seen)
    assert translator.source.decode([token for ids in seen[:-2] for token in ids[1:]]) == LONG


def test_all_ways_to_translate_take_the_direction(translator: Translator) -> None:
    for target in ("de", "zh", "en"):
        found = translator("A dog sings.", target=target)
        assert found == translator.translate(["A dog sings."], target=target)[0].text
        assert found == "".join(translator.stream("A dog sings.", target=target))
        assert found == next(translator.translate_stream(["A dog sings."], target=target)).text
    assert translator("Ein Hund", source="de") == translator("Ein Hund", source="de", target="en")
    assert translator("Ein Hund", source="de", target="zh", zero_shot=True) == translator("Ein Hund", target="zh")


def test_languages_without_spaces_are_joined_without_them(translator: Translator) -> None:
    parts = translator._parts(LONG, "zh")[1:]
    assert parts
    assert {part.gap for part in parts} == {""}
    assert {part.gap for part in translator._parts(LONG, "de")[1:]} == {" "}


def test_a_wrong_direction_is_refused_by_all(translator: Translator) -> None:
    for said in ({}, {"target": "fr"}, {"source": "de", "target": "zh"}):
        with pytest.raises(InputError):
            translator("A dog", **said)  # type: ignore[arg-type]
        with pytest.raises(InputError):
            list(translator.stream("A dog", **said))  # type: ignore[arg-type]


def test_one_direction_has_no_tag(translator: Translator) -> None:
    single = make((), ())
    assert single("A dog sings.", source="en", target="de") == single("A dog sings.")
    assert single._parts("A dog", "de")[0].ids == single.source.encode("A dog").ids
    with pytest.raises(InputError, match="translates only from"):
        single("A dog sings.", target="zh", zero_shot=True)


def test_a_vocabulary_without_the_tag_is_refused() -> None:
    with pytest.raises(ModelError, match="no tag for de"):
        make(("en-de",), ())("A dog")
