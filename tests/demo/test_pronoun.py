"""In a model that knows what "it" is, some head can be named without which it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.demo.glass import GLASS
from regard.demo.pronoun import TIRED, WIDE, HeadEffect, find_pronoun_heads, silence
from regard.folder import Contents, build_model, read_folder


def require_a_head(effects: list[HeadEffect]) -> None:
    """Alone, it turns il into elle or elle into il; it looks at a noun, or at the adjective that tells which."""
    assert all(effect.odds > 2 for effect in effects), "the whole model prefers the right pronoun"
    flipping = [effect for effect in effects if effect.flips]
    assert flipping
    assert all(effect.odds_without < effect.odds - 2 for effect in flipping)


@pytest.fixture(scope="module")
def effects() -> list[HeadEffect]:
    return find_pronoun_heads(read_folder(GLASS))


def test_a_head_of_the_glass_model_decides_the_pronoun(effects: list[HeadEffect]) -> None:
    require_a_head(effects)


def test_every_head_is_tried_on_both_sentences_and_the_strongest_is_first(effects: list[HeadEffect]) -> None:
    tried = {(effect.example, effect.site, effect.head) for effect in effects}
    assert len(tried) == len(effects) == 2 * 6 * 2  # sentences, attentions, heads
    assert {effect.example for effect in effects} == {TIRED, WIDE}
    changes = [effect.odds_without - effect.odds for effect in effects]
    assert changes == sorted(changes)


def test_attention_is_shared_out_by_piece(effects: list[HeadEffect]) -> None:
    for effect in effects:
        adjective = effect.example.asks[1]
        assert list(effect.attention) == (["▁it", adjective] if effect.site.startswith("encoder") else ["'"])
        for shares in effect.attention.values():
            assert sum(shares.values()) == pytest.approx(1)
            assert (
                ("▁street" in shares)
                == ("▁rue" not in shares)
                == ("decoder" not in effect.site or "cross" in effect.site)
            )


def test_a_model_that_has_learnt_nothing_has_no_such_head() -> None:
    glass = read_folder(GLASS)
    torch.manual_seed(0)
    fresh = Contents(glass.settings, glass.vocabularies, build_model(glass.settings, glass.vocabularies).eval())
    assert not any(effect.flips for effect in find_pronoun_heads(fresh))


def test_silencing_takes_one_head_and_leaves_the_others() -> None:
    context = torch.randn(2, 3, 4, 5)
    silent = silence(1)(context)
    assert silent[:, 1].abs().sum() == 0
    torch.testing.assert_close(silent[:, [0, 2]], context[:, [0, 2]])
    assert context[:, 1].abs().sum() > 0


@pytest.mark.slow
def test_a_head_of_the_demo_decides_the_pronoun(demo_model: tuple[Path, str]) -> None:
    require_a_head(find_pronoun_heads(read_folder(demo_model[0])))
