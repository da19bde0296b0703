"""The words of the demonstration grammar: nouns, adjectives and verbs, English beside French."""

from __future__ import annotations

from functools import cache

from regard.demo.grammar_files import GRAMMAR, load_table, require_known

PERSONS = ("je", "il", "nous", "vous", "ils")  # the order of every row of conjugated forms
ADJECTIVE_MARKS = ("absolute", "lasting", "attributive", "color", "good", "bad", "welcome")
VERB_MARKS = ("être", "sudden", "habit", "daily", "definite", "affirmative", "dislike")


class Noun:
    """A noun in both languages, singular and plural, with its tags: its name, and the groups it belongs to."""

    def __init__(self, english: str, french: str, gender: str, tags: str) -> None:
        require_known([gender], ("m", "f"), "gender")
        self.english, self.french = _split_forms(english, 2), _split_forms(french, 2)
        self.name, self.feminine = self.english[0], gender == "f"
        self.tags = frozenset((self.name, *tags.split()))


class Adjective:
    """An adjective in both languages, with the names of the nouns that it can describe."""

    def __init__(self, english: str, french: str, position: str, marks: str, noun: str, fits: str) -> None:
        require_known([position], ("before", "after", "predicate"), "position")
        require_known(marks.split(), ADJECTIVE_MARKS, "mark")
        self.english, self.position, self.marks = english, position, frozenset(marks.split())
        self.french = _split_forms(french, 5 if french.count("/") == 4 else 4)
        self.before_vowel = (*self.french, self.french[0])[4]  # the masculine: "bel" for "beau"
        self.noun = noun  # what one has in French: "faim" for "hungry"
        self.fits = frozenset(noun.name for noun in list_nouns(fits))


class VerbForms:
    """A verb in both languages; its English forms end in its preposition, `then` follows the French ones."""

    def __init__(self, english: str, infinitive: str, present: str, participle: str, then: str, marks: str) -> None:
        require_known(marks.split(), VERB_MARKS, "mark")
        self.english, third, past = _split_forms(english, 3)
        preposition = self.english.partition(" ")[2]
        self.third, self.past = f"{third} {preposition}".rstrip(), f"{past} {preposition}".rstrip()
        self.infinitive, self.participle = infinitive, participle
        self.present = _split_forms(present.replace(" ", "/"), len(PERSONS))
        self.then, self.marks = then, frozenset(marks.split())


def _split_forms(text: str, count: int) -> tuple[str, ...]:
    forms = tuple(text.split("/"))
    if len(forms) != count or not all(forms):
        raise ValueError(f"{text!r} has {len(forms)} forms instead of {count}")
    return forms


@cache
def list_nouns(names: str) -> tuple[Noun, ...]:
    """Returns the nouns with any of these names or tags, in the order of their table."""
    wanted = set(names.split())
    require_known(wanted, {tag for noun in NOUNS.values() for tag in noun.tags}, "noun or tag")
    return tuple(noun for noun in NOUNS.values() if wanted & noun.tags)


@cache
def list_adjectives(names: str) -> tuple[Adjective, ...]:
    """Returns the adjectives of these names."""
    require_known(names.split(), ADJECTIVES, "adjective")
    return tuple(ADJECTIVES[name] for name in names.split())


NOUNS = load_table(GRAMMAR / "nouns.txt", "english | french | gender | tags", Noun)
ADJECTIVES = load_table(GRAMMAR / "adjectives.txt", "english | french | position | marks | noun | fits", Adjective)
VERBS = load_table(GRAMMAR / "verbs.txt", "english | french | present | participle | then | marks", VerbForms)
