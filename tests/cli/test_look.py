"""regard look: a server that can be reached, a page that can be saved, mistakes told in a line."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from safetensors.torch import load_file

from regard.cli.look import open_model, open_others
from regard.demo.example_models import EXAMPLE_MODELS
from tests.cli.running import call, process

TIRED = "The animal didn't cross the street because it was too tired."


def test_a_server_of_the_example_models_answers_until_it_is_interrupted() -> None:
    command = [sys.executable, "-m", "regard", "look", "--no-browser", "--port", "0", "--text", "A & b"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = re.search(r"(http://127\.0\.0\.1:\d+/)#text=A\+%26\+b", line)
        assert address, line
        with urllib.request.urlopen(f"{address[1]}api/model", timeout=30) as answer:  # noqa: S310
            about = json.load(answer)
            assert about["name"] == next(iter(EXAMPLE_MODELS))
            assert [each["name"] for each in about["models"]] == [*EXAMPLE_MODELS]
        glass = address[1] + next(each["address"] for each in about["models"] if each["name"] == "glass")
        with urllib.request.urlopen(f"{glass}api/model", timeout=30) as answer:  # noqa: S310
            assert json.load(answer)["model"]["width"] == 16
        request = urllib.request.Request(f"{address[1]}api/model", headers={"Host": "evil.example"})  # noqa: S310
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(request, timeout=30)  # noqa: S310
        assert refused.value.code == 400
        refused.value.close()
        server.send_signal(signal.SIGINT)
        _, said = server.communicate(timeout=60)
        assert "Traceback" not in said
        assert server.returncode in (0, 130)
    finally:
        server.kill()
        server.communicate()


def test_an_example_model_opens_by_its_name_unless_a_folder_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    glass = open_model("glass", "cpu", None)
    assert (glass.name, glass.folder) == ("glass", EXAMPLE_MODELS["glass"].folder)
    assert [each.name for each in open_others("glass", "cpu")] == [name for name in EXAMPLE_MODELS if name != "glass"]
    shutil.copytree(EXAMPLE_MODELS["glass"].folder, "chinese")
    assert open_model("chinese", "cpu", None).folder == Path("chinese")
    assert open_others("chinese", "cpu") == []


@pytest.mark.parametrize("suffix", ["html", "json", "safetensors"])
def test_a_run_is_saved_without_a_server(capsys: pytest.CaptureFixture[str], tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"run.{suffix}"
    done = call(capsys, "look", "glass", "--text", TIRED, "-o", str(path))
    assert done.code == 0
    assert "->" in done.out
    if suffix == "safetensors":
        assert load_file(path)["encoder.layers.0.self_attention.weights"].dim() == 3
    elif suffix == "json":
        assert json.loads(path.read_text(encoding="utf-8"))["request"]["text"] == TIRED
    else:
        assert 50_000 < path.stat().st_size < 5_000_000
    again = call(capsys, "look", "glass", "--text", TIRED, "-o", str(path))
    assert again.code == 2
    assert "--overwrite" in again.err
    assert call(capsys, "look", "glass", "--text", TIRED, "-o", str(path), "--overwrite").code == 0


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["nowhere"], "nowhere: no such folder"),
        (["-o", "page.pdf"], ".html"),
        (["--port", "70000"], "port"),
        (["--text", "", "-o", "page.html"], "empty"),
        (["--lesson", "nowhere.md"], "nowhere.md: cannot read this lesson"),
        (["--target", "L'ours."], "--text"),
        (["--text", "x" * 20_001, "-o", "page.html"], "20000"),
    ],
)
def test_mistakes_are_told_in_a_line(capsys: pytest.CaptureFixture[str], arguments: list[str], told: str) -> None:
    done = call(capsys, "look", *arguments)
    assert done.code == 2
    assert told in done.err
    assert done.err.count("\n") == 1


def test_a_port_that_is_taken_is_told() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = process("look", "--no-browser", "--port", str(port), environment=dict(os.environ))
    assert done.code == 2
    assert "--port 0" in done.err
