"""Each check finds its fault, and nothing where there is none."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.errors import DataError
from regard.files import corpus_check as examination, pair_checks as checks
from regard.files.character_arrays import Characters
from regard.files.check_thresholds import CheckSettings
from regard.files.corpus_check import Examination, Repeats
from regard.files.pair_checks import CHECKS, Notices, find_faults, unmatched_items
from regard.settings import DataSettings
from regard.tokens.text_pairs import Location, Pair

ERRORS = [name for name, check in CHECKS.items() if check.severity == "error"]


def faults(source: str, target: str) -> set[str]:
    """What is found in one pair alone."""
    found = find_faults([source], [target], Characters([source]), Characters([target]))
    return {name for name, rows in found if list(rows) == [0]}


def examine(
    files: Sequence[Path],
    test: Sequence[Path] = (),
    check: CheckSettings | None = None,
    data: DataSettings | None = None,
    drop: Sequence[str] = ERRORS,
) -> tuple[Examination, list[tuple[str, str]]]:
    """An examination that is over, and the pairs that pass."""
    found = Examination(files, data or DataSettings(), check or CheckSettings(), drop)
    for _ in found.survey(test):
        pass
    return found, [pair for part in found.judge() for pair in part.kept()]


def write(folder: Path, *pairs: tuple[str, str], name: str = "corpus.tsv") -> list[Path]:
    path = folder / name
    path.write_bytes("".join(f"{source}\t{target}\n" for source, target in pairs).encode("utf-8", "surrogateescape"))
    return [path]


def counted(found: Examination) -> dict[str, int]:
    return {name: finding.count for name, finding in found.findings.items() if finding.count}


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ("for you", "fÃ¼r dich", "damaged"),
        ("it’s", "itâ€™s so", "damaged"),
        ("hello", "Ð¿Ñ€Ð¸Ð²ÐµÑ‚", "damaged"),
        ("China", "ä¸­å›½", "damaged"),
        ("20 degrees", "20 Â°C", "damaged"),
        ("what", "wa\ufffd", "damaged"),
        ("a\x07b", "b", "control"),
        ("a", "b\nc", "control"),
        ("zero\u200bwidth", "null", "invisible"),
        ("soft hyphen", "Trenn\u00adstrich", "invisible"),
        ("", "etwas", "empty"),
        ("something", "", "empty"),
        ("Firefox", "Firefox", "identical"),
        ("%d files in %s", "%d Dateien", "placeholders"),
        ("Hello {name}", "Hallo {nom}", "placeholders"),
        ("{count, plural, one {a} other {b}}", "b", "placeholders"),
        ("a <b>bold</b> word", "ein fettes Wort", "tags"),
        ("one<br>two", "eins zwei", "tags"),
        ("see https://regard.example/a", "siehe https://regard.example/b", "addresses"),
        ("write to me@regard.example", "schreib an mich@regard.example", "addresses"),
        ("in 1701", "im Jahr 1710", "numbers"),
        ("in 1701", "damals", "numbers"),
        ("an alignment of 32678 or less", "höchstens 32,768", "numbers"),
    ],
)
def test_a_fault_is_found(source: str, target: str, expected: str) -> None:
    assert faults(source, target) - {"invisible"} == {expected} - {"invisible"}
    assert expected in faults(source, target)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ("One tree.", "Ein Baum."),
        ("It was fun “really”", "„Das war Spaß“, meint er"),
        ("NO… “SISTER”", "NÃO… “IRMÔ"),
        ("Published…", "« Publié…» déjà »"),
        ("emoji", "👩\u200d💻 नमस्ते\u200dक"),
        ("%s was bribed by %s for %d", "%2$s bestach %1$s mit %3$d"),
        ("100% sure", "100%ig sicher"),
        ("{n, plural, one {# file} other {# files}}", "{n, plural, one {# Datei} other {# Dateien}}"),
        ("usage: copy <file>", "Aufruf: copy <Datei>"),
        ('<a href="/en">here</a>', '<a href="/de">hier</a>'),
        ("See https://regard.example/.", "Siehe (https://regard.example)"),
        ("1,234.5 of 1000000", "1.234,5 von 1 000 000"),
        ("1,000,000 people", "1000000 Leute"),
        ("on 12/30/1899", "am 30.12.1899"),
        ("It costs 2.00", "Es kostet 2"),
        ("in 7 of 12 cases", "in sieben von zwölf Fällen"),
        ("She is eighteen.", "她18岁了。"),
        ("born in 1972", "一九七二年出生"),
        ("a hundred", "100 Stück"),
    ],
)
def test_a_clean_pair_has_no_fault(source: str, target: str) -> None:
    assert faults(source, target) == set()


@pytest.mark.parametrize(
    ("name", "source", "target", "left", "right"),
    [
        ("placeholders", "%s of %d", "%2$d von {n}", ["%s"], ["{n}"]),
        ("tags", "<b>a</b>", "a<br/>", ["b", "/b"], ["br"]),
        ("addresses", "www.regard.example", "nirgends", ["www.regard.example"], []),
        ("numbers", "%1$s in 1,999", "%1$s in 2", ["1,999"], ["2"]),
        ("duplicate", "%s 17", "", [], []),
    ],
)
def test_what_differs_is_told(name: str, source: str, target: str, left: list[str], right: list[str]) -> None:
    assert unmatched_items(name, source, target) == (left, right)


@given(st.text(), st.text())
def test_any_text_can_be_looked_at(source: str, target: str) -> None:
    names = {name for name, _ in find_faults([source], [target], Characters([source]), Characters([target]))}
    assert names <= CHECKS.keys()


@given(st.lists(st.text(), max_size=8))
def test_texts_together_are_texts_alone(texts: list[str]) -> None:
    together = Characters(texts)
    letters, starts = together.letters()
    for row, text in enumerate(texts):
        alone = Characters([text])
        assert together.kinds[row] == alone.kinds[0]
        assert together.lengths[row] == len(text)
        end = starts[row + 1] if row + 1 < len(texts) else len(letters)
        assert [c for c in letters[starts[row] : end] if c] == [c for c in alone.letters()[0] if c]


# A whole corpus


def test_faults_of_a_corpus(tmp_path: Path) -> None:
    pairs = [("one", "eins"), ("two", "zwei"), ("one", "eins"), ("", ""), ("", ""), ("x" * 60, "y"), ("z" * 2001, "z")]
    found, kept = examine(write(tmp_path, *pairs))
    assert counted(found) == {"duplicate": 1, "empty": 2, "ratio": 2, "long": 1}
    assert kept == [("one", "eins"), ("two", "zwei")]
    assert (found.report.read, found.kept) == (7, 2)
    example = found.findings["duplicate"].examples[0]
    assert (example.where, example.source, example.target) == (f"{tmp_path}/corpus.tsv:3", "one", "eins")


def test_a_source_with_many_targets(tmp_path: Path) -> None:
    pairs = [("run", f"Lauf {word}") for word in ("a", "b", "c", "a", "d")] + [("go", "geh"), ("go", "gehen")]
    files = write(tmp_path, *pairs)
    assert counted(examine(files)[0]) == {"duplicate": 1, "targets": 5}
    assert counted(examine(files, check=CheckSettings(targets=4))[0]) == {"duplicate": 1}
    assert counted(examine(files, check=CheckSettings(targets=1))[0]) == {"duplicate": 1, "targets": 7}


def test_the_ratio_is_that_of_the_corpus(tmp_path: Path) -> None:
    """Chinese is much shorter than English: what counts is how long texts usually are."""
    usual = [(f"This is sentence {n} of a corpus that has others.", f"第{n}句，还有其他句子。") for n in range(20)]
    odd = (usual[0][0] + " It goes on.", "This is a sentence of English, as long as the other, or longer, or shorter.")
    found, _ = examine(write(tmp_path, *usual, odd))
    assert counted(found) == {"ratio": 1}
    assert found.findings["ratio"].examples[0].source == odd[0]
    assert not counted(examine(write(tmp_path, *usual, odd), check=CheckSettings(ratio=6))[0])


def test_leaked_test_sentences(tmp_path: Path) -> None:
    corpus = write(tmp_path, ("one", "eins"), ("two", "zwei"), ("two", "zwo"), ("three", "drei"))
    test = write(tmp_path, ("two", "2"), (" three ", "3"), ("four", "4"), name="test.tsv")
    found, kept = examine(corpus, test)
    assert counted(found) == {"leaked": 3}
    assert (len(found.leaked), len(found.tested)) == (2, 3)
    assert kept == [("one", "eins")]


def test_lines_that_are_not_utf_8_are_counted_with_their_places(tmp_path: Path) -> None:
    files = write(tmp_path, ("one", "eins"), ("two", "zw\udcff"), ("three", "drei"))
    found, kept = examine(files)
    assert counted(found) == {"undecodable": 1}
    assert found.findings["undecodable"].examples[0].where == f"{files[0]}:2"
    assert kept == [("one", "eins"), ("three", "drei")]
    assert found.report.read == 3


def test_directions_are_apart(tmp_path: Path) -> None:
    """The same source in two directions has one target in each; a line without one of the languages is told."""
    path = tmp_path / "several.jsonl"
    rows = ['{"en": "one", "de": "eins", "fr": "un"}', '{"en": "two", "de": "zwei", "fr": "deux"}', '{"de": "drei"}']
    path.write_text("\n".join(rows), encoding="utf-8")
    data = DataSettings(directions=("en-de", "en-fr"))
    found, kept = examine([path], data=data, check=CheckSettings(targets=1))
    assert counted(found) == {"direction": 1}
    assert sorted(kept) == [("one", "eins"), ("one", "un"), ("two", "deux"), ("two", "zwei")]


def test_what_is_no_error_is_kept(tmp_path: Path) -> None:
    files = write(tmp_path, ("one", "eins"), ("one", "eins"))
    assert examine(files, drop=[])[1] == [("one", "eins")] * 2
    assert examine(files)[1] == [("one", "eins")]


def test_a_corpus_without_pairs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.tsv").touch()
    with pytest.raises(DataError, match=r"there are no pairs in .*empty.tsv"):
        examine([tmp_path / "empty.tsv"])


@pytest.mark.parametrize("rest", [0, 3])
def test_a_corpus_that_changes_while_it_is_read(tmp_path: Path, rest: int) -> None:
    files = write(tmp_path, ("one", "eins"), ("two", "zwei"))
    found = Examination(files, DataSettings(), CheckSettings(), ERRORS)
    list(found.survey())
    write(tmp_path, *[("one", "eins")] * rest)
    with pytest.raises(DataError, match="changed during the check"):
        list(found.judge())


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from("xyz")), max_size=30), st.integers(1, 3))
def test_repeats_are_those_that_sets_find(pairs: list[tuple[str, str]], most: int) -> None:
    repeats = Repeats()
    repeats.add([source for source, _ in pairs], [target for _, target in pairs])
    duplicates = repeats.duplicates()
    assert duplicates.tolist() == [pair in pairs[:row] for row, pair in enumerate(pairs)]
    targets = {source: {target for other, target in pairs if other == source} for source, _ in pairs}
    assert repeats.scattered(most, duplicates).tolist() == [len(targets[source]) > most for source, _ in pairs]
    assert repeats.known(["a", "q"]).tolist() == [source == "a" for source, _ in pairs]


def test_memory_grows_by_some_bytes_a_pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not with the texts: 9,000 more pairs of 600 characters are 5 MB."""
    monkeypatch.setattr(examination, "CHUNK", 500)
    monkeypatch.setattr(examination, "SAMPLE", 200)
    path, text = tmp_path / "large.tsv", "some words and " * 20
    path.write_text("".join(f"{number} {text}\t{text} {number}\n" for number in range(10_000)), encoding="utf-8")
    found = Examination([path], DataSettings(), CheckSettings(), ERRORS)
    tracemalloc.start()
    peaks = {}
    for seen in found.survey():
        peaks[seen] = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found.flags["duplicate"]) == 10_000
    assert peaks[10_000] - peaks[1000] < 9000 * 100


def test_pairs_on_their_way_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checks, "CHUNK", 2)
    texts = [("one", "eins"), ("%s", "x"), ("%d", "x"), ("Tom", "Tom"), ("see <b>it</b>", "%s")]
    pairs = [Pair(source, target, Location("train.en", line)) for line, (source, target) in enumerate(texts, 1)]
    notices = Notices()
    assert list(notices.watch(iter(pairs))) == pairs
    assert notices.line([Path("a b.en"), Path("a.de")]) == (
        "to review (regard check 'a b.en' a.de shows details): placeholders differ: 3; both sides are the same: 1; "
        "tags differ: 1"
    )
    assert list((clean := Notices()).watch(iter(pairs[:1]))) == pairs[:1]
    assert clean.line([Path("a.tsv")]) == ""


def test_the_page_of_checks_has_their_severity() -> None:
    page = (Path(__file__).parents[2] / "docs" / "check.md").read_text(encoding="utf-8")
    said = dict(re.findall(r"^\| `(\w+)` \|.*\| (error, always|error|warning) \|$", page, re.MULTILINE))
    assert said == {name: check.severity + ", always" * check.always for name, check in CHECKS.items()}
