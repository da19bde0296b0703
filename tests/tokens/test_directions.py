"""Directions: how they are said, which one is meant, and which pairs files hold for each."""

from __future__ import annotations

import gzip
import json
import re
import tracemalloc
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError, InputError, SettingsError
from regard.files.corpus import clean, read_pairs, split_each
from regard.files.corpus_report import Report
from regard.files.formats.multilingual_texts import group_files
from regard.preparation.chosen_settings import load
from regard.settings import DataSettings, Settings, TokenizerSettings
from regard.tokens.language_directions import (
    Direction,
    choose_direction,
    directions_of,
    format_directions,
    languages_of,
    targets_of,
)
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Vocabularies

FOUR = DataSettings(directions=("en-de", "en-fr", "de-en", "fr-en"))
ONE = DataSettings(source="en", target="de")

languages = st.from_regex(r"\w{1,6}", fullmatch=True)


def write(folder: Path, **files: str | bytes) -> list[Path]:
    """Files by their names, with a dot for each two underscores."""
    paths = []
    for name, content in files.items():
        path = folder / name.replace("__", ".")
        blob = content.encode() if isinstance(content, str) else content
        path.write_bytes(gzip.compress(blob) if path.suffix == ".gz" else blob)
        paths.append(path)
    return paths


def found(files: list[Path], data: DataSettings = FOUR, report: Report | None = None) -> list[tuple[str, str, str]]:
    return [(p.direction, p.source, p.target) for p in read_pairs(files, data, report or Report())]


def refusal(files: list[Path], data: DataSettings = FOUR) -> str:
    with pytest.raises(DataError) as caught:
        list(read_pairs(files, data, Report()))
    assert "\n" not in str(caught.value)
    return str(caught.value)


# How they are said


@given(pairs=st.lists(st.tuples(languages, languages).filter(lambda p: p[0] != p[1]), unique=True))
def test_any_two_languages_are_a_direction(pairs: list[tuple[str, str]]) -> None:
    data = DataSettings(directions=tuple(f"{source}-{target}" for source, target in pairs))
    expected = tuple(Direction(*pair) for pair in pairs)
    assert directions_of(data) == (expected or (Direction("source", "target"),))
    assert tuple(map(str, expected)) == data.directions
    assert set(languages_of(expected)) == {name for pair in pairs for name in pair}
    assert targets_of(data) == tuple(dict.fromkeys(target for _, target in pairs))
    flags = load(overrides={"data.directions": ",".join(data.directions)})
    assert flags.data == data


@given(name=st.text(st.characters(exclude_categories=["Cs"])))
def test_whatever_is_said_is_two_languages_or_refused(name: str) -> None:
    if re.fullmatch(r"\w+-\w+", name) and len(set(name.split("-"))) == 2:
        (only,) = directions_of(DataSettings(directions=(name,)))
        assert str(only) == name
        assert not set("-, \n") & {*only.source, *only.target}
    else:
        with pytest.raises(SettingsError, match="en-pt_BR") as caught:
            DataSettings(directions=(name,))
        assert repr(name) in str(caught.value)


@pytest.mark.parametrize("name", ["en", "en-pt-BR", "en-", "-de", "en--de", "en_de", "en-en", "en - de", "en>de", ""])
def test_a_bad_direction_is_told_with_the_rule(name: str) -> None:
    with pytest.raises(SettingsError, match="two languages joined by one hyphen"):
        DataSettings(directions=("de-en", name))


def test_rules_of_several_directions() -> None:
    with pytest.raises(SettingsError, match="en-de is listed twice"):
        DataSettings(directions=("en-de", "de-en", "en-de"))
    with pytest.raises(SettingsError, match="one vocabulary for all languages"):
        load(overrides={"data.directions": "en-de", "tokenizer.joint": "false", "model.tie": "none"})
    assert Settings(data=FOUR).data.directions == FOUR.directions
    assert (targets_of(FOUR), targets_of(ONE)) == (("de", "fr", "en"), ())
    assert format_directions(FOUR) == "en → de, en → fr, de → en, fr → en"
    assert format_directions(ONE, "->") == "en -> de"


# Which one is meant


