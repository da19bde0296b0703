"""A translation has exactly the protected pieces of its text, whatever the model returns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import HealthCheck, given, strategies as st

from regard.decoding.model_loading import load_as
from regard.decoding.pytorch_engine import translator_of
from regard.decoding.search_interface import Constraints, Hypothesis
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.faithful.faithful_translation import Faithful, FaithfulResult, MarkedText
from regard.faithful.glossary import Glossary, Term
from regard.preparation.chosen_settings import resolve
from regard.settings import DataSettings, DecodingSettings, Settings, TokenizerSettings
from regard.tokens.placeholder_slots import SLOTS
from regard.tokens.protected_pieces import arguments, counts, find
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import Contents, build_model
from tests.decoding.conftest import CORPUS
from tests.decoding.toys import SHAPE
from tests.examples import examples

WORDS = [word for pair in CORPUS for side in pair for word in side.split()]
TOKENIZERS = {
    slots: Tokenizer.train(WORDS, TokenizerSettings(vocabulary=420, tags=SLOTS if slots else ()))
    for slots in (False, True)
}
PIECES = [
    "%s", "%d", "%5.2f", "%(name)s", "%1$s", "%%", "%", "{0}", "{}", "{name}", "{{name}}",
    "{n, plural, one {a} other {# b}}", "$t(key)", "${x}", "&", "&amp;", "&#39;", "<b>", "</b>", "<br/>",
    '<x id="1"/>', "https://a.org/%s", "a@b.org",
    "[X1X]", "10 MB", "|", "{", "}", "<", ">", "$", "[X", "@", "://", "\N{REPLACEMENT CHARACTER}", "\0",
]  # fmt: skip
OTHERS = [*WORDS[:12], " ", " ", " ", "\n", "\r\n", "\t", ":", "...", ".", "Ä", "文"]
TEXTS = st.lists(st.sampled_from([*PIECES, *OTHERS]) | st.text(max_size=3), max_size=20).map("".join)


class Babble:
    """A search that returns random text, protected pieces and slots."""

    def __init__(self, tokenizer: Tokenizer, garbage: Sequence[str]) -> None:
        self.tokenizer, self.garbage = tokenizer, garbage

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: object = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        bound = [*map(bool, constraints)] or [False] * len(sources)
        return [[self._found(Random(repr((list(ids), each))))] for ids, each in zip(sources, bound, strict=True)]

    def _found(self, dice: Random) -> Hypothesis:
        tokens: list[int] = []
        for text in dice.choices(self.garbage, k=dice.randrange(6)):
            tokens += self.tokenizer.encode_continuation(text) if text else []
            tokens += dice.choices([*self.tokenizer.slots, 65], k=dice.randrange(3))
        return Hypothesis(tuple(tokens), (0.0,) * (len(tokens) + 1), 0.0, finished=True)

    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> None:
        raise NotImplementedError


def babbling(garbage: Sequence[str], slots: bool = False) -> Translator:
    tokenizer = TOKENIZERS[slots]
    return Translator(Settings(), Vocabularies(tokenizer, tokenizer), Babble(tokenizer, garbage))  # type: ignore[arg-type]


def require(job: MarkedText, result: FaithfulResult, numbers: bool = False) -> None:
    """Requires the guarantees of a faithful translation."""
    assert counts(result.text, job.marks, numbers=numbers) == counts(job.text, job.marks, numbers=numbers)
    if result.how == "safe":
        assert result.text == job.text
        assert result.flags
    pieces = [
        [p.text for p in find(text, job.marks, numbers=numbers) if arguments(p.text)]
        for text in (job.text, result.text)
    ]
    assert pieces[0] == pieces[1]
    assert result.text.startswith("\n") == job.text.startswith("\n")
    assert result.text.endswith("\n") == job.text.endswith("\n")


@given(
    st.lists(st.tuples(TEXTS, st.lists(st.sampled_from(["|", "<x", "%", "a"]), max_size=2)), max_size=4),
    st.lists(st.sampled_from([*PIECES, *WORDS[:5]]) | st.text(st.characters(codec="utf-8"), max_size=4), min_size=1),
    st.booleans(),
    st.booleans(),
)
@examples(200)
def test_any_model_and_any_text(
    texts: list[tuple[str, list[str]]], garbage: list[str], slots: bool, numbers: bool
) -> None:
    jobs = [MarkedText(text, tuple(marks)) for text, marks in texts]
    results = list(Faithful(babbling(garbage, slots), numbers=numbers).translate(jobs))
    assert len(results) == len(jobs)
    for job, result in zip(jobs, results, strict=True):
        require(job, result, numbers)


@pytest.fixture(scope="module", params=[False, True], ids=["spelt", "slots"])
def untrained(request: pytest.FixtureRequest) -> Translator:
    vocabularies = Vocabularies(TOKENIZERS[request.param], TOKENIZERS[request.param])
    settings = resolve({"model": SHAPE})
    torch.manual_seed(3)
    return translator_of(Contents(settings, vocabularies, build_model(settings, vocabularies).eval()))


@given(texts=st.lists(TEXTS, max_size=3), beam=st.integers(1, 2))
@examples(25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_model_that_knows_nothing(untrained: Translator, texts: list[str], beam: int) -> None:
    jobs = [MarkedText(text) for text in texts]
    for job, result in zip(jobs, Faithful(untrained).translate(jobs, beam=beam), strict=True):
        require(job, result)


def test_a_real_model_with_long_texts_and_several_lines(folder: Path) -> None:
    translator = load_as(Translator, folder, engine="torch")
    text = "\n  A dog sees %s in the garden, and %d cats; she reads <b>it</b>. " * 3 + ":\n"
    (result,) = Faithful(translator).translate([MarkedText(text)])
    require(MarkedText(text), result)
    assert [line[:2] for line in result.text.split("\n")] == ["", "  ", "  ", "  ", ""]
    assert result.text.endswith(":\n")
    assert result.how == "repaired"
    assert result.translation is not None
    assert result.translation.text == result.text


class Saying(Babble):
    """A search that returns one text, and another one with constraints."""

    def __init__(self, tokenizer: Tokenizer, said: str, constrained: str = "") -> None:
        super().__init__(tokenizer, [])
        self.said, self.constrained = said, constrained

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: object = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        said = self.constrained if any(constraints) else self.said
        slots = {f"⟨{number}⟩": token for token, number in self.tokenizer.slots.items()}
        tokens: list[int] = []
        for word in said.split("|"):
            tokens += [slots[word]] if word in slots else self.tokenizer.encode_continuation(word)
        return [[Hypothesis(tuple(tokens), (0.0,) * (len(tokens) + 1), 0.0, finished=True)] for _ in sources]


def say(
    text: str, said: str, constrained: str = "", slots: bool = False, marks: tuple[str, ...] = ()
) -> FaithfulResult:
    """Returns the faithful translation of a text for these outputs of a model."""
    tokenizer = TOKENIZERS[slots]
    search = Saying(tokenizer, said, constrained)
    translator = Translator(Settings(), Vocabularies(tokenizer, tokenizer), search)  # type: ignore[arg-type]
    (result,) = Faithful(translator).translate([MarkedText(text, marks)])
    require(MarkedText(text, marks), result)
    return result


@pytest.mark.parametrize(
    ("text", "said", "expected", "how"),
    [
        ("Open %s now", "Öffne jetzt %s", "Öffne jetzt %s", "model"),
        ("Open it", "Öffne %s es", "Öffne es", "repaired"),
        ("%s of %d", "%d von %s", "%s von %d", "repaired"),
        ("%1$s of %2$d", "%2$d von %1$s", "%2$d von %1$s", "model"),
        ("a <b>b</b> c", "x </b>y<b> z", "x <b>y</b> z", "repaired"),
        ("a <b>b</b> <i>c</i>", "<i>z</i> <b>y</b>", "<i>z</i> <b>y</b>", "model"),
        ("Open %d%%", "Öffne 5 % von %d%%", "Öffne 5  von %d%%", "model"),
        ("\n  Open: \n", "Öffne.", "\n  Öffne: \n", "model"),
        ("Open...", "Öffne", "Öffne...", "model"),
        ("E&xit", "Beenden", "&Beenden", "model"),
        ("&Open", "Datei nun offen", "Datei nun &offen", "model"),
        ("E&xit", "退出", "退出(&X)", "model"),
        ("%s: %d", "anything", "%s: %d", "model"),
        ("Open\nit", "Öffne\nes", "Öffne es\nÖffne es", "model"),
        ("Open it", "", "Open it", "safe"),
    ],
)
def test_what_is_made_of_an_output(text: str, said: str, expected: str, how: str) -> None:
    result = say(text, said)
    assert (result.text, result.how) == (expected, how)


def test_terms_that_are_not_used_are_told() -> None:
    search = Saying(TOKENIZERS[False], "Öffne die Datei %s", "Öffne die Datei %s")
    translator = Translator(Settings(), Vocabularies(search.tokenizer, search.tokenizer), search)  # type: ignore[arg-type]
    glossary = Glossary([Term("file", ("Datei",)), Term("dog", ("Hund",))], "en", "de")
    (result,) = Faithful(translator).translate([MarkedText("Open the file %s, dog")], glossary=glossary)
    assert result.translation is not None
    assert result.text == result.translation.text == "Öffne die Datei %s"
    assert [(each.source, each.state) for each in result.translation.glossary] == [
        ("file", "placed"),
        ("dog", "missing"),
    ]
    assert len([flag for flag in result.flags if "dog" in flag]) == 1
    assert not any("file" in flag for flag in result.flags)


def test_what_is_missing_is_searched_for() -> None:
    result = say("Open %s now", "Öffne jetzt", constrained="Öffne %s jetzt")
    assert (result.text, result.how) == ("Öffne %s jetzt", "repaired")
    assert result.flags == ("placeholders inserted by a second search",)


def test_what_stands_between_the_pieces_is_translated_alone() -> None:
    result = say("Open %s now, {x}.", "Ja", constrained="Nein")
    assert (result.text, result.how) == ("Ja %s Ja {x}.", "repaired")
    assert result.flags == ("translated in parts between placeholders",)


def test_slots_are_filled_with_what_stood_there() -> None:
    result = say("Open %s at |x| now", "Um |⟨2⟩| öffne |⟨1⟩", slots=True, marks=("|x|",))
    assert (result.text, result.how) == ("Um |x| öffne %s", "model")
    result = say("Open {a} at {b}", "Um |⟨2⟩| öffne |⟨2⟩", constrained="Um |⟨2⟩| öffne |⟨1⟩", slots=True)
    assert (result.text, result.how) == ("Um {b} öffne {a}", "repaired")


def test_a_text_that_the_model_refuses_stays() -> None:
    assert say("a \ud800 b", "x").how == "safe"


def test_options_are_refused_before_a_text_is_read() -> None:
    with pytest.raises(SettingsError, match="beam"):
        next(Faithful(babbling(["x"])).translate((pytest.fail(text) for text in ["read"]), beam=0))


def test_the_languages_are_passed_on() -> None:
    tokenizer = TOKENIZERS[False]
    settings = Settings(data=DataSettings(source="en", target="de"))
    translator = Translator(settings, Vocabularies(tokenizer, tokenizer), Saying(tokenizer, "ja"))  # type: ignore[arg-type]
    assert next(Faithful(translator).translate([MarkedText("yes")], target="de")).text == "ja"
