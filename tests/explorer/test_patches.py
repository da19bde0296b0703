"""Patches do what they say, in writing as well as in what is shown."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.errors import InputError
from regard.explorer.model_explorer import Explorer, Run
from regard.explorer.recorded_decoding import UncachedStep, WritingTask, new_step, write_output
from tests.explorer.toys import GREEDY, SHAPES, TEXT, close, contents, explorer, look_at

CROSS = "decoder.layers.1.cross_attention"
OWN = "decoder.layers.0.self_attention"
READ = "encoder.layers.0.self_attention"


def patched(task: str, *patches: dict[str, Any], shape: str = "pre", **request: Any) -> Run:
    return look_at(task, shape=shape, patch=list(patches), **request)


@pytest.mark.parametrize(("task", "site"), [("translate", CROSS), ("translate", READ), ("write", OWN), ("fill", READ)])
def test_a_zeroed_head_adds_nothing(task: str, site: str) -> None:
    run = patched(task, {"site": site, "head": 2, "op": "zero"})
    assert run[f"{site}.context"][2].count_nonzero() == 0
    assert run[f"{site}.context"][1].count_nonzero() > 0
    assert run[f"{site}.contributions"][2].count_nonzero() == 0
    whole = run[f"{site}.contributions"].sum(0) + run.anatomy.attention(site).output.bias.detach()
    assert close(run[f"{site}.output"], whole)


def test_a_head_can_be_replaced_by_its_mean() -> None:
    run, usual = patched("fill", {"site": READ, "head": 1, "op": "mean"}), look_at("fill")
    assert close(run[f"{READ}.context"][1], usual[f"{READ}.context"][1].mean(0).expand(len(run["encoder.states"]), -1))
    run, usual = (look_at("write", target=" a cat", patch=p) for p in ([{"site": OWN, "head": 1, "op": "mean"}], []))
    before = usual[f"{OWN}.context"][1]
    for row in range(len(before)):  # where nobody looks ahead, of the rows so far
        assert close(run[f"{OWN}.context"][1, row], before[: row + 1].mean(0))


def test_a_uniform_head_has_equal_weights() -> None:
    weights = patched("write", {"site": OWN, "head": 0, "op": "uniform"})[f"{OWN}.weights"]
    rows = torch.arange(1, weights.shape[1] + 1)
    assert close(weights[0], torch.ones_like(weights[0]).tril() / rows[:, None])
    weights = patched("translate", {"site": CROSS, "head": 3, "op": "uniform"})[f"{CROSS}.weights"]
    assert close(weights[3], torch.full_like(weights[3], 1 / weights.shape[2]))


def test_a_row_is_forced_to_look_at_one_key() -> None:
    run = patched("translate", {"site": CROSS, "head": 1, "op": "force", "query": 1, "key": 2})
    usual = look_at("translate", target="")
    weights = run[f"{CROSS}.weights"]
    assert weights[1, 1].tolist() == [float(key == 2) for key in range(weights.shape[2])]
    assert close(run[f"{CROSS}.context"][1, 1], run[f"{CROSS}.value"][1, 2])
    assert close(run[f"{CROSS}.weights"][:, 0], usual[f"{CROSS}.weights"][:, 0])


def test_a_patch_of_a_row_beyond_the_output_gives_a_warning() -> None:
    patch = {"site": CROSS, "head": 1, "op": "force", "query": 20, "key": 2}
    run = patched("translate", patch, target="")
    assert run.answer["warnings"] == ["patch 1 forces row 20, but the text has only 1 rows"]


@pytest.mark.parametrize(
    ("task", "site"),
    [("translate", CROSS), ("translate", "encoder.layers.1.feed_forward"), ("write", "decoder.layers.0.feed_forward")],
)
@pytest.mark.parametrize("shape", ["pre", "post"])
def test_a_sublayer_is_dropped(task: str, site: str, shape: str) -> None:
    run = patched(task, {"site": site, "op": "drop"}, shape=shape)
    assert run[f"{site}.output"].count_nonzero() == 0
    points = run.anatomy.points(site.partition(".")[0])
    residual = site.removesuffix("_attention") + "_residual.sum"
    before = list(points.values())[list(points).index(residual_point(site)) - 1]
    assert close(run[residual], run[before])


def residual_point(site: str) -> str:
    """decoder.layers.1.cross_attention -> layers.1.cross"""
    return site.partition(".")[2].removesuffix("_attention")


@pytest.mark.parametrize("task", ["translate", "fill", "embed", "write"])
def test_positions_are_left_out(task: str) -> None:
    names = ["source_embedding", "target_embedding"] if task == "translate" else ["embedding"]
    run = patched(task, *({"site": f"{name}.positions", "op": "zero"} for name in names))
    for name in names:
        rest = run[f"{name}.segments"] if f"{name}.segments" in run.names() else 0.0
        assert close(run[f"{name}.sum"], run[f"{name}.tokens"] + rest)


def test_without_positions_an_encoder_permutes_as_its_text_does() -> None:
    for shape, site in (("pre", "embedding.positions"), ("pre rms", "encoder.rotary")):
        patch = {"site": site, "op": "zero"}
        straight = patched("embed", patch, shape=shape)
        count = len(straight.answer["tokens"]["text"])
        order = [*range(1, count), 0]
        turned = patched("embed", patch, shape=shape, order=order)
        assert close(turned["encoder.states"], straight["encoder.states"][order], 1e-4)
        moved = look_at("embed", shape=shape, order=order)
        assert not close(moved["encoder.states"], look_at("embed", shape=shape)["encoder.states"][order], 1e-2)


def test_rotary_positions_are_turned_back() -> None:
    run = patched("write", {"site": "decoder.rotary", "op": "zero"}, shape="pre rms")
    attention = run.anatomy.attention(OWN)
    with torch.no_grad():
        plain = attention.query(run["decoder.layers.0.self_residual.norm"]).unflatten(-1, (4, -1)).transpose(0, 1)
    assert close(run[f"{OWN}.query"], plain)


@pytest.mark.parametrize(("task", "site"), [("translate", "source"), ("fill", "text"), ("classify", "text")])
def test_hidden_tokens_have_no_weight(task: str, site: str) -> None:
    run = patched(task, {"site": site, "op": "hide", "position": 1})
    looks = [name for name in run.names() if name.endswith(".weights") and not name.startswith("decoder")]
    looks += [name for name in run.names() if name.endswith("cross_attention.weights")]
    for name in looks:
        assert run[name][:, :, 1].count_nonzero() == 0


def test_a_hidden_token_does_not_change_the_output() -> None:
    patch = {"site": "text", "op": "hide", "position": 1}
    one, other = (look_at("classify", text, patch=[patch]) for text in ("A dog", "Sie dog"))
    assert [len(run.answer["tokens"]["text"]) for run in (one, other)] == [len(one.answer["tokens"]["text"])] * 2
    assert one.answer["tokens"]["text"][1] != other.answer["tokens"]["text"][1]
    assert close(one["label.logits"], other["label.logits"])


def test_in_a_writer_only_a_hidden_token_attends_to_itself() -> None:
    run = patched("write", {"site": "text", "op": "hide", "position": 1})
    weights = run[f"{OWN}.weights"]
    assert weights[:, 2:, 1].count_nonzero() == 0
    assert (weights[:, 1, 1] > 0).all()
    assert close(weights.sum(-1), torch.ones(weights.shape[:2]))


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("task", ["translate", "write"])
def test_decoding_without_a_cache_equals_decoding_with_it(task: str, shape: str) -> None:
    made = explorer(task, **SHAPES[shape])
    run = made.run({"text": TEXT, "decode": {"beam": 3, "max_tokens": 6}})
    read, settings = run.passed.inputs.tokens, made.contents.settings.decoding
    given = read["source"] if task == "translate" else read["text"][:4]
    unchanged = {f"{OWN}.scores": lambda x: x}
    plain = WritingTask(given, settings, 6)
    changed = WritingTask(given, settings, 6, edits=unchanged)
    assert isinstance(new_step(made.anatomy, changed), UncachedStep)
    assert not isinstance(new_step(made.anatomy, plain), UncachedStep)
    one, other = write_output(made.anatomy, plain), write_output(made.anatomy, changed)
    assert one.found.tokens == other.found.tokens
    assert one.found.score == pytest.approx(other.found.score, abs=1e-5)


@pytest.mark.parametrize("op", ["zero", "mean", "uniform"])
@pytest.mark.parametrize("decode", [GREEDY, {"beam": 3, "max_tokens": 8}, {"temperature": 1.0, "max_tokens": 8}])
@pytest.mark.parametrize("task", ["translate", "write"])
def test_patches_hold_while_the_output_is_written(task: str, decode: dict[str, Any], op: str) -> None:
    run = patched(task, {"site": OWN, "head": 1, "op": op}, decode=decode)
    told = [step["log_probability"] for step in run.answer["steps"] if not step["given"]]
    assert sum(told) == pytest.approx(run.answer["log_probability"], abs=1e-4)


def test_several_patches_apply_together() -> None:
    heads = [{"site": READ, "head": head, "op": "zero"} for head in range(4)]
    run = patched("embed", *heads)
    assert run[f"{READ}.context"].count_nonzero() == 0


def test_a_patch_is_part_of_the_normalised_request() -> None:
    patch = {"site": READ, "head": 1, "op": "zero"}
    assert patched("embed", {**patch, "query": None}).answer["request"]["patch"] == [patch]


@pytest.mark.parametrize(
    ("patch", "told"),
    [
        ({}, r"patch\[0\]\.site: is missing"),
        ({"site": "x", "op": "zero"}, "no site 'x'"),
        ({"site": "decoder.layers.2.self_attention", "op": "zero", "head": 0}, "no site"),
        ({"site": CROSS, "op": "nothing"}, "cannot be changed by op 'nothing': use zero"),
        ({"site": CROSS, "op": "zero"}, "patch 1: head: must be a whole number"),
        ({"site": CROSS, "op": "zero", "head": 4}, "head: must be from 0 to 3, not 4"),
        ({"site": CROSS, "op": "zero", "head": True}, "head: must be a whole number"),
        ({"site": CROSS, "op": "drop", "head": 1}, "takes no head"),
        ({"site": CROSS, "op": "force", "head": 1, "query": 0, "key": 99}, "key: must be from 0 to"),
        ({"site": CROSS, "op": "force", "head": 1, "query": 99, "key": 0}, "query: must be from 0 to 23"),
        ({"site": OWN, "op": "force", "head": 1, "query": 1, "key": 2}, "key: must be from 0 to 1"),
        ({"site": READ, "op": "force", "head": 1, "query": 99, "key": 0}, "query: must be from 0 to"),
        ({"site": "source", "op": "hide", "position": 99}, "position: must be from 0 to"),
        ({"site": "target", "op": "hide", "position": 0}, "no site"),
        ({"site": "decoder.rotary", "op": "zero"}, "no site"),
        ({"site": "embedding.positions", "op": "zero"}, "no site"),
        ({"site": "source_embedding.positions", "op": "mean"}, "use zero"),
        ({"site": "decoder.layers.0.feed_forward", "op": "zero"}, "use drop"),
    ],
)
def test_patches_that_do_not_fit_the_model_are_refused(patch: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told):
        patched("translate", patch)


def test_not_everything_can_be_hidden() -> None:
    patches = [{"site": "source", "op": "hide", "position": place} for place in range(2)]
    with pytest.raises(InputError, match="all tokens are hidden"):
        Explorer(contents("translate"), "toy").run({"text": "a", "patch": patches})
