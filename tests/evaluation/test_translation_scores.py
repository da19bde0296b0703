from __future__ import annotations

import json
import logging
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import example, given, strategies as st

from regard.errors import InputError
from regard.evaluation import translation_scores as scores
from regard.evaluation.translation_scores import (
    Comparison,
    Score,
    compare,
    exact_match,
    score,
    sentence_chrf,
    single_score,
)
from tests.examples import examples

TEXT = "The cat sat on a Mat , and 2,500 small dogs ran home ; it was n't the end ."
WORDS = TEXT.split()
CHARACTERS = "我们今天去北京看朋友，天气很好。"


def corrupt(line: str, share: float, seed: int) -> str:
    """The line with about this share of its words replaced."""
    draw = random.Random(f"{seed} {line}")
    return " ".join(draw.choice(WORDS) if draw.random() < share else word for word in line.split())


def make_references(lines: int) -> list[str]:
    draw = random.Random(7)
    return [" ".join(draw.choices(WORDS, k=draw.randint(6, 20))) for _ in range(lines)]


REFERENCES = make_references(60)
BASELINE = [corrupt(line, 0.30, 1) for line in REFERENCES]
SYSTEM = [corrupt(line, 0.26, 2) for line in REFERENCES]
BETTER = [corrupt(line, 0.05, 3) for line in REFERENCES]

CHINESE_REFERENCES = ["".join(random.Random(i).choices(CHARACTERS, k=15)) for i in range(20)]
CHINESE = [line[:7] + "猫" + line[8:] for line in CHINESE_REFERENCES]


