"""regard publish: a website of models; what is there is not overwritten, and what no browser can run is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from regard.demo import GLASS
from regard.errors import InputError
from regard.explorer import published_site
from regard.explorer.model_explorer import Explorer
from tests.cli.running import call


def test_a_website_has_relative_addresses_and_no_paths_of_this_machine(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    site = tmp_path / "site"
    done = call(capsys, "publish", str(GLASS), str(GLASS), "-o", str(site))
    assert done.code == 0, done.err
    assert "python -m http.server" in done.out
    assert sorted(path.name for path in site.iterdir()) == ["index.html", "models", "static"]
    for page in (site / "index.html", site / "models" / "glass_model-2" / "index.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.search(r"""(?:src|href)="/|https?://""", text)
        for place in re.findall(r'(?:src|href)="([^":]+)"', text):
            assert (page.parent / place).is_file(), place
        assert "default-src 'none'" in text
    for path in site.rglob("*.json"):
        assert str(tmp_path) not in path.read_text(encoding="utf-8")
        assert json.loads(path.read_text(encoding="utf-8")) is not None
    model = json.loads((site / "models" / "glass_model" / "model.json").read_text(encoding="utf-8"))
    assert model["path"] is None
    assert [each["address"] for each in model["models"]] == ["./", "./models/glass_model-2/"]


def test_a_folder_is_replaced_only_if_asked(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text("mine")
    refused = call(capsys, "publish", "-o", str(site))
    assert refused.code == 2
    assert "--overwrite" in refused.err
    assert (site / "index.html").read_text() == "mine"
    assert call(capsys, "publish", "-o", str(site), "--overwrite").code == 0
    assert "regard-published" in (site / "index.html").read_text(encoding="utf-8")
    (site / "diary.txt").write_text("mine")
    assert call(capsys, "publish", "-o", str(site), "--overwrite").code == 2
    assert (site / "diary.txt").read_text() == "mine"


def test_a_model_is_not_overwritten_by_its_page(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    done = call(capsys, "publish", str(GLASS), "-o", str(GLASS.parent), "--overwrite")
    assert done.code == 2
    assert "holds the model" in done.err or "contains the model" in done.err


def test_a_model_that_is_too_large_is_refused_with_its_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_site, "MOST_BYTES", 50_000)
    with pytest.raises(InputError, match=r"0 MB of weights"):
        published_site.check_publishable(Explorer.open(GLASS, "cpu"))
