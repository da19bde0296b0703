"""Generates sentence pairs from a small Chinese grammar: Chinese and its translations into English.

The grammar is data: words, nouns with their measure words, and patterns. A sentence can have several right
translations, such as "nice" and "very nice" for 很好; training draws one of them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from itertools import product
from random import Random

from regard.demo.grammar_files import GRAMMAR, Entry, load_entries, load_table
from regard.errors import DataError

FIRST_SHARE = 0.7
"""Probability of the first translation of a word; the others share the rest."""


@dataclass(frozen=True)
class ChineseSentence:
    """A Chinese sentence, the translation that was drawn, and all accepted translations."""

    source: str
    target: str
    accepted: tuple[str, ...]


class ChineseNoun:
    """A noun with its measure word and the tags of its groups, its own names among them."""

    def __init__(self, chinese: str, english: str, measure: str, tags: str) -> None:
        self.chinese, self.measure = chinese, measure
        self.singular, _, self.plural = english.partition("/")
        self.tags = frozenset((*tags.split(), self.singular))


class ChineseWord:
    """Any other word, with its translations, each as the forms of its English verb."""

    def __init__(self, chinese: str, english: str, tags: str) -> None:
        self.chinese, self.tags = chinese, frozenset(tags.split())
        self.english = tuple(tuple(each.strip().split("/")) for each in english.split("~"))


@dataclass(frozen=True)
class ChinesePhrase:
    """A filled slot: its Chinese text, its English alternatives, and the person or noun that other words agree with."""

    chinese: str
    english: tuple[tuple[str, ...], ...]
    person: str = ""
    tags: frozenset[str] = frozenset()
    noun: ChineseNoun | None = None


class ChinesePattern(Entry, frozen=True):
    """A kind of sentence: slots to fill, and the texts to put them into."""

    weight: float
    draw: dict[str, str]
    chinese: str
    english: str

    def draw_sentence(self, rng: Random) -> ChineseSentence:
        """Draws each slot, and returns the sentence with all its translations."""
        filled: dict[str, ChinesePhrase] = {}
        for slot, wanted in self.draw.items():
            filled[slot] = draw_phrase(rng, wanted, filled)
        source = _SLOT.sub(lambda match: _fill_chinese(match[1], match[2], filled), self.chinese)
        choices = [phrase.english for phrase in filled.values()]
        accepted = [self._translate(dict(zip(filled, forms, strict=True)), filled) for forms in product(*choices)]
        drawn = [each[_draw_alternative(rng, len(each))] for each in choices]
        target = self._translate(dict(zip(filled, drawn, strict=True)), filled)
        return ChineseSentence(source, target, tuple(dict.fromkeys(accepted)))

    def _translate(self, forms: dict[str, tuple[str, ...]], filled: dict[str, ChinesePhrase]) -> str:
        person = filled["who"].person if "who" in filled else "third"

        def fill(match: re.Match[str]) -> str:
            slot, form = match[1], match[2]
            if form is None:
                return forms[slot][person != "third" and len(forms[slot]) > 1]
            return _inflect(filled[slot], forms[slot], form, filled)

        text = " ".join(_SLOT.sub(fill, self.english).split())
        text = re.sub(r" (?=[.?,])", "", re.sub(r"\ba (?=[aeiou])", "an ", text))
        return text[0].upper() + text[1:]


_SLOT = re.compile(r"\{(\w+)(?:[. ](\w+))?\}")
_BE = {"first": ("am", "was"), "second": ("are", "were"), "third": ("is", "was"), "plural": ("are", "were")}
_COUNTS = (("一", "a"), ("两", "two"), ("三", "three"), ("四", "four"))
_OWNERS = (("我的", "my"), ("你的", "your"), ("他的", "his"), ("她的", "her"))
_POINTERS = (("这", "this"), ("那", "that"))


def _fill_chinese(slot: str, inner: str | None, filled: dict[str, ChinesePhrase]) -> str:
    text = filled[slot].chinese
    return text if inner is None else text.format(filled[inner].chinese)


def _inflect(phrase: ChinesePhrase, forms: tuple[str, ...], form: str, filled: dict[str, ChinesePhrase]) -> str:
    """Returns a form that agrees with the phrase: {who.be}, {verb.past}, {place.the}."""
    singular = phrase.person == "third"
    match form:
        case "be" | "was":
            return _BE[phrase.person][form == "was"]
        case "is":  # the form of "be" that the word itself asks for
            return next(iter(phrase.tags))
        case "day":
            return _BE[phrase.person][filled["day"].tags == {"was"}]
        case "do":
            return "does" if singular else "do"
        case "have":
            return "has" if singular else "have"
        case "base" | "past":
            return forms[form == "past"]
        case "many" if phrase.noun:
            return phrase.noun.plural
        case "a" | "the" if phrase.noun:
            return f"{form} {phrase.noun.singular}"
    raise DataError(f"unknown form {form!r}", _FILE)


def _draw_alternative(rng: Random, count: int) -> int:
    return 0 if count == 1 or rng.random() < FIRST_SHARE else rng.randrange(1, count)


def draw_phrase(rng: Random, wanted: str, filled: dict[str, ChinesePhrase]) -> ChinesePhrase:
    """Draws a phrase by its description in a pattern, such as "this:animal" or "who:pronoun"."""
    kind, _, text = wanted.partition(":")
    tags = set(filled[text[1:]].tags if text.startswith("@") else text.split())
    if kind == "quality":
        noun = filled[text].noun
        word = rng.choice([each for each in _adjectives(noun) if "before" not in each.tags])
        return ChinesePhrase(word.chinese, word.english)
    if kind in ("this", "only", "some", "plain"):
        return _draw_noun_phrase(rng, kind, rng.choice([noun for noun in CHINESE_NOUNS.values() if noun.tags & tags]))
    word = rng.choice([each for each in CHINESE_WORDS[kind] if tags <= each.tags])
    person = next((each for each in ("first", "second", "third", "plural") if each in word.tags), "")
    english = word.english
    if kind == "job":  # its number is that of the person
        english = tuple((each[filled["who"].person == "plural"],) for each in english)
    return ChinesePhrase(word.chinese, english, person, word.tags)


def _draw_noun_phrase(rng: Random, kind: str, noun: ChineseNoun) -> ChinesePhrase:
    """Draws determiner, measure word and adjective: 这个美丽的花园, 两只小猫."""
    if kind == "plain":
        return ChinesePhrase(noun.chinese, ((f"the {noun.singular}",),), "third", noun=noun)
    if kind == "some":
        count, determiner = rng.choices(_COUNTS, (5, 2, 1, 1))[0]
        chinese, plural = count + noun.measure, determiner != "a"
    elif rng.random() < 0.3:
        chinese, determiner = rng.choice(_OWNERS)
        plural = False
    elif rng.random() < 0.15:
        chinese, determiner, plural = "这些", "these", True
    else:
        pointer, determiner = rng.choice(_POINTERS)
        chinese, plural = pointer + noun.measure, False
    name = noun.plural if plural else noun.singular
    fitting = [each for each in _adjectives(noun) if "after" not in each.tags]
    english: tuple[tuple[str, ...], ...] = ((f"{determiner} {name}",),)
    if kind != "only" and fitting and rng.random() < 0.6:
        word = rng.choice(fitting)
        chinese += word.chinese + ("" if "bare" in word.tags else "的")
        english = tuple((f"{determiner} {each[0]} {name}",) for each in word.english)
    return ChinesePhrase(chinese + noun.chinese, english, "plural" if plural else "third", noun=noun)


def _adjectives(noun: ChineseNoun | None) -> list[ChineseWord]:
    """Returns the adjectives that can describe the noun."""
    return [each for each in CHINESE_WORDS["adjective"] if noun and noun.tags & each.tags]


def _load_words() -> dict[str, list[ChineseWord]]:
    """Reads the table of words, in which a word can stand several times, and then is drawn more often."""
    words: dict[str, list[ChineseWord]] = {}
    path = GRAMMAR / "chinese_words.txt"
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.strip() and not line.startswith("#"):
            cells = [cell.strip() for cell in line.split("|")]
            if len(cells) != 4:
                raise DataError(f"{len(cells)} columns instead of list | chinese | english | tags", path, number)
            words.setdefault(cells[0], []).append(ChineseWord(*cells[1:]))
    return words


_FILE = GRAMMAR / "chinese_sentences.toml"
CHINESE_NOUNS = load_table(GRAMMAR / "chinese_nouns.txt", "chinese | english | measure | tags", ChineseNoun)
CHINESE_WORDS = _load_words()
CHINESE_PATTERNS = load_entries(_FILE, "pattern", ChinesePattern)
CHINESE_EXAMPLES = {
    "今天天气很好。": tuple(f"The weather is {each} today." for each in ("nice", "very nice", "good", "very good")),
    "我喜欢这个美丽的花园。": ("I like this beautiful garden.",),
    "孩子们在花园里玩。": ("The children are playing in the garden.",),
    "她昨天买了一本有趣的书。": ("She bought an interesting book yesterday.",),
}
"""Example sentences with their accepted translations; training has none of them."""


def generate_chinese_splits() -> tuple[list[ChineseSentence], list[ChineseSentence], list[ChineseSentence]]:
    """Generates sentences for training, validation and testing; the examples open the test set.

    Frequent sentences are repeated in training, perhaps with other translations; the other sets have rare ones.
    """
    rng, weights = Random(0), [pattern.weight for pattern in CHINESE_PATTERNS]
    drawn = [rng.choices(CHINESE_PATTERNS, weights)[0].draw_sentence(rng) for _ in range(16_000)]
    count = Counter(each.source for each in drawn)
    rare = [each for each in drawn if count[each.source] == 1 and each.source not in CHINESE_EXAMPLES][:800]
    held_out = {each.source for each in rare} | set(CHINESE_EXAMPLES)
    examples = [ChineseSentence(source, accepted[0], accepted) for source, accepted in CHINESE_EXAMPLES.items()]
    return [each for each in drawn if each.source not in held_out], rare[:300], [*examples, *rare[300:]]