def sacrebleu_command(folder: Path, *options: str, seed: int, **texts: list[str]) -> str:
    """What the sacrebleu command prints for these files, the references first."""
    for name, lines in texts.items():
        (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    references, *systems = texts
    command = [sys.executable, "-m", "sacrebleu", references, "-i", *systems, "-m", "bleu", "chrf", "ter"]
    environment = {**os.environ, "SACREBLEU_SEED": str(seed), "NO_COLOR": "1", "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run([*command, "-w", "8", *options], cwd=folder, env=environment, check=True, capture_output=True)
    return done.stdout.decode()


def assert_same_as_command(found: list[Score], printed: str) -> None:
    expected = json.loads(printed)
    assert [each.name for each in found] == ["BLEU", "chrF", "TER"]
    assert [each["name"] for each in expected] == ["BLEU", "chrF2", "TER"]
    for ours, theirs in zip(found, expected, strict=True):
        assert ours.signature == theirs["signature"]
        assert ours.value == pytest.approx(theirs["score"], abs=1e-7)
        assert (ours.low is None) == ("confidence_mean" not in theirs)
        if ours.low is not None and ours.high is not None:
            assert (ours.low + ours.high) / 2 == pytest.approx(theirs["confidence_mean"], abs=1e-4)
            assert (ours.high - ours.low) / 2 == pytest.approx(theirs["confidence_var"], abs=1e-4)


def test_scores_are_those_of_the_command(tmp_path: Path) -> None:
    printed = sacrebleu_command(tmp_path, seed=1, references=REFERENCES, system=SYSTEM)
    assert_same_as_command(score(SYSTEM, REFERENCES, resamples=0), printed)


def test_intervals_are_those_of_the_command(tmp_path: Path) -> None:
    options = (
        "--confidence",
        "--confidence-n",
        "200",
        "--lowercase",
        "--chrf-lowercase",
        "--tokenize",
        "intl",
    )
    printed = sacrebleu_command(tmp_path, *options, seed=99, references=REFERENCES, system=SYSTEM)
    found = score(SYSTEM, REFERENCES, lowercase=True, tokenize="intl", resamples=200, seed=99)
    assert "bs:200|seed:99|case:lc" in found[0].signature
    assert "tok:intl" in found[0].signature
    assert all(each.low is not None and each.low < each.value for each in found)
    assert_same_as_command(found, printed)


def test_chinese_scores_are_those_of_the_command(tmp_path: Path) -> None:
    options = ("--tokenize", "zh", "--ter-normalized", "--ter-asian-support")
    printed = sacrebleu_command(tmp_path, *options, seed=1, references=CHINESE_REFERENCES, system=CHINESE)
    assert_same_as_command(score(CHINESE, CHINESE_REFERENCES, language="zh", resamples=0), printed)


def test_comparison_is_that_of_the_command(tmp_path: Path) -> None:
    options = ("--paired-bs", "--paired-bs-n", "150", "--format", "latex", "--no-color")
    texts = {"references": REFERENCES, "baseline": BASELINE, "system": SYSTEM}
    printed = sacrebleu_command(tmp_path, *options, seed=5, **texts)
    rows = [line.split("&")[1:] for line in printed.splitlines() if "&" in line][1:]
    signatures = re.findall(r"^ - (?:BLEU|chrF2|TER) +(\S+)$", printed, re.MULTILINE)

    found = compare(BASELINE, SYSTEM, REFERENCES, resamples=150, seed=5)

    assert [each.metric for each in found] == ["BLEU", "chrF", "TER"]
    assert [each.signature for each in found] == signatures
    assert [each.baseline for each in found] == pytest.approx([float(cell.split()[0]) for cell in rows[0]])
    assert [each.system for each in found] == pytest.approx([float(cell.split()[0]) for cell in rows[1]])
    p_values = [float(re.findall(r"p = ([\d.]+)", cell)[0]) for cell in rows[1]]
    assert [each.p_value for each in found] == pytest.approx(p_values, abs=5e-5)
    assert [each.significant for each in found] == ["*" in cell for cell in rows[1]]
    assert len(set(p_values)) > 1, "a test set on which every p value is the smallest shows little"


def test_identical_lines_are_perfect() -> None:
    bleu, chrf, ter = score(REFERENCES, REFERENCES, resamples=40)
    assert (bleu.value, chrf.value, ter.value) == pytest.approx((100, 100, 0))
    assert (bleu.low, bleu.high, ter.low, ter.high) == pytest.approx((100, 100, 0, 0))
    assert exact_match(REFERENCES, REFERENCES) == 100


def test_order_of_lines_matters() -> None:
    bleu, chrf, ter = score(REFERENCES[::-1], REFERENCES, resamples=0)
    assert bleu.value < 50
    assert chrf.value < 80
    assert ter.value > 50


@examples(60)
@example([("", "a"), ("a", "a")])  # a resample without any match, on which sacrebleu's corpus_score fails
@given(st.lists(st.tuples(st.text(max_size=20), st.text(max_size=20)), min_size=1, max_size=6))
def test_any_text_has_scores(pairs: list[tuple[str, str]]) -> None:
    hypotheses, references = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    bleu, chrf, ter = score(hypotheses, references, resamples=40)
    assert 0 <= bleu.value <= 100.0001
    assert 0 <= chrf.value <= 100.0001
    assert ter.value >= 0
    for each in (bleu, chrf, ter):
        assert each.low is not None
        assert each.high is not None
        assert each.low <= each.high
    assert single_score(hypotheses, references, "bleu") == bleu.value
    assert single_score(hypotheses, references, "chrf") == chrf.value
    assert 0 <= exact_match(hypotheses, references) <= 100


def test_quick_knows_the_language() -> None:
    expected = score(CHINESE, CHINESE_REFERENCES, language="zh", resamples=0)
    assert single_score(CHINESE, CHINESE_REFERENCES, "bleu", "zh") == expected[0].value
    assert single_score(CHINESE, CHINESE_REFERENCES, "bleu") < expected[0].value


def test_chrf_of_each_sentence_is_that_of_it_alone() -> None:
    hypotheses, references = ["a dog runs", "nothing", "the same"], ["a dog ran", "alike", "the same"]
    found = sentence_chrf(hypotheses, references)
    assert found[2] == 100
    assert found == [pytest.approx(single_score([h], [r], "chrf")) for h, r in zip(hypotheses, references, strict=True)]


def test_exact_match_counts_lines() -> None:
    assert exact_match(["a", "b", "c", "D"], ["a", "b", "x", "d"]) == 50


def test_a_system_does_not_differ_from_itself() -> None:
    for each in compare(SYSTEM, list(SYSTEM), REFERENCES, resamples=100):
        assert (each.difference, each.p_value, each.significant) == (0, 1, False)


def test_a_clearly_better_system_differs() -> None:
    bleu, chrf, ter = compare(BASELINE, BETTER, REFERENCES, resamples=100)
    assert bleu.significant
    assert chrf.significant
    assert ter.significant
    assert bleu.difference == bleu.system - bleu.baseline > 5
    assert chrf.difference > 5
    assert ter.difference < -5


def test_one_changed_line_is_not_significant() -> None:
    changed = ["The dogs ran .", *SYSTEM[1:]]
    for each in compare(SYSTEM, changed, REFERENCES, resamples=200):
        assert each.difference != 0
        assert not each.significant


def test_significance_begins_below_one_in_twenty() -> None:
    def with_p(p_value: float) -> Comparison:
        return Comparison(metric="BLEU", baseline=1.0, system=2.0, p_value=p_value, signature="")

    assert with_p(0.0499).significant
    assert not with_p(0.05).significant


def test_a_seed_decides_the_resamples(monkeypatch: pytest.MonkeyPatch) -> None:
    first = score(SYSTEM, REFERENCES, resamples=50, seed=3)
    monkeypatch.setenv("SACREBLEU_SEED", "4")
    assert score(SYSTEM, REFERENCES, resamples=50, seed=3) == first
    assert os.environ["SACREBLEU_SEED"] == "4"
    other = score(SYSTEM, REFERENCES, resamples=50, seed=4)
    assert [each.value for each in other] == [each.value for each in first]
    assert all(ours.low != theirs.low for ours, theirs in zip(other, first, strict=True))

    compared = compare(BASELINE, SYSTEM, REFERENCES, resamples=50, seed=3)
    monkeypatch.delenv("SACREBLEU_SEED")
    assert compare(BASELINE, SYSTEM, REFERENCES, resamples=50, seed=3) == compared
    assert "SACREBLEU_SEED" not in os.environ


def test_threads_keep_their_seeds() -> None:
    def run(seed: int) -> list[Score]:
        return score(SYSTEM, REFERENCES, resamples=50, seed=seed)

    with ThreadPoolExecutor(4) as pool:
        together = list(pool.map(run, range(1, 9)))
    assert together == [run(seed) for seed in range(1, 9)]


@pytest.mark.parametrize(
    ("language", "tokenizer"),
    [
        ("", "13a"),
        ("de", "13a"),
        ("ko", "13a"),
        ("zh", "zh"),
        ("zh-Hant", "zh"),
        ("ZH_cn", "zh"),
        ("zho_Hans", "zh"),
        ("ja", "char"),
        ("th", "char"),
        ("lo", "char"),
        ("km", "char"),
        ("my", "char"),
        ("mya_Mymr", "char"),
    ],
)
def test_language_chooses_the_tokenizer(language: str, tokenizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: None)
    bleu, _, ter = score(["x y"], ["x y"], language=language, resamples=0)
    assert f"|tok:{tokenizer}|" in bleu.signature
    split = tokenizer == "zh" or language == "ja"
    assert f"|norm:{'yes' if split else 'no'}|punct:yes|asian:{'yes' if split else 'no'}|" in ter.signature


def test_a_named_tokenizer_wins_over_the_language() -> None:
    bleu = score(CHINESE, CHINESE_REFERENCES, language="zh", tokenize="char", resamples=0)[0]
    assert "|tok:char|" in bleu.signature


def test_japanese_words_need_mecab(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "find_spec", lambda name: object())
    monkeypatch.setattr("sacrebleu.tokenizers.tokenizer_ja_mecab.MeCab", None)
    with pytest.raises(InputError, match=r"ja-mecab cannot be used: .*pip install sacrebleu\[ja\]$"):
        score(["猫"], ["猫"], language="ja")


def test_nothing_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sacrebleu.significance.IS_WINDOWS", True)  # where every paired test warns
    lines = ["It was tokenized ."] * 120
    single_score(lines, lines, "bleu")
    score(lines, lines, resamples=40)
    compare(lines, lines, lines, resamples=40)
    assert caplog.records == []
    logging.getLogger("sacrebleu").warning("others may still speak")
    assert [record.message for record in caplog.records] == ["others may still speak"]


def test_importing_is_light() -> None:
    code = (
        "import sys, regard.evaluation.translation_scores; "
        "print([name for name in ('sacrebleu', 'numpy', 'torch', 'logging') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_score_prints_its_signature() -> None:
    signature = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
    bare = Score(name="BLEU", value=41.016, signature=signature)
    assert str(bare) == f"BLEU 41.02 ({signature})"
    known = Score(name="BLEU", value=41.016, signature=signature, low=40.2, high=42.0)
    assert str(known) == f"BLEU 41.02 ± 0.9 ({signature})"


@pytest.mark.parametrize("function", [score, sentence_chrf, exact_match, lambda a, b: single_score(a, b, "chrf")])
@pytest.mark.parametrize(("hypotheses", "references"), [(3, 2), (2, 3), (0, 0), (0, 5)])
def test_lines_must_be_as_many(
    function: Callable[[list[str], list[str]], object], hypotheses: int, references: int
) -> None:
    with pytest.raises(InputError, match=f"{hypotheses} in hypotheses, {references} in references"):
        function(["a"] * hypotheses, ["a"] * references)


@pytest.mark.parametrize("counts", [(2, 3, 3), (3, 2, 3), (3, 3, 2), (0, 0, 0)])
def test_compared_lines_must_be_as_many(counts: tuple[int, int, int]) -> None:
    baseline, system, references = (["a"] * count for count in counts)
    expected = "{} in baseline, {} in system, {} in references".format(*counts)
    with pytest.raises(InputError, match=expected):
        compare(baseline, system, references)


@pytest.mark.parametrize(("resamples", "seed"), [(39, 1), (-1, 1), (40, 0), (40, -1)])
def test_resampling_must_make_sense(resamples: int, seed: int) -> None:
    with pytest.raises(InputError, match="must be at least"):
        score(["a"], ["a"], resamples=resamples, seed=seed)
    with pytest.raises(InputError, match="must be at least"):
        compare(["a"], ["a"], ["a"], resamples=resamples, seed=seed)


def test_a_comparison_needs_resamples() -> None:
    with pytest.raises(InputError, match="at least 40, not 0"):
        compare(["a"], ["a"], ["a"], resamples=0)


def test_an_unknown_tokenizer_is_refused_with_the_known_ones() -> None:
    with pytest.raises(InputError, match=r"no tokenizer '14b': choose one of none, zh, 13a"):
        score(["a"], ["a"], tokenize="14b")
