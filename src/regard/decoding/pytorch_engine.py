"""The search in PyTorch: what every other engine is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from regard.decoding.beam_search import beam_search, follow, generate, highest
from regard.decoding.confidence import Confidence
from regard.decoding.decoder_step import NextToken, TranslationStep, WritingStep, lucky
from regard.decoding.hypotheses import Constraints, Enough, Hypothesis, ask, length_penalty
from regard.decoding.token_shortlist import Shortlist
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import InputError
from regard.model.observe import observe
from regard.model.recurrent import Recurrent, SequenceToSequence
from regard.model.transformer import Decoder
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Specials
from regard.weights import Contents, summary


def translator_of(
    contents: Contents, confidence: Confidence | None = None, shortlist: Shortlist | None = None
) -> Translator:
    """A translator that searches with PyTorch, on the device that the model is on."""
    assert isinstance(contents.model, SequenceToSequence)
    if shortlist is not None:
        shortlist.check(contents.vocabularies.source.size, contents.vocabularies.target.size)
    search = TorchSearch(contents.model, contents.vocabularies.target.specials, shortlist)
    return Translator(contents.settings, contents.vocabularies, search, confidence)


def writer_of(contents: Contents) -> Writer:
    """A writer that searches with PyTorch, on the device that the model is on."""
    assert isinstance(contents.model, Decoder)
    search = TorchSearch(contents.model, contents.vocabularies.target.specials)
    return Writer(contents.settings, contents.vocabularies.target, search)


class TorchSearch:
    """Searches with one model, an encoder-decoder or a decoder, in batches of sources of similar length."""

    def __init__(
        self, model: SequenceToSequence | Decoder, specials: Specials, shortlist: Shortlist | None = None
    ) -> None:
        self.model, self.specials, self.shortlist = model, specials, shortlist

    def __repr__(self) -> str:
        return summary(self.model)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None = None,
        constraints: Sequence[Constraints | None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each source, best first; those of source i end by `limits[i]` tokens.

        Sources that have `constraints` are searched for with a beam, whatever the others are; where no output meets
        them, the outputs are those without them.
        """
        wanted = {i: each for i, each in enumerate(constraints or ()) if each}
        found = self._constrained(sources, limits, settings, wanted) if wanted else {}
        rest = [i for i in range(len(sources)) if i not in found]
        rows = settings.alternatives + 1 if settings.temperature else settings.beam
        for batch in self._batches(rest, sources, limits, settings.batch_tokens // rows):
            ends = partial(ask, enough, batch) if enough else None
            results = self._search_batch([sources[i] for i in batch], [limits[i] for i in batch], settings, ends)
            found.update(zip(batch, results, strict=True))
        if settings.alignment and isinstance(self.model, SequenceToSequence):
            return [self._aligned(self.model, ids, found[i]) for i, ids in enumerate(sources)]
        return [found[i] for i in range(len(sources))]

    @torch.inference_mode()
    def _constrained(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        wanted: Mapping[int, Constraints],
    ) -> dict[int, list[Hypothesis]]:
        """The best hypotheses of the sources that have constraints, where there are any that meet them."""
        penalty = length_penalty(settings.penalty, settings.length_penalty)
        rows = settings.beam + max(each.length for each in wanted.values())
        found: dict[int, list[Hypothesis]] = {}
        for batch in self._batches(wanted, sources, limits, settings.batch_tokens // rows):
            results = beam_search(
                self._step([sources[i] for i in batch], settings, [wanted[i] for i in batch]),
                [limits[i] for i in batch],
                constraints=[wanted[i] for i in batch],
                end=self.specials.end,
                width=settings.beam,
                penalty=penalty,
                patience=settings.patience,
                best=settings.alternatives + 1,
            )
            found.update((i, result) for i, result in zip(batch, results, strict=True) if result)
        return found

    def _batches(
        self, numbers: Iterable[int], sources: Sequence[Sequence[int]], limits: Sequence[int], room: int
    ) -> Iterator[list[int]]:
        """Numbers of sources that are searched for together, the longest first; a decoder's have equal lengths."""
        order = sorted(numbers, key=lambda i: -len(sources[i]))
        alike = isinstance(self.model, Decoder)
        while order:
            length = len(sources[order[0]])
            cost = length + limits[order[0]] if alike else length + 1
            most = max(1, room // cost)
            batch = [i for i in order[:most] if not alike or len(sources[i]) == length]
            yield batch
            order = order[len(batch) :]

    @torch.inference_mode()
    def _search_batch(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        enough: Enough | None = None,
    ) -> list[list[Hypothesis]]:
        step, end = self._step(sources, settings), self.specials.end
        penalty = length_penalty(settings.penalty, settings.length_penalty)
        count = settings.alternatives + 1
        if settings.temperature == 0 and settings.beam > 1:
            how: dict[str, Any] = {"width": settings.beam, "patience": settings.patience, "best": count}
            return beam_search(step, limits, end=end, penalty=penalty, **how)
        choose, rows = (lucky(sources, count, settings), count) if settings.temperature else (highest, 1)
        return follow(step, limits, end=end, penalty=penalty, choose=choose, rows=rows, enough=enough)

    @torch.inference_mode()  # around each step: in a `with`, it would hold for the caller between two tokens
    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Token by token, greedy or drawn, the end too: until the caller stops asking."""
        choose = lucky([source], 1, settings) if settings.temperature else highest
        for (token,), _ in generate(self._step([source], settings), 1, choose):
            yield token

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Of each token of a text but the first, after those before it."""
        return [value for value, _ in self.likeliest(tokens, 0)]

    @torch.inference_mode()
    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """The same, each with the likeliest tokens that could have stood there, and how likely they were."""
        assert isinstance(self.model, Decoder)
        row = torch.tensor([list(tokens)], device=next(self.model.parameters()).device)
        scores = self.model(row[:, :-1]).float()[0].log_softmax(-1)  # [T, V]
        values = scores.gather(1, row[0, 1:, None]).squeeze(1).tolist()
        best, ids = (each.tolist() for each in scores.topk(count))
        return [(value, list(zip(*pair, strict=True))) for value, *pair in zip(values, ids, best, strict=True)]

    @torch.inference_mode()
    def _aligned(
        self, model: SequenceToSequence, source: Sequence[int], found: Sequence[Hypothesis]
    ) -> list[Hypothesis]:
        """Hypotheses with what each of their tokens, and their end, has looked at: they are read once more."""
        device, attention = next(model.parameters()).device, f"{last_attention(model)}.weights"
        before = [[self.specials.begin, *each.tokens][: len(each.log_probabilities)] for each in found]
        longest = max(map(len, before))  # nothing looks at what comes later, so that it does not matter what that is
        rows = [[*row, *[self.specials.pad] * (longest - len(row))] for row in before]
        sources = torch.tensor([[*source, self.specials.end]] * len(found), device=device)
        with observe(model) as trace:
            model.states(sources, torch.tensor(rows, device=device), None)
        weights = trace[attention].tensor
        looks = [look[: len(row)] for look, row in zip(weights.mean(1).tolist(), before, strict=True)]
        return [replace(h, alignment=tuple(map(tuple, look))) for h, look in zip(found, looks, strict=True)]

    def _step(
        self, sources: Sequence[Sequence[int]], settings: DecodingSettings, wanted: Sequence[Constraints] = ()
    ) -> TranslationStep | WritingStep:
        after = NextToken(self.specials, settings.repetition_penalty, self._listed(sources, wanted))
        if isinstance(self.model, SequenceToSequence):
            return TranslationStep(self.model, sources, self.specials, after)
        longest = self.model.settings.max_length
        return WritingStep(self.model, [row[-longest + 1 :] for row in sources], after)

    def _listed(self, sources: Sequence[Sequence[int]], wanted: Sequence[Constraints]) -> Tensor | None:
        """[B, V], the tokens that may be written for each source, where there is a shortlist; what is wanted always."""
        if self.shortlist is None:
            return None
        keep = torch.zeros(len(sources), self.model.logits.out_features, dtype=torch.bool)
        for row, source in enumerate(sources):
            keep[row, list(self.shortlist.of([*source, self.specials.end]))] = True
        for row, each in enumerate(wanted):
            phrases = [*each.drafts, *(phrase for item in each.required for phrase in item)]
            keep[row, [token for phrase in phrases for token in phrase]] = True
        return keep.to(next(self.model.parameters()).device)


def last_attention(model: SequenceToSequence) -> str:
    """The name of the module that looks at the source last before a token is told."""
    if not isinstance(model, Recurrent):
        return f"decoder.layers.{model.settings.decoder_layers - 1}.cross_attention"
    if model.attention is None:
        raise InputError("decoding.alignment: this model does not look at the source (model.attends = false)")
    return "attention"
