"""English and French phrases built side by side: agreement, conjugation, negation, elision."""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

from regard.demo.lexicon import PERSONS, Adjective, Noun, VerbForms

ME, HE, WE, YOU, THEY = range(len(PERSONS))

WordPairs = tuple[tuple[str, str], ...]  # combinations of a noun and an adjective, by their English names


class Phrase(NamedTuple):
    """A noun phrase or a pronoun, in both languages, with what agreement needs to know."""

    english: str
    french: str
    pairs: WordPairs
    person: int
    feminine: bool = False
    noun: Noun | None = None  # its head, or what the pronoun stands for

    @property
    def plural(self) -> bool:
        return self.person in (WE, YOU, THEY)


class Clause(NamedTuple):
    """A piece of a sentence in both languages; the French is not yet elided."""

    english: str
    french: str
    pairs: WordPairs = ()


class Draft(NamedTuple):
    """A sentence pair; of a coreference, the last of its pairs tells what the pronoun stands for."""

    source: str
    target: str
    kind: str
    pairs: WordPairs
    pronoun: str | None = None
    about_subject: bool = False  # whether the pronoun stands for the subject of the sentence


PRONOUNS = (
    Phrase("I", "je", (), ME),
    Phrase("you", "vous", (), YOU),
    Phrase("he", "il", (), HE),
    Phrase("she", "elle", (), HE, feminine=True),
    Phrase("we", "nous", (), WE),
    Phrase("they", "ils", (), THEY),
)

_AVOIR = ("ai", "a", "avons", "avez", "ont")
_ETRE = ("suis", "est", "sommes", "êtes", "sont")
_ALLER = ("vais", "va", "allons", "allez", "vont")
_POUVOIR = ("peux", "peut", "pouvons", "pouvez", "peuvent")
_IMPERFECT = ("ais", "ait", "ions", "iez", "aient")
_AM = ("am", "is", "are", "are", "are")
_WAS = ("was", "was", "were", "were", "were")

_DETERMINERS = {  # masculine, feminine, plural
    "the": ("le", "la", "les"),
    "a": ("un", "une", ""),
    "not a": ("de", "de", ""),  # "I don't have a car": "je n'ai pas de voiture"
    "some": ("de le", "de la", "des"),
    "this": ("ce", "cette", "ces"),
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
    "two": ("", "", "deux"),
    "three": ("", "", "trois"),
    "": ("le", "la", "les"),  # in general: "cats" is "les chats"
}
_BEFORE_VOWEL = {"ce": "cet", "ma": "mon", "sa": "son"}
_DEGREES = {"": "", "too ": "trop ", "very ": "très ", "really ": "vraiment "}

# a vowel sound follows: "haie", "hache", "haricot", "haut" and "hibou" have an h that bars elision
_VOWEL = r"(?:[aeiouyâàéèêîôœ]|h(?!aie|ache|aricot|aut|ibou))"
_OPENS_WITH_VOWEL = re.compile(_VOWEL)
_ELIDED = re.compile(rf"\b(l|j|n|d|c|qu|jusqu)(?:e|a) (?={_VOWEL})")
_CONTRACTED = {"de le ": "du ", "de les ": "des ", "à le ": "au ", "à les ": "aux "}
_CONTRACTIBLE = re.compile(r"\b(?:de|à) les? ")


def finish(kind: str, *parts: Phrase | Clause, end: str = ".") -> Draft:
    """The parts as a sentence."""
    english, french, pairs = join(*parts)
    french = euphony(french) + (" ?" if end == "?" else end)
    return Draft(english[0].upper() + english[1:] + end, french[0].upper() + french[1:], kind, pairs)


def join(*parts: Phrase | Clause) -> Clause:
    """The parts one after the other, in both languages."""
    english = " ".join(part.english for part in parts).replace(" ,", ",")
    french = " ".join(part.french for part in parts).replace(" ,", ",")
    return Clause(english, french, tuple(pair for part in parts for pair in part.pairs))


def euphony(french: str) -> str:
    """French with its elisions and contractions: "à le arbre" -> "à l'arbre", "à le lac" -> "au lac"."""
    french = _ELIDED.sub(r"\1'", french).replace("si il", "s'il")
    return _CONTRACTIBLE.sub(lambda found: _CONTRACTED[found.group()], french)


