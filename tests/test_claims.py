"""The page of claims is what the logs give, and an experiment measures what it says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from benchmarks import claims
from benchmarks.experiments import chinese, findings, log, page, parts, recurrence, variants
from benchmarks.experiments.learning import BEGIN, BLANK, accuracy, build, copying, learn
from benchmarks.plots import Line, draw, powers

from regard.model.layers import Residual
from regard.training.batches import IGNORE

ROOT = Path(__file__).parents[1]
RACES = ("speed", "recall", "copying")  # where a Transformer is beside recurrent networks
MEASURED = [claim for claim in page.CLAIMS if (ROOT / "docs" / "claims" / f"{claim.name}.json").is_file()]


def test_the_pages_and_their_plots_are_what_the_logs_give(tmp_path: Path) -> None:
    (tmp_path / "claims").symlink_to(ROOT / "docs" / "claims")
    for made in page.write_pages(tmp_path):
        text, home = made.read_text(encoding="utf-8"), ROOT / "docs" / made.relative_to(tmp_path)
        assert text == home.read_text(encoding="utf-8"), "run: benchmarks/claims.py --report-only"
        pictures = pictures_of(made)
        assert len(pictures) >= len(MEASURED)
        for picture in pictures:
            drawn = picture.read_text(encoding="utf-8")
            assert drawn == (ROOT / "docs" / picture.relative_to(tmp_path)).read_text(encoding="utf-8")
            ElementTree.fromstring(drawn)  # noqa: S314 - our own
            assert not re.search("black|white|#000|#fff|nan|inf", drawn)


def pictures_of(made: Path) -> list[Path]:
    names = re.findall(r"\]\(((?:\.\./)?images/[\w-]+\.svg)\)", made.read_text(encoding="utf-8"))
    return [(made.parent / name).resolve() for name in names]


def test_both_pages_say_the_same_figures_claim_by_claim() -> None:
    english, translated = ((ROOT / "docs" / name).read_text(encoding="utf-8") for name in ("claims.md", "zh/claims.md"))
    sections = english.split("\n## "), translated.split("\n## ")
    assert len(sections[0]) == len(sections[1]) > len(MEASURED)
    for one, other in zip(*sections, strict=True):
        assert numbers(one) == numbers(other), other.partition("\n")[0]


def numbers(text: str) -> set[str]:
    """All that is written in digits."""
    return set(re.findall(r"[0-9]+(?:[.,][0-9]+)*(?:e-[0-9]+)?", text))


def test_the_pilot_is_told_as_the_log_has_it() -> None:
    written = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    told = " ".join(
        written.partition("## Recurrent networks beside the Transformer\n")[2].partition("\n## ")[0].split()
    )
    recall, copying = findings.PILOT_RECALL, findings.PILOT_COPYING
    assert (
        f"after 1 to 64 blanks, {recall['updates']} updates: an LSTM or GRU with attention finds {recall['attending']}"
        in told
    )
    assert f"{recall['attending']} to {recall['most']} % again at every distance" in told
    assert f"the Transformer {recall['transformer']} to {recall['to']} % and still learning" in told
    assert (
        f"{copying['updates']} updates: at {copying['symbols']} symbols {copying['attending']} % (LSTM with att" in told
    )
    assert f"(LSTM with attention), {copying['transformer']} % (Transformer)" in told


@pytest.mark.parametrize("claim", MEASURED, ids=lambda claim: claim.name)
def test_every_log_says_how_it_was_made(claim: log.Claim) -> None:
    record = log.read_log(ROOT / "docs" / "claims", claim.name)
    assert record["command"] == log.command(claim.name, record["seed"])
    assert {"date", "seconds", "machine", "versions", "figures"} <= set(record)
    section = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8").partition(f"## {claim.english.title}\n")[2]
    assert record["command"] in section.partition("\n## ")[0]


def test_nothing_is_left_of_a_claim_that_nobody_makes() -> None:
    names = {claim.name for claim in page.CLAIMS}
    assert {path.stem for path in (ROOT / "docs" / "claims").glob("*.json")} <= names
    pictures = {path.stem.split("-")[1] for path in (ROOT / "docs" / "images").glob("claims-*.svg")}
    assert pictures == {claim.name for claim in MEASURED}


def test_one_command_measures_one_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert claims.main(["--only", "saturation", "--seed", "3", "--docs", str(tmp_path)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.startswith("saturation: ")
    assert log.read_log(tmp_path / "claims", "saturation")["seed"] == 3
    assert "--only saturation --seed 3" in (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["claims-saturation.svg"]


def test_figures_decide_whether_a_claim_holds() -> None:
    figures = parts.measure_saturation(1)
    flat = {**figures, "plain": figures["divided"]}
    assert page.tell_saturation(figures).startswith("It shows.")
    assert page.tell_saturation(flat).startswith("Here it does not show.")
    assert chinese.tell_saturation(figures).startswith("看得出来。")
    assert chinese.tell_saturation(flat).startswith("这里看不出来。")


@pytest.mark.parametrize(
    ("accuracy", "holds"), [([[0.5, 0.6], [0.7, 0.8]], True), ([[0.5, 0.7], [0.6, 0.8]], None), ([[0.5], [0.5]], False)]
)
def test_seeds_decide_whether_heads_help(accuracy: list[list[float]], holds: bool | None) -> None:
    figures: log.Figures = {"heads": [1, 8], "accuracy": accuracy, "mean": [sum(runs) / len(runs) for runs in accuracy]}
    assert findings.heads_help(figures) is holds


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which nothing is learnt, and everything runs."""
    for module, sizes in (
        (
            recurrence,
            {"UPDATES": 2, "LENGTHS": (4, 8), "BATCH": 16, "DISTANCES": (1, 2), "LONGEST": 1, "COPIED": (1, 2)},
        ),
        (variants, {"UPDATES": 10, "ROWS": 2, "LAYERS": 1, "SEEDS": 2}),
        (parts, {"ATTENDED": (16, 32, 64), "SENTENCES": 20}),
    ):
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("claim", page.CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_is_measured_drawn_and_told(claim: log.Claim, tmp_path: Path) -> None:
    log.write_log(tmp_path / "claims", claim.name, 1, 0.0, claim.measure(1))
    verdicts = "^(It shows|Here it does not show)", "^(.{0,12}看得出来|这里看不出来)"
    told = []
    for made, verdict in zip(page.write_pages(tmp_path), verdicts, strict=True):
        text = made.read_text(encoding="utf-8")
        assert text.count("\n## ") == 2  # and what is not measured yet
        assert not re.search(r"nan|None|\{|\[\]", text)
        told.append(text.split("\n## ")[1])
        assert re.search(verdict, told[-1], re.MULTILINE)
        assert ("pre-norm with rotary positions" in text or "用前归一化和旋转位置编码" in text) == (claim.name in RACES)
        for picture in pictures_of(made):
            ElementTree.fromstring(picture.read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert numbers(told[0]) == numbers(told[1])


# The experiments


def test_copying_hides_what_is_to_be_said() -> None:
    batch = copying(3, 4, torch.Generator().manual_seed(1), blanks=2)
    assert batch.target[:, :3].tolist() == [[BLANK, BLANK, BEGIN]] * 3
    assert bool((batch.labels[:, :2] == IGNORE).all())
    assert batch.labels[:, 2:].equal(batch.source)
    assert batch.target[:, 3:].equal(batch.source[:, :-1])
    assert (batch.tokens, batch.seen) == (12, 24)


def test_learning_lowers_the_loss_and_depends_on_the_seed_alone() -> None:
    def run() -> tuple[list[float], float]:
        model = build(1, kind="gru", width=32, encoder_layers=1, decoder_layers=1)
        losses = learn(model, lambda dice: copying(16, 2, dice), 1, steps=60, learning_rate=1e-2, warmup=5)
        return losses, accuracy(model, copying(50, 2, torch.Generator().manual_seed(2)))

    losses, right = run()
    assert losses[-1] < 0.7 * losses[0]
    assert right > 0.2  # one in 32 by chance
    assert run() == (losses, right)


def test_residual_sums_are_left_out_only_where_they_should_be() -> None:
    before = Residual.forward
    with parts.without_residuals(norms=False):
        assert Residual.forward is not before
        found = parts.gradients(1, "post")
    assert Residual.forward is before
    assert found["gradient"][0] < 1e-3 * found["gradient"][-1]
    assert len(found["gradient"]) == parts.DEPTH + 1


def test_the_demo_s_batches_are_padded_and_say_so() -> None:
    demo = variants.Demo(1)
    batch = demo.draw(torch.Generator().manual_seed(1))
    assert batch.keep is not None
    assert batch.source.shape == batch.keep.shape
    assert int(batch.keep.sum()) == batch.sizes[0]
    ends = demo.target.specials.end
    assert bool((batch.source[torch.arange(len(batch)), batch.keep.sum(1) - 1] == ends).all())


def test_a_linear_map_finds_what_is_there_and_nothing_else() -> None:
    torch.manual_seed(0)
    right = torch.rand(400) < 0.5
    told = torch.randn(400, 4) + 3.0 * right[:, None]
    assert parts.guess(told, right) > 0.95
    assert abs(parts.guess(torch.randn(400, 4), right) - 0.5) < 0.12


def test_speed_counts_source_and_target() -> None:
    model = build(1, kind="lstm", width=16, heads=2, encoder_layers=1, decoder_layers=1)
    assert recurrence.tokens_per_second(model, 2, 4, 1) > 0


# The plots


def test_logarithmic_axes_and_corners() -> None:
    assert powers(3, 4000) == [1, 10, 100, 1000, 10_000]
    assert len(powers(1e-30, 1)) <= 8
    line = Line("a", [(1, 1.0), (4, 10.0), (16, 100.0)])
    picture = draw("t", "x", "y", [line], logarithmic="xy", corner="upper left")
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    assert 'text-anchor="start"' in picture