@pytest.mark.parametrize(
    ("source", "target", "meant"),
    [
        ("en", "de", Direction("en", "de")),
        (None, "de", Direction("en", "de")),
        ("de", None, Direction("de", "en")),
        (None, "en", Direction("", "en")),
        ("fr", "en", Direction("fr", "en")),
    ],
)
def test_what_is_said_may_be_enough(source: str | None, target: str | None, meant: Direction) -> None:
    assert choose_direction(FOUR, source, target) == meant


@pytest.mark.parametrize(
    ("source", "target", "zero_shot", "complaint"),
    [
        (None, None, False, "choose one with target (--to): de or fr or en"),
        ("en", None, True, "choose one with target (--to): de or fr"),
        ("es", None, True, "not trained to translate from es: it knows en-de, en-fr, de-en, fr-en"),
        (
            "de",
            "fr",
            False,
            "not trained on de-fr: it knows en-de, en-fr, de-en, fr-en; to try it anyway, use zero_shot (--zero-shot)",
        ),
        ("en", "es", True, "cannot translate into es: it knows en-de"),
        (None, "es", True, "cannot translate into es"),
        ("es", "de", False, "not trained on es-de"),
    ],
)
def test_what_is_not_enough_or_not_known_is_refused(
    source: str | None, target: str | None, zero_shot: bool, complaint: str
) -> None:
    with pytest.raises(InputError) as caught:
        choose_direction(FOUR, source, target, zero_shot=zero_shot)
    assert complaint in str(caught.value)


def test_zero_shot_is_tried_when_asked_for() -> None:
    assert choose_direction(FOUR, "de", "fr", zero_shot=True) == Direction("de", "fr")
    assert choose_direction(FOUR, "en", "fr", zero_shot=True) == Direction("en", "fr")


def test_one_direction_needs_no_word_and_refuses_a_wrong_one() -> None:
    for said in ((None, None), ("en", None), (None, "de"), ("en", "de")):
        assert choose_direction(ONE, *said) == Direction("en", "de")
    for said in (("de", None), (None, "fr"), ("de", "en")):
        with pytest.raises(InputError, match="only from en to de"):
            choose_direction(ONE, *said, zero_shot=True)
    with pytest.raises(InputError, match="does not name its languages"):
        choose_direction(DataSettings(), target="de")
    assert choose_direction(DataSettings(source="en", target="pt-BR"), target="pt_BR") == Direction("en", "pt-BR")
    assert choose_direction(DataSettings(directions=("en-pt_BR",)), target="pt-BR") == Direction("en", "pt_BR")


# Files


def test_three_files_give_every_direction_that_is_wanted(tmp_path: Path) -> None:
    files = write(tmp_path, train__en="one\ntwo\n", train__de="eins\nzwei\n", train__fr="un\ndeux\n")
    report = Report()
    pairs = list(read_pairs(files, FOUR, report))
    assert [(p.direction, p.source, p.target, p.tags, p.family) for p in pairs[:4]] == [
        ("en-de", "one", "eins", ("de",), "one"),
        ("en-fr", "one", "un", ("fr",), "one"),
        ("de-en", "eins", "one", ("en",), "one"),
        ("fr-en", "un", "one", ("en",), "one"),
    ]
    assert pairs[6].where == Location(str(files[1]), 2)
    assert (len(pairs), report.read) == (8, 8)


def test_a_language_that_comes_again_begins_a_new_set(tmp_path: Path) -> None:
    files = write(tmp_path, a__en="one\n", a__de="eins\n", b__en__gz="two\nthree\n", b__fr__gz="deux\ntrois\n")
    assert group_files(files) == [{"en": files[0], "de": files[1]}, {"en": files[2], "fr": files[3]}]
    turned = [files[0], files[1], files[3], files[2]]  # no language comes again before the last, but names differ
    assert group_files(turned) == [{"en": files[0], "de": files[1]}, {"fr": files[3], "en": files[2]}]
    unlike = [Path("this.en"), Path("that.de"), Path("other.fr")]
    assert group_files(unlike) == [dict(zip(("en", "de", "fr"), unlike, strict=True))]
    assert sorted(found(files)) == [
        ("de-en", "eins", "one"),
        ("en-de", "one", "eins"),
        ("en-fr", "three", "trois"),
        ("en-fr", "two", "deux"),
        ("fr-en", "deux", "two"),
        ("fr-en", "trois", "three"),
    ]


