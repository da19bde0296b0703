"""Every claim can be measured, drawn and judged, and its experiment measures what it says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
import torch
from benchmarks.experiments import (
    claim_records,
    claims_page,
    heads_and_norms,
    recurrent_networks,
    transformer_parts,
    verdicts,
)
from benchmarks.experiments.claims_page import CLAIMS, Claim
from benchmarks.experiments.toy_training import BEGIN, BLANK, accuracy, build, copying, learn
from benchmarks.plots import Line, draw, powers

from benchmarks import claims
from regard.model.layers import Residual
from regard.training.batches import IGNORE
from tests.documentation.pages import ROOT
from tests.documentation.test_generated_pages import numbers

RECORDS = ROOT / "docs" / "claims"


def test_the_figures_of_the_pilot_are_in_the_log() -> None:
    written = (ROOT / "docs" / "log.md").read_text(encoding="utf-8")
    section = written.partition("## Recurrent networks beside the Transformer\n")[2].partition("\n## ")[0]
    assert all(re.search(rf"\b{value}\b", section) for value in verdicts.PILOT.values())


def test_every_record_belongs_to_a_claim_and_has_its_command() -> None:
    names = {claim.name for claim in CLAIMS}
    for path in RECORDS.glob("*.json"):
        record = claim_records.read_record(RECORDS, path.stem)
        assert path.stem in names
        assert record["command"] == claim_records.command(path.stem, record["seed"])
        assert {"date", "seconds", "machine", "versions", "figures"} <= set(record)


def test_one_command_measures_one_claim(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    try:
        assert claims.main(["--only", "saturation", "--seed", "3", "--docs", str(tmp_path)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert capsys.readouterr().out.startswith("saturation: ")
    assert claim_records.read_record(tmp_path / "claims", "saturation")["seed"] == 3
    assert "--only saturation --seed 3" in (tmp_path / "claims.md").read_text(encoding="utf-8")
    assert [path.name for path in (tmp_path / "images").iterdir()] == ["claims-saturation.svg"]


@pytest.mark.parametrize("page", claims_page.PAGES)
def test_figures_decide_whether_a_claim_holds(page: str, tmp_path: Path) -> None:
    figures = transformer_parts.measure_saturation(1)
    template = claims_page.Template(Path(claims_page.__file__).with_name(claims_page.PAGES[page]))
    for kind, changed in (("holds", figures), ("fails", {**figures, "plain": figures["divided"]})):
        claim_records.write_record(tmp_path, "saturation", 1, 0.0, changed)
        assert f"\n{template.word(kind)}" in claims_page.make_page(tmp_path, page)


@pytest.mark.parametrize(
    ("accuracy", "holds"), [([[0.5, 0.6], [0.7, 0.8]], True), ([[0.5, 0.7], [0.6, 0.8]], None), ([[0.5], [0.5]], False)]
)
def test_seeds_decide_whether_heads_help(accuracy: list[list[float]], holds: bool | None) -> None:
    figures = {"heads": [1, 8], "accuracy": accuracy, "mean": [sum(runs) / len(runs) for runs in accuracy]}
    assert verdicts.judge_heads(figures)["holds"] is holds


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes at which nothing is learnt, and everything runs."""
    recurrent = {"UPDATES": 2, "LENGTHS": (4, 8), "BATCH": 16, "DISTANCES": (1, 2), "LONGEST": 1, "COPIED": (1, 2)}
    for module, sizes in (
        (recurrent_networks, recurrent),
        (heads_and_norms, {"UPDATES": 10, "ROWS": 2, "LAYERS": 1, "SEEDS": 2}),
        (transformer_parts, {"ATTENDED": (16, 32, 64), "SENTENCES": 20}),
    ):
        for name, size in sizes.items():
            monkeypatch.setattr(module, name, size)


@pytest.mark.usefixtures("tiny")
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_claim_is_measured_drawn_and_judged(claim: Claim, tmp_path: Path) -> None:
    claim_records.write_record(tmp_path / "claims", claim.name, 1, 0.0, claim.measure(1))
    sections = []
    for page in claims_page.write_pages(tmp_path):
        text = page.read_text(encoding="utf-8")
        assert text.count("\n## ") == 2  # the claim, and the list of those that are not measured yet
        assert text.count("\n- ") == len(CLAIMS) - 1
        assert not re.search(r"nan|None|\{|\[\]", text)
        sections.append(text.split("\n## ")[1])
        for name in re.findall(r"\]\(((?:\.\./)?images/[\w-]+\.svg)\)", text):
            ElementTree.fromstring((page.parent / name).read_text(encoding="utf-8"))  # noqa: S314 - our own
    assert numbers(sections[0]) == numbers(sections[1])


# The experiments


def test_copying_hides_the_labels() -> None:
    batch = copying(3, 4, torch.Generator().manual_seed(1), blanks=2)
    assert batch.target[:, :3].tolist() == [[BLANK, BLANK, BEGIN]] * 3
    assert bool((batch.labels[:, :2] == IGNORE).all())
    assert batch.labels[:, 2:].equal(batch.inputs)
    assert batch.target[:, 3:].equal(batch.inputs[:, :-1])
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
    with transformer_parts.without_residuals(norms=False):
        assert Residual.forward is not before
        found = transformer_parts.gradients(1, "post")
    assert Residual.forward is before
    assert found["gradient"][0] < 1e-3 * found["gradient"][-1]
    assert len(found["gradient"]) == transformer_parts.DEPTH + 1


def test_batches_of_demo_sentences_mark_their_padding() -> None:
    sentences = heads_and_norms.DemoSentences(1)
    batch = sentences.draw(torch.Generator().manual_seed(1))
    assert batch.keep is not None
    assert batch.inputs.shape == batch.keep.shape
    assert int(batch.keep.sum()) == batch.seen - batch.tokens
    ends = sentences.target.specials.end
    assert bool((batch.inputs[torch.arange(len(batch)), batch.keep.sum(1) - 1] == ends).all())


def test_a_linear_map_finds_what_is_there_and_nothing_else() -> None:
    torch.manual_seed(0)
    right = torch.rand(400) < 0.5
    informed = torch.randn(400, 4) + 3.0 * right[:, None]
    assert transformer_parts.accuracy_of_linear_map(informed, right) > 0.95
    assert abs(transformer_parts.accuracy_of_linear_map(torch.randn(400, 4), right) - 0.5) < 0.12


def test_speed_counts_source_and_target() -> None:
    model = build(1, kind="lstm", width=16, heads=2, encoder_layers=1, decoder_layers=1)
    assert recurrent_networks.tokens_per_second(model, 2, 4, 1) > 0


# The plots


def test_logarithmic_axes_and_corners() -> None:
    assert powers(3, 4000) == [1, 10, 100, 1000, 10_000]
    assert len(powers(1e-30, 1)) <= 8
    line = Line("a", [(1, 1.0), (4, 10.0), (16, 100.0)])
    picture = draw("t", "x", "y", [line], logarithmic="xy", corner="upper left")
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture)]
    assert places[1] - places[0] == pytest.approx(places[2] - places[1], abs=0.2)
    assert 'text-anchor="start"' in picture
