"""Continuing a text: piece by piece or at once, past the model's positions, up to a stop; and scoring one."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor
from transformers.generation.logits_process import RepetitionPenaltyLogitsProcessor

from regard.decoding.decoder_step import NextToken, WritingStep
from regard.decoding.pytorch_engine import writer_of
from regard.decoding.writer import WriterOutput, first_stop, held_back, windows
from regard.errors import InputError, SettingsError
from regard.model.transformer import Decoder
from regard.tokens.tokenizer import Specials
from regard.tokens.vocabulary_learning import BOS, EOS
from tests.decoding.toys import TOKENIZER, toy
from tests.examples import examples

CONTENTS = toy("write")
WRITER = writer_of(CONTENTS)
MODEL = CONTENTS.model
LONGEST = WRITER.settings.model.max_length
WORDS = ["A dog", "She", "reads", "in the garden", ".", "Katze", "zoo", "日本", "🙂", "é", "  ", "\n"]
prompts = st.lists(st.sampled_from(WORDS), max_size=8).map(" ".join)
MODES: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0, "beam": 1},
    "drawn": {"temperature": 1.0, "seed": 3},
    "drawn from few": {"temperature": 0.7, "top_k": 5, "top_p": 0.9, "repetition_penalty": 1.3},
}
modes = pytest.mark.parametrize("mode", MODES)


def assert_close(ours: WriterOutput, theirs: WriterOutput) -> None:
    assert (ours.text, ours.tokens, ours.finished) == (theirs.text, theirs.tokens, theirs.finished)
    assert ours.token_log_probabilities == pytest.approx(theirs.token_log_probabilities, abs=1e-4)


def plain_scores(row: list[int]) -> Tensor:
    """[V] log-probabilities of what follows, by one forward over the row."""
    with torch.no_grad():
        return MODEL(torch.tensor([row]))[0, -1].log_softmax(-1)


# Piece by piece and at once


@modes
@examples(8)
@given(prompt=prompts, stop=st.lists(st.sampled_from(["e", " ", "ie", "\ufffd", "\n", "a ", "zzz", ""]), max_size=2))
def test_the_pieces_of_a_stream_are_the_text(mode: str, prompt: str, stop: list[str]) -> None:
    options = {**MODES[mode], "max_tokens": 12}
    pieces = list(WRITER.stream(prompt, stop, **options))
    found = WRITER.write([prompt], stop, **options)[0]
    assert "".join(pieces) == found.text
    assert not any(each and each in found.text for each in stop)
    assert WRITER(prompt, stop=stop, **options) == found.text


@modes
def test_a_stream_speaks_before_it_is_done(mode: str) -> None:
    pieces = list(WRITER.stream("A dog", max_tokens=20, **MODES[mode]))
    assert len([piece for piece in pieces if piece]) > 4


@modes
@examples(5)
@given(several=st.lists(prompts, max_size=5))
def test_together_is_as_alone(mode: str, several: list[str]) -> None:
    options = {**MODES[mode], "max_tokens": 4}
    together = WRITER.write(several, **options)
    alone = [WRITER.write([prompt], **options)[0] for prompt in several]
    for ours, theirs in zip(together, alone, strict=True):
        assert_close(ours, theirs)


@modes
def test_batches_make_no_difference(mode: str) -> None:
    several = ["A dog", "She reads", "A dog", "Sie", "in the garden"]
    options = {**MODES[mode], "max_tokens": 9}
    for ours, theirs in zip(
        WRITER.write(several, batch_tokens=1, **options), WRITER.write(several, **options), strict=True
    ):
        assert_close(ours, theirs)


def test_nothing_to_write_for() -> None:
    assert WRITER.write([]) == []
    with pytest.raises(InputError, match="several texts"):
        WRITER.write("A dog")
    with pytest.raises(SettingsError, match="max_token"):
        WRITER("A dog", max_token=3)


# What is written


@examples(10)
@given(prompt=prompts)
def test_greedy_is_the_most_probable_token_each_time(prompt: str) -> None:
    """Against forwards over the whole text so far, without a cache."""
    found = WRITER.write([prompt], max_tokens=5, temperature=0.0)[0]
    row = WRITER.prompt(prompt)[-LONGEST + 1 :]
    for number, value in enumerate(found.token_log_probabilities):
        if len(row) > LONGEST:
            break
        scores = plain_scores(row)
        scores[TOKENIZER.specials.never_generated] = -math.inf
        best = int(scores.argmax())
        assert value == pytest.approx(float(scores[best]), abs=1e-4)
        if number < len(found.tokens):
            assert found.tokens[number] == TOKENIZER.pieces([best])[0]
        row.append(best)


@modes
@examples(8)
@given(prompt=prompts)
def test_what_is_no_text_is_never_written(mode: str, prompt: str) -> None:
    found = WRITER.write([prompt], max_tokens=12, **MODES[mode])[0]
    assert not {"<pad>", "<s>", "<unk>", "<mask>", "</s>"} & set(found.tokens)
    assert len(found.tokens) <= 12
    assert found.log_probability == pytest.approx(sum(found.token_log_probabilities))
    if found.finished == "length":
        assert len(found.tokens) == len(found.token_log_probabilities) == 12
    else:
        assert found.finished == "end"
        assert len(found.tokens) + 1 == len(found.token_log_probabilities)


def test_an_empty_prompt_begins_with_the_begin() -> None:
    assert WRITER.prompt("") == [BOS]
    assert WRITER.write([""], temperature=0.0, max_tokens=3)[0].tokens[0] == TOKENIZER.pieces([best_after([BOS])])[0]
    assert not WRITER("", temperature=0.0).startswith(" ")


def best_after(row: list[int]) -> int:
    scores = plain_scores(row)
    scores[TOKENIZER.specials.never_generated] = -math.inf
    return int(scores.argmax())


def test_a_prompt_without_begin_has_none_unless_it_is_empty() -> None:
    writer = writer_of(toy("write"))
    writer.vocabulary = type(TOKENIZER)(TOKENIZER.model)
    writer.vocabulary.specials = Specials(prompt=False)
    assert writer.prompt("A dog") == TOKENIZER.encode("A dog").ids
    assert writer.prompt("") == [BOS]


def test_alternatives_are_other_texts_best_first() -> None:
    ways: list[dict[str, Any]] = [
        {"temperature": 1.0},
        {"temperature": 0.0, "beam": 4},
        {"temperature": 0.0, "beam": 1},
    ]
    for options in ways:
        found = WRITER.write(["A dog"], alternatives=3, max_tokens=4, length_penalty=0.0, **options)[0]
        every = [found, *found.alternatives]
        assert len(every) == 4
        assert all(a.log_probability >= b.log_probability for a, b in pairwise(every))
        assert len({each.tokens for each in every}) > 1
    assert WRITER.write(["A dog"], max_tokens=4, temperature=1.0)[0].alternatives == ()


def test_a_beam_finds_what_is_at_least_as_probable() -> None:
    for prompt in ("A dog", "She", ""):
        greedy = WRITER.write([prompt], max_tokens=5, temperature=0.0, beam=1, length_penalty=0.0)[0]
        wide = WRITER.write([prompt], max_tokens=5, temperature=0.0, beam=30, length_penalty=0.0)[0]
        assert wide.log_probability >= greedy.log_probability - 1e-4


def test_the_end_ends_a_text() -> None:
    contents = toy("write", output_bias=True)
    with torch.no_grad():
        contents.model.get_parameter("logits.bias")[EOS] += 100
    writer = writer_of(contents)
    found = writer.write(["A dog"], temperature=0.0)[0]
    assert (found.text, found.tokens, found.finished) == ("", (), "end")
    assert found.token_log_probabilities == pytest.approx((0.0,), abs=1e-4)
    assert "".join(writer.stream("A dog", temperature=0.0)) == ""


# Past the model's positions


@modes
def test_a_text_goes_on_past_the_positions(mode: str) -> None:
    options = {**MODES[mode], "max_tokens": 2 * LONGEST}
    for prompt in ("A dog", "A dog reads in the garden. " * 9):
        found = WRITER.write([prompt], **options)[0]
        assert len(found.tokens) == 2 * LONGEST or found.finished == "end"
        assert "".join(WRITER.stream(prompt, **options)) == found.text


def test_where_the_positions_end_the_older_half_is_forgotten() -> None:
    row = TOKENIZER.encode_batch(["A dog reads in the garden. She sings at the café, and it rains. " * 3])[0]
    assert len(row) > 2 * LONGEST
    assert isinstance(MODEL, Decoder)
    step = WritingStep(MODEL, [row[: LONGEST - 2]], NextToken(Specials()))
    with torch.inference_mode():
        found = [step.start()]
        rest = torch.tensor(row[LONGEST - 2 : 2 * LONGEST])
        found += [step.advance(token[None], torch.tensor([0]), None) for token in rest]
    seen = LONGEST - 2
    for end, scores in enumerate(found, LONGEST - 2):
        if seen > LONGEST:
            seen = LONGEST // 2
        expected = plain_scores(row[end - seen : end])
        expected[TOKENIZER.specials.never_generated] = -math.inf
        torch.testing.assert_close(scores[0], expected, atol=1e-4, rtol=1e-4)
        seen += 1


def test_of_a_prompt_that_is_too_long_the_end_is_read() -> None:
    long = "A dog reads. " * 20 + "She sees a cat in the garden, and it rains. She sings at the café. A dog sings."
    row = WRITER.prompt(long)
    assert len(TOKENIZER.encode(long).ids) > 2 * LONGEST
    first = WRITER.write([long], temperature=0.0, max_tokens=1)[0].tokens[0]
    assert first == TOKENIZER.pieces([best_after(row[-LONGEST + 1 :])])[0]


# Stops


def drawn(count: int = 20) -> WriterOutput:
    return WRITER.write(["A dog"], temperature=1.0, seed=1, max_tokens=count)[0]


def test_a_stop_that_spans_tokens() -> None:
    free = drawn()
    whole = free.text
    for place in range(0, len(whole) - 3, 4):
        stop = whole[place : place + 3]
        found = WRITER.write(["A dog"], [stop], temperature=1.0, seed=1, max_tokens=20)[0]
        assert found.text == whole[: whole.find(stop)]
        assert found.finished == "stop"
        assert found.tokens == free.tokens[: len(found.tokens)]
        assert found.log_probability == pytest.approx(sum(free.token_log_probabilities[: len(found.tokens)]), abs=1e-4)
        if place % 4 == 0:
            assert "".join(WRITER.stream("A dog", [stop], temperature=1.0, seed=1, max_tokens=20)) == found.text


def test_the_first_of_several_stops_counts() -> None:
    whole = drawn().text
    stops = [whole[9:12], whole[4:6], "", "never said"]
    expected = whole[: min(whole.find(stop) for stop in stops[:2])]
    assert WRITER("A dog", stop=stops, temperature=1.0, seed=1, max_tokens=20) == expected


@given(text=st.text("ab", max_size=12), stop=st.lists(st.text("ab", max_size=4), max_size=3))
def test_where_a_stop_begins_and_what_could_begin_one(text: str, stop: list[str]) -> None:
    wanted = [each for each in stop if each]
    starts = [i for i in range(len(text)) if any(text.startswith(each, i) for each in wanted)]
    assert first_stop(text, stop) == min(starts, default=None)
    held = held_back(text, stop)
    begins = [i for i in range(len(text)) if any(each.startswith(text[i:]) for each in wanted)]
    assert held == len(text) - min(begins, default=len(text))


@given(text=st.text("ab", max_size=12), stop=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_is_not_held_back_is_never_part_of_a_stop(text: str, stop: list[str]) -> None:
    said = ""
    for end in range(1, len(text) + 1):
        if first_stop(text[:end], stop) is not None:
            break
        said = text[: end - held_back(text[:end], stop)]
    cut = first_stop(text, stop)
    assert text[:cut].startswith(said)


# Repetition


@given(
    penalty=st.floats(0.5, 3.0),
    rows=st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=3),
    seed=st.integers(0, 99),
)
def test_the_repetition_penalty_is_that_of_transformers(penalty: float, rows: list[list[int]], seed: int) -> None:
    logits = torch.randn(len(rows), 10, generator=torch.Generator().manual_seed(seed)) * 3
    theirs: Any = RepetitionPenaltyLogitsProcessor(penalty)
    said = torch.tensor(rows)
    expected = theirs(said, logits.clone()).log_softmax(-1)
    nobody = Specials(pad=0, begin=0, end=0, unknown=None, mask=None)
    whole, stepwise = NextToken(nobody, penalty), NextToken(nobody, penalty)
    torch.testing.assert_close(whole(logits, said), expected)
    stepwise(logits, said[:, :2])
    torch.testing.assert_close(stepwise(logits, said[:, 2:]), expected)


def test_the_repetition_penalty_counts_the_prompt() -> None:
    free = WRITER.write(["A dog"], temperature=0.0, max_tokens=1)[0].tokens[0]
    prompt = "A dog" + free.replace("▁", " ")
    row = WRITER.prompt(prompt)
    scores = plain_scores(row)
    theirs: Any = RepetitionPenaltyLogitsProcessor(5.0)
    with torch.inference_mode():
        logits = MODEL(torch.tensor([row]))[:, -1]
    expected = theirs(torch.tensor([row]), logits.clone())[0].log_softmax(-1)
    expected[TOKENIZER.specials.never_generated] = -math.inf
    found = WRITER.write([prompt], temperature=0.0, max_tokens=1, repetition_penalty=5.0)[0]
    assert found.token_log_probabilities[0] == pytest.approx(float(expected.max()), abs=1e-4)
    assert float(scores.max()) != pytest.approx(float(expected.max()), abs=1e-4)


# Scores


@examples(10)
@given(text=prompts.filter(bool))
def test_a_score_is_the_sum_over_one_forward(text: str) -> None:
    row = [BOS, *TOKENIZER.encode(text).ids]
    if len(row) > LONGEST:
        return
    found = WRITER.score(text)
    expected = [float(plain_scores(row[:end])[row[end]]) for end in range(1, len(row))]
    assert found.token_log_probabilities == pytest.approx(expected, abs=1e-4)
    assert found.surprise == pytest.approx(-sum(expected), abs=1e-3)
    assert found.perplexity == pytest.approx(math.exp(-sum(expected) / len(expected)), rel=1e-4)
    assert found.tokens == tuple(TOKENIZER.pieces(row[1:]))
    assert found.characters == len(text)


@given(length=st.integers(0, 60), longest=st.integers(2, 15))
def test_windows_score_each_token_once_with_half_a_window_before_it(length: int, longest: int) -> None:
    found = list(windows(length, longest))
    assert [place for _, fresh, end in found for place in range(fresh, end)] == list(range(1, length))
    for number, (start, fresh, end) in enumerate(found):
        assert end - start - 1 <= longest  # inputs
        assert start < fresh
        if number:
            assert fresh - start >= longest // 2


def test_a_long_text_is_scored_in_windows() -> None:
    text = "A dog reads in the garden. She sings at the café, and it rains. " * 3
    row = [BOS, *TOKENIZER.encode(text).ids]
    found = WRITER.score(text)
    assert len(found.tokens) == len(row) - 1 > 2 * LONGEST
    for start, fresh, end in windows(len(row), LONGEST):
        for place in range(fresh, end):
            expected = float(plain_scores(row[start:place])[row[place]])
            assert found.token_log_probabilities[place - 1] == pytest.approx(expected, abs=1e-4)


def test_windows_make_no_difference_where_the_context_allows() -> None:
    """Of a model that looks at one token alone, which a layer without attention to others is."""
    contents = toy("write", positions="none")
    with torch.no_grad():
        for name, parameter in contents.model.named_parameters():
            if ".value." in name:
                parameter.zero_()
    writer = writer_of(contents)
    text = "A dog reads in the garden. She sings at the café, and it rains. " * 3
    row = [BOS, *TOKENIZER.encode(text).ids]
    with torch.inference_mode():
        scores = contents.model(torch.tensor([row[:-1]]))[0].log_softmax(-1)
    expected = scores.gather(1, torch.tensor(row[1:])[:, None])[:, 0].tolist()
    assert writer.score(text).token_log_probabilities == pytest.approx(expected, abs=1e-4)


def test_too_little_to_score() -> None:
    with pytest.raises(InputError, match="at least two tokens"):
        WRITER.score("")
    assert len(WRITER.score("a").tokens) == 1
