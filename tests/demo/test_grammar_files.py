"""A mistake in a file of the demonstration grammar is reported with its file and its entry."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from regard.demo.bilingual_phrases import FunctionWords, Sentence
from regard.demo.bilingual_words import ADJECTIVES, NOUNS, VERBS, Adjective, Noun, VerbForms
from regard.demo.grammar_files import GRAMMAR, load_entries, load_table, load_toml
from regard.demo.possible_actions import Action, PossiblePlaces
from regard.demo.pronoun_sentences import Frame
from regard.demo.sentence_patterns import PATTERNS, Pattern
from regard.errors import DataError

TABLES = {"nouns.txt": (Noun, 4), "adjectives.txt": (Adjective, 6), "verbs.txt": (VerbForms, 6)}
ACTION = 'verb = "cross"\nactors = "cat"\nobjects = "street"\n'
FRAME = 'tense = "past"\nenglish = "a"\nfrench = "b"\nreasons = "favor"\nreason_tense = "past"\ndegrees = [""]\n'
RIGHT: dict[Any, str] = {
    Action: ACTION,
    PossiblePlaces: 'located = "cat"\nat = []',
    Frame: FRAME,
    Sentence: 'source = "a"\ntarget = "b"\nkind = "c"',
    Pattern: 'draw = ["variant"]',
}


@pytest.mark.parametrize(
    ("name", "line", "message"),
    [
        ("nouns.txt", "lamb/lambs | agneau/agneaux | n | animal", "unknown gender 'n'"),
        ("nouns.txt", "lamb | agneau/agneaux | m | animal", "'lamb' has 1 forms instead of 2"),
        ("nouns.txt", "lamb/lambs | agneau/agneaux | m", "3 columns instead of a | b | c | d"),
        ("nouns.txt", "lamb/lambs | a/b | m |\nlamb/lambs | a/b | m |", "duplicate entry for 'lamb'"),
        ("adjectives.txt", "loud | a/b/c/d | behind | | | animal", "unknown position 'behind'"),
        (
            "adjectives.txt",
            "loud | a/b/c/d | after | lastign | | animal",
            "unknown mark 'lastign'; did you mean 'lasting'",
        ),
        (
            "adjectives.txt",
            "loud | a/b/c/d | after | | | anmial",
            "did you mean 'animal'",
        ),
        ("adjectives.txt", "loud | a/b/c | after | | | animal", "has 3 forms instead of 4"),
        ("verbs.txt", "sing/sings/sang | chanter | chante chante | chanté | |", "has 2 forms instead of 5"),
        ("verbs.txt", "sing/sang | chanter | a b c d e | chanté | |", "has 2 forms instead of 3"),
        ("verbs.txt", "sing/sings/sang | chanter | a b c d e | chanté | | etre", "unknown mark 'etre'"),
    ],
)
def test_a_wrong_line_of_a_table_is_named(name: str, line: str, message: str, tmp_path: Path) -> None:
    parse, columns = TABLES[name]
    path = tmp_path / name
    path.write_text(f"# a comment\n\n{line}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_table(path, " | ".join("abcdef"[:columns]), parse)
    assert message in str(caught.value)
    assert (caught.value.path, caught.value.line) == (path, 3 + line.count("\n"))


@pytest.mark.parametrize(
    ("schema", "entry", "message"),
    [
        (Action, ACTION.replace("cross", "corss"), "unknown verb 'corss'; did you mean 'cross'? - at `$.verb`"),
        (Action, 'verb = "cross"\nactors = "cat"', "missing required field `objects`"),
        (Action, ACTION.replace("cat", "catt"), "unknown noun or tag 'catt'; did you mean 'cat'? - at `$.actors`"),
        (Action, ACTION + 'after = { actor = "tirde" }', "did you mean 'tired'? - at `$.after.actor`"),
        (Action, ACTION + 'after = { actors = "tired" }', "unknown field `actors` - at `$.after`"),
        (PossiblePlaces, 'located = "cat"\nat = [{ english = "on", french = "sur" }]', "`places` - at `$.at[0]`"),
        (Frame, FRAME.replace('"favor"', '"for"'), "Invalid enum value 'for' - at `$.reasons`"),
        (Frame, FRAME.replace('[""]', '["a bit"]'), "at `$.degrees[0]`"),
        (Frame, FRAME.replace('tense = "past"', 'tense = "passed"', 1), "at `$.tense`"),
        (Frame, FRAME + "copies = 2.5", "Expected `int`, got `float` - at `$.copies`"),
        (Sentence, 'source = "a"', "missing required field `target`"),
        (Pattern, 'draw = ["tiem"]', "unknown part 'tiem'; did you mean 'time'? - at `$.draw[0]`"),
        (Pattern, 'draw = [{ part = "plural", chance = "often" }]', "Expected `float`, got `str` - at `$.chance`"),
        (Pattern, 'draw = ["be", "plural"]', "plural: Object missing required field `chance` - at `$.draw[1]`"),
        (Pattern, 'draw = [{ part = "be", never = 1 }]', "be: Object contains unknown field `never` - at `$.draw[0]`"),
        (Pattern, 'draw = [{ part = "noun", nouns = "catt" }]', "unknown noun or tag 'catt'"),
        (Pattern, 'draw = [{ part = "verb", verbs = ["not lik"] }]', "unknown verb 'lik'; did you mean 'like'?"),
        (Pattern, 'draw = [{ part = "article", article = "teh" }]', "at `$.article` - at `$.draw[0]`"),
        (Pattern, 'draw = []\nenglish = "{thign} is"', "unknown part in a text 'thign'; did you mean 'thing'?"),
        (
            Pattern,
            'draw = []\n[[x.variant]]\ndraw = ["no"]',
            "unknown part 'no'; did you mean 'noun'? - at `$.variant",
        ),
    ],
)
def test_a_wrong_entry_of_a_toml_file_is_named(schema: type, entry: str, message: str, tmp_path: Path) -> None:
    path, right = tmp_path / "file.toml", RIGHT[schema]
    path.write_text(f"[[x]]\n{right}\n[[x]]\n{right}\n", encoding="utf-8")
    assert len(load_entries(path, "x", schema)) == 2
    path.write_text(f"[[x]]\n{right}\n[[x]]\n{entry}\n", encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_entries(path, "x", schema)
    assert str(caught.value).startswith(f"{path}: x 2: ")
    assert message in str(caught.value)


def test_a_file_that_is_not_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "file.toml").write_text("[[x]]\ndraw = [", encoding="utf-8")
    with pytest.raises(DataError, match=r"file\.toml: .*Invalid value"):
        load_entries(tmp_path / "file.toml", "x", Pattern)


def test_small_words_are_checked(tmp_path: Path) -> None:
    path, text = tmp_path / "words.toml", (GRAMMAR / "function_words.toml").read_text(encoding="utf-8")
    path.write_text(text.replace('["le", "la", "les"]', '["le", "la"]', 1), encoding="utf-8")
    with pytest.raises(DataError, match=r"length 3.* at `\$.determiners"):
        load_toml(path, FunctionWords)


def test_a_pattern_that_needs_a_part_before_it_is_drawn_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    (likes,) = (pattern for pattern in PATTERNS if pattern.kind == "likes")
    broken = Pattern(draw=likes.draw[1:], kind="likes", variant=likes.variant)
    with pytest.raises(DataError, match="pattern likes: subject must be drawn before it is used"):
        broken.draw_sentence(Random(0))


def test_every_word_is_read() -> None:
    for name, words in (("nouns.txt", NOUNS), ("adjectives.txt", ADJECTIVES), ("verbs.txt", VERBS)):
        lines = (GRAMMAR / name).read_text(encoding="utf-8").splitlines()
        assert len(words) == sum(bool(line) and not line.startswith("#") for line in lines) > 50, name