@given(names=st.lists(st.sampled_from(["en", "de", "fr", "pt-BR", "zh_Hans"])), gzipped=st.booleans())
def test_sets_hold_every_file_in_order_and_no_language_twice(names: list[str], gzipped: bool) -> None:
    files = [Path(f"{number}.{name}{'.gz' if gzipped else ''}") for number, name in enumerate(names)]
    sets = group_files([*files, Path("a.tsv"), Path("b.jsonl.gz")])
    assert [path for paths in sets for path in paths.values()] == files
    assert [name for paths in sets for name in paths] == [name.replace("-", "_") for name in names]
    for one, other in pairwise(sets):
        assert next(iter(other)) in one


def test_tables_and_objects_are_keyed_by_language(tmp_path: Path) -> None:
    files = write(
        tmp_path,
        a__tsv="de\tnote\ten\neins\tx\tone\nzwei\ty\t\n",
        b__jsonl='{"en": "three", "fr": "trois", "de": null}\n{"translation": {"fr": "quatre", "en": "four"}}\n'
        '\n{"es": "cinco", "en": "five"}\n',
    )
    report = Report()
    assert found(files, FOUR, report) == [
        ("en-de", "one", "eins"),
        ("de-en", "eins", "one"),
        ("en-de", "", "zwei"),
        ("de-en", "zwei", ""),
        ("en-fr", "three", "trois"),
        ("fr-en", "trois", "three"),
        ("en-fr", "four", "quatre"),
        ("fr-en", "quatre", "four"),
    ]
    assert report.examples == {"no direction": [f"{files[1]}:3", f"{files[1]}:4"]}
    assert report.read == 10


def test_two_files_both_ways_and_a_region(tmp_path: Path) -> None:
    files = [*write(tmp_path, a__en="one\n"), tmp_path / "a.pt-BR"]
    files[1].write_text("um\n")
    data = DataSettings(directions=("en-pt_BR", "pt_BR-en"))
    assert found(files, data) == [("en-pt_BR", "one", "um"), ("pt_BR-en", "um", "one")]
    (path,) = write(tmp_path, b__jsonl=json.dumps({"en": "two", "pt-BR": "dois"}))
    assert found([path], data)[0] == ("en-pt_BR", "two", "dois")


def test_what_is_left_out_is_counted_for_each_direction(tmp_path: Path) -> None:
    drop = DataSettings(directions=FOUR.directions, undecodable="drop")
    files = write(tmp_path, a__en="one\n\nthree\n", a__de=b"eins\nzwei\n\xff\n", a__fr="un\ndeux\ntrois\n")
    report = Report()
    kept = [pair.direction for pair in clean(read_pairs(files, drop, report), drop, report)]
    assert (sorted(kept), report.read) == (["de-en", "en-de", "en-fr", "en-fr", "fr-en", "fr-en"], 12)
    assert report.counts == {"empty": 4, "undecodable": 2}
    assert report.examples["undecodable"] == [f"{files[1]}:3"] * 2
    assert report.kept + sum(report.counts.values()) == report.read
    assert refusal(files).startswith(f"{files[1]}:3: byte 1 of the line (0xFF) is not UTF-8")


def test_a_blank_line_of_a_table_is_a_row_of_empty_texts(tmp_path: Path) -> None:
    (table,) = write(tmp_path, t__tsv="en\tde\tfr\none\teins\tun\n\ntwo\tzwei\tdeux\n")
    report = Report()
    pairs = list(read_pairs([table], FOUR, report))
    assert [(pair.source, pair.where.line) for pair in pairs if pair.direction == "en-fr"] == [
        ("one", 2),
        ("", 3),
        ("two", 4),
    ]
    assert {pair.target for pair in pairs if pair.where.line == 3} == {""}


def test_tidying_keeps_the_direction() -> None:
    pair = Pair(" one ", "eins", Location("x", 1), ("de",), "en-de", "one")
    (kept,) = clean([pair], FOUR, Report())
    assert kept == Pair("one", "eins", Location("x", 1), ("de",), "en-de", "one")


