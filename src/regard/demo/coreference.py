"""Sentences whose pronoun stands for either of two nouns, by what the adjective can describe.

"The animal didn't cross the street because it was too tired": il, the animal. "... because it was
too wide": elle, the street.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import NamedTuple

from regard.demo.lexicon import COLORS, Adjective, Noun, VerbForms, adjectives
from regard.demo.patterns import determiner
from regard.demo.phrases import THEY, Clause, Draft, Phrase, finish, noun_phrase, predicate, verb_phrase
from regard.demo.scenes import DRIVING, FITTING, SCENES, Scene


class Frame(NamedTuple):
    """How what happens and its reason are put together."""

    tense: str
    negation: str
    joint: Clause
    stance: str  # which reasons of a scene it takes: against, favor, after
    time: str  # tense of the reason
    degrees: tuple[str, ...]


_BECAUSE, _EVEN_THOUGH = Clause("because", "parce que"), Clause("even though", "même si")
_WHEN, _IF = Clause("when", "quand"), Clause("if", "si")
_BUT, _AND = Clause(", but", ", mais"), Clause(", and", ", et")
_TOO, _VERY = ("too ", "too ", "very ", ""), ("very ", "really ", "", "")

DIDNT_BECAUSE = Frame("past", "not", _BECAUSE, "against", "past", _TOO)
CANT_BECAUSE = Frame("can", "not", _BECAUSE, "against", "present", _TOO)
WANTED_BUT = Frame("wanted", "", _BUT, "against", "past", ("too ",))
DID_BECAUSE = Frame("past", "", _BECAUSE, "favor", "past", _VERY)
_FRAMES = (
    DIDNT_BECAUSE,
    DIDNT_BECAUSE,
    CANT_BECAUSE,
    Frame("wanted", "not", _BECAUSE, "against", "past", _TOO),
    Frame("future", "not", _BECAUSE, "against", "present", _TOO),
    Frame("present", "never", _BECAUSE, "against", "present", _TOO),
    WANTED_BUT,
    Frame("past", "", _EVEN_THOUGH, "against", "past", _VERY),
    Frame("present", "not", _WHEN, "against", "present", ("too ", "")),
    Frame("present", "not", _IF, "against", "present", ("too ", "")),
    DID_BECAUSE,
    DID_BECAUSE,
    Frame("future", "", _BECAUSE, "favor", "present", _VERY),
    Frame("present", "", _WHEN, "favor", "present", ("", "very ")),
    Frame("present", "", _IF, "favor", "present", ("", "very ")),
    Frame("past", "", _AND, "after", "past", _VERY),
)
_INERT_FRAMES = tuple(Frame(tense, "not", _BECAUSE, "against", "present", ("too ",)) for tense in ("present", "can"))
_SCENES = {
    stance: tuple(scene for scene in SCENES if scene.reasons(stance, True) and scene.reasons(stance, False))
    for stance in ("against", "favor", "after")
}
_NUMBERS = ((False, False), (True, True), (True, False), (False, True))  # is the one, is the other plural
_MILD = (*COLORS, *adjectives("beautiful pretty new"))
_WELCOME = adjectives("clean comfortable quiet")  # never too much


def coreference(rng: Random) -> Draft:
    """A sentence about its subject or its object, masculine or feminine, each as often as the other."""
    about_subject, feminine = rng.random() < 0.5, rng.random() < 0.5
    other = feminine if rng.random() < 0.1 else not feminine  # mostly the genders tell the two apart
    while True:
        frame = rng.choice(_FRAMES)
        scene = rng.choice(_SCENES[frame.stance])
        if rng.random() < 0.07:  # what has no will
            frame, scene = rng.choice(_INERT_FRAMES), rng.choice((FITTING, DRIVING))
        subject = _pick(rng, scene.subjects, feminine if about_subject else other)
        thing = _pick(rng, scene.things, other if about_subject else feminine)
        many, several = rng.choices(_NUMBERS, (66, 20, 8, 6))[0]
        if subject is None or thing is None or (several and "mass" in thing.tags):
            continue
        if "person" in subject.tags and not many and rng.random() < 0.6:
            continue  # one person is he or she in English, which leaves little to find out
        fitting = reasons(scene, frame, subject, thing, about_subject)
        if fitting:
            reason = rng.choice(fitting)
            one = _mild_phrase(rng, subject, many, reason)
            two = _mild_phrase(rng, thing, several, reason)
            degree = rng.choice(degrees(frame, reason)) if reason.graded else ""
            return build_sentence(scene.verb, frame, one, two, about_subject, reason, degree)


def build_sentence(
    verb: VerbForms,
    frame: Frame,
    subject: Phrase,
    thing: Phrase,
    about_subject: bool,
    reason: Adjective,
    degree: str = "",
) -> Draft:
    """The sentence with these parts."""
    pronoun = _pronoun(subject if about_subject else thing)
    action = verb_phrase(subject, verb, frame.tense, frame.negation)
    why = predicate(pronoun, reason, frame.time, degree)
    draft = finish("coreference", subject, action, thing, frame.joint, pronoun, why)
    return draft._replace(pronoun=pronoun.french, about_subject=about_subject)


def _pronoun(phrase: Phrase) -> Phrase:
    """What stands for a noun phrase: they, it, he or she; ils, elles, il or elle."""
    french = ("il", "elle")[phrase.feminine]
    if phrase.person == THEY:
        return phrase._replace(english="they", french=french + "s", pairs=())
    human = phrase.noun is not None and "person" in phrase.noun.tags
    return phrase._replace(english=("he", "she")[phrase.feminine] if human else "it", french=french, pairs=())


def reasons(scene: Scene, frame: Frame, subject: Noun, thing: Noun, about_subject: bool) -> list[Adjective]:
    """The adjectives that can describe the one noun and not the other."""
    one, other = (subject, thing) if about_subject else (thing, subject)
    return [
        word
        for word in scene.reasons(frame.stance, about_subject)
        if one.name in word.fits
        and (other.name not in word.fits or scene is FITTING)
        and not (word.lasting and (frame.joint is _WHEN or (frame.joint is _IF and about_subject)))
    ]


def degrees(frame: Frame, reason: Adjective) -> tuple[str, ...]:
    """How much of it there can be; what is there twice is said twice as often."""
    if not reason.graded:
        return ("",)
    return tuple("very " if degree == "too " and reason in _WELCOME else degree for degree in frame.degrees)


def _pick(rng: Random, choices: tuple[Noun, ...], feminine: bool) -> Noun | None:
    """A noun of one gender, if there is any."""
    fit = _of_gender(choices, feminine)
    return rng.choice(fit) if fit else None


@cache
def _of_gender(choices: tuple[Noun, ...], feminine: bool) -> tuple[Noun, ...]:
    return tuple(noun for noun in choices if noun.feminine == feminine)


def _mild_phrase(rng: Random, noun: Noun, plural: bool, reason: Adjective) -> Phrase:
    """A noun phrase whose adjective, if any, has no bearing on the reason."""
    word = rng.choice(_MILD)
    mild = noun.name in word.fits and reason.english not in ("beautiful", "pretty", word.english)
    adjectives = (word,) if mild and rng.random() < 0.5 else ()
    return noun_phrase(determiner(rng, noun, the=0.7), noun, plural, adjectives)
