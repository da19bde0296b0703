"""What is derived from a run agrees with what was seen, and shares add up to the whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.explorer.model_explorer import Run
from tests.explorer.toys import SHAPES, close, look_at

every_shape = pytest.mark.parametrize("shape", SHAPES)


@every_shape
@pytest.mark.parametrize("task", ["translate", "write"])
def test_attribution_sums_to_the_logit(task: str, shape: str) -> None:
    run = look_at(task, shape=shape)
    assert_attribution_sums(run)
    chosen = torch.tensor(run.passed.chosen)
    assert close(run["attribution.logit"], run["logits"].gather(1, chosen[:, None])[:, 0])


@pytest.mark.parametrize("shape", ["pre", "post"])
@pytest.mark.parametrize(
    "patch",
    [
        {"site": "decoder.layers.0.self_attention", "op": "drop"},
        {"site": "decoder.layers.1.feed_forward", "op": "drop"},
        {"site": "decoder.layers.0.self_attention", "op": "zero", "head": 1},
        {"site": "target_embedding.positions", "op": "zero"},
    ],
)
def test_attribution_sums_to_the_logit_of_a_patched_run(patch: dict[str, Any], shape: str) -> None:
    run = look_at("translate", shape=shape, patch=[patch])
    assert_attribution_sums(run)
    if patch["op"] == "drop" and "self" in patch["site"]:
        assert run["attribution.heads"][0, 0].count_nonzero() == 0


def assert_attribution_sums(run: Run) -> None:
    parts = [run["attribution.heads"].flatten(0, 2), run["attribution.feed_forward"], run["attribution.rest"]]
    assert close(torch.cat(parts).sum(0), run["attribution.logit"], 1e-4)
    assert (run["attribution.heads"].abs() > 1e-3).any()


def test_the_attribution_of_a_head_is_what_the_last_sum_loses_without_it() -> None:
    run = look_at("write", shape="pre rms")
    layer = run.anatomy.shape.decoder_layers - 1
    x = run[f"decoder.layers.{layer}.feed_forward_residual.sum"]
    part = run[f"decoder.layers.{layer}.self_attention.contributions"][2]
    scale = (x.square().mean(-1, keepdim=True) + run.anatomy.shape.norm_epsilon).rsqrt()
    norm, output = run.anatomy.stack("decoder").norm, run.anatomy.output_layer()
    assert output is not None
    assert isinstance(norm, torch.nn.RMSNorm)
    weights = output.weight.detach()[run.passed.chosen]
    share = (part * scale * norm.weight.detach() * weights).sum(-1)
    assert close(run["attribution.heads"][0, layer, 2], share)


@every_shape
@pytest.mark.parametrize(("task", "stack"), [("translate", "decoder"), ("write", "decoder"), ("fill", "encoder")])
def test_the_last_point_of_the_lens_is_the_output_of_the_model(task: str, stack: str, shape: str) -> None:
    text = "A [MASK] sees the [MASK]." if task == "fill" else "The old dog sings."
    run = look_at(task, text, shape=shape)
    points = run.answer["points"][stack]
    ids, probabilities = run[f"{stack}.lens.ids"], run[f"{stack}.lens.probabilities"]
    assert len(ids) == len(points) == len(run[f"{stack}.residual.norms"])
    for step in run.answer["steps"]:
        position = step["position"]
        assert ids[-1, position].tolist() == [each["id"] for each in step["top"]]
        told = [each["probability"] for each in step["top"]]
        assert probabilities[-1, position].tolist() == pytest.approx(told, abs=1e-4)
        rank = int(run[f"{stack}.lens.rank"][-1, position])
        assert rank == next((i for i, each in enumerate(step["top"]) if each["id"] == step["chosen"]["id"]), rank)


def test_points_are_named_in_the_order_of_the_stream() -> None:
    names = ["embedding"]
    for layer in (0, 1):
        names += [f"layers.{layer}.self", f"layers.{layer}.cross", f"layers.{layer}.feed_forward"]
    assert look_at("translate").answer["points"]["decoder"] == names
    assert look_at("embed").answer["points"] == {"encoder": [name for name in names if "cross" not in name]}


def test_an_encoder_has_a_lens_only_where_its_states_can_be_read() -> None:
    assert "encoder.lens.ids" in look_at("translate", shape="pre").names()  # one table for everything
    assert "encoder.lens.ids" not in look_at("translate", shape="post").names()
    assert "encoder.lens.ids" not in look_at("classify").names()
    assert "attribution.logit" not in look_at("fill").names()


@every_shape
def test_entropy_and_value_weights(shape: str) -> None:
    run = look_at("translate", shape=shape)
    site = "decoder.layers.1.cross_attention"
    weights = run[f"{site}.weights"]
    assert close(run[f"{site}.entropy"], torch.distributions.Categorical(weights).entropy())
    attention, groups = run.anatomy.attention(site), run.anatomy.shape.query_groups
    for head in range(4):
        value = run[f"{site}.value"][head // (4 // groups)]  # [S, K]
        width = value.shape[1]
        let_through = value @ attention.output.weight.detach()[:, head * width : (head + 1) * width].T
        assert close(run[f"{site}.value_weighted"][head], weights[head] * let_through.norm(dim=1))
    causal = run["decoder.layers.0.self_attention.entropy"]
    assert close(causal[:, 0], torch.zeros(4))  # the first row sees itself only


@every_shape
def test_the_residual_stream_is_measured(shape: str) -> None:
    run = look_at("translate", shape=shape)
    norms, cosines = run["decoder.residual.norms"], run["decoder.residual.cosines"]
    last = list(run.anatomy.points("decoder").values())[-1]
    assert close(norms[-1], run[last].norm(dim=-1))
    assert close(cosines[0], torch.ones(norms.shape[1]))
    assert (cosines.abs() <= 1 + 1e-5).all()
    before = list(run.anatomy.points("decoder").values())[-2]
    assert close(cosines[-1], torch.nn.functional.cosine_similarity(run[last], run[before], dim=-1))
