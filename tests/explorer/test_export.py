"""One file with everything in it, which asks nobody for anything."""

from __future__ import annotations

import base64
import html
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load

from regard.errors import InputError, ModelError
from regard.explorer import export
from regard.explorer.model_explorer import Explorer
from regard.explorer.page_files import PAGE
from tests.explorer.toys import GREEDY, TASKS, TEXT, contents, look_at


def data_of(text: str) -> dict[str, Any]:
    found = re.search(r'<script type="application/json" id="regard-data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def tensors_of(encoded: str) -> dict[str, torch.Tensor]:
    return load(base64.b64decode(encoded))


@pytest.mark.parametrize("task", TASKS)
def test_a_page_has_the_whole_run(task: str, page: Path) -> None:
    run = look_at(task)
    data = data_of(export.page_html(run, page=page))
    assert data["model"] == run.explorer.describe()
    (saved,) = data["runs"]
    assert saved["answer"] == run.answer
    tensors = tensors_of(saved["tensors"])
    assert set(tensors) == set(run.names())
    for name in run.names():
        assert torch.equal(tensors[name], run[name]), name
    weights = tensors_of(data["weights"])
    assert set(weights) == set(data["model"]["weights"])
    for side in run.anatomy.lexicons:
        assert data["responses"][f"api/positions?side={side}&n=64"]["rows"] > 0
        assert "positions" in tensors_of(data["responses"][f"api/positions/tensor?side={side}&n=64"])
        for token in run.answer["tokens"][side]:
            assert data["responses"][f"api/embeddings/near?side={side}&id={token['id']}&k=12"]["cosine"]
        assert data["responses"][f"api/embeddings/map?side={side}&n=400"]["points"]
    assert all(f"api/source?name={name}" in data["responses"] for name in run.names())
    assert all(f"api/weights/summary?name={name}" in data["responses"] for name in weights)
    assert (data["ablate"] == {}) == (task == "embed")


def test_the_tokens_of_the_lens_can_be_written(page: Path) -> None:
    run = look_at("write", TEXT * 3)
    best = run["decoder.lens.ids"][:, :, 0]
    assert best.shape[1] > export.WINDOW
    known = {token["id"] for token in run.answer["tokens"]["text"]}
    known |= {token["id"] for step in run.answer["steps"] for token in (step["chosen"], *step["top"])}
    responses = data_of(export.page_html(run, page=page))["responses"]
    for start in (0, 3, best.shape[1] - export.WINDOW):
        missing = sorted({int(i) for i in best[:, start : start + 12].flatten()} - known)
        if not missing:
            continue
        found = responses[f"api/embeddings/map?side=text&n=1&ids={','.join(map(str, missing))}"]
        assert set(missing) <= set(found["ids"])


def test_a_page_does_not_contain_the_path_of_its_model(page: Path, tmp_path: Path) -> None:
    run = Explorer(contents("embed"), "toy", tmp_path / "home" / "me").run({"text": TEXT})
    assert run.explorer.describe()["path"] == str(tmp_path / "home" / "me")
    text = export.page_html(run, page=page)
    assert data_of(text)["model"]["path"] is None
    assert str(tmp_path) not in text


def test_minus_infinity_survives(page: Path) -> None:
    run = look_at("write")
    data = data_of(export.page_html(run, page=page))
    masked = tensors_of(data["runs"][0]["tensors"])["decoder.layers.0.self_attention.masked"]
    assert (masked[:, 0, 1:] == -torch.inf).all()


@pytest.mark.parametrize("own", [True, False])
def test_a_page_loads_nothing(page: Path, own: bool) -> None:
    if not own and not (PAGE / "index.html").is_file():
        pytest.skip("the page is not written yet")
    text = export.page_html(look_at("translate"), page=page if own else PAGE)
    outside = re.sub(r'<script type="application/json".*?</script>|<style>.*?</style>', "", text, flags=re.DOTALL)
    for attribute in re.findall(r'\s(?:src|href|action|data)="([^"]*)"', outside):
        assert attribute.startswith("data:"), attribute
    assert "static/" not in re.sub(r"base64,[\w+/=]+", "", outside)
    assert not re.search(r"@import|url\((?!['\"]?(data:|#))", re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1])  # type: ignore[index]
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src 'none'; ")
    assert "connect-src" not in policy[1]
    assert "http" not in policy[1]


def test_modules_are_found_by_their_names(page: Path) -> None:
    text = export.page_html(look_at("embed"), page=page)
    found = re.search(r'<script type="importmap">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    imports = json.loads(found[1])["imports"]
    assert set(imports) == {"regard/explorer-app.js", "regard/views/one.js"}
    for name, url in imports.items():
        kind, _, content = url.partition(",")
        assert kind == "data:text/javascript;base64"
        assert base64.b64decode(content) == (page / name.removeprefix("regard/")).read_bytes()
    assert '<script type="module">import "regard/explorer-app.js"</script>' in text


def test_no_text_can_end_the_script(page: Path) -> None:
    run = look_at("write", "</script><!-- <script>")
    text = export.page_html(run, page=page)
    assert data_of(text)["runs"][0]["answer"]["request"]["text"] == "</script><!-- <script>"
    assert text.count("</script>") == 3


def test_large_runs_are_rounded_with_a_warning(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_FLOAT32_VALUES", 100)
    run = look_at("write")
    (saved,) = data_of(export.page_html(run, page=page))["runs"]
    assert "rounded to float16" in saved["answer"]["warnings"][-1]
    tensors = tensors_of(saved["tensors"])
    assert tensors["logits"].dtype == torch.float16
    assert tensors["decoder.lens.ids"].dtype == torch.int32
    assert run.answer["warnings"] == []


def test_a_page_that_would_be_too_large_is_refused(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "MAX_BYTES", 1000)
    with pytest.raises(InputError, match=r"MB: use a shorter text, or save the run as \.safetensors"):
        export.page_html(look_at("embed"), page=page)


def test_large_weights_are_left_out(page: Path) -> None:
    run = Explorer(contents("embed", width=64, hidden=4000), "toy").run({"text": "dog"})
    data = data_of(export.page_html(run, page=page))
    assert data["weights"] is None
    assert not any("summary" in address for address in data["responses"])


def test_a_damaged_page_is_reported(page: Path) -> None:
    (page / "index.html").write_text("<html><head></head></html>")
    with pytest.raises(ModelError, match="the page is damaged"):
        export.page_html(look_at("embed"), page=page)
    (page / "style.css").unlink()
    with pytest.raises(ModelError, match="cannot read the explorer"):
        export.page_html(look_at("embed"), page=page)


def test_half_precision_keeps_infinity_apart() -> None:
    found = export.to_float16(torch.tensor([1e6, -1e6, torch.inf, -torch.inf, 1.5]))
    assert found.tolist() == [65504.0, -65504.0, torch.inf, -torch.inf, 1.5]


def test_a_notebook_shows_the_page(page: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "PAGE", page)
    run = Explorer(contents("translate"), "toy").run({"text": TEXT, "decode": GREEDY})
    frame = run._repr_html_()
    found = re.fullmatch(r'<iframe srcdoc="([^"]*)" style="[^"]*height:720px[^"]*" title="Regard"></iframe>', frame)
    assert found is not None
    assert html.unescape(found[1]) == export.page_html(run)
    run.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text() == export.page_html(run)
