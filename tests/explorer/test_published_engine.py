"""The engine of published pages answers as the server does: every tensor, every choice, every message."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from regard.demo import GLASS
from regard.errors import InputError
from regard.explorer import embedding_space as space, weight_matrices as weights
from regard.explorer.ablation import ablate
from regard.explorer.displayed_tokens import Lexicon
from regard.explorer.model_explorer import Explorer
from regard.explorer.published_site import check_publishable
from regard.tokens.imported_vocabulary import ImportedTokenizer
from regard.tokens.tokenizer import Specials
from tests.explorer.published_engine import Engine, compare, differences, published
from tests.explorer.toys import GREEDY, SHAPES, TEXT, TOKENIZER, explorer

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="no node here: apt-get install nodejs")

TIRED = "The animal didn't cross the street because it was too tired."
WRITING: list[dict[str, Any]] = [
    {"decode": GREEDY},
    {"decode": {"beam": 4, "max_tokens": 8}},
    {"decode": {"beam": 3, "max_tokens": 6, "repetition_penalty": 1.5, "penalty": "power", "length_penalty": 1.2}},
    {"decode": {"temperature": 1.0, "seed": 3, "top_k": 20, "top_p": 0.9, "max_tokens": 8}},
    {"decode": {"temperature": 0.7, "seed": 2**40, "min_p": 0.01, "max_tokens": 8}},
    {"target": "Ein Hund."},
    {"prefix": [300, 301], "decode": {"beam": 4, "max_tokens": 8}},
]
SELF, CROSS = "self_attention", "cross_attention"
PATCHES: dict[str, list[dict[str, Any]]] = {
    "zero and mean": [
        {"site": "decoder.layers.0.self_attention", "op": "zero", "head": 1},
        {"site": "decoder.layers.1.self_attention", "op": "mean", "head": 2},
    ],
    "uniform and drop": [
        {"site": "decoder.layers.0.self_attention", "op": "uniform", "head": 0},
        {"site": "decoder.layers.0.feed_forward", "op": "drop"},
        {"site": "decoder.layers.1.self_attention", "op": "drop"},
    ],
    "force": [{"site": "decoder.layers.1.self_attention", "op": "force", "head": 3, "query": 2, "key": 1}],
}


def patches_for(made: Explorer) -> Iterator[list[dict[str, Any]]]:
    """Patches of every kind that this model admits."""
    stacks = list(made.anatomy.stacks)
    for patches in PATCHES.values():
        yield json.loads(json.dumps(patches).replace("decoder", stacks[-1]))
    yield [{"site": made.anatomy.read, "op": "hide", "position": 1}]
    if len(stacks) > 1:
        yield [
            {"site": "decoder.layers.0.cross_attention", "op": "force", "head": 1, "query": 1, "key": 0},
            {"site": "encoder.layers.1.self_attention", "op": "mean", "head": 0},
            {"site": "decoder.layers.1.cross_attention", "op": "zero", "head": 2},
            {"site": "source", "op": "hide", "position": 2},
        ]
    if made.anatomy.shape.positions == "rotary":
        yield [{"site": f"{stacks[0]}.rotary", "op": "zero"}]
    else:
        yield [{"site": f"{name}.positions", "op": "zero"} for name in made.anatomy.embeddings.values()]


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("task", ["translate", "write"])
def test_writing_gives_the_same_tensors_and_the_same_choices(task: str, shape: str, tmp_path: Path) -> None:
    made = explorer(task, **SHAPES[shape])
    with published(made, tmp_path) as engine:
        for options in WRITING:
            compare(made, engine, {"text": TEXT, **options})
        for patch in patches_for(made):
            compare(made, engine, {"text": TEXT, "patch": patch, "decode": {"beam": 3, "max_tokens": 6}})
        length = len(
            made.run({"text": TEXT, "decode": {"beam": 1, "max_tokens": 1}}).answer["tokens"][made.anatomy.read]
        )
        order = [1, 0, *range(2, length)]
        compare(made, engine, {"text": TEXT, "order": order[::-1], "decode": GREEDY})


@pytest.mark.parametrize("shape", list(SHAPES))
@pytest.mark.parametrize("task", ["fill", "classify", "embed"])
def test_reading_gives_the_same_tensors(task: str, shape: str, tmp_path: Path) -> None:
    made = explorer(task, **SHAPES[shape])
    with published(made, tmp_path) as engine:
        texts = [TEXT, "The [MASK] sings in a [MASK]."] if task == "fill" else [TEXT]
        for text in texts:
            compare(made, engine, {"text": text})
        for patch in patches_for(made):
            compare(made, engine, {"text": TEXT, "patch": patch})


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("fill", {"segments": 2, "embedding_norm": True, "activation": "gelu", "tie": "output"}),
        ("classify", {"segments": 2, "pooler": "tanh", "activation": "gelu-tanh", "norm": "post"}),
        ("classify", {"pooler": "mean", "activation": "silu"}),
        ("classify", {"data": {"carrier": "word"}}),
        ("write", {"positions": "none", "bias": False}),
        ("write", {"positions": "rotary", "key_value_heads": 1, "activation": "swiglu", "norm": "pre"}),
        ("translate", {"tie": "inputs", "scale_embedding": False, "embedding_norm": True}),
        ("translate", {"tie": "output", "encoder_layers": 1, "decoder_layers": 3, "positions": "rotary"}),
    ],
)
def test_other_shapes_give_the_same_tensors(task: str, options: dict[str, Any], tmp_path: Path) -> None:
    made = explorer(task, **options)
    with published(made, tmp_path) as engine:
        compare(made, engine, {"text": TEXT, "decode": {"beam": 2, "max_tokens": 6}})
        if options.get("segments") and task == "classify":
            compare(made, engine, {"text": TEXT, "pair": "A cat sees it."})


STRANGE = [
    "  Two\tlines \n and one more ",
    "naïve café Æther 12,5 €",
    "你好 мир 🤦🏽‍♀️ \u202eabc",
    "x" * 300,
    "&amp; &#39; <b>",
]


@pytest.mark.parametrize("task", ["translate", "write", "fill", "classify"])
def test_strange_texts_are_cut_into_the_same_tokens(task: str, tmp_path: Path) -> None:
    made = explorer(task, **SHAPES["pre"])
    with published(made, tmp_path) as engine:
        for text in STRANGE:
            compare(made, engine, {"text": text, "decode": {"beam": 1, "max_tokens": 3}})


@pytest.mark.parametrize("task", ["translate", "write", "fill", "classify"])
def test_ablation_gives_the_same_effects(task: str, tmp_path: Path) -> None:
    made = explorer(task, **SHAPES["pre"])
    patch = [{"site": f"{list(made.anatomy.stacks)[-1]}.layers.0.self_attention", "op": "zero", "head": 0}]
    decode = {"decode": {"beam": 1, "max_tokens": 5}}
    with published(made, tmp_path) as engine:
        for request in ({"text": TEXT, **decode}, {"text": TEXT, "patch": patch, **decode}):
            run, answer = compare(made, engine, request)
            for what in ("heads", "sublayers"):
                for op in ("zero", "mean"):
                    ours = ablate(run.passed, what, op)
                    theirs = engine.ask("api/ablate", {"run": answer["run"], "what": what, "op": op})[1]
                    assert list(differences(ours, theirs)) == []


def test_the_glass_model_answers_every_other_request(tmp_path: Path) -> None:
    """Its weights, embeddings, positions, source lines and training history, as the page asks for them."""
    glass = Explorer.open(GLASS, "cpu")
    with published(glass, tmp_path) as engine:
        run, _ = compare(glass, engine, {"text": TIRED})
        for checkpoint in [each["id"] for each in glass.describe()["checkpoints"]]:
            compare(glass, engine, {"text": TIRED, "checkpoint": checkpoint})
        assert list(differences(glass.describe() | {"models": [], "path": None}, engine.ask("api/model")[1])) == []
        for name in [
            *glass.describe()["weights"],
            "decoder.layers.1.cross_attention.1.ov",
            "encoder.layers.0.self_attention.0.qk",
        ]:
            ours, theirs = weights.summarize(glass.anatomy, name), engine.ask(f"api/weights/summary?name={name}")[1]
            for each in (ours, theirs):
                each["singular"] = [round(value, 4) for value in each["singular"] or []]
            assert list(differences(ours, theirs)) == [], name
            found = engine.ask(f"api/weights?name={name}&rows=1:5")[1][name]
            assert torch.allclose(found, weights.weight_slice(glass.anatomy, name, "1:5", None), atol=1e-6)
        for side in ("source", "target"):
            check_embeddings(glass, engine, side)
        for name in run.names():
            assert engine.ask(f"api/source?name={name}") == (200, glass.find_source(name))


def check_embeddings(glass: Explorer, engine: Engine, side: str) -> None:
    for token in (5, 70, 300):
        near = space.near(glass.anatomy, side, token, 12, glass.usage)
        assert list(differences(near, engine.ask(f"api/embeddings/near?side={side}&id={token}&k=12")[1])) == []
    for count in (400, 30):  # all pieces, and the first ones with letters enough for a word
        ours = space.embedding_map(glass.anatomy, side, count, [7], glass.usage)
        assert list(differences(ours, engine.ask(f"api/embeddings/map?side={side}&n={count}&ids=7")[1])) == []
    about, rows = space.positions(glass.anatomy, side, 64)
    assert list(differences(about, engine.ask(f"api/positions?side={side}&n=64")[1])) == []
    assert rows is not None
    assert torch.allclose(engine.ask(f"api/positions/tensor?side={side}&n=64")[1]["positions"], rows, atol=1e-6)


WRONG: list[dict[str, Any]] = [
    {"text": "  "},
    {"text": TEXT, "nothing": 1},
    {"text": TEXT, "prefix": [1]},
    {"text": TEXT, "prefix": [300], "target": "x"},
    {"text": TEXT, "order": [0, 2]},
    {"text": TEXT, "order": [1, 0]},
    {"text": TEXT, "pair": "another"},
    {"text": TEXT, "checkpoint": "step-1"},
    {"text": TEXT, "decode": {"beam": 0}},
    {"text": TEXT, "decode": {"beam": 17}},
    {"text": TEXT, "decode": {"wild": 1}},
    {"text": TEXT, "decode": {"top_p": 2}},
    {"text": TEXT, "patch": [{"site": "nowhere", "op": "zero"}]},
    {"text": TEXT, "patch": [{"site": "encoder.layers.0.self_attention", "op": "zero", "head": 4}]},
    {"text": TEXT, "patch": [{"site": "encoder.layers.0.self_attention", "op": "hide", "position": 1}]},
    {"text": TEXT, "patch": [{"site": "encoder.layers.0.feed_forward", "op": "drop", "head": 1}]},
    {"text": TEXT, "patch": [{"site": "source", "op": "hide", "position": 50}]},
]


def test_wrong_requests_have_the_same_messages(tmp_path: Path) -> None:
    made = explorer("translate", **SHAPES["pre"])
    with published(made, tmp_path) as engine:
        for request in WRONG:
            with pytest.raises(InputError) as caught:
                made.run(request)
            status, answer = engine.ask("api/run", request)
            assert status in (400, 404)
            assert answer["error"] == " ".join(str(caught.value).split()), request


def test_a_model_with_an_imported_vocabulary_is_refused() -> None:
    made = explorer("write")
    imported = ImportedTokenizer(TOKENIZER.model, Specials(), TOKENIZER.size)
    made.anatomy.lexicons["text"] = Lexicon(imported)
    with pytest.raises(InputError, match="vocabulary"):
        check_publishable(made)