def test_unequal_files_are_refused_with_all_counts(tmp_path: Path) -> None:
    files = write(tmp_path, a__en="1\n2\n3\n", a__de="1\n2\n3", a__fr="1\n2\n")
    message = refusal(files)
    assert f"{files[0]} has 3 lines but {files[1]} has 3 lines but {files[2]} has 2 lines" in message
    assert "misaligned" in message


def test_files_that_nobody_uses_and_directions_that_no_file_has_are_refused(tmp_path: Path) -> None:
    en, de, fr, es = write(tmp_path, a__en="one\n", a__de="eins\n", a__fr="un\n", a__es="uno\n")
    assert "no pairs for the direction en-fr in" in refusal([en, de])
    message = refusal([en, de, fr, es])
    assert message.startswith(f"{es}: none of the directions en-de, en-fr, de-en, fr-en")
    assert refusal([en, en, de, fr]).startswith(f"{en}: none of")  # the second en begins a new set
    (table,) = write(tmp_path, t__tsv="one\teins\n")
    assert "no pairs for the direction en-de" in refusal([table])


def test_faults_of_tables_and_objects_are_told_with_their_place(tmp_path: Path) -> None:
    for content, complaint in (
        ("a dog\tein Hund\n", ":1: the first line must name the language of each column"),
        ("en\ten\n", ":1: the first line must name"),
        ("", ":1: the first line must name"),
        ("en\tde\none\teins\tx\n", ":2: 3 columns, but the first line has 2"),
    ):
        (path,) = write(tmp_path, t__tsv=content)
        assert refusal([path], DataSettings(directions=("en-de",))).startswith(f"{path}{complaint}")
    for content, complaint in (
        ('{"en": 3, "de": "drei"}', ":1: expected a text under en, not int"),
        ('{"en": "\\ud800", "de": "x"}', ":1: a lone surrogate"),
        ("[]", ":1: expected a JSON object, not list"),
    ):
        (path,) = write(tmp_path, t__jsonl=content)
        assert refusal([path]).startswith(f"{path}{complaint}")


def test_more_languages_without_directions_are_told_how_to_ask(tmp_path: Path) -> None:
    files = write(tmp_path, a__en="one\n", a__de="eins\n", a__fr="un\n")
    assert "--directions en-de,en-fr,de-en,de-fr,fr-en,fr-de" in refusal(files, DataSettings())
    files = write(tmp_path, a__en="one\n", a__de="eins\n", b__en="one\n", b__de="eins\n")
    assert refusal(files, DataSettings()).endswith("--directions en-de,de-en")
    (path,) = write(tmp_path, t__tsv="en\tde\tfr\n")
    assert "--directions" in refusal([path], DataSettings())
    (path,) = write(tmp_path, t__jsonl='{"en": "a", "de": "b", "fr": "c"}\n')
    assert "--directions" in refusal([path], DataSettings())


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    files = write(tmp_path, a__en="some words\n" * 5000, a__de="einige Wörter\n" * 5000, a__fr="des mots\n" * 5000)
    tracemalloc.start()
    assert sum(1 for _ in read_pairs(files, FOUR, Report())) == 20_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 400_000


# Splitting and sampling


def test_every_part_has_its_share_and_equal_parts_share_their_lines() -> None:
    large, small = [("large", str(n)) for n in range(1000)], [("small", f"s{n}") for n in range(100)]
    chosen = split_each(
        [*large, *small, *(("again", text) for _, text in large)], 20, {"large": 1000, "small": 100, "again": 1000}
    )
    held = {part: sum(chosen.holds(text) for _, text in texts) for part, texts in (("large", large), ("small", small))}
    assert held == {"large": 20, "small": 20}
    with pytest.raises(DataError, match="fewer than two different sources"):
        split_each([("a", "1"), ("a", "2"), ("b", "3")], 1, {"a": 2, "b": 1})


def test_a_sampled_vocabulary_sees_every_direction() -> None:
    """Every n-th pair of all would be of one direction, where these come by turns."""
    words = {"en-de": "house", "en-fr": "maison", "de-en": "garden", "fr-en": "voiture"}
    pairs = [Pair(word, word, Location("x", 1), (), name) for _ in range(200) for name, word in words.items()]
    found = Vocabularies.train(lambda: pairs, TokenizerSettings(vocabulary=330, sample=40, tags=("de",)))
    for word in words.values():
        assert len(found.source.encode(word).ids) == 1, word
