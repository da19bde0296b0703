from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, strategies as st

from regard.errors import InputError
from regard.model.positions import (
    LearnedPositions,
    RotaryPositions,
    SinusoidalPositions,
    build_positions,
    sinusoids,
)
from regard.model.transformer import Decoder
from tests.model.toys import same, some_tokens, toy_settings, translator, writer

widths = st.integers(1, 20).map(lambda half: 2 * half)
starts = st.integers(0, 300)


@given(width=widths, position=st.integers(0, 400))
def test_interleaved_sinusoids_follow_the_formula_of_the_paper(width: int, position: int) -> None:
    row = sinusoids(position + 1, width)[position].tolist()
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        assert row[2 * i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert row[2 * i + 1] == pytest.approx(math.cos(angle), abs=1e-6)


@given(width=widths, position=st.integers(0, 400))
def test_halved_sinusoids_are_the_same_numbers_in_another_order(width: int, position: int) -> None:
    row = sinusoids(position + 1, width, halves=True)[position].tolist()
    for i in range(width // 2):
        angle = position / 10000 ** (2 * i / width)
        assert row[i] == pytest.approx(math.sin(angle), abs=1e-6)
        assert row[width // 2 + i] == pytest.approx(math.cos(angle), abs=1e-6)


def test_sinusoids_written_out_by_hand() -> None:
    expected = [[0, 1, 0, 1], [0.8414710, 0.5403023, 0.0099998, 0.9999500]]
    assert sinusoids(2, 4).tolist() == [pytest.approx(row, abs=1e-6) for row in expected]
    halves = [[0, 0, 1, 1], [0.8414710, 0.0099998, 0.5403023, 0.9999500]]
    assert sinusoids(2, 4, halves=True).tolist() == [pytest.approx(row, abs=1e-6) for row in halves]


@given(width=widths, length=st.integers(1, 3000), halves=st.booleans())
def test_sinusoids_stay_between_minus_one_and_one(width: int, length: int, halves: bool) -> None:
    table = sinusoids(length, width, halves)
    assert table.shape == (length, width)
    assert table.abs().max() <= 1


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal-halves"])
def test_the_setting_chooses_the_layout(kind: Any) -> None:
    positions = build_positions(toy_settings(positions=kind))
    assert isinstance(positions, SinusoidalPositions)
    assert torch.equal(positions(2, 3), sinusoids(5, 16, halves=kind.endswith("halves"))[2:])


@pytest.mark.parametrize("kind", ["rotary", "none"])
def test_nothing_is_added_for_rotary_and_none(kind: Any) -> None:
    assert build_positions(toy_settings(positions=kind)) is None


def test_positions_are_no_part_of_the_weights() -> None:
    for kind in ("sinusoidal", "rotary"):
        model = Decoder(toy_settings(positions=kind), 10)
        assert not [name for name in model.state_dict() if "position" in name or "rotary" in name]


# Past the longest length


@given(start=st.integers(0, 40), length=st.integers(1, 40))
def test_a_sinusoidal_table_grows(start: int, length: int) -> None:
    positions = SinusoidalPositions(toy_settings(max_length=8)).double()
    assert same(positions(start, length), sinusoids(start + length, 16)[start:].double())
    assert positions.table.dtype is torch.float64
    assert same(positions(0, 8), sinusoids(8, 16).double())


@pytest.mark.parametrize("kind", ["sinusoidal", "sinusoidal-halves", "rotary", "none"])
def test_a_text_may_be_longer_than_any_before(kind: Any) -> None:
    short, long = (writer(toy_settings(positions=kind, max_length=max_length)) for max_length in (4, 64))
    tokens = some_tokens(2, 20)
    assert same(short(tokens), long(tokens))
    cache = short.new_cache()
    steps = [short(token, cache) for token in tokens.split(1, 1)]
    assert same(torch.cat(steps, 1), long(tokens))


def test_a_table_that_grew_while_translating_can_be_trained_with() -> None:
    model = translator(toy_settings(max_length=4))
    with torch.inference_mode():
        model(some_tokens(1, 12), some_tokens(1, 12), None)
    model(some_tokens(1, 12), some_tokens(1, 12), None).sum().backward()
    assert model.source_embedding.tokens.weight.grad is not None


@given(start=st.integers(0, 12), length=st.integers(1, 12))
def test_a_learned_table_ends(start: int, length: int) -> None:
    positions = LearnedPositions(toy_settings(positions="learned", max_length=8))
    torch.nn.init.normal_(positions.table)
    if start + length <= 8:
        assert torch.equal(positions(start, length), positions.table[start : start + length])
        return
    with pytest.raises(InputError) as error:
        positions(start, length)
    assert str(error.value) == (
        f"a sequence of {start + length} tokens is longer than this model's limit of 8 (model.max_length): "
        "shorten or split it"
    )


def test_a_learned_table_ends_for_cached_steps_too() -> None:
    model = writer(toy_settings(positions="learned", max_length=3))
    cache = model.new_cache()
    model(some_tokens(1, 3), cache)
    with pytest.raises(InputError, match="4 tokens is longer than this model's limit of 3"):
        model(some_tokens(1, 1), cache)


# Rotary


def rotary(width: int = 8, base: float = 10_000.0) -> RotaryPositions:
    return RotaryPositions(toy_settings(key_width=width, positions="rotary", rotary_base=base)).double()


@given(distance=st.integers(0, 50), first=starts, second=starts)
def test_a_rotated_product_depends_on_the_distance_alone(distance: int, first: int, second: int) -> None:
    query, key = torch.randn(2, 1, 1, 1, 8).double()
    turn = rotary()
    products = [(turn(query, at + distance) * turn(key, at)).sum() for at in (first, second)]
    assert same(products[0], products[1], 1e-3)  # angles are float32: at position 350, good to 2e-5


def test_a_rotated_product_depends_on_the_distance_at_all() -> None:
    query, key = torch.randn(2, 1, 1, 1, 8).double()
    turn = rotary()
    products = {round(float((turn(query, at) * turn(key, 0)).sum()), 6) for at in range(10)}
    assert len(products) == 10


@given(position=starts, half=st.integers(1, 5), base=st.sampled_from([10_000.0, 100.0, 1.0]))
def test_each_pair_of_numbers_turns_by_its_own_angle(position: int, half: int, base: float) -> None:
    """Number i and number i + K / 2 are the coordinates of a point that is turned around the origin."""
    x = torch.randn(1, 1, 1, 2 * half).double()
    turned = rotary(2 * half, base)(x, position).flatten().tolist()
    for i, (left, right) in enumerate(zip(*x.flatten().chunk(2), strict=True)):
        point = complex(left, right) * complex(math.cos(a := position * base ** (-i / half)), math.sin(a))
        assert turned[i] == pytest.approx(point.real, abs=1e-4)
        assert turned[i + half] == pytest.approx(point.imag, abs=1e-4)


def test_position_zero_is_not_turned_and_lengths_are_kept() -> None:
    x = torch.randn(2, 3, 5, 8).double()
    turned = rotary()(x, 0)
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert same(turned.norm(dim=-1), x.norm(dim=-1), 1e-6)


def test_rotary_angles_stay_exact_in_half_precision() -> None:
    """A model that was cast to bfloat16 turns by the angle of position 301, not by that of 302."""
    x = torch.randn(1, 1, 4, 8)
    turn = rotary().float()
    expected = turn(x, 300)
    cast = turn.to(torch.bfloat16)(x.to(torch.bfloat16), 300).float()
    assert (cast - expected).abs().max() < 0.05
