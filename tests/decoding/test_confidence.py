"""A log-probability becomes a chance that means what it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from regard.decoding.confidence import GOOD, Confidence, fit
from regard.errors import ModelError


def draw(count: int, slope: float, intercept: float) -> tuple[list[float], list[float]]:
    """Mean log-probabilities, and the quality of translations that are good with the chance that a curve tells."""
    dice, curve = random.Random(1), Confidence(slope, intercept, 0)
    means = [-dice.expovariate(1.0) for _ in range(count)]
    return means, [100.0 if dice.random() < (curve.estimate([mean]) or 0) else 0.0 for mean in means]


def test_the_curve_that_made_the_data_is_found() -> None:
    made = fit(*draw(4000, 3.0, 2.0))
    assert made.slope == pytest.approx(3.0, rel=0.15)
    assert made.intercept == pytest.approx(2.0, rel=0.15)
    assert made.pairs == 4000


@pytest.mark.parametrize(("good", "bad", "share"), [(3, 0, 4 / 5), (0, 3, 1 / 5), (1, 1, 1 / 2), (2, 1, 0.6111)])
def test_of_few_pairs_one_more_of_each_kind_is_imagined(good: int, bad: int, share: float) -> None:
    """Where all are equally probable: the mean of Platt's aims, (good + 1) / (good + 2) and 1 / (bad + 2)."""
    made = fit([-1.0] * (good + bad), [100.0] * good + [59.9] * bad)
    assert made.estimate([-1.0]) == pytest.approx(share, abs=0.005)
    assert fit([-1.0, -1.0], [GOOD, GOOD]).estimate([-1.0]) == pytest.approx(3 / 4, abs=0.005)


def test_it_means_what_it_says() -> None:
    means, qualities = draw(4000, 2.0, 1.0)
    made = fit(means, qualities)
    trusted = [
        quality for mean, quality in zip(means, qualities, strict=True) if 0.6 < (made.estimate([mean]) or 0) < 0.7
    ]
    assert sum(quality >= GOOD for quality in trusted) / len(trusted) == pytest.approx(0.65, abs=0.05)


def test_what_is_less_probable_is_never_trusted_more() -> None:
    made = fit([-0.1, -0.2, -2.0, -3.0], [0.0, 0.0, 100.0, 100.0])
    assert made.slope == 0
    assert made.estimate([-1.0]) == pytest.approx(0.5)


@given(st.lists(st.tuples(st.floats(-50, 0), st.floats(0, 100)), min_size=1, max_size=30), st.floats(-1000, 0))
def test_any_dev_set_gives_a_curve(pairs: list[tuple[float, float]], mean: float) -> None:
    made = fit([pair[0] for pair in pairs], [pair[1] for pair in pairs])
    assert made.slope >= 0
    found = made.estimate([mean])
    assert found is not None
    assert 0 <= found <= 1
    assert found <= (made.estimate([mean + 1]) or 0)


def test_all_good_is_not_quite_certain() -> None:
    made = fit([-0.1, -0.2, -0.3], [100.0, 90.0, 80.0])
    assert 0.5 < (made.estimate([-0.2]) or 0) < 1


def test_it_is_kept_in_the_folder(tmp_path: Path) -> None:
    assert Confidence.load(tmp_path) is None
    Confidence(2.5, 1.25, 300).save(tmp_path)
    assert Confidence.load(tmp_path) == Confidence(2.5, 1.25, 300)
    assert Confidence(2.5, 1.25, 300).estimate([]) is None


@pytest.mark.parametrize(
    "text", ["", "[]", '{"slope": 1}', '{"slope": NaN, "intercept": 0, "pairs": 1}', '{"slope": "x"}']
)
def test_a_damaged_file_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "confidence.json").write_text(text)
    with pytest.raises(ModelError, match=r"confidence.json: damaged"):
        Confidence.load(tmp_path)
