"""The plain sentence patterns of the demonstration grammar; each draws a sentence in both languages."""

from __future__ import annotations

from random import Random

from regard.demo.lexicon import ADJECTIVES, COLORS, NOUNS, VERBS, Adjective, Noun, VerbForms, adjectives
from regard.demo.phrases import (
    HE,
    ME,
    PRONOUNS,
    THEY,
    WE,
    Clause,
    Draft,
    Phrase,
    be,
    etre,
    finish,
    join,
    noun_phrase,
    predicate,
    verb_phrase,
)
from regard.demo.scenes import FITTING, JOURNEYS, PLAIN, SCENES, SPOTS, Scene, Spot, nouns


def likes(rng: Random) -> Draft:
    """Draw such as "I love the beautiful garden." with "J'aime le beau jardin."."""
    subject, general = _someone(rng), rng.random() < 0.25
    name = rng.choice(("love", "love", "like", "not like", "hate", "prefer"))
    verb = verb_phrase(subject, VERBS[name], "present", "not" if name == "not like" else "")
    noun = rng.choice(_GENERAL if general else _LIKED)
    words = _adjectives(rng, noun, 0.5 if general else 0.95, but=_GOOD if name in ("hate", "not like") else _BAD)
    if general:
        return finish("likes", subject, verb, noun_phrase("", noun, "mass" not in noun.tags, words))
    return finish("likes", subject, verb, noun_phrase(determiner(rng, noun), noun, _maybe_plural(rng, noun), words))


def action(rng: Random) -> Draft:
    """Draw such as "My sister didn't buy the car." with "Ma sœur n'a pas acheté la voiture."."""
    daily = rng.random() < 0.3
    scene = rng.choice(_DAILY if daily else _ACTIONS)
    habit = 0 if scene.verb in _AT_ONCE else 1000 if daily else 25
    tense = rng.choices(("present", "past", "future", "can", "wanted"), (habit, 45, 12, 7, 6))[0]
    negation, subject = _negation(rng, tense), _actor(rng, scene, tense)
    if tense == "past" and not scene.verb.shows_past and subject.person != HE:
        negation = "not"  # "they read" would be both present and past
    noun = rng.choice([noun for noun in scene.things if noun is not subject.noun])
    definite = scene.verb.tail or scene.verb is VERBS["leave"] or "relative" in noun.tags
    known = negation or definite or rng.random() < 0.55
    thing = _known(rng, noun, 0.6) if known else _some(rng, noun, 0.6)
    return _act(rng, "action", subject, scene.verb, thing, tense, negation)


def journey(rng: Random) -> Draft:
    """Draw such as "The girls went to the museum." with "Les filles sont allées au musée."."""
    scene = rng.choice(JOURNEYS)
    tense = rng.choices(("present", "past", "future"), (0 if scene.verb in _AT_ONCE else 25, 60, 15))[0]
    negation, subject, noun = _negation(rng, tense), _actor(rng, scene, tense), rng.choice(scene.things)
    where = noun_phrase("the", noun, False, _adjectives(rng, noun, 0.5))
    return _act(rng, "journey", subject, scene.verb, where, tense, negation)


def question(rng: Random) -> Draft:
    """Draw such as "Do you have a car?" with "Est-ce que vous avez une voiture ?"."""
    tense, drawn = "present", rng.random()
    if drawn < 0.3:
        there = _known(rng, rng.choice(rng.choice(SPOTS)[0]), 0.7, the=1.0)
        return finish("question", Clause(f"where {be(there, tense)}", f"où {etre(there, tense)}"), there, end="?")
    if drawn < 0.6:
        verb, subject, noun = VERBS[rng.choice(("not like", "want", "have"))], _someone(rng), rng.choice(_GOODS)
        has = verb is VERBS["have"]
        thing = noun_phrase("a", noun, False, _adjectives(rng, noun, 0.7)) if has else _known(rng, noun, 0.8)
    else:
        scene = rng.choice(_ACTIONS)
        verb, tense = scene.verb, "past" if scene.verb in _AT_ONCE else rng.choice(("present", "past"))
        subject = _actor(rng, scene, tense)
        thing = _known(rng, rng.choice([noun for noun in scene.things if noun is not subject.noun]), 0.5)
    if subject.person in (ME, WE):
        subject = PRONOUNS[1]  # nobody asks what he does himself
    do = "did" if tense == "past" else "does" if subject.person == HE else "do"
    asked = Clause(verb.english, verb_phrase(subject, verb, tense).french)
    return finish("question", Clause(do, "est-ce que"), subject, asked, thing, end="?")


