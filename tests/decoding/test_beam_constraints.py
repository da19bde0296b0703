"""Constrained search against enumeration, and with a model: what is required is there, what is forbidden is not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.decoding.beam_search import beam_search
from regard.decoding.model_loading import load_as
from regard.decoding.search_interface import Constraints, Hypothesis, Penalty, WordBoundaries, length_penalty
from regard.decoding.translator import Translator
from tests.decoding.tables import END, Prefix, Table, every_output
from tests.examples import examples

NONE = length_penalty("google", 0.0)
penalties = st.builds(
    length_penalty,
    st.sampled_from(["google", "power"]),
    st.sampled_from([0.0, 0.6, 1.0]),
)
names = st.integers(0, 1000)


def sequences(vocabulary: int, longest: int) -> st.SearchStrategy[Prefix]:
    return st.lists(st.integers(1, vocabulary - 1), min_size=1, max_size=longest).map(tuple)


def constraints(vocabulary: int, longest: int = 2, items: int = 2) -> st.SearchStrategy[Constraints]:
    tokens = st.frozensets(st.integers(1, vocabulary - 1))
    return st.builds(
        Constraints,
        st.lists(st.lists(sequences(vocabulary, longest), min_size=1, max_size=2).map(tuple), max_size=items).map(
            tuple
        ),
        st.lists(sequences(vocabulary, longest), max_size=2).map(tuple),
        st.none() | st.builds(WordBoundaries, tokens, tokens, tokens),
    )


def meets(tokens: Prefix, wanted: Constraints) -> bool:
    """Whether an output meets constraints, by trying everything."""
    return _all_there(tokens, wanted, set(range(len(wanted.required))), set()) and not any(
        _occurs(tokens, place, sequence, wanted.words, whole=False)
        for sequence in wanted.forbidden
        for place in range(len(tokens))
    )


def _all_there(tokens: Prefix, wanted: Constraints, items: set[int], taken: set[int]) -> bool:
    if not items:
        return True
    item = min(items)
    for sequence in wanted.required[item]:
        for place in range(len(tokens)):
            span = set(range(place, place + len(sequence)))
            there = _occurs(tokens, place, sequence, wanted.words, whole=True) and not span & taken
            if there and _all_there(tokens, wanted, items - {item}, taken | span):
                return True
    return False


def _occurs(tokens: Prefix, place: int, sequence: Prefix, words: WordBoundaries | None, *, whole: bool) -> bool:
    end = place + len(sequence)
    if tokens[place:end] != sequence:
        return False
    if words is None:
        return True
    before = tokens[place - 1] if place else None
    if not whole:
        return not words.continues_word(before, tokens[place])
    return words.can_begin(before, tokens[place]) and not (
        end < len(tokens) and words.continues_word(tokens[end - 1], tokens[end])
    )


def search(batch: Sequence[tuple[int, int, Constraints]], vocabulary: int, **options: Any) -> list[list[Hypothesis]]:
    table = Table([sentence for sentence, _, _ in batch], vocabulary)
    limits, wanted = [limit for _, limit, _ in batch], [each for _, _, each in batch]
    return beam_search(table, limits, constraints=wanted, end=END, **options)


# Against enumeration


@examples(60)
@given(
    st.lists(st.tuples(names, st.integers(1, 4), constraints(4)), min_size=1, max_size=3, unique_by=lambda x: x[0]),
    penalties,
)
def test_the_widest_beam_is_an_enumeration(batch: list[tuple[int, int, Constraints]], penalty: Penalty) -> None:
    found = search(batch, 4, width=4**4, penalty=penalty, best=4**4)
    for (sentence, limit, wanted), hypotheses in zip(batch, found, strict=True):
        every = every_output(Table([], 4), sentence, limit, penalty)
        expected = [(tokens, finished) for tokens, _, finished in every if meets(tokens, wanted)]
        assert [(h.tokens, h.finished) for h in hypotheses] == expected
        assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


@examples(150)
@given(
    st.lists(
        st.tuples(names, st.integers(4, 12), constraints(7, longest=3, items=3)), min_size=1, max_size=3,
        unique_by=lambda x: x[0],
    ),
    st.integers(1, 4),
    penalties,
    st.sampled_from([0.0, 1.0]),
)  # fmt: skip
def test_whatever_is_found_meets_the_constraints(
    batch: list[tuple[int, int, Constraints]], width: int, penalty: Penalty, patience: float
) -> None:
    found = search(batch, 7, width=width, penalty=penalty, patience=patience, best=3)
    for (sentence, limit, wanted), hypotheses in zip(batch, found, strict=True):
        assert len(hypotheses) <= 3
        assert len({(h.tokens, h.finished) for h in hypotheses}) == len(hypotheses)
        for h in hypotheses:
            assert meets(h.tokens, wanted)
            gains = Table([], 7).gains(sentence, [*h.tokens, END] if h.finished else h.tokens)
            assert h.log_probabilities == pytest.approx(gains)
            assert h.score == pytest.approx(sum(gains) / penalty(len(gains)))
            assert len(gains) <= limit
            assert h.finished or len(h.tokens) == limit


@given(st.lists(sequences(6, 3), max_size=3), st.integers(0, 3), st.integers(1, 3), names)
def test_what_is_required_is_found_wherever_there_is_room(
    required: list[Prefix], room: int, width: int, sentence: int
) -> None:
    """However improbable it is, and however narrow the beam."""
    wanted = Constraints(tuple((sequence,) for sequence in required))
    (found,) = search([(sentence, max(1, wanted.length + room), wanted)], 6, width=width, penalty=NONE)
    assert meets(found[0].tokens, wanted)


@given(
    st.lists(st.tuples(names, st.integers(1, 8)), min_size=1, max_size=4, unique_by=lambda pair: pair[0]),
    st.integers(1, 5),
    penalties,
    st.sampled_from([0.0, 1.0, 2.0]),
)
def test_without_constraints_it_is_a_beam_search(
    batch: list[tuple[int, int]], width: int, penalty: Penalty, patience: float
) -> None:
    options: dict[str, Any] = {"width": width, "penalty": penalty, "patience": patience, "best": 2}
    found = search([(*each, Constraints()) for each in batch], 6, **options)
    table = Table([sentence for sentence, _ in batch], 6)
    expected = beam_search(table, [limit for _, limit in batch], end=END, **options)
    for ours, theirs in zip(found, expected, strict=True):
        assert [(h.tokens, h.finished) for h in ours] == [(h.tokens, h.finished) for h in theirs]
        assert [h.score for h in ours] == pytest.approx([h.score for h in theirs], abs=1e-5)


@examples(50)
@given(
    st.lists(
        st.tuples(names, st.integers(3, 8), constraints(6)), min_size=2, max_size=4, unique_by=lambda each: each[0]
    )
)
def test_a_batch_finds_what_each_sentence_finds_alone(batch: list[tuple[int, int, Constraints]]) -> None:
    together = search(batch, 6, width=3, penalty=NONE, best=2)
    alone = [search([one], 6, width=3, penalty=NONE, best=2)[0] for one in batch]
    assert [[h.tokens for h in ours] for ours in together] == [[h.tokens for h in theirs] for theirs in alone]


@given(st.lists(st.integers(1, 6), min_size=1, max_size=8).map(tuple), st.integers(1, 3), names)
def test_a_draft_is_followed_to_its_end(draft: Prefix, width: int, sentence: int) -> None:
    """However improbable it is; one that does not meet the constraints is not."""
    options: dict[str, Any] = {"width": width, "penalty": length_penalty("power", 1.0), "patience": 1.0}
    (found,) = search([(sentence, 9, Constraints(((draft[:2],),), drafts=(draft,)))], 7, **options)
    assert draft in [h.tokens for h in found if h.finished]
    (found,) = search([(sentence, 20, Constraints(((draft[:2],),), (draft[-1:],), drafts=(draft,)))], 7, **options)
    assert draft not in [h.tokens for h in found]


def test_an_item_that_is_there_twice_is_required_twice() -> None:
    (found,) = search([(1, 8, Constraints((((3,),), ((3,),), ((3,),))))], 6, width=2, penalty=NONE)
    assert found[0].tokens.count(3) >= 3


def test_one_of_several_sequences_is_enough() -> None:
    """The one that is more probable is taken."""
    options: dict[str, Any] = {"width": 4, "penalty": NONE}
    each = [search([(5, 6, Constraints(((way,),)))], 6, **options)[0][0] for way in ((2, 3), (4,))]
    (found,) = search([(5, 6, Constraints((((2, 3), (4,)),)))], 6, **options)
    assert found[0].score == pytest.approx(max(h.score for h in each))


def test_what_cannot_be_met_is_not_found() -> None:
    impossible = [
        Constraints((((2, 3, 4),),)),  # more than there is room for
        Constraints((((3,),),), ((3,),)),
    ]
    assert search([(1, 2, each) for each in impossible], 6, width=3, penalty=NONE) == [[], []]


@pytest.mark.parametrize("wrong", [{"required": ((),)}, {"required": (((),),)}, {"forbidden": ((),)}])
def test_nothing_is_no_constraint(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no sequence may be empty"):
        Constraints(**wrong)


def test_early_ends_that_are_bad_do_not_end_the_search() -> None:
    """A required token that comes first and ends is found at once; what is found later is better."""

    class Late(Table):
        def scores(self, sentence: int, prefix: Prefix) -> torch.Tensor:  # 1 1 1 2 and the end is what it wants to say
            wish = [1, 1, 1, 2, END][len(prefix)] if len(prefix) < 5 else END
            logits = torch.full((4,), -2.0)
            logits[wish] = 3.0
            return logits.log_softmax(-1)

    (found,) = beam_search(
        Late([1], 4),
        [12],
        constraints=[Constraints((((2,),),))],
        end=END,
        width=2,
        penalty=length_penalty("google", 0.6),
        patience=1.0,
    )
    assert found[0].tokens == (1, 1, 1, 2)


# With a model

SOURCES = ["A dog reads.", "She sees a cat in the garden!", "The old woman sings, and it rains."]


@pytest.fixture(scope="module", params=["torch", "native"])
def either(request: pytest.FixtureRequest, folder: Path) -> Translator:
    return load_as(Translator, folder, "cpu", engine=request.param)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 4}, {"temperature": 1.0}], ids=["greedy", "beam", "drawn"])
def test_a_translator_is_told_what_to_say(either: Translator, options: dict[str, Any]) -> None:
    cat, rain = (tuple(either.target.encode(word).ids) for word in ("Katze", "regnet"))
    wanted = {SOURCES[0]: Constraints(((cat,),)), SOURCES[2]: Constraints((), (rain,))}
    plain = either.translate(SOURCES, **options)
    bound = either.translate(SOURCES, constrain=wanted.get, **options)
    assert "Katze" in bound[0].text
    assert bound[1].text == plain[1].text
    assert "regnet" not in bound[2].text
    alone = [either.translate([text], constrain=wanted.get, **options)[0].text for text in SOURCES]
    assert alone == [each.text for each in bound]
    stream = either.translate_stream(SOURCES, constrain=wanted.get, **options)
    assert [each.text for each in stream] == alone


def test_each_piece_of_a_text_has_constraints_of_its_own(either: Translator) -> None:
    cat = Constraints(((tuple(either.target.encode("Katze").ids),),))
    found = either.translate([f"{SOURCES[0]}\n\n{SOURCES[1]}"], constrain=lambda piece: cat if "dog" in piece else None)
    first, between, second = found[0].text.split("\n")
    assert "Katze" in first
    assert between == ""
    assert second == either(SOURCES[1])


def test_alternatives_and_alignment_are_as_elsewhere(either: Translator) -> None:
    cat = Constraints(((tuple(either.target.encode("Katze").ids),),))
    (found,) = either.translate(SOURCES[:1], constrain=lambda _: cat, alternatives=2, alignment=True)
    assert len(found.alternatives) == 2
    for each in (found, *found.alternatives):
        assert "Katze" in each.text
        assert len(each.alignment) == len(each.token_log_probabilities)


def test_what_a_model_cannot_say_is_left_out(either: Translator) -> None:
    pad = Constraints((((either.target.specials.pad,),),))
    found = either.translate(SOURCES, constrain=lambda _: pad)
    assert [each.text for each in found] == [each.text for each in either.translate(SOURCES)]
