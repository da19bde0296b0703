"""The search over an encoder-decoder in PyTorch: what every other engine is compared with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from regard.decoding.hypothesis import Hypothesis, length_penalty
from regard.decoding.search import beam_search, follow, generate, highest
from regard.decoding.step import NextToken, TranslationStep, lucky
from regard.decoding.translator import Translator
from regard.model.transformer import EncoderDecoder
from regard.settings import DecodingSettings
from regard.text.tokenizer import Specials
from regard.weights import Contents


def translator_of(contents: Contents) -> Translator:
    """A translator that searches with PyTorch, on the device that the model is on."""
    assert isinstance(contents.model, EncoderDecoder)
    search = TorchSearch(contents.model, contents.vocabularies.target.specials)
    return Translator(contents.settings, contents.vocabularies, search)


class TorchSearch:
    """Searches with one model, in batches of sources of similar length."""

    def __init__(self, model: EncoderDecoder, specials: Specials) -> None:
        self.model, self.specials = model, specials

    def search(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first; those of source i end by `limits[i]` tokens."""
        found: dict[int, list[Hypothesis]] = {}
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        rows = settings.alternatives + 1 if settings.temperature else settings.beam
        start = 0
        while start < len(order):
            longest = len(sources[order[start]]) + 1
            batch = order[start : start + max(1, settings.batch_tokens // (longest * rows))]
            start += len(batch)
            results = self._search_batch([sources[i] for i in batch], [limits[i] for i in batch], settings)
            found.update(zip(batch, results, strict=True))
        return [found[i] for i in range(len(sources))]

    @torch.inference_mode()
    def _search_batch(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], settings: DecodingSettings
    ) -> list[list[Hypothesis]]:
        step, end = self._step(sources, settings), self.specials.end
        penalty = length_penalty(settings.penalty, settings.length_penalty)
        count = settings.alternatives + 1
        if settings.temperature:
            choose = lucky(sources, count, settings)
            return follow(step, limits, end=end, penalty=penalty, choose=choose, rows=count)
        if settings.beam == 1:
            return follow(step, limits, end=end, penalty=penalty, choose=highest)
        return beam_search(step, limits, end=end, width=settings.beam, penalty=penalty, patience=settings.patience, best=count)

    @torch.inference_mode()  # around each step: in a `with`, it would hold for the caller between two tokens
    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Token by token, greedy or drawn, the end too: until the caller stops asking."""
        choose = lucky([source], 1, settings) if settings.temperature else highest
        for (token,), _ in generate(self._step([source], settings), 1, choose):
            yield token

    def _step(self, sources: Sequence[Sequence[int]], settings: DecodingSettings) -> TranslationStep:
        after = NextToken(self.specials, settings.repetition_penalty)
        return TranslationStep(self.model, sources, self.specials, after)
