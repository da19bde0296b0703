"""Our search over our model finds what Hugging Face's `generate` finds over theirs, given the same weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import MarianConfig, MarianMTModel

from regard.decoding.beam_search import beam_search, follow, most_probable
from regard.decoding.decoder_step import NextToken, TranslationStep
from regard.decoding.search_interface import Hypothesis, length_penalty
from regard.model.transformer import EncoderDecoder
from regard.settings import ModelSettings
from regard.tokens.tokenizer import Specials
from regard.tokens.vocabulary_learning import BOS, EOS, MASK, PAD, UNK
from tests.model.foreign import copy_marian

VOCABULARY, LIMIT = 40, 12
SOURCES = [[7, 30, 12, 9, 25], [11], [5, 39, 8, 8, 21, 14, 33], [20, 6, 17], [10, 10, 38, 28, 5, 6]]


@pytest.fixture(params=[0, 1, 5, 7], scope="module")
def models(request: pytest.FixtureRequest) -> tuple[EncoderDecoder, Any]:
    """Ours and theirs, with weights so large that no two outputs are equally probable.

    The seeds are of models that do not just repeat a token; see the last test.
    """
    torch.manual_seed(request.param)
    config = MarianConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=24,
        decoder_ffn_dim=24,
        max_position_embeddings=32,
        activation_function="relu",
        scale_embedding=True,
        pad_token_id=PAD,
        bos_token_id=BOS,
        eos_token_id=EOS,
        decoder_start_token_id=BOS,
        forced_eos_token_id=None,
        init_std=0.35,
    )
    theirs = MarianMTModel(config).eval()
    torch.nn.init.normal_(theirs.final_logits_bias)
    theirs.final_logits_bias[0, EOS] += 3  # some outputs end, some are cut
    torch.nn.init.normal_(theirs.model.decoder.layers[-1].final_layer_norm.weight, std=0.5)
    shape = ModelSettings(
        width=16,
        heads=4,
        hidden=24,
        encoder_layers=2,
        decoder_layers=2,
        max_length=32,
        positions="sinusoidal-halves",
        output_bias=True,
    )
    ours = EncoderDecoder(shape, VOCABULARY, VOCABULARY).eval()
    copy_marian(ours, theirs)
    return ours, theirs


def generate(
    theirs: Any, beams: int, count: int, alpha: float, stopping: str | bool = "never"
) -> list[list[tuple[tuple[int, ...], float, bool]]]:
    """Their `count` best outputs of each source: tokens, score and whether they ended."""
    longest = max(map(len, SOURCES)) + 1
    source = torch.tensor([[*ids, EOS, *[PAD] * (longest - len(ids) - 1)] for ids in SOURCES])
    options: dict[str, Any] = {"early_stopping": stopping, "length_penalty": alpha} if beams > 1 else {}
    found = theirs.generate(
        input_ids=source,
        attention_mask=(source != PAD).long(),
        num_beams=beams,
        num_return_sequences=count,
        max_new_tokens=LIMIT,
        do_sample=False,
        suppress_tokens=[PAD, BOS, UNK, MASK],
        return_dict_in_generate=True,
        output_scores=True,
        output_logits=True,
        **options,
    )
    if beams > 1:
        scores = found.sequences_scores.tolist()
    else:  # without a beam they keep no scores: these are the sums of what they chose from
        chosen = found.sequences[:, 1:]
        steps = torch.stack(found.logits, 1).log_softmax(-1).gather(2, chosen[..., None]).squeeze(2)
        real = chosen != PAD
        scores = ((steps * real).sum(1) / real.sum(1) ** alpha).tolist()
    outputs = []
    for row, score in zip(found.sequences[:, 1:].tolist(), scores, strict=True):
        ended = EOS in row
        outputs.append((tuple(row[: row.index(EOS)] if ended else row), score, ended))
    return [outputs[i : i + count] for i in range(0, len(outputs), count)]


def assert_same(ours: list[list[Hypothesis]], theirs: list[list[tuple[tuple[int, ...], float, bool]]]) -> None:
    for found, expected in zip(ours, theirs, strict=True):
        assert [(h.tokens, h.finished) for h in found] == [(tokens, ended) for tokens, _, ended in expected]
        assert [h.score for h in found] == pytest.approx([score for _, score, _ in expected], abs=1e-4)


@pytest.mark.parametrize(("patience", "stopping"), [(0.0, "never"), (1.0, True)])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize(("beams", "count"), [(2, 1), (2, 2), (4, 1), (4, 3), (5, 5)])
def test_beam_search_equals_hugging_face(
    models: tuple[EncoderDecoder, Any], beams: int, count: int, alpha: float, patience: float, stopping: str | bool
) -> None:
    ours, theirs = models
    with torch.inference_mode():
        step = TranslationStep(ours, SOURCES, Specials(), NextToken(Specials()))
        limits = [LIMIT] * len(SOURCES)
        how: dict[str, Any] = {"width": beams, "penalty": length_penalty("power", alpha), "patience": patience}
        found = beam_search(step, limits, end=EOS, best=count, **how)
    assert_same(found, generate(theirs, beams, count, alpha, stopping))


def test_greedy_equals_hugging_face(models: tuple[EncoderDecoder, Any]) -> None:
    ours, theirs = models
    with torch.inference_mode():
        step = TranslationStep(ours, SOURCES, Specials(), NextToken(Specials()))
        found = follow(
            step, [LIMIT] * len(SOURCES), end=EOS, penalty=length_penalty("power", 0.6), choose=most_probable
        )
    assert_same(found, generate(theirs, 1, 1, 0.6))


def test_the_models_are_worth_comparing(models: tuple[EncoderDecoder, Any]) -> None:
    """Their outputs differ in length, from source to source, and by the width of the beam; some are cut."""
    _, theirs = models
    greedy, wide = generate(theirs, 1, 1, 1.0), generate(theirs, 5, 5, 1.0)
    assert any(one[0][0] != many[0][0] for one, many in zip(greedy, wide, strict=True))
    outputs = [output for best in wide for output in best]
    assert len({tokens for tokens, _, _ in outputs}) > 10
    assert len({len(tokens) for tokens, _, _ in outputs}) > 3
    assert {ended for _, _, ended in outputs} == {True, False}
