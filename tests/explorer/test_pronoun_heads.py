"""In a model that knows what "it" is, some head can be named that decides it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.demo import GLASS
from regard.weights import Contents, build_model, read_folder
from tests.explorer.pronoun_heads import TIRED, WIDE, HeadEffect, find_pronoun_heads, silence, swap


def require_a_head(effects: list[HeadEffect]) -> None:
    """Which one it is differs from one training to another; that there is one does not."""
    assert all(effect.whole.odds > 2 and not effect.whole.flipped for effect in effects)
    deciding = [effect for effect in effects if effect.silenced.flipped or effect.swapped.flipped]
    assert deciding
    assert all(effect.strength > effect.whole.odds for effect in deciding)


@pytest.fixture(scope="module")
def effects() -> list[HeadEffect]:
    return find_pronoun_heads(read_folder(GLASS))


def test_a_head_of_the_glass_model_decides_the_pronoun(effects: list[HeadEffect]) -> None:
    require_a_head(effects)


def test_every_head_is_tried_on_both_sentences_and_the_strongest_is_first(effects: list[HeadEffect]) -> None:
    tried = {(effect.example, effect.site, effect.head) for effect in effects}
    assert len(tried) == len(effects) == 2 * 6 * 2  # sentences, attentions, heads
    assert {effect.example for effect in effects} == {TIRED, WIDE}
    strengths = [effect.strength for effect in effects]
    assert strengths == sorted(strengths, reverse=True)


def test_attention_is_reported_by_piece(effects: list[HeadEffect]) -> None:
    for effect in effects:
        asks = effect.example.asks if effect.site.startswith("encoder") else ("'",)
        assert tuple(effect.attention) == asks
        within_french = effect.site.endswith("self_attention") and effect.site.startswith("decoder")
        for shares in effect.attention.values():
            assert sum(shares.values()) == pytest.approx(1)
            assert ("▁rue" in shares, "▁street" in shares) == (within_french, not within_french)


def test_an_untrained_model_has_no_pronoun_head() -> None:
    glass = read_folder(GLASS)
    torch.manual_seed(0)
    fresh = Contents(glass.settings, glass.vocabularies, build_model(glass.settings, glass.vocabularies).eval())
    effects = find_pronoun_heads(fresh)
    assert not any(effect.silenced.flipped or effect.swapped.flipped for effect in effects)
    with pytest.raises(AssertionError):
        require_a_head(effects)


def test_silencing_takes_one_head_and_leaves_the_others() -> None:
    context = torch.randn(2, 3, 4, 5)
    silent = silence(1)(context)
    assert silent[:, 1].abs().sum() == 0
    torch.testing.assert_close(silent[:, [0, 2]], context[:, [0, 2]])
    assert context[:, 1].abs().sum() > 0


def test_swapping_exchanges_two_positions_of_one_head_once_both_are_there() -> None:
    weights = torch.rand(2, 3, 4, 5)
    swapped = swap(1, 0, 3)(weights)
    torch.testing.assert_close(swapped[:, 1], weights[:, 1][..., [3, 1, 2, 0, 4]])
    torch.testing.assert_close(swapped[:, [0, 2]], weights[:, [0, 2]])
    torch.testing.assert_close(swap(1, 0, 5)(weights), weights)
    some = swap(1, 0, 3, [1, 2])(weights)
    torch.testing.assert_close(some[:, 1, [1, 2]], swapped[:, 1, [1, 2]])
    torch.testing.assert_close(some[:, :, [0, 3]], weights[:, :, [0, 3]])


@pytest.mark.slow
def test_a_head_of_the_demo_decides_the_pronoun(demo_model: tuple[Path, str]) -> None:
    require_a_head(find_pronoun_heads(read_folder(demo_model[0])))
