"""Samples sentences whose pronoun stands for one of two nouns, depending on what the adjective can describe.

"The animal didn't cross the street because it was too tired": il, the animal. "... because it was too wide": elle,
the street.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Literal

import msgspec

from regard.demo import bilingual_phrases as build
from regard.demo.bilingual_phrases import THEY, Degree, Phrase, Tense, TenseOfBe, noun_phrase
from regard.demo.bilingual_words import Adjective, Adjectives, Noun, Nouns
from regard.demo.grammar_files import GRAMMAR, Entry, load_toml
from regard.demo.possible_actions import ACTIONS, Action
from regard.demo.sentence_patterns import draw_determiner


class Frame(Entry, frozen=True):
    """The words between an action and its reason, with the tenses of both and the possible kinds of reasons."""

    tense: Tense
    english: str
    french: str
    reasons: Literal["against", "favor", "after"]
    reason_tense: TenseOfBe
    degrees: list[Degree]
    negation: Literal["", "not", "never"] = ""
    lasting: Literal["", "actor", "object", "actor object"] = "actor object"
    name: str = ""
    copies: int = 1

    def possible_reasons(self, action: Action, actor: Noun, thing: Noun, about_actor: bool) -> list[Adjective]:
        """Returns the adjectives that can describe one of the nouns, but not the other."""
        one, other = (actor, thing) if about_actor else (thing, actor)
        lasting = ("actor" if about_actor else "object") in self.lasting
        return [
            word
            for word in getattr(getattr(action, self.reasons), "actor" if about_actor else "object")
            if one.name in word.fits
            and (other.name not in word.fits or action.both_may_fit)
            and (lasting or "lasting" not in word.marks)
        ]

    def possible_degrees(self, reason: Adjective) -> list[str]:
        """Returns the possible degrees of an adjective; a degree that is listed twice is twice as probable."""
        if "absolute" in reason.marks:
            return [""]
        return ["very" if degree == "too" and "welcome" in reason.marks else degree for degree in self.degrees]

    def build(
        self, action: Action, actor: Phrase, thing: Phrase, about_actor: bool, reason: Adjective, degree: str
    ) -> build.Sentence:
        """Builds a sentence about an action that the actor does or does not do for a reason."""
        pronoun = _pronoun_for(actor if about_actor else thing)
        did = build.verb_phrase(actor, action.verb, self.tense, self.negation)
        why = build.predicate(pronoun, reason, self.reason_tense, degree)
        joint = Phrase(self.english, self.french)
        sentence = build.build_sentence("coreference", actor, did, thing, joint, pronoun, why)
        return msgspec.structs.replace(sentence, pronoun=pronoun.french, about_actor=about_actor)


def _pronoun_for(phrase: Phrase) -> Phrase:
    french = ("il", "elle")[phrase.feminine]
    if phrase.person == THEY:
        return phrase._replace(english="they", french=french + "s", pairs=())
    human = phrase.noun is not None and "person" in phrase.noun.tags
    return phrase._replace(english=("he", "she")[phrase.feminine] if human else "it", french=french, pairs=())


class _PronounSentences(Entry, frozen=True):
    weight: int
    mild: Adjectives
    frame: list[Frame]
    inanimate_frame: list[Frame]


_DATA = load_toml(GRAMMAR / "pronoun_sentences.toml", _PronounSentences)
_CHOICES = [frame for frame in _DATA.frame for _ in range(frame.copies)]
WEIGHT = _DATA.weight
FRAMES = {frame.name: frame for frame in _DATA.frame if frame.name}


def draw_pronoun_sentence(rng: Random) -> build.Sentence:
    """Samples a sentence whose pronoun stands for the actor or the object, masculine or feminine, equally often."""
    about_actor, feminine = rng.random() < 0.5, rng.random() < 0.5
    other = feminine if rng.random() < 0.1 else not feminine  # the genders usually differ
    while True:
        frame = rng.choice(_CHOICES)
        action = rng.choice(_with_reasons(frame.reasons))
        if rng.random() < 0.07:
            frame, action = rng.choice(_DATA.inanimate_frame), rng.choice(ACTIONS["inanimate"])
        actors = _of_gender(action.actors, feminine if about_actor else other)
        objects = _of_gender(action.objects, other if about_actor else feminine)
        actor, thing = (rng.choice(nouns) if nouns else None for nouns in (actors, objects))
        plurals = ((False, False), (True, True), (True, False), (False, True))  # for the actor and the object
        many, several = rng.choices(plurals, (66, 20, 8, 6))[0]
        if actor is None or thing is None or (several and "mass" in thing.tags):
            continue
        if "person" in actor.tags and not many and rng.random() < 0.6:
            continue  # "he" or "she" would reveal the gender
        if reasons := frame.possible_reasons(action, actor, thing, about_actor):
            reason = rng.choice(reasons)
            one, two = _draw_phrase(rng, actor, many, reason), _draw_phrase(rng, thing, several, reason)
            degree = "" if "absolute" in reason.marks else rng.choice(frame.possible_degrees(reason))
            return frame.build(action, one, two, about_actor, reason, degree)


@cache
def _with_reasons(stance: str) -> tuple[Action, ...]:
    """Returns the actions with reasons of this kind for both the actor and the object."""
    return tuple(each for each in ACTIONS["reasoned"] if getattr(each, stance).actor and getattr(each, stance).object)


@cache
def _of_gender(choices: Nouns, feminine: bool) -> tuple[Noun, ...]:
    return tuple(noun for noun in choices if noun.feminine == feminine)


def _draw_phrase(rng: Random, noun: Noun, plural: bool, reason: Adjective) -> Phrase:
    """Samples a noun phrase whose adjective, if any, is unrelated to the reason."""
    word = rng.choice(_DATA.mild)
    mild = noun.name in word.fits and reason.english not in ("beautiful", "pretty", word.english)
    adjectives = (word,) if mild and rng.random() < 0.5 else ()
    return noun_phrase(draw_determiner(rng, noun, the=0.7), noun, plural, adjectives)
