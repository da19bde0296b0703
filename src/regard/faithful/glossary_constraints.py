"""Converts glossary terms to token constraints, and searches again for translations that violate the glossary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, pairwise

from regard.decoding.search_interface import Constraints, Hypothesis, WordBoundaries
from regard.decoding.translation_results import SearchAgain, TermOutcome
from regard.faithful.glossary import Glossary, Term
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Tokenizer

OUTPUTS_PER_SEARCH = 3
"""Number of outputs of a constrained search from which the best is chosen."""
ROUNDS = 3
"""Maximum number of searches for one text; each one forbids another tokenization of a forbidden word."""


def constraints_for(glossary: Glossary, text: str, tokenizer: Tokenizer) -> Constraints:
    """Returns the constraints on the translation of a text, without words that the tokenizer cannot encode."""
    terms = glossary.find(text)
    items = (_spellings(tokenizer, _forms(term)) for term in terms if term.targets)
    required = tuple(item for item in items if item)
    there = [sequence for item in required for sequence in item]
    words = [form for term in terms for word in term.forbidden for form in (word, _raised(word), word.lower())]
    forbidden = tuple(each for each in _spellings(tokenizer, words) if not any(_inside(each, other) for other in there))
    return Constraints(required, forbidden, word_boundaries(tokenizer)) if required or forbidden else Constraints()


@lru_cache(maxsize=2)
def word_boundaries(tokenizer: Tokenizer) -> WordBoundaries:
    """Returns the tokens of a tokenizer at which words begin and end."""
    ends = [tokenizer.decode([token])[-1:] for token in range(tokenizer.size)]
    return WordBoundaries(
        frozenset(token for token, inside in enumerate(tokenizer.continues()) if inside),
        frozenset(token for token, still_open in enumerate(tokenizer.can_continue()) if still_open),
        frozenset(token for token, end in enumerate(ends) if end in OPENING),
    )


OPENING = {*"([{<\"'„“‚‘«»‹›-–—/=+*&@#", ""}
"""Characters that may precede a word without a space, and the empty text, which a space token decodes to."""


def _forms(term: Term) -> Iterator[str]:
    """Yields the target terms, also capitalized as at the beginning of a sentence."""
    for target in term.targets:
        yield target
        if not term.exact(target):
            yield _raised(target)


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _spellings(tokenizer: Tokenizer, forms: Sequence[str] | Iterator[str]) -> tuple[tuple[int, ...], ...]:
    """Returns the tokenizations of words within a sentence, at its beginning, and directly after a bracket."""
    unspeakable = {*tokenizer.specials.never_generated, tokenizer.specials.end}
    found = []
    for form in dict.fromkeys(forms):
        found += [*tokenizer.encode_words([form]), *tokenizer.encode_batch([form]), tokenizer.encode_continuation(form)]
    return tuple(dict.fromkeys(tuple(ids) for ids in found if ids and unspeakable.isdisjoint(ids)))


def _inside(sequence: Sequence[int], other: Sequence[int]) -> bool:
    length = len(sequence)
    return any(tuple(other[i : i + length]) == tuple(sequence) for i in range(len(other) - length + 1))


@dataclass(frozen=True)
class Terminology:
    """A glossary with the tokenizers of a model."""

    glossary: Glossary
    source: Tokenizer
    tokenizer: Tokenizer

    def outcomes(self, text: str, found: Hypothesis) -> list[TermOutcome]:
        """Returns the outcome of each term of a text in an output of the model."""
        return self.glossary.check(text, self.tokenizer.decode(found.tokens))

    def keep(
        self,
        texts: Sequence[str],
        found: Sequence[list[Hypothesis]],
        search: SearchAgain,
        settings: DecodingSettings,
    ) -> list[list[Hypothesis]]:
        """Searches again for the texts whose outputs lack a term or use a forbidden one.

        Only the first search can inflect terms, and inflected terms count, so its outputs are kept wherever possible.
        """
        kept = list(found)
        wrong = [i for i, text in enumerate(texts) if self._faults(text, found[i][0])]
        wanted = {i: constraints_for(self.glossary, texts[i], self.tokenizer) for i in wrong}
        looking = replace(settings, alignment=True, alternatives=0)
        looked = search(wrong, [Constraints()] * len(wrong), looking) if wrong else ()
        for i, (first, *_) in zip(wrong, looked, strict=True):
            wanted[i] = replace(wanted[i], drafts=self._drafts(texts[i], first))
        for _ in range(ROUNDS):
            wanted = {i: each for i, each in wanted.items() if each}
            if not wanted:
                break
            several = replace(looking, alternatives=max(settings.alternatives, OUTPUTS_PER_SEARCH - 1))
            results = search(list(wanted), list(wanted.values()), several)
            for i, new in zip(list(wanted), results, strict=True):
                new = sorted(new, key=partial(self._rank, texts[i]))
                if self._faults(texts[i], new[0]) < self._faults(texts[i], kept[i][0]):
                    kept[i] = [_drop_alignment(each, settings) for each in new[: settings.alternatives + 1]]
                others = set(self._forbidden_tokens(texts[i], new[0])) - set(wanted[i].forbidden)
                wanted[i] = wanted[i] + Constraints((), tuple(others)) if others else Constraints()
        return kept

    def _drafts(self, text: str, found: Hypothesis) -> tuple[tuple[int, ...], ...]:
        """Returns drafts in which each missing term replaces the word of the output that attends to it most."""
        absent = {outcome.source for outcome in self.outcomes(text, found) if outcome.state == "missing"}
        runs, places = self._word_spans(found.tokens), dict[int, Term]()
        for term, columns in self._columns(text, found):
            free = [place for place in range(len(runs)) if place not in places]
            if term.source in absent and free:
                looks = {place: max(_attention(found, row, columns) for row in range(*runs[place])) for place in free}
                places[max(free, key=looks.__getitem__)] = term
        tokens = chain.from_iterable(self._put(found.tokens, *run, places.get(i)) for i, run in enumerate(runs))
        return (tuple(tokens),) if places else ()

    def _columns(self, text: str, found: Hypothesis) -> Iterator[tuple[Term, list[int]]]:
        """Yields each term with its columns in the alignment; nothing if the model has read other tokens."""
        offsets = self.source.encode(text).offsets
        shift = len(found.alignment[0]) - 1 - len(offsets) if found.alignment else -1  # a language tag may precede it
        if shift in (0, 1):
            for term, start, end in self.glossary.matches(text):
                yield term, [shift + k for k, (left, right) in enumerate(offsets) if left < end and right > start]

    def _word_spans(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        words = word_boundaries(self.tokenizer)
        starts = [i for i, token in enumerate(tokens) if not i or not words.continues_word(tokens[i - 1], token)]
        return list(pairwise([*starts, len(tokens)]))

    def _put(self, tokens: Sequence[int], start: int, end: int, term: Term | None) -> Sequence[int]:
        """Returns the tokens of a word, or of the term that replaces it."""
        if term is None:
            return tokens[start:end]
        first = start == 0 and self.tokenizer.decode(tokens[start:end])[:1].isupper()
        target = list(_forms(term))[1] if first and not term.exact(term.targets[0]) else term.targets[0]
        glued = tokens[start] in word_boundaries(self.tokenizer).inside
        return self.tokenizer.encode_continuation(target) if glued else self.tokenizer.encode_words([target])[0]

    def _rank(self, text: str, found: Hypothesis) -> tuple[int, int, float]:
        """Returns a sort key, lower is better: wrong terms, terms in the wrong place, negative log-probability.

        A length penalty would favour long outputs, in which required terms cost little. Whether a term is in the right
        place is judged by attention, because a word that the model does not know is improbable everywhere.
        """
        placed = {outcome.source: outcome.text for outcome in self.outcomes(text, found) if outcome.state == "placed"}
        spans = {source: self._find_word(word, found.tokens) for source, word in placed.items()}
        attentions = [
            _attention(found, spans[term.source][0], columns)
            for term, columns in self._columns(text, found)
            if term.source in spans
        ]
        return (
            self._faults(text, found),
            sum(attention < MIN_ATTENTION for attention in attentions),
            -found.log_probability,
        )

    def _faults(self, text: str, found: Hypothesis) -> int:
        return sum(outcome.state != "placed" for outcome in self.outcomes(text, found))

    def _forbidden_tokens(self, text: str, found: Hypothesis) -> Iterator[tuple[int, ...]]:
        for outcome in self.outcomes(text, found):
            if outcome.state == "forbidden":
                yield found.tokens[slice(*self._find_word(outcome.text, found.tokens))]

    def _find_word(self, word: str, tokens: Sequence[int]) -> tuple[int, int]:
        end = next(end for end in range(1, len(tokens) + 1) if word in self.tokenizer.decode(tokens[:end]))
        starts = (start for start in range(end - 1, -1, -1) if word in self.tokenizer.decode(tokens[start:end]))
        return next(starts, 0), end


def _drop_alignment(found: Hypothesis, settings: DecodingSettings) -> Hypothesis:
    return found if settings.alignment else replace(found, alignment=())


MIN_ATTENTION = 0.2
"""The minimum attention from the translation of a term to the source term."""


def _attention(found: Hypothesis, row: int, columns: Sequence[int]) -> float:
    return sum(found.alignment[row][column] for column in columns)
