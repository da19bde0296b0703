"""A glossary in a search: its terms as tokens, and another search where one is left out; never imports torch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from regard.decoding.hypothesis import Constraints, Hypothesis, Words
from regard.text.glossary import Glossary, Outcome, Term
from regard.text.tokenizer import Tokenizer

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
        frozenset(token for token, still_open in enumerate(tokenizer.goes_on()) if still_open),
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
    unspeakable = {*tokenizer.specials.unspeakable, tokenizer.specials.end}
    found = []
    for form in dict.fromkeys(forms):
        found += [*tokenizer.encode_words([form]), *tokenizer.encode_batch([form]), tokenizer.encode_rest(form)]
    return tuple(dict.fromkeys(tuple(ids) for ids in found if ids and unspeakable.isdisjoint(ids)))


def _inside(sequence: Sequence[int], other: Sequence[int]) -> bool:
    length = len(sequence)
    return any(tuple(other[i : i + length]) == tuple(sequence) for i in range(len(other) - length + 1))


SearchAgain = Callable[[Sequence[int], Sequence[Constraints]], Sequence[list[Hypothesis]]]
"""Searches for some texts, by their numbers, with constraints for each."""


@dataclass(frozen=True)
class Terminology:
    """A glossary, and the tokens of the target language."""

    glossary: Glossary
    tokenizer: Tokenizer

    def outcomes(self, text: str, found: Hypothesis) -> list[Outcome]:
        """What became of the terms of a text."""
        return self.glossary.check(text, self.tokenizer.decode(found.tokens))

    def keep(
        self, texts: Sequence[str], found: Sequence[list[Hypothesis]], search: SearchAgain
    ) -> list[list[Hypothesis]]:
        """What was found for each text, or, where a term is not as it should be, what another search finds.

        A word that has an ending of its own counts, and only the first search is free to give it one. So what it found
        is left as it is wherever it can be.
        """
        kept = list(found)
        wrong = [i for i, text in enumerate(texts) if self._faults(text, found[i][0])]
        wanted = {i: constraints_for(self.glossary, texts[i], self.tokenizer) for i in wrong}
        for _ in range(ROUNDS):
            wanted = {i: each for i, each in wanted.items() if each}
            if not wanted:
                break
            results = search(list(wanted), list(wanted.values()))
            for i, new in zip(list(wanted), results, strict=True):
                kept[i] = self._better(texts[i], kept[i], new)
                others = set(self._spelt(texts[i], new[0])) - set(wanted[i].forbidden)
                wanted[i] = wanted[i] + Constraints((), tuple(others)) if others else Constraints()
        return kept

    def _better(self, text: str, old: list[Hypothesis], new: list[Hypothesis]) -> list[Hypothesis]:
        """What has fewer faults; of the new, the best first."""
        ranked = sorted(new, key=partial(self._faults, text))
        return ranked if self._faults(text, ranked[0]) < self._faults(text, old[0]) else old

    def _faults(self, text: str, found: Hypothesis) -> int:
        return sum(outcome.state != "placed" for outcome in self.outcomes(text, found))

    def _spelt(self, text: str, found: Hypothesis) -> Iterator[tuple[int, ...]]:
        """The tokens of the forbidden words that were used all the same: a word can be cut in several ways."""
        for outcome in self.outcomes(text, found):
            if outcome.state == "forbidden":
                yield self._tokens_of(outcome.text, found.tokens)

    def _tokens_of(self, word: str, tokens: tuple[int, ...]) -> tuple[int, ...]:
        ends = next(end for end in range(1, len(tokens) + 1) if word in self.tokenizer.decode(tokens[:end]))
        starts = (start for start in range(ends - 1, -1, -1) if word in self.tokenizer.decode(tokens[start:ends]))
        return tokens[next(starts, 0) : ends]
