"""From text to text with a small model: the same however texts are batched, and nothing of them is lost."""

from __future__ import annotations

import subprocess
import sys
import threading
import unicodedata
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

import regard
from regard.decoding import translator as engine
from regard.decoding.beam_search import beam_search
from regard.decoding.decoder_step import NextToken, TranslationStep, sampler
from regard.decoding.model_loading import load
from regard.decoding.pytorch_engine import TorchSearch
from regard.decoding.search_interface import Constraints, Hypothesis, SearchEngine, length_penalty
from regard.decoding.translation_results import Translation
from regard.decoding.translator import Translator
from regard.errors import InputError, SettingsError
from regard.model.transformer import EncoderDecoder
from regard.model_folder import TOKENIZER, read_settings
from regard.settings import DecodingSettings, ModelSettings
from regard.tokens.split_long_texts import BREAKS, split_lines, split_text
from regard.tokens.tokenizer import Specials, Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS, RESERVED, SPECIALS
from regard.weights import choose_device
from tests.decoding.conftest import CORPUS
from tests.examples import examples

SOURCES = [source for source, _ in CORPUS]
WORDS = sorted({word for source in SOURCES for word in source.split()} | {"zoo", "Ü", "7,5", "日本", "🙂"})
sentences = st.lists(st.sampled_from(WORDS), min_size=1, max_size=6).map(" ".join)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"beam": 1},
    "beam": {"beam": 4},
    "drawing": {"temperature": 1.0, "seed": 5},
}
modes = pytest.mark.parametrize("mode", MODES)


class Parrot:
    """Says what it hears: its hypotheses are the source tokens, which the shared vocabulary spells the same."""

    def __init__(self) -> None:
        self.heard: list[list[int]] = []

    def search(
        self, sources: Sequence[Sequence[int]], _limits: Sequence[int], _settings: DecodingSettings, *_: object
    ) -> list[list[Hypothesis]]:
        self.heard = [list(ids) for ids in sources]
        return [[Hypothesis(tuple(ids), (0.0,) * (len(ids) + 1), 0.0, True)] for ids in sources]

    def tokens(self, source: Sequence[int], _settings: DecodingSettings) -> Iterator[int]:
        yield from (*source, EOS)


@pytest.fixture(scope="module")
def heard() -> Any:
    return Parrot()


@pytest.fixture(scope="module")
def parrot(folder: Path, heard: Any) -> Translator:
    return Translator(read_settings(folder), Vocabularies.load(folder / TOKENIZER), heard)


@pytest.fixture(scope="module")
def chinese_parrot(parrot: Translator) -> Translator:
    settings = replace(parrot.settings, data=replace(parrot.settings.data, target="zh"))
    return Translator(settings, Vocabularies(parrot.source, parrot.target), cast(SearchEngine, Parrot()))


def assert_close(ours: Translation, theirs: Translation) -> None:
    assert (ours.text, ours.tokens, ours.finished) == (theirs.text, theirs.tokens, theirs.finished)
    assert ours.score == pytest.approx(theirs.score, abs=1e-4)
    assert ours.log_probability == pytest.approx(theirs.log_probability, abs=1e-4)
    assert ours.token_log_probabilities == pytest.approx(theirs.token_log_probabilities, abs=1e-4)


# Calls


def test_a_folder_becomes_a_translator(folder: Path) -> None:
    translator = regard.load_as(Translator, str(folder), device="cpu")
    found = translator.translate(SOURCES[:2])
    assert translator(SOURCES[0]) == found[0].text
    assert all(t.text and t.tokens and t.score < 0 for t in found)
    assert found[0].text != found[1].text


def test_the_model_is_ready_for_use(model: EncoderDecoder) -> None:
    assert not model.training
    assert next(model.parameters()).device == torch.device("cpu")


def test_options_go_on_top_of_the_models_own(parrot: Translator) -> None:
    own = DecodingSettings(beam=3, length_penalty=0.2)
    settings = replace(parrot.settings, decoding=own)
    translator = Translator(settings, Vocabularies(parrot.source, parrot.target), cast(SearchEngine, Parrot()))
    assert translator.decoding({}) == own
    assert translator.decoding({"beam": 2}) == replace(own, beam=2)
    assert translator.decoding({"beam": "2"}) == replace(own, beam=2)  # as a flag spells it


