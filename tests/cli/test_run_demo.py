"""The demo from end to end, on a hundredth of its sentences and a hundredth of its steps; and once in full."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from regard.cli import run_demo as demo
from regard.demo import sentence_generator
from tests.cli.running import call

FEW = sentence_generator.generate_splits(train=300, dev=10, test=20)


def test_the_demo_trains_scores_and_shows_what_next(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentence_generator, "generate_splits", lambda: FEW)
    settings = demo.SETTINGS_FILE.read_text(encoding="utf-8")
    for old, new in {
        "steps = 1800": 'device = "cpu"\nthreads = 1\nsteps = 4',
        "evaluate_every = 450": "evaluate_every = 2",
    }.items():
        assert settings.count(old) == 1
        settings = settings.replace(old, new)
    (tmp_path / "few.toml").write_text(settings, encoding="utf-8")
    monkeypatch.setattr(demo, "SETTINGS_FILE", tmp_path / "few.toml")
    folder = tmp_path / "demo"
    done = call(capsys, "demo", "-o", str(folder))
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert [f"  {s.source}  ->  {s.target}" for s in FEW.train[:3]] == lines[1:4]
    assert "dev at step 4: BLEU" in done.out
    assert "On 20 test sentences, each with a noun and an adjective never seen together in training:" in lines
    for score in ("% of the sentences are exactly right", "pronouns are right (il, elle, ils, elles)"):
        assert sum(score in line for line in lines) == 1
    assert all(f"  {example}" in lines for example in sentence_generator.EXAMPLES)
    assert done.out.count("\n    = ") == len(sentence_generator.EXAMPLES)
    assert f"regard translate {folder}" in done.out
    assert (folder / "card.md").exists()
    assert (folder / "history").is_dir()


@pytest.mark.slow
def test_the_whole_demo_learns_its_language(demo_model: tuple[Path, str]) -> None:
    """Below what docs/benchmarks.md says, since training differs a little from one processor to another."""
    folder, printed = demo_model
    exact, pronouns = (float(re.search(rf"([\d.]+) % of .*{words}", printed)[1]) for words in ("exactly", "pronouns"))  # type: ignore[index]
    assert exact >= 96
    for words in ("qu'il était trop fatigué", "qu'elle était trop large"):  # what README says of it
        assert f"    = L'animal n'a pas traversé la rue parce {words}." in printed
    assert pronouns >= 97
    assert len(list((folder / "history").iterdir())) == 8
