"""A glossary in a search: its terms as tokens, and another search where one is left out; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, pairwise

from regard.decoding.hypotheses import Constraints, Hypothesis, Words
from regard.faithful.glossary import Glossary, Term, TermOutcome
from regard.settings import DecodingSettings
from regard.tokens.tokenizer import Tokenizer

TRIED = 3
"""Outputs with the terms among which the best is chosen."""
ROUNDS = 3
"""Most searches for one text; after the first they forbid another spelling of what was still used."""


def constraints_for(glossary: Glossary, text: str, tokenizer: Tokenizer) -> Constraints:
    """What a translation of `text` must have in it and must not, in the tokens of the target language.

    What the tokenizer cannot spell is left out.
    """
    terms = glossary.find(text)
    items = (_spellings(tokenizer, _forms(term)) for term in terms if term.targets)
    required = tuple(item for item in items if item)
    there = [sequence for item in required for sequence in item]
    words = [form for term in terms for word in term.forbidden for form in (word, _raised(word), word.lower())]
    forbidden = tuple(each for each in _spellings(tokenizer, words) if not any(_inside(each, other) for other in there))
    return Constraints(required, forbidden, words_of(tokenizer)) if required or forbidden else Constraints()


@lru_cache(maxsize=2)
def words_of(tokenizer: Tokenizer) -> Words:
    """Where words begin and end, in the tokens of a tokenizer."""
    ends = [tokenizer.decode([token])[-1:] for token in range(tokenizer.size)]
    return Words(
        frozenset(token for token, inside in enumerate(tokenizer.continues()) if inside),
        frozenset(token for token, still_open in enumerate(tokenizer.can_continue()) if still_open),
        frozenset(token for token, end in enumerate(ends) if end in OPENING),
    )


OPENING = {*"([{<\"'„“‚‘«»‹›-–—/=+*&@#", ""}
"""What a word stands behind without a space, and nothing, which is what a space alone is decoded to."""


def _forms(term: Term) -> Iterator[str]:
    """The target terms, also as they begin a sentence."""
    for target in term.targets:
        yield target
        if not term.exact(target):
            yield _raised(target)


def _raised(text: str) -> str:
    return text[:1].upper() + text[1:]


def _spellings(tokenizer: Tokenizer, forms: Sequence[str] | Iterator[str]) -> tuple[tuple[int, ...], ...]:
    """As tokens: in a sentence, at its start, and behind a bracket, where no space stands before a word."""
    unspeakable = {*tokenizer.specials.never_generated, tokenizer.specials.end}
    found = []
    for form in dict.fromkeys(forms):
        found += [*tokenizer.encode_words([form]), *tokenizer.encode_batch([form]), tokenizer.encode_continuation(form)]
    return tuple(dict.fromkeys(tuple(ids) for ids in found if ids and unspeakable.isdisjoint(ids)))


def _inside(sequence: Sequence[int], other: Sequence[int]) -> bool:
    length = len(sequence)
    return any(tuple(other[i : i + length]) == tuple(sequence) for i in range(len(other) - length + 1))


SearchAgain = Callable[[Sequence[int], Sequence[Constraints], DecodingSettings], Sequence[list[Hypothesis]]]
"""Searches for some texts, by their numbers, with constraints for each."""


@dataclass(frozen=True)
class Terminology:
    """A glossary, and the tokens of the two languages."""

    glossary: Glossary
    source: Tokenizer
    tokenizer: Tokenizer

    def outcomes(self, text: str, found: Hypothesis) -> list[TermOutcome]:
        """What became of the terms of a text."""
        return self.glossary.check(text, self.tokenizer.decode(found.tokens))

    def keep(
        self,
        texts: Sequence[str],
        found: Sequence[list[Hypothesis]],
        search: SearchAgain,
        settings: DecodingSettings,
    ) -> list[list[Hypothesis]]:
        """What was found for each text, or, where a term is not as it should be, what another search finds.

        A word that has an ending of its own counts, and only the first search is free to give it one. So what it found
        is left as it is wherever it can be.
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
            several = replace(looking, alternatives=max(settings.alternatives, TRIED - 1))
            results = search(list(wanted), list(wanted.values()), several)
            for i, new in zip(list(wanted), results, strict=True):
                new = sorted(new, key=partial(self._rank, texts[i]))
                if self._faults(texts[i], new[0]) < self._faults(texts[i], kept[i][0]):
                    kept[i] = [_asked_for(each, settings) for each in new[: settings.alternatives + 1]]
                others = set(self._spelt(texts[i], new[0])) - set(wanted[i].forbidden)
                wanted[i] = wanted[i] + Constraints((), tuple(others)) if others else Constraints()
        return kept

    def _drafts(self, text: str, found: Hypothesis) -> tuple[tuple[int, ...], ...]:
        """What was found, with each missing term in place of the word that looked at it in the source."""
        absent = {outcome.source for outcome in self.outcomes(text, found) if outcome.state == "missing"}
        runs, places = self._words(found.tokens), dict[int, Term]()
        for term, columns in self._columns(text, found):
            free = [place for place in range(len(runs)) if place not in places]
            if term.source in absent and free:
                looks = {place: max(_look(found, row, columns) for row in range(*runs[place])) for place in free}
                places[max(free, key=looks.__getitem__)] = term
        tokens = chain.from_iterable(self._put(found.tokens, *run, places.get(i)) for i, run in enumerate(runs))
        return (tuple(tokens),) if places else ()

    def _columns(self, text: str, found: Hypothesis) -> Iterator[tuple[Term, list[int]]]:
        """Where each term stands in what the model has read: none if that was not this text token by token."""
        offsets = self.source.encode(text).offsets
        shift = len(found.alignment[0]) - 1 - len(offsets) if found.alignment else -1  # a tag may be before it
        if shift in (0, 1):
            for term, start, end in self.glossary.matches(text):
                yield term, [shift + k for k, (left, right) in enumerate(offsets) if left < end and right > start]

    def _words(self, tokens: Sequence[int]) -> list[tuple[int, int]]:
        """Where each word begins and ends, in tokens."""
        words = words_of(self.tokenizer)
        starts = [i for i, token in enumerate(tokens) if not i or not words.go_on(tokens[i - 1], token)]
        return list(pairwise([*starts, len(tokens)]))

    def _put(self, tokens: Sequence[int], start: int, end: int, term: Term | None) -> Sequence[int]:
        """The tokens of a word, or of the term in its place."""
        if term is None:
            return tokens[start:end]
        first = start == 0 and self.tokenizer.decode(tokens[start:end])[:1].isupper()
        target = list(_forms(term))[1] if first and not term.exact(term.targets[0]) else term.targets[0]
        glued = tokens[start] in words_of(self.tokenizer).inside
        return self.tokenizer.encode_continuation(target) if glued else self.tokenizer.encode_words([target])[0]

    def _rank(self, text: str, found: Hypothesis) -> tuple[int, int, float]:
        """The less the better: first what is wrong, then what is in the wrong place, then what is improbable.

        A length penalty would favour long outputs, in which what is required costs little. Where a term belongs, what
        was looked at tells, and the model does not: a word that it does not know is as improbable in every place.
        """
        placed = {outcome.source: outcome.text for outcome in self.outcomes(text, found) if outcome.state == "placed"}
        spans = {source: self._span(word, found.tokens) for source, word in placed.items()}
        looks = [
            _look(found, spans[term.source][0], columns)
            for term, columns in self._columns(text, found)
            if term.source in spans
        ]
        return self._faults(text, found), sum(look < LOOKED_AT for look in looks), -found.log_probability

    def _faults(self, text: str, found: Hypothesis) -> int:
        return sum(outcome.state != "placed" for outcome in self.outcomes(text, found))

    def _spelt(self, text: str, found: Hypothesis) -> Iterator[tuple[int, ...]]:
        """The tokens of the forbidden words that were used all the same: a word can be cut in several ways."""
        for outcome in self.outcomes(text, found):
            if outcome.state == "forbidden":
                yield found.tokens[slice(*self._span(outcome.text, found.tokens))]

    def _span(self, word: str, tokens: Sequence[int]) -> tuple[int, int]:
        """The tokens of the first place in which a word is."""
        end = next(end for end in range(1, len(tokens) + 1) if word in self.tokenizer.decode(tokens[:end]))
        starts = (start for start in range(end - 1, -1, -1) if word in self.tokenizer.decode(tokens[start:end]))
        return next(starts, 0), end


def _asked_for(found: Hypothesis, settings: DecodingSettings) -> Hypothesis:
    return found if settings.alignment else replace(found, alignment=())


LOOKED_AT = 0.2
"""How much of a look must go to a term from the place of its translation."""


def _look(found: Hypothesis, row: int, columns: Sequence[int]) -> float:
    """How much an output looked at some tokens of the source from one of its own."""
    return sum(found.alignment[row][column] for column in columns)