@pytest.mark.parametrize(
    ("options", "beam"),
    [
        ({"alternatives": 7}, 8),
        ({"alternatives": 5}, 6),
        ({"alternatives": 2}, 5),
        ({"alternatives": 7, "temperature": 1.0}, 5),
    ],
)
def test_a_beam_has_room_for_the_alternatives(translator: Translator, options: dict[str, Any], beam: int) -> None:
    assert translator.decoding(options).beam == beam


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beem": 4}, "unknown setting decoding.beem; did you mean decoding.beam?"),
        ({"beam": 0}, "decoding.beam must be at least 1, not 0"),
        ({"beam": "wide"}, "decoding.beam must be a whole number, not 'wide'"),
        ({"beam": 2.5}, "decoding.beam must be a whole number, not 2.5"),
        ({"top_p": 1.5}, "decoding.top_p must be from 0 to 1, not 1.5"),
        ({"temperature": -1.0}, "decoding.temperature must be at least 0, not -1.0"),
        ({"temperature": float("nan")}, "decoding.temperature must be a finite number, not nan"),
        ({"max_ratio": float("inf")}, "decoding.max_ratio must be a finite number, not inf"),
        ({"alternatives": -1}, "decoding.alternatives must be at least 0, not -1"),
        ({"max_ratio": None}, "decoding.max_ratio must be a number, not None"),
    ],
)
def test_bad_options_are_refused(translator: Translator, options: dict[str, Any], message: str) -> None:
    calls: list[Callable[[], object]] = [
        lambda: translator("A dog.", **options),
        lambda: translator.translate([], **options),
        lambda: next(translator.translate_stream(["A dog."], **options)),
        lambda: next(translator.stream("A dog.", **options)),
    ]
    for call in calls:
        with pytest.raises(SettingsError) as caught:
            call()
        assert str(caught.value) == message


@pytest.mark.parametrize("name", ["nonsense", "", "cuda:99", "meta", "hpu", "xla", "0"])
def test_a_device_that_is_not_there_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(InputError, match="is not available: use auto, cpu, cuda or mps"):
        load(folder, name)


def test_auto_is_a_device_that_is_there() -> None:
    assert choose_device("auto").type in ("cuda", "mps", "cpu")
    assert choose_device("cpu") == torch.device("cpu")


WITHOUT_TORCH = """
import sys
from pathlib import Path
from regard.decoding.search_interface import Hypothesis
from regard.decoding.translator import Translator
from regard.model_folder import TOKENIZER, check_folder, read_settings
from regard.tokens.tokenizer import Vocabularies

class Parrot:
    def search(self, sources, limits, settings, *_):
        return [[Hypothesis(tuple(ids), (0.0,), 0.0, True)] for ids in sources]

folder = Path(sys.argv[1])
check_folder(folder)
translator = Translator(read_settings(folder), Vocabularies.load(folder / TOKENIZER), Parrot())
print(translator("A dog.\\nShe sings."))
sys.exit("torch" in sys.modules)
"""


def test_a_search_without_torch_is_enough(folder: Path) -> None:
    command = [sys.executable, "-c", WITHOUT_TORCH, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "A dog.\nShe sings.\n", "")


# The same text gives the same output


@modes
@examples(10)
@given(texts=st.lists(sentences, min_size=1, max_size=7), batch_tokens=st.sampled_from([1, 100, 8192]))
def test_a_sentence_alone_and_in_any_batch(
    translator: Translator, mode: str, texts: list[str], batch_tokens: int
) -> None:
    together = translator.translate(texts, **MODES[mode], batch_tokens=batch_tokens)
    assert len(together) == len(texts)
    for text, found in zip(texts, together, strict=True):
        assert_close(found, translator.translate([text], **MODES[mode])[0])


