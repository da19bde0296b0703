"""After a kill at any moment, a folder has the translation memory of its own model."""

from __future__ import annotations

from pathlib import Path

import pytest

from regard.model_folder import CONFIDENCE, MEMORY, SETTINGS, TOKENIZER, TRAINING
from regard.preparation.prepared_folder import NEW, install


def fill(folder: Path, names: tuple[str, ...], text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_text(text)


@pytest.mark.parametrize("memory", [True, False], ids=["with a memory", "without"])
@pytest.mark.parametrize("moved", range(4))
def test_an_installation_can_be_repeated(tmp_path: Path, memory: bool, moved: int) -> None:
    """A kill comes after any number of moves, and the installation is repeated."""
    fill(tmp_path, (SETTINGS, TOKENIZER, MEMORY, CONFIDENCE), "old")
    names = (SETTINGS, TOKENIZER, MEMORY) if memory else (SETTINGS, TOKENIZER)
    fill(tmp_path / NEW, names, "new")
    if moved:  # the run that was killed had removed what is old before
        (tmp_path / MEMORY).unlink()
    for name in names[:moved]:
        (tmp_path / NEW / name).replace(tmp_path / name)
    install(tmp_path)
    found = {path.name: path.read_text() for path in tmp_path.iterdir() if path.is_file()}
    assert found == dict.fromkeys(names, "new")
    assert (tmp_path / TRAINING).is_dir()