def there_is(rng: Random) -> Draft:
    """Draw such as "There is an old hotel near the river." with "Il y a un vieil hôtel ..."."""
    beings, spots = rng.choice(SPOTS)
    noun = rng.choice([noun for noun in beings if "relative" not in noun.tags])
    where = _spot(rng, rng.choice(spots), noun)
    if rng.random() < 0.15:
        thing = noun_phrase("not a", noun, False, _adjectives(rng, noun, 0.7))
        return finish("there is", Clause("there isn't", "il ne y a pas"), thing, where)
    thing = _some(rng, noun, 0.75)
    return finish("there is", Clause(f"there {be(thing, 'present')}", "il y a"), thing, where)


def place(rng: Random) -> Draft:
    """Draw such as "The keys are under the bed." with "Les clés sont sous le lit."."""
    beings, spots = rng.choice(SPOTS[:-1])  # where buildings are is no news
    noun = rng.choice(beings)
    thing, tense, negation = _known(rng, noun, 0.55), rng.choice(("present", "past")), _negation(rng)
    verb = Clause(be(thing, tense, negation), etre(thing, tense, negation))
    return finish("place", thing, verb, _spot(rng, rng.choice(spots), noun))


def possession(rng: Random) -> Draft:
    """Draw such as "My brother has a car.", "These are our books.", "The king's castle is large."."""
    drawn, noun, plural, negation = rng.random(), rng.choice(_OWN), rng.random() < 0.4, _negation(rng)
    if drawn < 0.4:
        subject, noun = _someone(rng), noun if rng.random() < 0.7 else rng.choice(_PETS)
        none = noun_phrase("not a", noun, False, _adjectives(rng, noun, 0.6))
        verb = verb_phrase(subject, VERBS["have"], "present", negation)
        return finish("possession", subject, verb, none if negation else _some(rng, noun, 0.85))
    if drawn < 0.7:
        thing = noun_phrase(rng.choice(_OWNERS), noun, plural, _adjectives(rng, noun, 0.8))
        english = f"{'these' if plural else 'this'} {be(thing, 'present', negation)}"
        return finish("possession", Clause(english, f"ce {etre(thing, 'present', negation)}"), thing)
    person = rng.choice(_PEOPLE)
    owner, owned = noun_phrase(determiner(rng, person), person, False), noun_phrase("the", noun, plural)
    english, french = f"{owner.english}'s {noun.english[plural]}", f"{owned.french} de {owner.french}"
    word = rng.choice([word for word in _SAID[noun] if word in _SAYABLE])
    return _said(rng, "possession", owned._replace(english=english, french=french), word)


def description(rng: Random) -> Draft:
    """Draw such as "The soup wasn't hot." with "La soupe n'était pas chaude."."""
    if rng.random() >= 0.12:
        word = rng.choice(_SAYABLE)
        return _said(rng, "description", _known(rng, rng.choice(_DESCRIBED[word]), 0.0), word)
    subject = rng.choice([word for word in PRONOUNS if word.person in (ME, HE, WE)])
    word = rng.choice(_SAME_FOR_ALL if subject.person != HE else _SAID[NOUNS["neighbor"]])
    degree = rng.choice(("", "very ", "really ")) if word.graded else ""
    return finish("description", subject, predicate(subject, word, rng.choice(("present", "past")), degree))


def opinion(rng: Random) -> Draft:
    """Draw such as "He says that the soup is cold." with "Il dit que la soupe est froide."."""
    subject = _someone(rng)
    name = rng.choice(("think", "know") if subject.person in (ME, WE) else ("think", "know", "say"))
    word = rng.choice(_SAYABLE)
    thing = _known(rng, rng.choice([noun for noun in _DESCRIBED[word] if noun is not subject.noun]), 0.0)
    return _said(rng, "opinion", thing, word, subject, verb_phrase(subject, VERBS[name]), Clause("that", "que"))


