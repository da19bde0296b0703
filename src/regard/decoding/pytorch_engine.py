"""The PyTorch search engine, against which all other engines are tested."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial

import torch
from torch import Tensor

from regard.decoding.beam_search import beam_search, follow, generate, most_probable
from regard.decoding.confidence import Confidence
from regard.decoding.decoder_step import NextToken, TranslationStep, WritingStep, sampler
from regard.decoding.search_interface import Constraints, Hypothesis, ShouldEnd, length_penalty
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
    """Returns a translator that runs PyTorch on the model's device."""
    assert isinstance(contents.model, SequenceToSequence)
    if shortlist is not None:
        shortlist.check(contents.vocabularies.source.size, contents.vocabularies.target.size)
    search = TorchSearch(contents.model, contents.vocabularies.target.specials, shortlist)
    return Translator(contents.settings, contents.vocabularies, search, confidence)


def writer_of(contents: Contents) -> Writer:
    """Returns a writer that runs PyTorch on the model's device."""
    assert isinstance(contents.model, Decoder)
    search = TorchSearch(contents.model, contents.vocabularies.target.specials)
    return Writer(contents.settings, contents.vocabularies.target, search)


class TorchSearch:
    """Searches with an encoder-decoder or a decoder, in batches of sources of similar length."""

    def __init__(
        self, model: SequenceToSequence | Decoder, specials: Specials, shortlist: Shortlist | None = None
    ) -> None:
        self.model, self.specials, self.shortlist = model, specials, shortlist
        self.device = next(model.parameters()).device

    def __repr__(self) -> str:
        return summary(self.model)

    def search(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: ShouldEnd | None = None,
        constraints: Sequence[Constraints | None] = (),
    ) -> list[list[Hypothesis]]:
        """Returns the best hypotheses of each source, best first; those of source i have at most `limits[i]` tokens.

        If no output meets the constraints of a source, returns unconstrained outputs.
        """
        bound = {i: each for i, each in enumerate(constraints) if each}
        results: dict[int, list[Hypothesis]] = {}

        def search(numbers: Iterable[int], rows: int, constraints: Mapping[int, Constraints]) -> None:
            for batch in self._batches(numbers, sources, limits, settings.batch_tokens // rows):
                ends = partial(_ask, should_end, batch) if should_end else None
                texts, most = [sources[i] for i in batch], [limits[i] for i in batch]
                mine = [constraints[i] for i in batch] if constraints else []
                results.update(zip(batch, self._search_batch(texts, most, settings, ends, mine), strict=True))

        search(bound, settings.beam + max((each.length for each in bound.values()), default=0), bound)
        free = [i for i in range(len(sources)) if not results.get(i)]
        search(free, settings.alternatives + 1 if settings.temperature else settings.beam, {})
        return [self._aligned(ids, results[i], settings) for i, ids in enumerate(sources)]

    @torch.inference_mode()
    def _search_batch(
        self,
        sources: Sequence[Sequence[int]],
        limits: Sequence[int],
        settings: DecodingSettings,
        should_end: ShouldEnd | None,
        constraints: Sequence[Constraints],
    ) -> list[list[Hypothesis]]:
        step, end = self._step(sources, settings, constraints), self.specials.end
        penalty = length_penalty(settings.penalty, settings.length_penalty)
        if constraints or (settings.temperature == 0 and settings.beam > 1):
            return beam_search(
                step,
                limits,
                end=end,
                width=settings.beam,
                penalty=penalty,
                patience=settings.patience,
                best=settings.alternatives + 1,
                constraints=constraints,
            )
        rows = settings.alternatives + 1 if settings.temperature else 1
        choose = sampler(sources, rows, settings) if settings.temperature else most_probable
        return follow(step, limits, end=end, penalty=penalty, choose=choose, rows=rows, should_end=should_end)

    def _batches(
        self, numbers: Iterable[int], sources: Sequence[Sequence[int]], limits: Sequence[int], most_tokens: int
    ) -> Iterator[list[int]]:
        """Yields batches of source numbers, longest sources first; decoder batches have sources of equal length."""
        order = sorted(numbers, key=lambda i: -len(sources[i]))
        alike = isinstance(self.model, Decoder)
        while order:
            length = len(sources[order[0]])
            cost = length + limits[order[0]] if alike else length + 1
            count = max(1, most_tokens // cost)
            batch = [i for i in order[:count] if not alike or len(sources[i]) == length]
            yield batch
            order = order[len(batch) :]

    @torch.inference_mode()  # applies to each step; a `with` block would also affect the caller between two tokens
    def tokens(self, source: Sequence[int], settings: DecodingSettings) -> Iterator[int]:
        """Yields the tokens of one output, greedy or sampled, including the end token, until the caller stops."""
        choose = sampler([source], 1, settings) if settings.temperature else most_probable
        for (token,), _ in generate(self._step([source], settings), 1, choose):
            yield token

    def log_probabilities(self, tokens: Sequence[int]) -> list[float]:
        """Returns the log-probability of each token of a text except the first, given the tokens before it."""
        return [value for value, _ in self.likeliest(tokens, 0)]

    @torch.inference_mode()
    def likeliest(self, tokens: Sequence[int], count: int) -> list[tuple[float, list[tuple[int, float]]]]:
        """Returns these log-probabilities, each with the most likely tokens at that position and theirs."""
        assert isinstance(self.model, Decoder)
        row = torch.tensor([list(tokens)], device=self.device)
        scores = self.model(row[:, :-1]).float()[0].log_softmax(-1)  # [T, V]
        values = scores.gather(1, row[0, 1:, None]).squeeze(1).tolist()
        best, ids = (each.tolist() for each in scores.topk(count))
        return [(value, list(zip(*pair, strict=True))) for value, *pair in zip(values, ids, best, strict=True)]

    @torch.inference_mode()
    def _aligned(
        self, source: Sequence[int], hypotheses: list[Hypothesis], settings: DecodingSettings
    ) -> list[Hypothesis]:
        """Adds alignments to the hypotheses of a source if the settings ask for them; runs the model again."""
        model = self.model
        if not settings.alignment or isinstance(model, Decoder):
            return hypotheses
        before = [[self.specials.begin, *each.tokens][: len(each.log_probabilities)] for each in hypotheses]
        longest = max(map(len, before))
        rows = [[*row, *[self.specials.pad] * (longest - len(row))] for row in before]  # the padding has no effect
        sources = torch.tensor([[*source, self.specials.end]] * len(hypotheses), device=self.device)
        with observe(model) as trace:
            model.states(sources, torch.tensor(rows, device=self.device), None)
        weights = trace[f"{last_attention(model)}.weights"].tensor.mean(1).tolist()
        return [
            replace(each, alignment=tuple(map(tuple, rows[: len(row)])))
            for each, rows, row in zip(hypotheses, weights, before, strict=True)
        ]

    def _step(
        self, sources: Sequence[Sequence[int]], settings: DecodingSettings, constraints: Sequence[Constraints] = ()
    ) -> TranslationStep | WritingStep:
        after = NextToken(self.specials, settings.repetition_penalty, self._allowed(sources, constraints))
        if isinstance(self.model, Decoder):
            longest = self.model.settings.max_length
            return WritingStep(self.model, [row[-longest + 1 :] for row in sources], after)
        return TranslationStep(self.model, sources, self.specials, after)

    def _allowed(self, sources: Sequence[Sequence[int]], constraints: Sequence[Constraints]) -> Tensor | None:
        """Returns a [B, V] mask of the tokens allowed by each source's shortlist or required by its constraints."""
        if self.shortlist is None:
            return None
        allowed = torch.zeros(len(sources), self.model.logits.out_features, dtype=torch.bool)
        for row, source in enumerate(sources):
            allowed[row, list(self.shortlist.allowed_tokens([*source, self.specials.end]))] = True
        for row, each in enumerate(constraints):
            phrases = [*each.drafts, *(phrase for item in each.required for phrase in item)]
            allowed[row, [token for phrase in phrases for token in phrase]] = True
        return allowed.to(self.device)


def _ask(should_end: ShouldEnd, numbers: Sequence[int], place: int, tokens: Sequence[int]) -> bool:
    return should_end(numbers[place], tokens)


def last_attention(model: SequenceToSequence) -> str:
    """Returns the name of the last module that attends to the source."""
    if not isinstance(model, Recurrent):
        return f"decoder.layers.{model.settings.decoder_layers - 1}.cross_attention"
    if model.attention is None:
        raise InputError("decoding.alignment: this model does not attend to the source (model.attends = false)")
    return "attention"
