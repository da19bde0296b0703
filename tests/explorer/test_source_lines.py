"""The lines of code that tensors come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.explorer import embedding_space as space
from regard.explorer.request_types import MissingError
from tests.explorer.toys import TASKS, look_at


@pytest.mark.parametrize("shape", ["pre", "post", "pre rms", "post rms"])
@pytest.mark.parametrize("task", TASKS)
def test_every_tensor_has_its_line(task: str, shape: str) -> None:
    run = look_at(task, shape=shape)
    root = Path(space.__file__).parents[2]
    for name in run.names():
        found = run.explorer.find_source(name)
        lines = (root / found["file"]).read_text().splitlines()
        assert lines[found["line"] - 1].strip() == found["code"], name
        if name in run.derived:
            assert found["code"].startswith("def ")
        elif name in ("label.logits", "vector"):
            assert f'trace.record("{name}"' in found["code"]
        else:
            assert f'see("{name.rpartition(".")[2]}"' in found["code"], name
        inside = found["snippet"].splitlines()[found["line"] - found["start"]]
        assert inside.strip() == found["code"]


def test_residual_sums_show_the_order_of_their_norm() -> None:
    pre, post = (look_at("write", shape=shape).explorer for shape in ("pre", "post"))
    name = "decoder.layers.0.self_residual.norm"
    assert pre.find_source(name)["line"] < post.find_source(name)["line"]
    assert 'return see("sum"' in pre.find_source(name)["code"]
    assert pre.find_source("decoder.layers.0.self_attention.weights")["file"] == "regard/model/attention.py"


@pytest.mark.parametrize("name", ["nothing", "decoder.nothing", "decoder.layers.0.self_attention.query.x", "x.y.z", ""])
def test_unknown_tensors_have_no_line_of_source(name: str) -> None:
    with pytest.raises(MissingError, match="no recorded run"):
        look_at("write").explorer.find_source(name)