@modes
def test_the_order_of_the_inputs_is_kept_across_windows(
    translator: Translator, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = [*SOURCES[::-1], "", *SOURCES[::3]]
    expected = translator.translate(texts, **MODES[mode])
    assert len({t.text for t in expected}) > 20
    monkeypatch.setattr(engine, "WINDOW", 4)
    for found in (translator.translate(texts, **MODES[mode]), translator.translate_stream(texts, **MODES[mode])):
        for ours, theirs in zip(found, expected, strict=True):
            assert_close(ours, theirs)


@modes
@pytest.mark.parametrize("alternatives", [0, 2])
def test_batches_keep_to_their_budget(
    translator: Translator, model: EncoderDecoder, mode: str, alternatives: int
) -> None:
    """Rows are hypotheses, each as long as the longest source and its end."""
    batches = []

    class Watched(TorchSearch):
        def _search_batch(
            self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings, *others: Any
        ) -> list[list[Hypothesis]]:
            found = super()._search_batch(sources, limits, settings, *others)
            rows = settings.alternatives + 1 if settings.temperature else settings.beam
            batches.append((len(sources), len(sources) * rows * (max(map(len, sources)) + 1)))
            return found

    watched = Watched(model, translator.target.specials)
    vocabularies = Vocabularies(translator.source, translator.target)
    Translator(translator.settings, vocabularies, watched).translate(
        SOURCES, **MODES[mode], alternatives=alternatives, batch_tokens=200
    )
    assert sum(sources for sources, _ in batches) == len(SOURCES)
    assert all(tokens <= 200 or sources == 1 for sources, tokens in batches)
    assert len(batches) < len(SOURCES) / 2


@pytest.mark.parametrize("text", ["", " ", "\t  ", "\u3000", "\u2028"])
def test_what_is_blank_stays_empty(translator: Translator, text: str) -> None:
    assert translator.translate([text, "A dog.", text])[::2] == [Translation("", 0.0, 0.0, (), (), True)] * 2
    assert list(translator.stream(text)) == []


def test_a_text_is_tidied_as_in_training(translator: Translator) -> None:
    assert translator.translate(["\tA dog\treads. "]) == translator.translate(["A dog reads."])


@modes
def test_composed_and_decomposed_characters_are_the_same(translator: Translator, mode: str) -> None:
    text = "She sings at the café, naïve Ünder!"
    decomposed = unicodedata.normalize("NFD", text)
    assert decomposed != text
    ours, theirs = translator.translate([text, decomposed], **MODES[mode])
    assert ours == theirs


def test_no_texts_and_texts_from_a_generator_are_fine(translator: Translator) -> None:
    assert translator.translate([]) == []
    assert translator.translate(text for text in SOURCES) == translator.translate(SOURCES)


# Scores


@modes
@examples(10)
@given(texts=st.lists(sentences, min_size=1, max_size=4), alternatives=st.integers(0, 3))
def test_reported_probabilities_are_those_of_the_model(
    translator: Translator, model: EncoderDecoder, mode: str, texts: list[str], alternatives: int
) -> None:
    chosen = translator.decoding({**MODES[mode], "alternatives": alternatives})
    sources = translator.source.encode_batch(texts)
    found = translator.search(sources, chosen)
    penalty = length_penalty("google", chosen.length_penalty)
    for ids, hypotheses in zip(sources, found, strict=True):
        for h in hypotheses:
            expected = teacher_forced(model, ids, [*h.tokens, EOS] if h.finished else list(h.tokens))
            assert h.log_probabilities == pytest.approx(expected, abs=1e-4)
            assert h.score == pytest.approx(sum(expected) / penalty(len(expected)), abs=1e-4)
    for translation, (best, *_) in zip(translator.translate(texts, **vars(chosen)), found, strict=True):
        assert translation.token_log_probabilities == pytest.approx(best.log_probabilities, abs=1e-4)
        assert translation.log_probability == pytest.approx(best.log_probability, abs=1e-4)
        assert translation.score == pytest.approx(best.score, abs=1e-4)
        assert translation.text == translator.target.decode(best.tokens)
        assert list(translation.tokens) == translator.target.pieces(best.tokens)


def teacher_forced(model: EncoderDecoder, source: list[int], output: list[int]) -> list[float]:
    """The log-probability of each token of the output, all of it seen in one pass."""
    with torch.no_grad():
        logits = model(torch.tensor([[*source, EOS]]), torch.tensor([[BOS, *output[:-1]]]), None)[0]
    values: list[float] = logits.log_softmax(-1).gather(1, torch.tensor(output)[:, None]).squeeze(1).tolist()
    return values


class Forgetful:
    """A step that computes everything anew, one hypothesis at a time."""

    def __init__(self, model: EncoderDecoder, sources: Sequence[Sequence[int]]) -> None:
        self.model = model
        self.rows = [([*source, EOS], [BOS]) for source in sources]

    def start(self) -> Tensor:
        return torch.stack([self._scores(*row) for row in self.rows])

    def advance(self, tokens: Tensor, rows: Tensor, sentences: Tensor | None) -> Tensor:
        parents = [self.rows[row] for row in rows.tolist()]
        self.rows = [(ids, [*prefix, token]) for (ids, prefix), token in zip(parents, tokens.tolist(), strict=True)]
        return self.start()

    def _scores(self, source: list[int], prefix: list[int]) -> Tensor:
        scores = self.model(torch.tensor([source]), torch.tensor([prefix]), None)[0, -1].log_softmax(-1)
        scores[[SPECIALS.index(name) for name in ("<pad>", "<s>", "<unk>", "<mask>")]] = -torch.inf
        return scores


@pytest.mark.parametrize(
    "shape",
    [
        {"positions": "rotary", "norm": "pre", "heads": 4, "key_value_heads": 2, "activation": "swiglu"},
        {"positions": "learned", "norm_kind": "rms", "tie": "none", "output_bias": True},
        {"positions": "none", "key_width": 3, "value_width": 5, "embedding_norm": True, "scale_embedding": False},
    ],
    ids=lambda shape: shape["positions"],
)
def test_remembering_keys_and_values_changes_nothing(shape: dict[str, Any]) -> None:
    torch.manual_seed(3)
    small: dict[str, Any] = {"width": 16, "heads": 4, "hidden": 24, "encoder_layers": 1, "decoder_layers": 2}
    model = EncoderDecoder(ModelSettings(**{**small, "max_length": 16, **shape}), 30, 30).double().eval()
    sources, limits = [[7, 8, 9, 20], [11], [25, 25, 6]], [9, 3, 16]
    with torch.inference_mode():
        steps = TranslationStep(model, sources, Specials(), NextToken(Specials())), Forgetful(model, sources)
        ours, theirs = (
            beam_search(step, limits, end=EOS, width=4, penalty=length_penalty("google", 0.6), best=4) for step in steps
        )
    for found, expected in zip(ours, theirs, strict=True):
        assert [h.tokens for h in found] == [h.tokens for h in expected]
        assert [h.score for h in found] == pytest.approx([h.score for h in expected], abs=1e-6)


@modes
def test_alternatives_differ_and_are_in_order(translator: Translator, mode: str) -> None:
    seen = 0
    for best in translator.translate(SOURCES[:12], **MODES[mode], alternatives=4):
        everything = [best, *best.alternatives]
        assert len({t.text for t in everything}) == len(everything) <= 5
        assert [t.score for t in everything] == sorted((t.score for t in everything), reverse=True)
        assert all(t.alternatives == () for t in best.alternatives)
        seen += len(best.alternatives)
    assert seen > 24


def test_alternatives_do_not_change_the_best(translator: Translator) -> None:
    with_them, without = (translator.translate(SOURCES[:8], beam=5, alternatives=n) for n in (4, 0))
    assert [t.text for t in with_them] == [t.text for t in without]
    assert all(t.alternatives == () for t in without)


def test_of_two_spellings_of_a_text_the_better_is_reported(parrot: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    def spelt(text: str) -> tuple[int, ...]:
        return tuple(RESERVED.index(f"<0x{byte:02X}>") for byte in text.encode())

    cat, dog, reads = (tuple(parrot.target.encode_batch([word])[0]) for word in ("Katze", "Hund", "liest"))
    order = [cat, dog, reads, spelt("Hund"), spelt("Katze")]
    found = [Hypothesis(ids, (-n,), -n, True) for n, ids in enumerate(order, 1)]
    monkeypatch.setattr(parrot.searcher, "search", lambda *_: [found])
    best = parrot.translate(["A dog."])[0]
    assert [(t.text, t.score) for t in (best, *best.alternatives)] == [("Katze", -1), ("Hund", -2), ("liest", -3)]


def test_the_score_of_several_lines_is_their_mean(translator: Translator) -> None:
    parts = translator.translate(SOURCES[:3], beam=3, alternatives=2)
    whole = translator.translate(["\n".join(SOURCES[:3])], beam=3, alternatives=2)[0]
    assert whole.text == "\n".join(part.text for part in parts)
    assert whole.score == pytest.approx(sum(part.score for part in parts) / 3, abs=1e-4)
    assert whole.log_probability == pytest.approx(sum(part.log_probability for part in parts), abs=1e-4)
    assert whole.tokens == tuple(token for part in parts for token in part.tokens)
    assert [t.text for t in whole.alternatives] == [
        "\n".join(part.alternatives[rank].text for part in parts) for rank in range(2)
    ]


# Lengths


@pytest.mark.parametrize(("ratio", "limit"), [(0.0, 20), (0.5, 21), (1e308, 24), (2.0, 24)])
def test_outputs_end_by_their_limit(translator: Translator, ratio: float, limit: int) -> None:
    """At a temperature at which nothing ends by itself; the model's own limit is 24."""
    [found] = translator.translate(["A dog"], temperature=50.0, max_ratio=ratio)
    assert len(translator.source.encode_batch(["A dog"])[0]) == 2
    assert len(found.tokens) == len(found.token_log_probabilities) == limit
    assert not found.finished


@modes
def test_an_output_that_ends_is_finished(translator: Translator, mode: str) -> None:
    for found in translator.translate(SOURCES, **MODES[mode]):
        assert len(found.token_log_probabilities) == len(found.tokens) + found.finished
        assert found.finished or len(found.tokens) == 24


# Drawing


def test_drawing_can_be_repeated_and_depends_on_the_seed(translator: Translator) -> None:
    def draw(seed: int) -> list[str]:
        return [t.text for t in translator.translate(SOURCES[:6], temperature=1.5, seed=seed)]

    assert draw(1) == draw(1)
    assert draw(1) != draw(2)


def test_drawing_without_a_choice_is_greedy(translator: Translator) -> None:
    greedy = translator.translate(SOURCES[:6], beam=1)
    for options in ({"top_k": 1}, {"top_p": 0.0}, {"min_p": 1.0}):
        for ours, theirs in zip(translator.translate(SOURCES[:6], temperature=1.5, **options), greedy, strict=True):
            assert_close(ours, theirs)


def test_each_text_and_each_row_has_luck_of_its_own() -> None:
    def lucks(ids: Sequence[Sequence[int]], rows: int, seed: int = 0) -> list[list[int]]:
        """Two draws of each row among tokens that are all the same."""
        choose = sampler(ids, rows, DecodingSettings(temperature=1.0, seed=seed))
        scores = torch.zeros(len(ids) * rows, 10_000).log_softmax(-1)
        return [choose(scores).tolist(), choose(scores).tolist()]

    [first, second] = lucks([[5, 6], [7]], 3)
    assert len({*first, *second}) == 12
    assert lucks([[7]], 3) == [first[3:], second[3:]]
    assert lucks([[7], [5, 6]], 1) == [[first[3], first[0]], [second[3], second[0]]]
    assert lucks([[7]], 3, seed=1)[0] != first[3:]
    assert lucks([[8]], 3)[0] != first[3:]


def test_special_tokens_are_never_drawn(translator: Translator) -> None:
    chosen = translator.decoding({"temperature": 100.0, "alternatives": 3})
    found = translator.search(translator.source.encode_batch(SOURCES), chosen)
    drawn = {token for hypotheses in found for h in hypotheses for token in h.tokens}
    assert len(drawn) > 300
    assert min(drawn) >= len(SPECIALS)


# One text, piece by piece


@examples(10)
@given(texts=st.lists(sentences, min_size=1, max_size=2), gap=st.sampled_from(["\n", "\n\n", "\r\n"]))
def test_the_pieces_of_a_stream_join_to_the_translation(translator: Translator, texts: list[str], gap: str) -> None:
    text = gap.join(texts)
    assert "".join(translator.stream(text)) == translator.translate([text], beam=1)[0].text
    options: dict[str, Any] = {"temperature": 1.2, "top_k": 50, "seed": 3}
    assert "".join(translator.stream(text, **options)) == translator.translate([text], **options)[0].text


def test_a_stream_comes_in_pieces(translator: Translator) -> None:
    pieces = list(translator.stream(SOURCES[4]))
    assert len([piece for piece in pieces if piece]) > 3


@given(text=st.text(st.sampled_from("ab é日🙂👩‍👧\n"), max_size=12))
def test_a_stream_never_shows_part_of_a_character(parrot: Translator, text: str) -> None:
    ids = parrot.target.encode_batch([text])[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parrot.searcher, "tokens", lambda *_: iter([*ids, EOS]))
        patch.setattr(parrot, "limit", lambda *_: 1000)
        pieces = list(parrot.stream("A dog."))
    assert "".join(pieces) == parrot.target.decode(ids)
    assert not any("\N{REPLACEMENT CHARACTER}" in piece for piece in pieces)


def test_the_caller_of_a_stream_may_learn_between_two_pieces(translator: Translator) -> None:
    stream = translator.stream(SOURCES[4])
    next(stream)
    assert not torch.is_inference_mode_enabled()
    weight = torch.ones(1, requires_grad=True)
    (weight * 2).backward()
    assert next(stream)


# Many texts, as a stream


def test_a_stream_of_texts_is_lazy(translator: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    """One window is used, one is searched, one is read."""
    taken, threads = 0, threading.active_count()

    def texts() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield SOURCES[taken % len(SOURCES)]

    monkeypatch.setattr(engine, "WINDOW", 5)
    found = translator.translate_stream(texts(), beam=1)
    assert taken == 0
    for number in range(1, 13):
        next(found)
        assert number <= taken <= (-(-number // 5) + 2) * 5
    assert threading.active_count() == threads + 2
    found.close()
    assert threading.active_count() == threads


@pytest.mark.parametrize("texts", [["A dog.", "She sings.", "x" * 3000, "A dog."], ["A dog.", "She sings.", "\ud800"]])
@pytest.mark.parametrize("window", [1, 2, 3, 100])
def test_what_came_before_a_bad_text_is_not_lost(
    translator: Translator, monkeypatch: pytest.MonkeyPatch, texts: list[str], window: int
) -> None:
    monkeypatch.setattr(engine, "WINDOW", window)
    found = translator.translate_stream(iter(texts), beam=1)
    assert [next(found).text, next(found).text] == [translator(text, beam=1) for text in texts[:2]]
    with pytest.raises(InputError, match=r"^text 3: ") as caught:
        next(found)
    with pytest.raises(InputError) as again:
        translator.translate(texts, beam=1)
    assert str(again.value) == str(caught.value)


def test_nothing_is_translated_where_a_text_of_a_list_is_bad(parrot: Translator, heard: Any) -> None:
    heard.heard = []
    with pytest.raises(InputError, match="text 2"):
        parrot.translate(["A dog.", "x" * 3000])
    assert heard.heard == []


def test_an_error_of_the_texts_or_of_the_search_reaches_the_caller(
    parrot: Translator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def texts() -> Iterator[str]:
        yield from ["A dog.", "She sings."]
        raise OSError("the disk is gone")

    monkeypatch.setattr(engine, "WINDOW", 1)
    threads, found = threading.active_count(), parrot.translate_stream(texts())
    assert [next(found).text, next(found).text] == ["A dog.", "She sings."]
    with pytest.raises(OSError, match="the disk is gone"):
        next(found)
    monkeypatch.setattr(parrot.searcher, "search", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        next(parrot.translate_stream(["A dog."] * 10))
    assert threading.active_count() == threads


@pytest.mark.parametrize("bound", [False, True])
@modes
def test_pytorch_has_one_answer_for_a_batch_and_for_a_text_alone(
    model: EncoderDecoder, translator: Translator, mode: str, bound: bool
) -> None:
    """Batches of other shapes may round differently; with `batch_tokens=1`, each text is a batch of its own."""
    engine, sources = TorchSearch(model, translator.target.specials), translator.source.encode_batch(SOURCES)
    constraints = [Constraints(required=(((7 + number,),),)) if bound else None for number in range(len(sources))]
    together, single = (translator.decoding({**MODES[mode], "batch_tokens": tokens}) for tokens in (500, 1))

    def search(numbers: Sequence[int], settings: DecodingSettings) -> list[list[Hypothesis]]:
        texts, limits = [sources[i] for i in numbers], [12] * len(numbers)
        return engine.search(texts, limits, settings, None, [constraints[i] for i in numbers])

    everything = range(len(sources))
    alone = [search([number], together)[0] for number in everything]
    assert search(everything, single) == alone
    with ThreadPoolExecutor(3) as pool:
        first, *others = pool.map(search, [everything] * 4, [together] * 4)
    assert others == [first] * 3


def test_a_search_that_nobody_waits_for_ends(
    translator: Translator, model: EncoderDecoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch notices it between two tokens."""
    threads, begun, searched = threading.active_count(), threading.Event(), translator.searcher.search

    def search(sources: Sequence[Sequence[int]], limits: Sequence[int], chosen: DecodingSettings, *_: object) -> object:
        if not begun.is_set():
            begun.set()
            return searched(sources, limits, chosen)
        step = TranslationStep(model, sources, Specials(), NextToken(Specials()))
        while True:
            step.start()

    monkeypatch.setattr(engine, "WINDOW", 1)
    monkeypatch.setattr(translator.searcher, "search", search)
    found = translator.translate_stream(["A dog."] * 3)
    assert next(found).text
    found.close()
    assert threading.active_count() == threads


def test_memory_does_not_grow_with_the_number_of_texts(parrot: Translator, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Hypothesis]] = []

    def search(sources: Sequence[Sequence[int]], *_: object) -> list[list[Hypothesis]]:
        found = [[Hypothesis(tuple(ids), (0.0,), 0.0, True)] for ids in sources]
        made.extend(weakref.ref(hypothesis) for (hypothesis,) in found)
        return found

    monkeypatch.setattr(engine, "WINDOW", 10)
    monkeypatch.setattr(parrot.searcher, "search", search)
    most = 0
    for _ in parrot.translate_stream("A dog." for _ in range(300)):
        most = max(most, sum(each() is not None for each in made))
    assert len(made) == 300
    assert most <= 20  # a window that is used and one that waits to be


# Lines and long texts


@pytest.mark.parametrize(
    "text",
    ["A dog.\nShe sings.", "\n\nA dog.\n", "A dog.\r\n\r\nShe sings.\r\n", "\n", "\r\n\n", "A\u2028dog.", "A\rdog."],
)
def test_line_ends_are_kept(parrot: Translator, text: str) -> None:
    assert parrot(text) == text


def test_blanks_around_lines_are_not(parrot: Translator) -> None:
    assert parrot("  A dog. \n \t \n\tShe sings.  ") == "A dog.\n\nShe sings."


@given(lines=st.lists(st.sampled_from(["", "A dog.", "She sings."]), max_size=6), end=st.sampled_from(["\n", "\r\n"]))
def test_lines_and_their_gaps_make_up_the_text(lines: list[str], end: str) -> None:
    text = end.join(lines)
    assert "".join(gap + line for gap, line in split_lines(text)) == text


words = st.lists(
    st.sampled_from(["A", "dog", "sings.", "garden,", "no;", "(yes)", "1.5", "why?", "ab。cd"]), max_size=60
)


@given(words)
def test_nothing_of_a_long_text_is_lost(parrot: Translator, heard: Any, words: list[str]) -> None:
    text = " ".join(words)
    assert "".join(parrot(text).split()) == "".join(words)  # a piece may end between 。 and a letter
    assert max(map(len, heard.heard), default=0) <= 23  # and the end is the 24th


@given(st.lists(st.sampled_from(["A", "dog", "sings.", "garden,", "why?"]), min_size=20, max_size=80))
def test_a_long_text_is_put_together_with_spaces(parrot: Translator, words: list[str]) -> None:
    assert parrot(" ".join(words)) == " ".join(words)


@given(st.lists(st.sampled_from(["日本。", "中文，", "有？", "言！"]), min_size=5, max_size=30).map("".join))
def test_and_without_where_the_language_has_none(chinese_parrot: Translator, text: str) -> None:
    assert chinese_parrot(text) == text


def test_the_model_gets_the_longest_pieces_that_fit(parrot: Translator, heard: Any) -> None:
    """Both fill it to the brim; a token more would be one piece more."""
    for words, pieces in ((["dog"] * 23, 1), (["dog"] * 24, 2), (["dog"] * 46, 2), (["dog"] * 47, 3)):
        parrot(" ".join(words))
        assert len(heard.heard) == pieces


@pytest.mark.parametrize("text", ["x" * 3000, "日本" * 60, "A dog. " + "🙂" * 30 + " She sings."])
def test_what_cannot_be_cut_is_refused(translator: Translator, text: str) -> None:
    for call in (lambda: translator(text), lambda: list(translator.stream(text))):
        with pytest.raises(InputError, match="too long for this model and cannot be split") as caught:
            call()
        assert len(str(caught.value)) < 250


def test_text_that_is_no_unicode_is_refused(translator: Translator) -> None:
    with pytest.raises(InputError, match="lone surrogate"):
        translator("A dog \ud800.")


def at_most(size: int) -> Callable[[str], bool]:
    return lambda piece: len(piece) <= size


@pytest.mark.parametrize(
    ("text", "size", "pieces"),
    [
        ("One two.", 8, ["One two."]),
        ("One. Two? Three! Four… Five", 8, ["One.", "Two?", "Three!", "Four…", "Five"]),
        ("One. Two? Three! Four", 10, ["One. Two?", "Three!", "Four"]),
        ("一。二！三？四", 4, ["一。二！", "三？四"]),
        ("One, two; three: four five", 9, ["One, two;", "three:", "four five"]),
        ("One, two three four. Five", 10, ["One,", "two three", "four.", "Five"]),
        ("a b c d e", 3, ["a b", "c d", "e"]),
        ("3.14 1,000 a.b", 6, ["3.14", "1,000", "a.b"]),
        ("One.  \t Two.", 5, ["One.", "Two."]),
    ],
)
def test_where_a_text_is_cut(text: str, size: int, pieces: list[str]) -> None:
    """Between sentences if that is enough, else between clauses, else between words."""
    assert split_text(text, at_most(size)) == pieces


@examples(200)
@given(st.text(st.sampled_from("ab.,。？、 \n\u3000"), max_size=40).map(str.strip).filter(bool), st.integers(1, 12))
def test_cutting_loses_no_character(text: str, size: int) -> None:
    smallest = [text]
    for level in BREAKS:
        smallest = [piece for whole in smallest for piece in level.split(whole)]
    if max(map(len, smallest)) > size:
        with pytest.raises(InputError):
            split_text(text, at_most(size))
        return
    pieces = split_text(text, at_most(size))
    assert all(0 < len(piece) <= size and piece == piece.strip() for piece in pieces)
    assert "".join("".join(pieces).split()) == "".join(text.split())


def test_alignment_tells_what_each_token_looked_at(translator: Translator) -> None:
    """Of a text in two lines, each with rows of its own."""
    found = translator.translate(["A dog runs.\nA cat."], alignment=True, beam=2)[0]
    assert len(found.alignment) == len(found.token_log_probabilities)
    assert all(len(row) == len(found.source_tokens) for row in found.alignment)
    assert all(sum(row) == pytest.approx(1, abs=1e-4) for row in found.alignment)
    alone = [translator.translate([line], alignment=True, beam=2)[0] for line in ("A dog runs.", "A cat.")]
    assert found.source_tokens == alone[0].source_tokens + alone[1].source_tokens
    width = len(alone[0].source_tokens)
    for row, expected in zip(found.alignment, alone[0].alignment, strict=False):
        assert row == pytest.approx((*expected, *[0.0] * len(alone[1].source_tokens)), abs=1e-5)
    for row, expected in zip(found.alignment[len(alone[0].alignment) :], alone[1].alignment, strict=True):
        assert row == pytest.approx((*[0.0] * width, *expected), abs=1e-5)
    assert translator.translate(["A dog runs."])[0].alignment == ()
