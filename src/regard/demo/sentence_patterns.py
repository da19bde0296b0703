"""Samples sentences from the patterns in grammar/patterns.toml, which explains the parts of a pattern."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, TypeVar, get_type_hints

import msgspec

from regard.demo import bilingual_phrases as build
from regard.demo.bilingual_phrases import (
    HE,
    ME,
    PRONOUNS,
    THEY,
    WE,
    WORDS,
    YOU,
    Article,
    Degree,
    Phrase,
    Tense,
    TenseOfBe,
    noun_phrase,
)
from regard.demo.bilingual_words import ADJECTIVES, NOUNS, VERBS, Adjective, Adjectives, Noun, Nouns, VerbChoice
from regard.demo.grammar_files import GRAMMAR, Entry, load_entries, parse_own_type, require_known
from regard.demo.possible_actions import ACTIONS, PLACES, Action, ActionList, PossiblePlaces
from regard.errors import DataError

_FILE = GRAMMAR / "patterns.toml"
_FIELD = re.compile(r"\{(\w+)(?::([^|}]*)\|([^|}]*))?\}")
_FITTING = {noun: tuple(each for each in ADJECTIVES.values() if noun.name in each.fits) for noun in NOUNS.values()}
_BESIDE = {noun: tuple(word for word in words if word.position != "predicate") for noun, words in _FITTING.items()}
_COLORS = {noun: tuple(word for word in words if "color" in word.marks) for noun, words in _FITTING.items()}
_DESCRIBED = {word: tuple(noun for noun in NOUNS.values() if noun.name in word.fits) for word in ADJECTIVES.values()}
_NO_NOUNS, _NO_ADJECTIVES = Nouns(), Adjectives()
_NO_VERBS: list[VerbChoice] = []
_NO_WEIGHTS: list[int] = []
_PEOPLE = Nouns.parse("person")
_PREDICATIVE = Adjectives(word for word in ADJECTIVES.values() if "attributive" not in word.marks)
_EXCESSIVE = frozenset(  # adjectives that make sense with "too"
    word
    for action in ACTIONS["reasoned"] + ACTIONS["inanimate"]
    for word in action.against.actor + action.against.object
)


Name = TypeVar("Name", bound=str)


class PatternPart:
    """A part of a sentence to sample: the name of a `draw_` method of `DrawnParts` and its arguments."""

    def __init__(self, name: str, arguments: Mapping[str, Any]) -> None:
        self.name, self.arguments = name, arguments

    @classmethod
    def parse(cls, value: str | dict[str, Any]) -> PatternPart:
        """Validates the name and the arguments against the signature of the method."""
        arguments = dict(value) if isinstance(value, dict) else {"part": value}
        name, methods = arguments.pop("part", ""), vars(DrawnParts)
        require_known(name, ["variant", *(each[5:] for each in methods if each.startswith("draw_"))], "part")
        if name == "variant":
            return cls(name, {})
        method = methods[f"draw_{name}"]
        hints = get_type_hints(method, include_extras=True)
        fields = [
            (each.name, hints[each.name], msgspec.NODEFAULT if each.default is each.empty else each.default)
            for each in inspect.signature(method).parameters.values()
            if each.name != "self"
        ]
        schema = msgspec.defstruct(name, fields, forbid_unknown_fields=True)
        try:
            checked = msgspec.convert(arguments, schema, dec_hook=parse_own_type)
        except msgspec.ValidationError as error:
            raise ValueError(f"{name}: {error}") from None
        return cls(name, msgspec.structs.asdict(checked))


class Pattern(Entry, frozen=True):
    """A kind of sentence or a variant of it: the parts to sample in order, and the texts that contain them."""

    draw: list[PatternPart]
    kind: str = ""
    weight: int = 0
    chance: float = 0.0
    english: str = ""
    french: str = ""
    variant: tuple[Pattern, ...] = ()

    def __post_init__(self) -> None:
        phrases = [name for name, kind in DrawnParts.__annotations__.items() if kind == "Phrase"]
        for field in _FIELD.findall(self.english + self.french):
            require_known(field[0], phrases, "part in a text")

    def draw_sentence(self, rng: Random) -> build.Sentence:
        """Samples each part, and inserts the parts into the texts of the pattern or of the sampled variant."""
        drawn = DrawnParts(rng)
        try:
            text = self._draw_parts(drawn)
            used = [getattr(drawn, name) for name, singular, _ in _FIELD.findall(text.english) if not singular]
            english, french = drawn.fill(text.english, 0), drawn.fill(text.french, 1)
        except AttributeError as error:
            raise DataError(f"pattern {self.kind}: {error.name} must be drawn before it is used", _FILE) from error
        return build.finish_sentence(self.kind, english, french, used)

    def _draw_parts(self, drawn: DrawnParts) -> Pattern:
        text = self
        for part in self.draw:
            if part.name == "variant":
                variant = self._choose_variant(drawn.rng)._draw_parts(drawn)
                text = variant if variant.english else text
            else:
                getattr(drawn, f"draw_{part.name}")(**part.arguments)
        return text

    def _choose_variant(self, rng: Random) -> Pattern:
        if not any(variant.chance for variant in self.variant):
            return rng.choice(self.variant)
        drawn, reached = rng.random(), 0.0
        for variant in self.variant[:-1]:
            reached += variant.chance
            if drawn < reached:
                return variant
        return self.variant[-1]


class DrawnParts:
    """The parts of a sentence that have been sampled; each `draw_` method samples one more."""

    subject: Phrase
    verb: Phrase
    thing: Phrase
    owner: Phrase
    quality: Phrase
    where: Phrase
    before: Phrase
    after: Phrase
    action: Action
    location: PossiblePlaces
    noun: Noun
    adjective: Adjective

    def __init__(self, rng: Random) -> None:
        self.rng, self.tense, self.mood, self.plural, self.disliked = rng, "present", "", False, False

    def fill(self, text: str, language: int) -> str:
        """Inserts the parts into a text of one language: {thing}, or {thing:is|are} depending on its number."""

        def value(match: re.Match[str]) -> str:
            phrase: Phrase = getattr(self, match[1])
            return str(phrase[language] if match[2] is None else match[2 + phrase.plural])

        return _FIELD.sub(value, text)

    def draw_subject(self, pronoun: float, described: float) -> None:
        # In the past with être, French shows the gender of I, we and you, which English does not. In the present, these
        # pronouns are used only with daily actions, so that each form of a verb occurs often enough in training.
        action, barred = getattr(self, "action", None), False
        if self.rng.random() >= pronoun:
            nouns = action.actors if action else _PEOPLE
            self.subject = _known_phrase(self.rng, self.rng.choice(nouns), described)
            return
        if action and self.tense in ("present", "past"):
            barred = ("daily" not in action.verb.marks) if self.tense == "present" else ("être" in action.verb.marks)
        self.subject = self.rng.choice([each for each in PRONOUNS if not barred or each.person in (HE, THEY)])

    def draw_pronoun(self, pronouns: str) -> None:
        self.subject = self.rng.choice([each for each in PRONOUNS if each.english in pronouns.split()])

    def draw_action(self, actions: list[ActionList], daily: bool = False) -> None:
        choices = [action for kind in actions for action in ACTIONS[kind]]
        self.action = self.rng.choice([each for each in choices if not daily or "daily" in each.verb.marks])

    def draw_tense(self, tenses: list[Tense], weights: list[int] = _NO_WEIGHTS) -> None:
        sudden = hasattr(self, "action") and "sudden" in self.action.verb.marks
        odd = [sudden and tense == "present" for tense in tenses]
        if weights:
            shares = [0 if is_odd else weight for weight, is_odd in zip(weights, odd, strict=True)]
            self.tense = self.rng.choices(tenses, shares)[0]
        else:
            self.tense = _choose(self.rng, [tense for tense, is_odd in zip(tenses, odd, strict=True) if not is_odd])

    def draw_negation(self, never: int = 0) -> None:
        weights = (65, 25, never if self.tense in ("present", "past") else 0)
        self.mood = self.rng.choices(("", "not", "never"), weights)[0]

    def draw_verb(
        self,
        verbs: list[VerbChoice] = _NO_VERBS,
        first_person: list[VerbChoice] = _NO_VERBS,
        tense: Tense = "",
        question: bool = False,
        pronoun: bool = False,
    ) -> None:
        is_speaker = self.subject.person in (ME, WE)
        name = _choose(self.rng, first_person if first_person and is_speaker else verbs) if verbs else ""
        verb = VERBS[name.removeprefix("not ")] if verbs else self.action.verb
        if question and is_speaker:  # people do not ask about themselves
            self.subject = next(each for each in PRONOUNS if each.person == YOU)
        ambiguous = self.tense == "past" and verb.past == verb.english and self.subject.person != HE  # "they read"
        self.mood = "question" if question else "not" if ambiguous or name.startswith("not ") else self.mood
        self.disliked = bool(self.mood) or "dislike" in verb.marks
        it = None
        if pronoun:
            it = Phrase(*WORDS.object_pronouns["plural" if self.thing.plural else "mf"[self.thing.feminine]])
        self.verb = build.verb_phrase(self.subject, verb, tense or self.tense, self.mood, it)

    def draw_be(self) -> None:
        self.verb = build.to_be(self.thing, self.tense, self.mood)

    def draw_time(self) -> None:
        self.before = self.after = Phrase("", "")
        marks, times = self.action.verb.marks, WORDS.times.get(self.tense, [])
        sudden = self.tense == "future" and "sudden" in marks
        unusual = self.tense == "present" and (self.mood or "habit" not in marks)
        if not times or self.mood == "never" or sudden or unusual or self.rng.random() < 0.6:
            return
        english, french = self.rng.choice(times)
        if self.rng.random() < 0.3:
            self.before = Phrase(f"{english}, ", f"{french}, ")
        else:
            self.after = Phrase(f" {english}", f" {french}")

    def draw_noun(self, nouns: Nouns = _NO_NOUNS, fitting: Adjectives = _NO_ADJECTIVES, keep: float = 0.0) -> None:
        if keep and self.rng.random() < keep:
            return
        choices: Sequence[Noun] = nouns
        if fitting:
            choices = [noun for noun in nouns if any(noun.name in word.fits for word in fitting)]
        if not nouns:
            choices = self.action.objects if hasattr(self, "action") else _DESCRIBED[self.adjective]
        subject = getattr(self, "subject", PRONOUNS[0]).noun
        self.noun = self.rng.choice([noun for noun in choices if noun is not subject])

    def draw_located(self, without: str = "", fixed: bool = True) -> None:
        self.location = self.rng.choice([each for each in PLACES if fixed or not each.fixed])
        self.noun = self.rng.choice([noun for noun in self.location.located if without not in noun.tags])

    def draw_where(self) -> None:
        spot = self.rng.choice(self.location.at)
        place = self.rng.choice([noun for noun in spot.places if noun is not self.noun])
        phrase = noun_phrase("the", place, False, _draw_adjectives(self.rng, place, 0.2))
        self.where = Phrase(f"{spot.english} {phrase.english}", f"{spot.french} {phrase.french}", phrase.pairs)

    def draw_plural(self, chance: float) -> None:
        self.plural = _draw_plural(self.rng, self.noun, chance)

    def draw_known(self, described: float, the: float = 0.5, consistent: bool = False, or_some: bool = False) -> None:
        if or_some:
            verb = self.action.verb
            definite = self.mood or verb.then or "definite" in verb.marks or "relative" in self.noun.tags
            if not definite and self.rng.random() >= 0.55:
                return self.draw_article("some", described)
        self.thing = _known_phrase(self.rng, self.noun, described, the, self._contradiction(consistent))
        return None

    def draw_article(
        self, article: Article, described: float = 0.0, consistent: bool = False, affirmative: bool = False
    ) -> None:
        if affirmative and self.mood:
            return
        mass = "mass" in self.noun.tags
        if article != "some" or not mass:
            article = _choose(self.rng, WORDS.articles.get(article, [article]))
        plural = (self.plural and article not in ("a", "not a")) or article in ("some", "two", "three", "general")
        words = _draw_adjectives(self.rng, self.noun, described, self._contradiction(consistent)) if described else ()
        self.thing = noun_phrase(article, self.noun, plural and not mass, words)

    def _contradiction(self, consistent: bool) -> str:
        """Returns the mark of adjectives that contradict the verb, since people do not hate good things."""
        return ("good" if self.disliked else "bad") if consistent else ""

    def draw_owner(self) -> None:
        person = self.rng.choice(_PEOPLE)
        self.owner = noun_phrase(draw_determiner(self.rng, person), person, False)

    def draw_adjective(self, adjectives: Adjectives = _PREDICATIVE, third_person: Nouns = _NO_NOUNS) -> None:
        noun, words = getattr(self, "noun", None), adjectives
        if third_person and self.subject.person == HE:
            noun, words = third_person[0], Adjectives(ADJECTIVES.values())
        self.adjective = self.rng.choice([word for word in words if noun is None or noun.name in word.fits])

    def draw_quality(self, degrees: list[Degree], tenses: list[TenseOfBe], negated: bool = False) -> None:
        word, degree, mood = self.adjective, "", ""
        if "absolute" not in word.marks:
            degree = self.rng.choice(["" if each == "too" and word not in _EXCESSIVE else each for each in degrees])
        if negated and degree in ("", "very"):
            mood = self.rng.choices(("", "not"), (65, 25))[0]
        described = getattr(self, "thing", None) or self.subject
        self.quality = build.predicate(described, word, _choose(self.rng, tenses), degree, mood)


def draw_determiner(rng: Random, noun: Noun, the: float = 0.5) -> str:
    """Samples a determiner: the, this or, for relatives and pets rather than queens and rivers, my, your and so on."""
    owned: list[str] = WORDS.articles["owned"]
    if "relative" in noun.tags:
        return rng.choice(owned)
    if rng.random() < the:
        return "the"
    return rng.choice(owned if noun.tags & {"own", "pet", "known"} and rng.random() < 0.7 else ["the", "this", "this"])


def _known_phrase(rng: Random, noun: Noun, described: float, the: float = 0.5, banned: str = "") -> Phrase:
    """Samples a definite noun phrase, which has adjectives with probability `described`."""
    adjectives = _draw_adjectives(rng, noun, described, banned)
    return noun_phrase(draw_determiner(rng, noun, the), noun, _draw_plural(rng, noun, 0.35), adjectives)


def _draw_plural(rng: Random, noun: Noun, chance: float) -> bool:
    return "mass" not in noun.tags and rng.random() < chance


def _draw_adjectives(rng: Random, noun: Noun, described: float, banned: str = "") -> tuple[Adjective, ...]:
    """Samples no adjective, one, or one on each side of the French noun, without the mark `banned`."""
    if rng.random() >= described:
        return ()
    word = rng.choice(_BESIDE[noun])
    if banned in word.marks:
        return ()
    beside_color = word.position == "before" and _COLORS[noun] and rng.random() < 0.5
    return (word, rng.choice(_COLORS[noun])) if beside_color else (word,)


def _choose(rng: Random, names: Sequence[Name]) -> Name:
    return names[0] if len(names) == 1 else rng.choice(names)


PATTERNS = load_entries(_FILE, "pattern", Pattern)
