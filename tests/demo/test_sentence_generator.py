"""The grammar's French is right, its splits are honest, and its pronouns cannot be guessed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from regard.demo.bilingual_phrases import (
    PRONOUNS,
    Phrase,
    Sentence,
    build_sentence,
    euphony,
    noun_phrase,
    predicate,
    verb_phrase,
)
from regard.demo.bilingual_words import ADJECTIVES, NOUNS, VERBS
from regard.demo.sentence_generator import EXAMPLES, HELD_OUT, SentenceSplits, generate_splits, pronoun_accuracy
from regard.errors import SettingsError
from tests.examples import examples

VOWEL = "aeiouyàâéèêîôœ"
ASPIRATED = "haie|hache|haricot|haut|hibou"
NOUN_OF = {form: noun for noun in NOUNS.values() for form in noun.english}
BE = {"am", "is", "are", "was", "were", "isn't", "aren't", "wasn't", "weren't"}
DEGREES = {"too", "very", "really", "not"}


@cache
def made() -> SentenceSplits:
    return generate_splits()


def everything() -> list[Sentence]:
    return [*made().train, *made().dev, *made().test]


def words(text: str) -> list[str]:
    return re.findall(r"[\w'-]+|[.,?]", text.lower())


# ---- an independent reading of the sentences: which adjective is said of which noun


def pairs_read(sentence: Sentence) -> tuple[set[tuple[str, str]], set[tuple[str, str]]]:
    """The (noun, adjective) pairs that the text holds for certain, and those of which it holds one."""
    tokens = words(sentence.source)
    sure: set[tuple[str, str]] = set()
    maybe: set[tuple[str, str]] = set()
    for at, token in enumerate(tokens):
        before = at - 1
        while token in NOUN_OF and tokens[before] in ADJECTIVES:
            sure.add((NOUN_OF[token].name, tokens[before]))
            before -= 1
        if token not in BE or at == 0:
            continue
        said = tokens[at + 1 + (tokens[at + 1] in DEGREES)]
        if said in ADJECTIVES and tokens[at - 1] in NOUN_OF:
            sure.add((NOUN_OF[tokens[at - 1]].name, said))
        elif said in ADJECTIVES and sentence.pronoun:
            about = referents(sentence)
            (sure if len(about) == 1 else maybe).update((name, said) for name in about)
    return sure, maybe


def referents(sentence: Sentence) -> set[str]:
    """The nouns before the pronoun that agree with it in gender and number."""
    assert sentence.pronoun is not None
    feminine, plural = sentence.pronoun.startswith("elle"), sentence.pronoun.endswith("s")
    named = [token for token in words(sentence.source) if token in NOUN_OF]
    assert len(named) == 2, sentence
    human = " he " in sentence.source or " she " in sentence.source
    thing = " it " in sentence.source
    return {
        NOUN_OF[token].name
        for token in named
        if NOUN_OF[token].feminine == feminine
        and (token == NOUN_OF[token].english[1]) == plural
        and not (human and "person" not in NOUN_OF[token].tags)
        and not (thing and "person" in NOUN_OF[token].tags)
    }


def test_pairs_are_read_from_the_text() -> None:
    small = Sentence("My small red car isn't very old.", "", "description", None)
    assert pairs_read(small) == ({("car", "small"), ("car", "red"), ("car", "old")}, set())
    goats = Sentence("The white goats left the park because they were sad.", "", "coreference", "elles")
    assert pairs_read(goats) == ({("goat", "white"), ("goat", "sad")}, set())
    alike = Sentence("The dog entered the garden, and it was happy.", "", "coreference", "il")
    assert pairs_read(alike) == (set(), {("dog", "happy"), ("garden", "happy")})


# ---- splits


def test_sizes_and_no_overlap() -> None:
    parts = made()
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (40_000, 500, 1_000)
    assert len({sentence.source for sentence in everything()}) == 41_500


def test_training_never_shows_a_held_out_pair() -> None:
    for sentence in [*made().train, *made().dev]:
        sure, maybe = pairs_read(sentence)
        assert not sure & HELD_OUT, sentence
        assert not maybe or maybe - HELD_OUT, sentence


def test_each_test_sentence_holds_a_pair_that_training_never_shows() -> None:
    shown = set().union(*(pairs_read(sentence)[0] for sentence in [*made().train, *made().dev]))
    assert len(shown) > 1_000
    for sentence in made().test:
        sure, maybe = pairs_read(sentence)
        assert (sure | maybe) - shown, sentence
        assert (sure | maybe) & HELD_OUT, sentence


def test_in_test_the_pair_behind_the_pronoun_is_a_held_out_one() -> None:
    for sentence in coreferences():
        said = [token for token in words(sentence.source) if token in ADJECTIVES][-1]
        assert any((name, said) in HELD_OUT for name in referents(sentence)), sentence


def test_about_one_pair_in_seven_is_held_out_and_the_promised_ones_are() -> None:
    possible = sum(len(adjective.fits) for adjective in ADJECTIVES.values())
    assert 0.10 < len(HELD_OUT) / possible < 0.15
    assert {("garden", "beautiful"), ("animal", "tired"), ("street", "wide")} <= HELD_OUT


def test_training_shows_every_word_and_every_form_that_the_test_needs() -> None:
    english = Counter(token for sentence in made().train for token in words(sentence.source))
    for noun in NOUNS.values():
        assert english[noun.english[0]] + english[noun.english[1]] >= 150, noun.name
    assert min(english[name] for name in ADJECTIVES) >= 80
    french = Counter(token for sentence in made().train for token in re.findall(r"\w+", sentence.target.lower()))
    for sentence in made().test:
        for token in re.findall(r"\w+", sentence.target.lower()):
            assert french[token] >= 5, (token, sentence)


def test_same_seed_same_sentences_in_any_process() -> None:
    code = "import hashlib; from regard.demo.sentence_generator import generate_splits; "
    code += "print(hashlib.md5(str(generate_splits(300, 20, 50, seed=3)).encode(), usedforsecurity=False).hexdigest())"
    answers = {
        subprocess.run(
            [sys.executable, "-c", code],
            env=os.environ | {"PYTHONHASHSEED": salt},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for salt in ("1", "2")
    }
    assert len(answers) == 1
    assert generate_splits(300, 20, 50, seed=3) == generate_splits(300, 20, 50, seed=3)
    assert generate_splits(300, 20, 50, seed=3) != generate_splits(300, 20, 50, seed=4)


@examples(12)
@given(st.integers(0, 10**9), st.integers(0, 60), st.integers(0, 10), st.integers(0, 30))
def test_any_seed_and_size(seed: int, train: int, dev: int, test: int) -> None:
    parts = generate_splits(train, dev, test, seed)
    assert (len(parts.train), len(parts.dev), len(parts.test)) == (train, dev, test)
    sentences = [*parts.train, *parts.dev, *parts.test]
    assert len({sentence.source for sentence in sentences}) == len(sentences)


def test_an_english_sentence_has_one_translation() -> None:
    known: dict[str, str] = {}
    for sentence in [*everything(), *generate_splits(8_000, 0, 0, seed=1).train]:
        assert known.setdefault(sentence.source, sentence.target) == sentence.target


def test_present_and_past_of_read_are_told_apart() -> None:
    read = [sentence for sentence in everything() if sentence.kind == "action" and " read " in sentence.source]
    past = [
        sentence for sentence in read if re.search(r"\b(?:ai|avons|avez|ont) (?:pas |jamais )?lu\b", sentence.target)
    ]
    assert len(past) > 10
    assert [sentence for sentence in past if "didn't" not in sentence.source] == []


def test_more_than_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = generate_splits(1, 0, 0).train[0]
    monkeypatch.setattr("regard.demo.sentence_generator._draw_sentence", lambda rng: alone)
    with pytest.raises(SettingsError, match="too few sentences"):
        generate_splits(2, 0, 0)


def test_a_third_is_coreference_and_half_of_test() -> None:
    kinds = Counter(sentence.kind for sentence in made().train)
    assert 0.30 < kinds["coreference"] / 40_000 < 0.40
    assert len(kinds) >= 8
    assert min(kinds.values()) > 500
    assert 480 <= sum(sentence.pronoun is not None for sentence in made().test) <= 520
    for sentence in everything():
        assert (sentence.kind == "coreference") == (sentence.pronoun is not None)


# ---- pronouns


def coreferences() -> list[Sentence]:
    return [sentence for sentence in made().test if sentence.pronoun]


def with_pronoun(sentence: Sentence, pronoun: str) -> str:
    """The French with another pronoun in its last clause."""
    assert sentence.pronoun is not None
    french = sentence.target.replace("s'il", "si il")
    head, found, tail = re.split(rf"(?<![\w-])({sentence.pronoun})(?= [\w']+ )", french)[-3:]
    assert found == sentence.pronoun
    return (head + pronoun + tail).replace("si il", "s'il")


def test_the_right_pronoun_scores_one_and_the_wrong_one_nothing() -> None:
    swap = {"il": "elle", "elle": "il", "ils": "elles", "elles": "ils"}
    references = [sentence.target for sentence in made().test]
    assert pronoun_accuracy(references, made().test) == 1.0
    swapped = [with_pronoun(sentence, swap[sentence.pronoun or ""]) for sentence in coreferences()]
    assert pronoun_accuracy(swapped, coreferences()) == 0.0
    same = [with_pronoun(sentence, sentence.pronoun or "") for sentence in coreferences()]
    assert same == [sentence.target for sentence in coreferences()]


def test_no_simple_rule_finds_the_pronoun() -> None:
    sentences = coreferences()
    masculine = [
        with_pronoun(sentence, "ils" if (sentence.pronoun or "")[-1] == "s" else "il") for sentence in sentences
    ]
    assert 0.4 < pronoun_accuracy(masculine, sentences) < 0.6
    assert pronoun_accuracy([with_pronoun(sentence, "il") for sentence in sentences], sentences) < 0.6
    for position in (0, 1):  # always the subject, always the other noun
        guesses = [with_pronoun(sentence, pronoun_of(sentence, position)) for sentence in sentences]
        assert 0.4 < pronoun_accuracy(guesses, sentences) < 0.6


def pronoun_of(sentence: Sentence, position: int) -> str:
    token = [token for token in words(sentence.source) if token in NOUN_OF][position]
    noun = NOUN_OF[token]
    return ("elle" if noun.feminine else "il") + ("s" if token == noun.english[1] else "")


def test_pronouns_and_referents_are_balanced() -> None:
    for part, slack in ((made().test, 0.05), (made().train, 0.1)):
        pronouns = Counter(sentence.pronoun for sentence in part if sentence.pronoun)
        assert pronouns["il"] == pytest.approx(pronouns["elle"], rel=slack)
        assert pronouns["ils"] == pytest.approx(pronouns["elles"], rel=slack)
        cells = Counter(
            (pronoun_of(sentence, 0) == sentence.pronoun, sentence.pronoun)
            for sentence in part
            if sentence.pronoun and pronoun_of(sentence, 0) != pronoun_of(sentence, 1)
        )
        for pronoun in ("il", "elle", "ils", "elles"):
            assert cells[True, pronoun] == pytest.approx(cells[False, pronoun], rel=0.25)


def test_pronoun_accuracy_reads_the_last_clause_only() -> None:
    street = Sentence("", "", "coreference", "elle")
    plain = Sentence("", "", "likes", None)
    assert pronoun_accuracy(["Il n'a pas traversé la rue parce qu'elle était trop large."], [street]) == 1.0
    assert pronoun_accuracy(["Elle n'a pas traversé la rue parce qu'il était trop large."], [street]) == 0.0
    assert pronoun_accuracy(["Il n'a pas traversé la rue parce qu’elle était trop large."], [street]) == 1.0
    assert pronoun_accuracy(["Elle n'a pas traversé la rue parce que la rue était large."], [street]) == 0.0
    assert pronoun_accuracy(["Les rues, mais elles étaient larges."], [street]) == 0.0
    assert pronoun_accuracy(["", "elle", "Le chat dort s'il est las, et elle dort."], [street, plain, street]) == 0.5
    with pytest.raises(ValueError, match="pronoun to judge"):
        pronoun_accuracy(["Elle dort."], [plain])
    with pytest.raises(ValueError, match="argument"):
        pronoun_accuracy(["Il y a un chat."], [street, street])


# ---- French


def test_examples_are_in_the_language_and_out_of_training() -> None:
    known = {sentence.source: sentence.target for sentence in made().test}
    assert [known[source] for source in EXAMPLES] == [
        "L'animal n'a pas traversé la rue parce qu'il était trop fatigué.",
        "L'animal n'a pas traversé la rue parce qu'elle était trop large.",
        "J'aime le beau jardin.",
        "Les garçons ne peuvent pas porter les valises parce qu'elles sont trop lourdes.",
        "Il y a un vieil hôtel près de la rivière.",
        "Ma sœur n'a pas acheté la petite voiture rouge.",
    ]
    assert EXAMPLES[:3] == (
        "The animal didn't cross the street because it was too tired.",
        "The animal didn't cross the street because it was too wide.",
        "I love the beautiful garden.",
    )
    assert not set(EXAMPLES) & {sentence.source for sentence in [*made().train, *made().dev]}


def phrase(english: str) -> Phrase:
    """The noun phrase that the grammar builds for an English one; "no axe" is what one does not have."""
    *described, noun = english.split()
    determiner = ""
    if described and described[0] not in ADJECTIVES:
        determiner, *described = described
    adjectives = tuple(ADJECTIVES[name] for name in described)
    key = {"an": "a", "these": "this", "no": "not a", "": "general"}.get(determiner, determiner)
    return noun_phrase(key, NOUN_OF[noun], noun == NOUN_OF[noun].english[1], adjectives)


def anyone(english: str) -> Phrase:
    return next((pronoun for pronoun in PRONOUNS if pronoun.english == english), None) or phrase(english)


@pytest.mark.parametrize(
    ("english", "french"),
    [
        ("the small red house", "la petite maison rouge"),
        ("a beautiful hotel", "un bel hôtel"),
        ("an old tree", "un vieil arbre"),
        ("my new friend", "mon nouvel ami"),
        ("the old animals", "les vieux animaux"),
        ("a beautiful scarf", "une belle écharpe"),
        ("this beautiful owl", "ce beau hibou"),
        ("some beautiful hotels", "de beaux hôtels"),
        ("some red apples", "des pommes rouges"),
        ("some old gray horses", "de vieux chevaux gris"),
        ("some bread", "du pain"),
        ("some fresh milk", "du lait frais"),
        ("some soup", "de la soupe"),
        ("some cold water", "de l'eau froide"),
        ("this animal", "cet animal"),
        ("this man", "cet homme"),
        ("this church", "cette église"),
        ("these trees", "ces arbres"),
        ("her scarf", "son écharpe"),
        ("my pretty clock", "ma jolie horloge"),
        ("my axe", "ma hache"),
        ("the hedge", "la haie"),
        ("the bean", "le haricot"),
        ("the swallow", "l'hirondelle"),
        ("the high wall", "le haut mur"),
        ("the eggs", "les œufs"),
        ("the white goats", "les chèvres blanches"),
        ("the expensive motorcycle", "la moto chère"),
        ("their light suitcases", "leurs valises légères"),
        ("no clock", "d'horloge"),
        ("no axe", "de hache"),
        ("two curious mice", "deux souris curieuses"),
        ("famous castles", "les châteaux célèbres"),
    ],
)
def test_noun_phrases(english: str, french: str) -> None:
    made_of = phrase(english)
    assert euphony(made_of.french) == french
    assert made_of.english == {"no clock": "a clock", "no axe": "an axe"}.get(english, english)


@pytest.mark.parametrize(
    ("subject", "verb", "tense", "negation", "thing", "english", "french"),
    [
        ("I", "love", "present", "", "the tree", "love", "J'aime l'arbre."),
        ("I", "open", "present", "never", "the box", "never open", "Je n'ouvre jamais la boîte."),
        ("he", "open", "past", "not", "the door", "didn't open", "Il n'a pas ouvert la porte."),
        ("we", "eat", "present", "", "the cake", "eat", "Nous mangeons le gâteau."),
        ("I", "like", "present", "not", "beans", "don't like", "Je n'aime pas les haricots."),
        ("he", "like", "present", "", "my hats", "likes", "Il aime bien mes chapeaux."),
        ("you", "sell", "future", "not", "the car", "aren't going to sell", "Vous n'allez pas vendre la voiture."),
        ("they", "carry", "can", "not", "my bag", "can't carry", "Ils ne peuvent pas porter mon sac."),
        ("she", "come back from", "past", "", "the museum", "came back from", "Elle est revenue du musée."),
        ("she", "go to", "past", "not", "the church", "didn't go to", "Elle n'est pas allée à l'église."),
        ("the girls", "go to", "past", "", "the old museum", "went to", "Les filles sont allées au vieux musée."),
        (
            "the mice",
            "enter",
            "past",
            "never",
            "the lake",
            "never entered",
            "Les souris ne sont jamais entrées dans le lac.",
        ),
        (
            "the kings",
            "stay in",
            "past",
            "not",
            "the hotel",
            "didn't stay in",
            "Les rois ne sont pas restés dans l'hôtel.",
        ),
        ("a cat", "walk to", "past", "", "the bridge", "walked to", "Un chat a marché jusqu'au pont."),
        ("he", "walk to", "past", "", "the tree", "walked to", "Il a marché jusqu'à l'arbre."),
        ("we", "climb up", "wanted", "", "the trees", "wanted to climb up", "Nous voulions grimper aux arbres."),
        ("the cow", "look at", "present", "not", "the owl", "doesn't look at", "La vache ne regarde pas le hibou."),
    ],
)
def test_clauses(subject: str, verb: str, tense: str, negation: str, thing: str, english: str, french: str) -> None:
    who = anyone(subject)
    draft = build_sentence("test", who, verb_phrase(who, VERBS[verb], tense, negation), phrase(thing))
    assert draft.target == french
    assert draft.source == f"{subject[0].upper()}{subject[1:]} {english} {thing}."


@pytest.mark.parametrize(
    ("subject", "adjective", "tense", "degree", "negation", "english", "french"),
    [
        ("the goats", "thirsty", "past", "too", "", "were too thirsty", "Les chèvres avaient trop soif."),
        ("the doors", "locked", "present", "", "not", "aren't locked", "Les portes ne sont pas fermées à clé."),
        ("the tree", "old", "past", "", "not", "wasn't old", "L'arbre n'était pas vieux."),
        ("my sister", "proud", "present", "very", "", "is very proud", "Ma sœur est très fière."),
        ("I", "hungry", "past", "", "not", "wasn't hungry", "Je n'avais pas faim."),
        ("she", "happy", "present", "really", "", "is really happy", "Elle est vraiment heureuse."),
    ],
)
def test_predicates(
    subject: str, adjective: str, tense: str, degree: str, negation: str, english: str, french: str
) -> None:
    who = anyone(subject)
    draft = build_sentence("test", who, predicate(who, ADJECTIVES[adjective], tense, degree, negation))
    assert draft.target == french
    assert draft.source == f"{subject[0].upper()}{subject[1:]} {english}."


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("près de le lac", "près du lac"),
        ("près de les lacs", "près des lacs"),
        ("près de le hibou", "près du hibou"),
        ("le château de le homme", "le château de l'homme"),
        ("même si il a soif", "même s'il a soif"),
        ("même si ils ont soif", "même s'ils ont soif"),
        ("même si elle a soif", "même si elle a soif"),
        ("il ne y a pas de œuf", "il n'y a pas d'œuf"),
        ("ce est, ce ne est pas, ce ne sont pas", "c'est, ce n'est pas, ce ne sont pas"),
        ("la hache que il le achète", "la hache qu'il l'achète"),
    ],
)
def test_euphony(before: str, after: str) -> None:
    assert euphony(before) == after


WRONG = {
    "not elided": rf"(?i)\b(?:le|la|je|ne|de|que|ce|jusque) (?!{ASPIRATED})[{VOWEL}h]",
    "si il": r"\bsi ils?\b",
    "elided before a consonant": rf"\b(?:[ljndc]|qu|jusqu)'(?![{VOWEL}h])|'(?:{ASPIRATED})",
    "not contracted": r"\b(?:de|à) les? ",
    "ma before a vowel": rf"(?i)\b(?:ma|ta|sa) (?:[{VOWEL}]|ho)",
    "beau before a vowel": rf"(?i)\b(?:beau|nouveau|(?:un|le|ce|[ms]on|[nv]otre|leur|du|au) vieux) (?:[{VOWEL}]|h[oô])",
    "bel before a consonant": rf"\b(?:bel|nouvel|vieil|cet) (?![{VOWEL}]|hô|ho)",
    "des before an adjective": r"\bdes (?:beaux|belles|petits?|petites|gros|grosses|grands|grandes|vieux|vieilles)\b",
    "spaces": r"  | [.,]|^ | $|\S\?",
    "no capital": r"^[^A-ZÉÀ]",
    "no end": r"[^.?]$",
}


@pytest.mark.parametrize("mistake", WRONG)
def test_no_french_sentence_has_the_mistake(mistake: str) -> None:
    pattern = re.compile(WRONG[mistake])
    assert [sentence.target for sentence in everything() if pattern.search(sentence.target)] == []


def test_the_mistakes_would_be_found() -> None:
    wrong = (
        "Le chat voit le arbre.",
        "La île est belle.",
        "Le chat dort si il est las.",
        "Le chat voit l'hibou.",
        "Le chat voit l'chien.",
        "Le chat est près de le lac.",
        "Ma horloge, ma église.",
        "Un vieux arbre.",
        "Un bel chien.",
        "Il voit des petits chiens.",
        "Il est las .",
        "il est las.",
        "Il est las",
    )
    for french in wrong:
        assert any(re.search(pattern, french) for pattern in WRONG.values()), french
    assert {name for name, pattern in WRONG.items() if any(re.search(pattern, text) for text in wrong)} == set(WRONG)


def test_articles_agree_with_nouns() -> None:
    forms = {noun.french[0]: noun for noun in NOUNS.values() if noun.french[0] != noun.french[1]}
    masculine, feminine = {"le", "un", "ce", "cet", "du", "au"}, {"la", "une", "cette", "ma"}
    seen = 0
    for sentence in everything():
        tokens = re.findall(r"\w+", sentence.target.lower())
        for article, word in pairwise(tokens):
            if word in forms and article in masculine | feminine:
                assert (article in feminine) == forms[word].feminine, sentence
                seen += 1
    assert seen > 10_000
