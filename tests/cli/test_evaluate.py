"""Scores of a model or of files, alone and beside a baseline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.evaluation.translation_scores import compare, score
from tests.cli.conftest import write_corpus
from tests.cli.running import Done, call, with_settings
from tests.interop.toys import settings_of, write_model

QUICK = ["--resamples", "40"]


@pytest.fixture
def test_set(tmp_path: Path) -> list[str]:
    return write_corpus(tmp_path, "test", pairs=12, seed=9)


def lines(path: str | Path) -> list[str]:
    return Path(path).read_text(encoding="utf-8").splitlines()


def scores(done: Done) -> dict[str, Any]:
    assert (done.code, done.err) == (0, "")
    found: dict[str, Any] = json.loads(done.out)
    return found


def test_a_model_is_scored(capsys: pytest.CaptureFixture[str], model: str, test_set: list[str], tmp_path: Path) -> None:
    output = tmp_path / "out.de"
    done = call(capsys, "evaluate", model, *test_set, *QUICK, "-o", str(output), "--beam", "2")
    assert (done.code, done.err) == (0, "")
    found = [t.text for t in load_as(Translator, model, "cpu").translate(lines(test_set[0]), beam=2)]
    assert lines(output) == found
    expected = score(found, lines(test_set[1]), language="de", resamples=40)
    assert done.out == "12 sentences\n" + "".join(f"{each}\n" for each in expected)
    assert [line.split()[0] for line in done.out.splitlines()[1:]] == ["BLEU", "chrF", "TER"]
    assert done.out.count("|version:") == 3
    assert done.out.count(" ± ") == 3


def test_the_forms_of_a_test_set(
    capsys: pytest.CaptureFixture[str], model: str, test_set: list[str], tmp_path: Path
) -> None:
    pairs = list(zip(lines(test_set[0]), lines(test_set[1]), strict=True))
    (tmp_path / "test.tsv").write_text("".join(f"{en}\t{de}\n" for en, de in pairs), encoding="utf-8")
    records = [json.dumps({"en": en, "de": de}) + "\n" for en, de in pairs]
    (tmp_path / "test.jsonl").write_text("".join(records), encoding="utf-8")
    results = [
        call(capsys, "evaluate", model, *files, "--resamples", "0")
        for files in (test_set, [str(tmp_path / "test.tsv")], [str(tmp_path / "test.jsonl")])
    ]
    assert results[0].code == 0
    assert " ± " not in results[0].out
    assert results[0] == results[1] == results[2]


def test_translations_in_a_file_are_scored(
    capsys: pytest.CaptureFixture[str], test_set: list[str], tmp_path: Path
) -> None:
    perfect = scores(call(capsys, "evaluate", "--hypotheses", test_set[1], test_set[1], "--json", *QUICK))
    values = {each["name"]: each["value"] for each in perfect["scores"]}
    assert values == {"BLEU": pytest.approx(100), "chrF": pytest.approx(100), "TER": 0.0}
    assert perfect["comparisons"] == []
    shouted = tmp_path / "shouted.de"
    shouted.write_bytes("\ufeff".encode() + "\r\n".join(line.upper() for line in lines(test_set[1])).encode())
    worse, same = (
        scores(call(capsys, "evaluate", "--hypotheses", str(shouted), test_set[1], "--json", *QUICK, *flags))
        for flags in ([], ["--lowercase"])
    )
    assert worse["scores"][0]["value"] < 50
    assert same["scores"][0]["value"] == pytest.approx(100)


def test_language_and_tokenizer_are_in_the_signature(capsys: pytest.CaptureFixture[str], test_set: list[str]) -> None:
    for flags, tokenizer in (([], "13a"), (["--language", "zh"], "zh"), (["--tokenize", "char"], "char")):
        found = scores(call(capsys, "evaluate", "--hypotheses", test_set[1], test_set[1], "--json", *QUICK, *flags))
        assert f"|tok:{tokenizer}|" in found["scores"][0]["signature"]


def test_the_language_is_the_models_unless_it_is_given(
    capsys: pytest.CaptureFixture[str], model: str, test_set: list[str], tmp_path: Path
) -> None:
    chinese = with_settings(model, tmp_path, 'target = "de"', 'target = "zh"')
    for flags, tokenizer in (([], "zh"), (["--language", "de"], "13a")):
        found = scores(call(capsys, "evaluate", chinese, *test_set, "--json", "--resamples", "0", *flags))
        assert f"|tok:{tokenizer}|" in found["scores"][0]["signature"]


def test_a_file_is_a_baseline(capsys: pytest.CaptureFixture[str], test_set: list[str], tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.de"
    baseline.write_text("ein Hund\n" * 12)
    command = ["evaluate", "--hypotheses", test_set[1], test_set[1], "--baseline", str(baseline), *QUICK]
    found = scores(call(capsys, *command, "--json"))
    references = lines(test_set[1])
    expected = compare(["ein Hund"] * 12, references, references, resamples=40)
    assert [each["metric"] for each in found["comparisons"]] == ["BLEU", "chrF", "TER"]
    for ours, theirs in zip(found["comparisons"], expected, strict=True):
        assert (ours["baseline"], ours["system"], ours["p_value"]) == (theirs.baseline, theirs.system, theirs.p_value)
    told = call(capsys, *command).out.splitlines()
    assert told[4].startswith(f"BLEU against the baseline: {expected[0].baseline:.2f} -> 100.00 (+")
    assert told[4].endswith(", significant at 0.05")


def test_a_model_is_a_baseline(capsys: pytest.CaptureFixture[str], model: str, test_set: list[str]) -> None:
    itself = scores(call(capsys, "evaluate", model, *test_set, "--baseline", model, "--json", *QUICK))
    assert [(each["baseline"], each["p_value"]) for each in itself["comparisons"]] == [
        (each["value"], 1.0) for each in itself["scores"]
    ]
    told = call(capsys, "evaluate", "--hypotheses", test_set[1], *test_set, "--baseline", model, *QUICK)
    assert told.code == 0
    assert f"BLEU against the baseline: {itself['scores'][0]['value']:.2f} -> 100.00" in told.out


def test_kept_translations_have_a_line_for_each_source(
    capsys: pytest.CaptureFixture[str], model: str, tmp_path: Path
) -> None:
    """Also where a source has line ends, as in JSON it can."""
    test_set, output = tmp_path / "test.jsonl", tmp_path / "out.de"
    record = {"source": "a dog\nshe", "target": "ein Hund\nsie"}
    test_set.write_text(2 * (json.dumps(record) + "\n"))
    done = call(capsys, "evaluate", model, str(test_set), "--resamples", "0", "-o", str(output))
    assert done.code == 0
    assert len(lines(output)) == 2


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ("--resamples 10", "resamples must be at least 40, not 10"),
        ("--resamples 0 --baseline short.de", "resamples must be at least 40, not 0"),
        ("--tokenize words", "BLEU has no tokenizer 'words'"),
        ("--baseline none.de", "none.de: cannot be read"),
        ("--baseline short.de", "short.de: has 1 line, but the test set has 12"),
        ("--baseline empty.de", "empty.de: has 0 lines, but the test set has 12"),
        ("--baseline folder", "folder: not a Regard model"),
        ("--baseline writer", "writer: is a model to write: compare with a translator"),
    ],
)
def test_what_cannot_be_scored_is_refused_before_anything_is_translated(
    capsys: pytest.CaptureFixture[str],
    model: str,
    test_set: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: str,
    says: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("short.de").write_text("ein Hund\n")
    Path("empty.de").write_text("")
    Path("folder").mkdir()
    write_model(Path("writer"), settings_of("write"))
    monkeypatch.setattr("regard.decoding.model_loading.load_as", lambda *_, **__: pytest.fail("a model was loaded"))
    done = call(capsys, "evaluate", model, *test_set, "-o", "out.de", *flags.split())
    assert (done.code, done.out) == (2, "")
    assert says in done.err
    assert not Path("out.de").exists()


def test_translations_that_are_too_few_are_named(capsys: pytest.CaptureFixture[str], test_set: list[str]) -> None:
    short = Path(test_set[1]).with_name("short.de")
    short.write_text("ein Hund\n")
    done = call(capsys, "evaluate", "--hypotheses", str(short), test_set[1])
    assert done == Done(2, "", f"regard: {short}: has 1 line, but the test set has 12\n")


@pytest.mark.parametrize(
    "flags", ["-o out.txt", "--baseline test.de", "--lowercase", "--tokenize char", "--language de"]
)
def test_flags_for_translations_are_refused_for_other_models(
    capsys: pytest.CaptureFixture[str], test_set: list[str], tmp_path: Path, flags: str
) -> None:
    write_model(tmp_path / "writer", settings_of("write"))
    done = call(capsys, "evaluate", str(tmp_path / "writer"), test_set[0], *flags.split())
    assert (done.code, done.out) == (2, "")
    assert f"{flags.split()[0]} works only with translators: remove it for a model to write" in done.err