@cache
def noun_phrase(determiner: str, noun: Noun, plural: bool, adjectives: tuple[Adjective, ...] = ()) -> Phrase:
    """The words in agreement and in order: "the small red house", "la petite maison rouge"."""
    form = 2 * plural + noun.feminine
    before = [word for word in adjectives if word.position == "before"]
    after = [word.french[form] for word in adjectives if word.position == "after"]
    name = noun.french[plural]
    words = [_beside(word, form, name) for word in before] + [name, *after]
    article = _DETERMINERS[determiner][2 if plural else noun.feminine]
    if _OPENS_WITH_VOWEL.match(words[0]):
        article = _BEFORE_VOWEL.get(article, article)
    if article == "des" and before:
        article = "de"
    shown = {"this": "these" if plural else "this", "not a": "a"}.get(determiner, determiner)
    english = " ".join(filter(None, [shown, *(word.english for word in adjectives), noun.english[plural]]))
    pairs = tuple((noun.name, word.english) for word in adjectives)
    person = THEY if plural else HE
    return Phrase(_with_an(english), " ".join([article, *words]), pairs, person, noun.feminine, noun)


def _beside(adjective: Adjective, form: int, following: str) -> str:
    """The form that stands before a noun: "vieux" is "vieil" before "arbre"."""
    if form == 0 and _OPENS_WITH_VOWEL.match(following):
        return adjective.liaison
    return adjective.french[form]


def _with_an(english: str) -> str:
    return "an " + english[2:] if english.startswith("a ") and english[2] in "aeiou" else english


def verb_phrase(subject: Phrase, verb: VerbForms, tense: str = "present", negation: str = "") -> Clause:
    """The verb in its tense, denied by "not" or "never": "didn't cross", "ne a pas traversé".

    Tenses: present, past, future ("is going to cross"), can, wanted ("wanted to cross").
    """
    french = f"{_french_verb(subject, verb, tense, negation)} {verb.tail}".rstrip()
    return Clause(_english_verb(subject, verb, tense, negation), french)


def _english_verb(subject: Phrase, verb: VerbForms, tense: str, negation: str) -> str:
    never = "never " if negation == "never" else ""
    denied = negation == "not"
    third = subject.person == HE
    if tense == "future":
        return f"{be(subject, 'present', negation)} {never}going to {verb.english}"
    if tense == "can":
        return ("can't " if denied else "can ") + never + verb.english
    if tense == "wanted":
        return ("didn't want to " if denied else never + "wanted to ") + verb.english
    if denied:
        return f"{'didn' if tense == 'past' else 'doesn' if third else 'don'}'t {verb.english}"
    return never + (verb.past if tense == "past" else verb.third if third else verb.english)


def _french_verb(subject: Phrase, verb: VerbForms, tense: str, negation: str) -> str:
    person, rest = subject.person, verb.infinitive
    if tense == "present":
        finite, rest = verb.present[person], ""
    elif tense == "past":
        finite = (_ETRE if verb.moves else _AVOIR)[person]
        rest = verb.participle + ("e" * subject.feminine + "s" * subject.plural if verb.moves else "")
    elif tense == "future":
        finite = _ALLER[person]
    elif tense == "can":
        finite = _POUVOIR[person]
    else:
        finite = "voul" + _IMPERFECT[person]
    return f"{_deny(finite, negation)} {rest}".rstrip()


def _deny(finite: str, negation: str) -> str:
    """The finite verb between the two halves of a French negation."""
    second = {"not": "pas", "never": "jamais"}.get(negation)
    return f"ne {finite} {second}" if second else finite


def be(subject: Phrase, tense: str, negation: str = "") -> str:
    """am, is, are, was or were, and its negation."""
    form = (_AM if tense == "present" else _WAS)[subject.person]
    if negation != "not":
        return form
    return "am not" if form == "am" else form + "n't"


def etre(subject: Phrase, tense: str, negation: str = "") -> str:
    """est, sont, était, étaient ..., and its negation."""
    finite = _ETRE[subject.person] if tense == "present" else "ét" + _IMPERFECT[subject.person]
    return _deny(finite, negation)


def predicate(subject: Phrase, adjective: Adjective, tense: str, degree: str = "", negation: str = "") -> Clause:
    """What the subject is: "was too tired", "était trop fatiguée"; who is hungry has hunger in French."""
    english = f"{be(subject, tense, negation)} {degree}{adjective.english}"
    pairs = ((subject.noun.name, adjective.english),) if subject.noun else ()
    if adjective.idiom:
        finite = _AVOIR[subject.person] if tense == "present" else "av" + _IMPERFECT[subject.person]
        return Clause(english, f"{_deny(finite, negation)} {_DEGREES[degree]}{adjective.idiom}", pairs)
    form = adjective.french[2 * subject.plural + subject.feminine]
    return Clause(english, f"{etre(subject, tense, negation)} {_DEGREES[degree]}{form}", pairs)