def wish(rng: Random) -> Draft:
    """Draw such as "The car is expensive, but I want it." with "..., mais je la veux."."""
    charming = rng.random() < 0.5
    words = _CHARMS if charming else _FLAWS
    noun = rng.choice([noun for noun in _GOODS if any(noun.name in word.fits for word in words)])
    thing = noun_phrase("the", noun, _maybe_plural(rng, noun))
    word = rng.choice([word for word in words if noun.name in word.fits])
    quality = predicate(thing, word, "present", rng.choice(("", "very ")))
    it = Clause("them", "les") if thing.person == THEY else Clause("it", "la" if thing.feminine else "le")
    subject = rng.choice(PRONOUNS)
    if rng.random() < 0.5:
        english, french = verb_phrase(subject, VERBS["want"])[:2]
        verb = Clause(f"{english} {it.english}", f"{it.french} {french}")
    else:
        english, french = verb_phrase(subject, VERBS["buy"], "future")[:2]
        verb = Clause(f"{english} {it.english}", french.replace("acheter", f"{it.french} acheter"))
    joint = Clause(", and", ", et") if charming else Clause(", but", ", mais")
    return finish("wish", thing, quality, joint, subject, verb)


# ---- what the patterns are made of

_OWNERS = ("my", "your", "his", "her", "our", "their")
_TIMES = {
    "past": (
        Clause("yesterday", "hier"),
        Clause("this morning", "ce matin"),
        Clause("last week", "la semaine dernière"),
    ),
    "present": (Clause("every day", "tous les jours"), Clause("every morning", "tous les matins")),
    "future": (
        Clause("tomorrow", "demain"),
        Clause("tonight", "ce soir"),
        Clause("next week", "la semaine prochaine"),
    ),
}
_SAID = {  # what can be said of each noun
    noun: tuple(word for word in ADJECTIVES.values() if noun.name in word.fits) for noun in NOUNS.values()
}
_DESCRIBED = {word: tuple(noun for noun, words in _SAID.items() if word in words) for word in ADJECTIVES.values()}
_BESIDE = {noun: tuple(word for word in words if word.position != "predicate") for noun, words in _SAID.items()}
_TINTS = {noun: tuple(word for word in words if word in COLORS) for noun, words in _SAID.items()}
_SAME_FOR_ALL = adjectives("sick sad shy poor rich hungry thirsty afraid")  # in French, for men and women
_BAD = adjectives(
    "bad dirty boring broken hard noisy dangerous clumsy lazy sick weak slow sad nervous hungry thirsty heavy"
)
_GOOD = adjectives("good delicious comfortable kind fresh beautiful pretty happy clever")
_FLAWS = adjectives("old expensive heavy dirty small fragile noisy slow")
_CHARMS = adjectives("beautiful pretty comfortable modern light fast")
_SAYABLE = tuple(  # after "is", "new" would be "neuf" of things and "nouveau" of people
    word for word in ADJECTIVES.values() if word.english != "new"
)
_EXCESSIVE = frozenset(  # what can be too much
    word for scene in (*SCENES, FITTING) for part in (True, False) for word in scene.reasons("against", part)
)

_PEOPLE, _OWN, _PETS = nouns("person"), nouns("own"), nouns("pet horse")
_LIKED = nouns("animal food drink clothing vehicle building land town reading furniture room tool waters tree")
_GENERAL = nouns("pet horse food milk coffee reading clothing castle museum garden tree mountain")
_GOODS = nouns("clothing vehicle furniture lamp clock computer bag suitcase house")

_ACTIONS = (*SCENES, *PLAIN, *PLAIN)
_AT_ONCE = frozenset(  # odd in the present
    VERBS[name] for name in ("break", "find", "forget", "lose", "buy", "sell", "fall into", "come out of")
)
_DAILY = tuple(
    scene
    for scene in (*SCENES, *PLAIN, *JOURNEYS)
    if scene.verb.english in ("eat", "drink", "see", "read", "wear", "open", "close", "take", "look at", "go to")
)
_HABITS = frozenset(  # what is done every day
    VERBS[name]
    for name in (
        *("eat", "drink", "sleep in", "sleep on", "wear", "wash", "cross", "open", "close", "read", "see", "hear"),
        *("draw", "take", "carry", "look at", "go to", "walk to", "come back from", "arrive at"),
    )
)


