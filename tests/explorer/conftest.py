from __future__ import annotations

from pathlib import Path

import pytest

IMPORTS = '{"imports":{"regard/":"./static/"}}'
INDEX = f"""<!doctype html>
<html lang="en"><head>
<meta charset="utf-8">
<link rel="stylesheet" href="static/style.css">
<script type="importmap">{IMPORTS}</script>
</head><body>
<script type="module" src="static/explorer-app.js"></script>
</body></html>
"""


@pytest.fixture
def page(tmp_path: Path) -> Path:
    folder = tmp_path / "page"
    (folder / "views").mkdir(parents=True)
    (folder / "index.html").write_text(INDEX)
    (folder / "style.css").write_text("body { color: black }")
    (folder / "explorer-app.js").write_text('import "regard/views/one.js"; const end = "</script>";')
    (folder / "views" / "one.js").write_text("export {};")
    (tmp_path / "secret.js").write_text("secret")
    return folder
