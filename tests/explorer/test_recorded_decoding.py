"""What is written, and the record of how: forced, drawn, or found by a beam."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.decoding.beam_search import sample_tokens
from regard.decoding.search_interface import length_penalty
from regard.explorer.model_explorer import Run
from tests.explorer.toys import GREEDY, TEXT, TOKENIZER, explorer, look_at

SAMPLED = {"temperature": 0.9, "top_k": 20, "top_p": 0.95, "seed": 3, "max_tokens": 8}


def ids_of(run: Run) -> list[int]:
    return [step["chosen"]["id"] for step in run.answer["steps"] if not step["given"]]


@pytest.mark.parametrize("task", ["translate", "write"])
def test_the_recorded_random_numbers_reproduce_the_choices(task: str) -> None:
    run = look_at(task, decode=SAMPLED)
    assert run.passed.answers is not None
    scores = run.passed.scores(run.passed.answers[None])[0]
    rules: dict[str, Any] = {name: SAMPLED[name] for name in ("temperature", "top_k", "top_p")}
    steps = run.answer["steps"]
    assert any(step["drawn"] is not None for step in steps)
    for step, row in zip(steps, scores, strict=True):
        assert (step["drawn"] is None) == (step["kept"] is None) == step["given"]
        if step["drawn"] is not None:
            luck = torch.tensor([step["drawn"]], dtype=torch.float64)
            assert sample_tokens(row[None], luck, **rules).tolist() == [step["chosen"]["id"]]
            assert 1 <= step["kept"] <= 20
            last = torch.tensor([1 - 1e-12], dtype=torch.float64)
            sharp = row.sort(descending=True).indices[step["kept"] - 1]
            assert sample_tokens(row[None], last, **rules).tolist() == [int(sharp)]


def test_the_seed_decides() -> None:
    first, again, other = (look_at("write", decode={**SAMPLED, "seed": seed}) for seed in (3, 3, 4))
    assert ids_of(first) == ids_of(again) != ids_of(other)


@pytest.mark.parametrize("decode", [GREEDY, {"beam": 3, "max_tokens": 8}, SAMPLED])
@pytest.mark.parametrize("task", ["translate", "write"])
def test_a_prefix_is_where_the_output_begins(task: str, decode: dict[str, Any]) -> None:
    usual = look_at(task, decode=decode)
    step = next(step for step in usual.answer["steps"] if not step["given"])
    other = next(each["id"] for each in step["top"] if each["id"] not in (step["chosen"]["id"], 2))
    run = look_at(task, decode=decode, prefix=[other])
    branched = run.answer["steps"][step["position"]]
    assert branched["chosen"]["id"] == other
    assert branched["given"]
    assert branched["log_probability"] == pytest.approx(
        next(each["log_probability"] for each in step["top"] if each["id"] == other), abs=1e-5
    )
    written = [step["log_probability"] for step in run.answer["steps"][step["position"] :]]
    assert sum(written) == pytest.approx(run.answer["log_probability"], abs=1e-4)


@pytest.mark.parametrize("decode", [GREEDY, {"beam": 4, "max_tokens": 8}])
def test_a_models_own_output_as_prefix_changes_nothing(decode: dict[str, Any]) -> None:
    made = explorer("translate", norm="pre")
    usual = made.run({"text": TEXT, "decode": decode})
    tokens = [token["id"] for token in usual.answer["tokens"]["target"]][1:3]
    again = made.run({"text": TEXT, "decode": decode, "prefix": tokens})
    assert again.answer["text"] == usual.answer["text"]
    assert again.answer["score"] == pytest.approx(usual.answer["score"], abs=1e-6)


def test_a_target_is_followed_to_its_end() -> None:
    run = look_at("translate", target="Ein Hund liest.")
    ids = TOKENIZER.encode("Ein Hund liest.").ids
    assert [step["chosen"]["id"] for step in run.answer["steps"]] == [*ids, TOKENIZER.specials.end]
    assert run.answer["finished"]
    assert run.answer["text"] == "Ein Hund liest."
    assert all(step["given"] for step in run.answer["steps"])
    assert run.answer["beam"] is None


def test_a_writer_is_forced_too() -> None:
    run = look_at("write", "A dog", target=" reads.")
    assert run.answer["text"] == " reads."
    assert run.answer["finished"]
    assert run.answer["steps"][-1]["chosen"]["display"] == "</s>"


def test_a_prompt_of_maximum_length_still_has_a_next_token() -> None:
    run = look_at("write", "dog " * 40)
    assert len(run.answer["steps"]) == len(run.answer["tokens"]["text"]) == 24
    assert [step["given"] for step in run.answer["steps"]] == [True] * 23 + [False]


def test_tokens_are_read_in_the_requested_order() -> None:
    straight = look_at("translate")
    tokens = straight.answer["tokens"]["source"]
    order = [len(tokens) - 1, *range(len(tokens) - 1)]
    turned = look_at("translate", order=order)
    assert turned.answer["tokens"]["source"] == [tokens[place] for place in order]
    told = [step["log_probability"] for step in turned.answer["steps"]]
    assert sum(told) == pytest.approx(turned.answer["log_probability"], abs=1e-4)


# The tree


@pytest.mark.parametrize(
    "request_", [{}, {"prefix": [300, 301]}, {"patch": [{"site": "source", "op": "hide", "position": 0}]}]
)
@pytest.mark.parametrize("limit", [3, 24])
@pytest.mark.parametrize("width", [2, 4, 16])
def test_the_nodes_of_a_beam_add_up(width: int, limit: int, request_: dict[str, Any]) -> None:
    run = look_at("translate", decode={"beam": width, "max_tokens": limit, "length_penalty": 0.8}, **request_)
    beam = run.answer["beam"]
    nodes, penalty = beam["nodes"], length_penalty("google", 0.8)
    assert (beam["width"], beam["penalty"]) == (width, {"form": "google", "alpha": 0.8})
    assert (nodes[0]["parent"], nodes[0]["t"], nodes[0]["display"]) == (None, 0, "<s>")
    for i, node in enumerate(nodes[1:], 1):
        parent = nodes[node["parent"]]
        assert node["i"] == i > node["parent"]
        assert node["t"] == parent["t"] + 1
        assert node["total"] == pytest.approx(parent["total"] + node["log_probability"])
        assert node["score"] == pytest.approx(node["total"] / penalty(node["t"]))
        assert parent["state"] == "alive"
    final = nodes[beam["final"]]
    assert [node["i"] for node in nodes if node["state"] == "final"] == [beam["final"]]
    assert final["score"] == pytest.approx(run.answer["score"])
    assert final["total"] == pytest.approx(run.answer["log_probability"])
    assert final["score"] == max(node["score"] for node in nodes if node["state"] in ("done", "final"))
    path = []
    while final["parent"] is not None:
        path.append(final)
        final = nodes[final["parent"]]
    told = [step["log_probability"] for step in run.answer["steps"]]
    assert [node["log_probability"] for node in reversed(path)] == pytest.approx(told, abs=1e-4)


@pytest.mark.parametrize("limit", [3, 24])
def test_every_node_of_a_beam_has_an_outcome(limit: int) -> None:
    nodes = look_at("translate", decode={"beam": 3, "max_tokens": limit}).answer["beam"]["nodes"]
    parents = {node["parent"] for node in nodes}
    for node in nodes:
        match node["state"]:
            case "alive":
                assert node["reason"] == ""
                assert node["i"] in parents
            case "pruned":
                assert node["reason"] in ("not among the 3 best", "outdone at the next step", "search was settled")
            case _:
                assert node["reason"] == ("ended" if node["display"] == "</s>" else "length limit")
    for t in range(1, max(node["t"] for node in nodes) + 1):
        assert len([node for node in nodes if node["t"] == t]) == 6
