"""The words of the demo grammar: nouns, adjectives and verbs in English and French."""

from __future__ import annotations

from regard.demo.grammar_files import GRAMMAR, load_table, require_known

PERSONS = ("je", "il", "nous", "vous", "ils")  # the order of conjugated forms in all tables
ADJECTIVE_MARKS = ("absolute", "lasting", "attributive", "color", "good", "bad", "welcome")
VERB_MARKS = ("être", "sudden", "habit", "daily", "definite", "affirmative", "dislike")


class Noun:
    """A noun in both languages, singular and plural; its tags are its name and the groups to which it belongs."""

    def __init__(self, english: str, french: str, gender: str, tags: str) -> None:
        require_known(gender, ("m", "f"), "gender")
        self.english, self.french = _split_forms(english, 2), _split_forms(french, 2)
        self.name, self.feminine = self.english[0], gender == "f"
        self.tags = frozenset((self.name, *tags.split()))


class Adjective:
    """An adjective in both languages, with the names of the nouns that it can describe."""

    def __init__(self, english: str, french: str, position: str, marks: str, noun: str, fits: str) -> None:
        require_known(position, ("before", "after", "predicate"), "position")
        self.english, self.position, self.marks = english, position, _parse_marks(marks, ADJECTIVE_MARKS)
        self.french = _split_forms(french, 5 if french.count("/") == 4 else 4)
        self.before_vowel = (*self.french, self.french[0])[4]  # masculine form before a vowel, such as "bel" for "beau"
        self.noun = noun  # French noun used with "avoir" instead, such as "faim" for "hungry"
        self.fits = frozenset(noun.name for noun in Nouns.parse(fits))


class VerbForms:
    """A verb in both languages; the English forms include the preposition, and `then` follows the French forms."""

    def __init__(self, english: str, infinitive: str, present: str, participle: str, then: str, marks: str) -> None:
        self.english, third, past = _split_forms(english, 3)
        preposition = self.english.partition(" ")[2]
        self.third, self.past = f"{third} {preposition}".rstrip(), f"{past} {preposition}".rstrip()
        self.infinitive, self.participle, self.then = infinitive, participle, then
        self.present = _split_forms(present.replace(" ", "/"), len(PERSONS))
        self.marks = _parse_marks(marks, VERB_MARKS)

    @staticmethod
    def parse(name: str) -> VerbForms:
        """Returns the verb with this name."""
        require_known(name, VERBS, "verb")
        return VERBS[name]


def _split_forms(text: str, count: int) -> tuple[str, ...]:
    forms = tuple(text.split("/"))
    if len(forms) != count or not all(forms):
        raise ValueError(f"{text!r} has {len(forms)} forms instead of {count}")
    return forms


def _parse_marks(text: str, known: tuple[str, ...]) -> frozenset[str]:
    for mark in text.split():
        require_known(mark, known, "mark")
    return frozenset(text.split())


class Nouns(tuple[Noun, ...]):
    """A tuple of nouns in the order of their table."""

    @classmethod
    def parse(cls, names: str) -> Nouns:
        """Returns the nouns with any of these names or tags."""
        wanted, tags = set(str(names).split()), {tag for noun in NOUNS.values() for tag in noun.tags}
        for name in sorted(wanted):
            require_known(name, tags, "noun or tag")
        return cls(noun for noun in NOUNS.values() if wanted & noun.tags)


class Adjectives(tuple[Adjective, ...]):
    """A tuple of adjectives in the given order."""

    @classmethod
    def parse(cls, names: str) -> Adjectives:
        """Returns the adjectives with these names."""
        for name in str(names).split():
            require_known(name, ADJECTIVES, "adjective")
        return cls(ADJECTIVES[name] for name in names.split())


class VerbChoice(str):
    """The name of a verb, which may be negated: "like", "not like"."""

    @classmethod
    def parse(cls, name: str) -> VerbChoice:
        """Returns the verb with this name, with or without "not"; raises an error if it is unknown."""
        require_known(str(name).removeprefix("not "), VERBS, "verb")
        return cls(name)


NOUNS = load_table(GRAMMAR / "nouns.txt", "english | french | gender | tags", Noun)
ADJECTIVES = load_table(GRAMMAR / "adjectives.txt", "english | french | position | marks | noun | fits", Adjective)
VERBS = load_table(GRAMMAR / "verbs.txt", "english | french | present | participle | then | marks", VerbForms)
