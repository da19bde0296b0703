"""Builds phrases in English and French at the same time, with agreement, conjugation, negation and elision."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Annotated, Literal, NamedTuple

from regard.demo.bilingual_words import PERSONS, Adjective, Noun, VerbForms
from regard.demo.grammar_files import GRAMMAR, Entry, load_toml, one_of

ME, HE, WE, YOU, THEY = range(len(PERSONS))

TenseOfBe = Annotated[str, one_of(["present", "past"])]
WordPairs = tuple[tuple[str, str], ...]  # pairs of a noun and an adjective in English


class Sentence(Entry, frozen=True):
    """A sentence in both languages; if it has a pronoun, the last pair contains the noun it stands for."""

    source: str  # English
    target: str  # French
    kind: str  # such as "coreference" or "likes"
    pronoun: str | None = None  # the correct French pronoun: il, elle, ils or elles
    pairs: WordPairs = ()
    about_actor: bool = False  # whether the pronoun stands for the first noun


class Phrase(NamedTuple):
    """A part of a sentence in both languages, with the features for agreement; French elision is applied later."""

    english: str
    french: str
    pairs: WordPairs = ()
    person: int = HE
    feminine: bool = False
    noun: Noun | None = None  # head noun, or the noun that the pronoun stands for

    @property
    def plural(self) -> bool:
        return self.person in (WE, YOU, THEY)


class _Pronoun(Entry, frozen=True):
    english: str
    french: str
    like: Literal["je", "il", "nous", "vous", "ils"]
    feminine: bool = False


class _Tense(Entry, frozen=True):
    affirmative: str
    negative: str
    question: str
    french: str = ""


class FunctionWords(Entry, frozen=True):
    """The function words of both languages, as in function_words.toml."""

    aspirated: list[str]
    pronoun: list[_Pronoun]
    determiners: dict[str, tuple[str, str, str]]
    english_determiners: dict[str, str]
    articles: dict[str, list[str]]
    before_vowel: dict[str, str]
    object_pronouns: dict[str, tuple[str, str]]
    degrees: dict[str, str]
    conjugations: dict[str, dict[TenseOfBe, str]]
    tenses: dict[str, _Tense]
    times: dict[str, list[tuple[str, str]]]


WORDS = load_toml(GRAMMAR / "function_words.toml", FunctionWords)
Tense = Annotated[str, one_of(WORDS.tenses)]
Degree = Annotated[str, one_of(WORDS.degrees)]
Article = Annotated[str, one_of([*WORDS.determiners, *WORDS.articles])]
PRONOUNS = [Phrase(each.english, each.french, (), PERSONS.index(each.like), each.feminine) for each in WORDS.pronoun]

_VOWEL = rf"(?:[aeiouyâàéèêîôœ]|h(?!{'|'.join(word[1:] for word in WORDS.aspirated)}))"  # a vowel sound
_STARTS_WITH_VOWEL = re.compile(_VOWEL)
_ELIDED = re.compile(rf"\b(l|j|n|d|c|qu|jusqu)(?:e|a) (?={_VOWEL})")
_CONTRACTED = {"de le ": "du ", "de les ": "des ", "à le ": "au ", "à les ": "aux "}
_CONTRACTIBLE = re.compile(r"\b(?:de|à) les? ")


def build_sentence(kind: str, *parts: Phrase) -> Sentence:
    """Joins phrases to a sentence."""
    english, french = (" ".join(str(part[language]) for part in parts) + "." for language in (0, 1))
    return finish_sentence(kind, english, french, parts)


def finish_sentence(kind: str, english: str, french: str, parts: Iterable[Phrase]) -> Sentence:
    """Applies French elision and contraction, and capitalizes both sentences."""
    source, target = english.replace(" ,", ","), euphony(french.replace(" ,", ","))
    pairs = tuple(pair for part in parts for pair in part.pairs)
    return Sentence(source[0].upper() + source[1:], target[0].upper() + target[1:], kind, None, pairs)


def euphony(french: str) -> str:
    """Applies French elision and contraction: "à le arbre" -> "à l'arbre", "à le lac" -> "au lac"."""
    french = _ELIDED.sub(r"\1'", french).replace("si il", "s'il")
    return _CONTRACTIBLE.sub(lambda match: _CONTRACTED[match.group()], french)


@cache
def noun_phrase(determiner: str, noun: Noun, plural: bool, adjectives: tuple[Adjective, ...] = ()) -> Phrase:
    """Builds a noun phrase with agreement and word order: "the small red house", "la petite maison rouge"."""
    form, name = 2 * plural + noun.feminine, noun.french[plural]
    before = [word for word in adjectives if word.position == "before"]
    after = [word.french[form] for word in adjectives if word.position == "after"]
    vowel = form == 0 and _STARTS_WITH_VOWEL.match(name)
    words = [*(word.before_vowel if vowel else word.french[form] for word in before), name, *after]
    article = WORDS.determiners[determiner][2 if plural else noun.feminine]
    if _STARTS_WITH_VOWEL.match(words[0]):
        article = WORDS.before_vowel.get(article, article)
    if article == "des" and before:
        article = "de"
    shown = "these" if determiner == "this" and plural else WORDS.english_determiners.get(determiner, determiner)
    english = _join(shown, *(word.english for word in adjectives), noun.english[plural])
    if english.startswith("a ") and english[2] in "aeiou":
        english = "an " + english[2:]
    pairs = tuple((noun.name, word.english) for word in adjectives)
    return Phrase(english, " ".join([article, *words]), pairs, THEY if plural else HE, noun.feminine, noun)


def verb_phrase(
    subject: Phrase, verb: VerbForms, tense: str = "present", mood: str = "", object_pronoun: Phrase | None = None
) -> Phrase:
    """Conjugates a verb: "didn't cross", "ne a pas traversé".

    The tenses are present, past, future ("is going to cross"), can, and wanted ("wanted to cross"). The moods are
    "not", "never" and "question", which includes the subject. An object pronoun precedes the French verb. It is not
    supported in the past, where the participle would agree with it.
    """
    forms, third, it = WORDS.tenses[tense], subject.person == HE, object_pronoun or Phrase("", "")
    english = {"not": forms.negative, "question": forms.question}.get(mood, forms.affirmative).format(
        subject=subject.english,
        base=verb.english,
        present=verb.third if third else verb.english,
        past=verb.past,
        do="does" if third else "do",
        be=to_be(subject, "present", mood).english,
        never="never" if mood == "never" else "",
    )
    if tense == "present":
        finite, after = _join(it.french, verb.present[subject.person]), ""
    elif tense == "past":
        moves = "être" in verb.marks
        finite = _conjugate("être" if moves else "avoir", "present", subject)
        after = verb.participle + ("e" * subject.feminine + "s" * subject.plural if moves else "")
    else:
        finite, after = forms.french.split()[subject.person], _join(it.french, verb.infinitive)
    then = "" if mood in ("not", "question") and "affirmative" in verb.marks else verb.then
    french = _join(_negate(finite, mood), after, then)
    if mood == "question":
        return Phrase(english, f"est-ce que {subject.french} {french}", subject.pairs)
    return Phrase(_join(*english.split(), it.english), french)


def to_be(subject: Phrase, tense: TenseOfBe, mood: str = "") -> Phrase:
    """Conjugates "to be" and "être": "is" and "est", "weren't" and "n'étaient pas"."""
    form = _conjugate("be", tense, subject)
    negated = "am not" if form == "am" else form + "n't"
    return Phrase(negated if mood == "not" else form, _negate(_conjugate("être", tense, subject), mood))


def predicate(subject: Phrase, adjective: Adjective, tense: TenseOfBe, degree: str = "", mood: str = "") -> Phrase:
    """Builds a predicate with an adjective: "was too tired", "était trop fatiguée"; "is hungry" becomes "a faim"."""
    english, french = to_be(subject, tense, mood)[:2]
    word = adjective.french[2 * subject.plural + subject.feminine]
    if adjective.noun:
        french, word = _negate(_conjugate("avoir", tense, subject), mood), adjective.noun
    pairs = ((subject.noun.name, adjective.english),) if subject.noun else ()
    return Phrase(_join(english, degree, adjective.english), _join(french, WORDS.degrees[degree], word), pairs)


def _conjugate(verb: str, tense: TenseOfBe, subject: Phrase) -> str:
    return WORDS.conjugations[verb][tense].split()[subject.person]


def _negate(finite: str, mood: str) -> str:
    second = {"not": "pas", "never": "jamais"}.get(mood)
    return f"ne {finite} {second}" if second else finite


def _join(*words: str) -> str:
    return " ".join(filter(None, words))
