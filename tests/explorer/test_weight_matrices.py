"""Weights whole and in slices, and the circuits of heads."""

from __future__ import annotations

import pytest
import torch

from regard.errors import InputError
from regard.explorer import weight_matrices as weights
from regard.explorer.request_types import MissingError, TooBigError
from regard.weights import parameters
from tests.explorer.toys import SHAPES, TEXT, close, explorer


def test_slices_of_weights_are_returned() -> None:
    anatomy = explorer("translate").anatomy
    whole = parameters(anatomy.model)["encoder.layers.0.feed_forward.rise.weight"]
    name = "encoder.layers.0.feed_forward.rise.weight"
    assert torch.equal(weights.weight_slice(anatomy, name, None, None), whole)
    assert torch.equal(weights.weight_slice(anatomy, name, "2:5", "1:"), whole[2:5, 1:])
    for wrong in ("5:2", "0:99", "x", "-1:2", "1"):
        with pytest.raises(InputError, match="rows: "):
            weights.weight_slice(anatomy, name, wrong, None)
    with pytest.raises(InputError, match="only one axis"):
        weights.weight_slice(anatomy, "encoder.layers.0.feed_forward.rise.bias", None, "0:1")
    with pytest.raises(MissingError, match="no weight"):
        weights.weight_slice(anatomy, "encoder.layers.9.self_attention.0.qk", None, None)


def test_large_weights_must_be_requested_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    anatomy = explorer("embed", width=64, hidden=16_000).anatomy
    with pytest.raises(TooBigError, match="1,024,000 numbers, more than 1,000,000: request some"):
        weights.weight_slice(anatomy, "encoder.layers.0.feed_forward.rise.weight", None, None)


@pytest.mark.parametrize("shape", ["pre rms", "groups", "pre"])
def test_circuits_are_what_a_head_does(shape: str) -> None:
    made = explorer("translate", **{**SHAPES[shape], "positions": "none", "bias": False})
    run = made.run({"text": TEXT, "target": "Ein Hund"})
    site, head = "decoder.layers.1.cross_attention", 2
    before = run.anatomy.shape.norm == "pre"
    asks = run[f"decoder.layers.1.{'cross_residual.norm' if before else 'self_residual.norm'}"]
    memory = run["encoder.states"]
    scores = asks @ weights.weight(run.anatomy, f"{site}.{head}.qk") @ memory.T
    assert close(scores, run[f"{site}.scores"][head], 1e-4)
    written = run[f"{site}.weights"][head] @ memory @ weights.weight(run.anatomy, f"{site}.{head}.ov")
    assert close(written, run[f"{site}.contributions"][head], 1e-4)


def test_a_weight_is_summarized() -> None:
    anatomy = explorer("embed").anatomy
    name = "encoder.layers.0.feed_forward.rise.weight"
    whole, found = parameters(anatomy.model)[name], weights.summarize(anatomy, name)
    assert found["shape"] == list(whole.shape)
    assert (found["mean"], found["std"]) == pytest.approx((float(whole.mean()), float(whole.std(correction=0))))
    assert len(found["histogram"]["edges"]) == 41
    assert len(found["histogram"]["counts"]) == 40
    assert sum(found["histogram"]["counts"]) == whole.numel()
    assert found["singular"] == pytest.approx(torch.linalg.svdvals(whole).tolist(), abs=1e-4)
    assert weights.summarize(anatomy, "encoder.layers.0.feed_forward.rise.bias")["singular"] is None
    assert len(weights.summarize(anatomy, "encoder.layers.0.self_attention.1.ov")["singular"]) == 16