def determiner(rng: Random, noun: Noun, the: float = 0.5) -> str:
    """the, this, my, your ...; one has sisters and pets, but not queens and rivers."""
    if "relative" in noun.tags:
        return rng.choice(_OWNERS)
    if rng.random() < the:
        return "the"
    owned = noun.tags & {"own", "pet", "known"} and rng.random() < 0.7
    return rng.choice(_OWNERS) if owned else rng.choice(("the", "this", "this"))


def _known(rng: Random, noun: Noun, described: float, the: float = 0.5) -> Phrase:
    """A definite noun phrase, described by adjectives with the given probability."""
    words = _adjectives(rng, noun, described)
    return noun_phrase(determiner(rng, noun, the), noun, _maybe_plural(rng, noun), words)


def _some(rng: Random, noun: Noun, described: float) -> Phrase:
    """An indefinite noun phrase: a, some, two or three; some of what cannot be counted."""
    article = "some" if "mass" in noun.tags else rng.choice(("a", "a", "a", "some", "some", "two", "three"))
    plural = article != "a" and "mass" not in noun.tags
    return noun_phrase(article, noun, plural, _adjectives(rng, noun, described))


def _maybe_plural(rng: Random, noun: Noun) -> bool:
    return "mass" not in noun.tags and rng.random() < 0.35


def _adjectives(rng: Random, noun: Noun, described: float, but: tuple[Adjective, ...] = ()) -> tuple[Adjective, ...]:
    """None, one, or one on each side of the French noun."""
    if rng.random() >= described:
        return ()
    word = rng.choice(_BESIDE[noun])
    if word in but:
        return ()
    if word.position == "before" and _TINTS[noun] and rng.random() < 0.5:
        return word, rng.choice(_TINTS[noun])
    return (word,)


def _someone(rng: Random) -> Phrase:
    """A pronoun or a person."""
    if rng.random() < 0.6:
        return rng.choice(PRONOUNS)
    return _known(rng, rng.choice(_PEOPLE), 0.15)


def _actor(rng: Random, scene: Scene, tense: str) -> Phrase:
    """Who can act in a scene.

    The past with être tells the sex of I, we and you, which English hides. In the present, I, we
    and you do what is done daily, so that each form of a verb is seen often enough to be learnt.
    """
    if rng.random() < 0.45:
        barred = scene.verb.moves if tense == "past" else tense == "present" and scene not in _DAILY
        return rng.choice([word for word in PRONOUNS if not barred or word.person in (HE, THEY)])
    return _known(rng, rng.choice(scene.subjects), 0.2)


def _negation(rng: Random, tense: str = "") -> str:
    never = 10 if tense in ("present", "past") else 0
    return rng.choices(("", "not", "never"), (65, 25, never))[0]


def _act(rng: Random, kind: str, subject: Phrase, verb: VerbForms, thing: Phrase, tense: str, negation: str) -> Draft:
    """A simple statement, perhaps with a time before or after it."""
    parts = (subject, verb_phrase(subject, verb, tense, negation), thing)
    sudden, habit = tense == "future" and verb in _AT_ONCE, verb in _HABITS and not negation
    odd = negation == "never" or sudden or (tense == "present" and not habit)
    if tense not in _TIMES or odd or rng.random() < 0.6:
        return finish(kind, *parts)
    time = rng.choice(_TIMES[tense])
    if rng.random() < 0.3:
        return finish(kind, Clause(f"{time.english},", f"{time.french},"), *parts)
    return finish(kind, *parts, time)


def _spot(rng: Random, spot: Spot, noun: Noun) -> Clause:
    """Where something is: "near the river"."""
    there = rng.choice([other for other in spot.places if other is not noun])
    return join(Clause(spot.english, spot.french), noun_phrase("the", there, False, _adjectives(rng, there, 0.2)))


def _said(rng: Random, kind: str, thing: Phrase, word: Adjective, *before: Phrase | Clause) -> Draft:
    """What something is or was, or is not."""
    degree = rng.choice(("", "", "very ", "really ", "too " if word in _EXCESSIVE else "")) if word.graded else ""
    negation = _negation(rng) if degree in ("", "very ") else ""
    return finish(
        kind, *before, thing, predicate(thing, word, rng.choice(("present", "present", "past")), degree, negation)
    )
