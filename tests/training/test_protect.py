"""Placeholders become slots: in the tokens, in the folder, and in models that start from it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from regard.decoding.model_loading import load_as
from regard.decoding.translator import Translator
from regard.errors import SettingsError
from regard.faithful.faithful_translation import Faithful, MarkedText
from regard.model_folder import WEIGHTS, read_settings
from regard.preparation.pair_preparation import uses_slots
from regard.preparation.train_and_resume import train
from regard.settings import DataSettings
from regard.tokens.placeholder_slots import SLOTS
from regard.tokens.protected_pieces import counts
from regard.tokens.tokenizer import Vocabularies
from regard.training.batches import Examples
from regard.training.events import Evaluation
from regard.training.loop import train_model
from regard.training.run import open_run
from tests.training.corpora import SMALL

PAIRS = [(f"open {{{n}}} now %s", f"%s öffne {{{n}}} jetzt &amp;") for n in range(40)]
OVERRIDES: dict[str, Any] = {**SMALL, "training.steps": 4, "training.evaluate_every": 2, "data.protect": "on"}


@pytest.fixture
def corpus(tmp_path: Path) -> list[Path]:
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"{source}\t{target}\n" for source, target in PAIRS), encoding="utf-8")
    return [path]


def run(corpus: list[Path], output: Path, **overrides: Any) -> Path:
    for _ in train(corpus, output, overrides={**OVERRIDES, **overrides}):
        pass
    return output


def test_pairs_have_slots_and_the_vocabulary_no_placeholders(corpus: list[Path], tmp_path: Path) -> None:
    folder = run(corpus, tmp_path / "model", **{"training.subword_sampling": 0.3})
    assert read_settings(folder).tokenizer.tags == SLOTS
    tokenizer = Vocabularies.load(folder / "tokenizer.json").source
    assert not any("{" in piece or "%" in piece for piece in tokenizer.pieces(range(261, tokenizer.size)))
    train_pairs = Examples(folder / "training" / "train")
    for row in range(len(train_pairs)):
        source, target = (tokenizer.decode_slotted(side.tolist()) for side in train_pairs.pair(row))
        first, second = source.numbers
        assert (target.numbers, target.texts) == ((second, first), ("", " öffne ", " jetzt &amp;"))
        assert source.texts == ("open ", " now ", "")
    task = open_run(folder).task
    task.plan(1)  # in other pieces, with the same slots
    for row in range(len(train_pairs)):
        cut = task.current.pair(row)[0].tolist()  # type: ignore[attr-defined]
        assert tokenizer.decode_slotted(cut) == tokenizer.decode_slotted(train_pairs.pair(row)[0].tolist())
    translator = load_as(Translator, folder, engine="torch")
    for text, made in ((job.text, made) for job, made in zip(JOBS, Faithful(translator).translate(JOBS), strict=True)):
        assert counts(made.text) == counts(text)


JOBS = [MarkedText("open {7} now"), MarkedText("now"), MarkedText("%s: open")]


def test_the_same_run_gives_the_same_weights_and_goes_on_exactly(corpus: list[Path], tmp_path: Path) -> None:
    overrides = {"training.subword_sampling": 0.2}
    whole = run(corpus, tmp_path / "whole", **overrides)
    stopped = tmp_path / "stopped"
    stop = threading.Event()
    for event in train(corpus, stopped, overrides={**OVERRIDES, **overrides}, stop=stop):
        if isinstance(event, Evaluation):
            stop.set()
    assert (whole / WEIGHTS).read_bytes() != (stopped / WEIGHTS).read_bytes()
    for _ in train_model(open_run(stopped)):
        pass
    assert (whole / WEIGHTS).read_bytes() == (stopped / WEIGHTS).read_bytes()


def test_a_model_has_slots_for_files_of_messages_or_if_asked(tmp_path: Path) -> None:
    found = [uses_slots(DataSettings(), [name]) for name in ("de.po", "a.tmx.gz", "a.tsv", "a.txt")]
    assert found == [True, True, False, False]
    assert uses_slots(DataSettings(protect="on"), ["a.txt"])
    assert not uses_slots(DataSettings(protect="off"), ["a.po"])
    (tmp_path / "locale").mkdir()
    (tmp_path / "locale" / "de.po").touch()
    assert uses_slots(DataSettings(), [str(tmp_path)])
    assert uses_slots(DataSettings(), [f"{tmp_path}/**/*.po"])


def test_slots_are_those_of_the_model_to_start_from(corpus: list[Path], tmp_path: Path) -> None:
    plain = run(corpus, tmp_path / "plain", **{"data.protect": "off"})
    assert read_settings(plain).tokenizer.tags == ()
    with pytest.raises(SettingsError, match="requires slots"):
        list(train(corpus, tmp_path / "next", overrides={"data.protect": "on"}, start=plain))
    slots = run(corpus, tmp_path / "slots")
    for _ in train(corpus, tmp_path / "more", overrides={"data.protect": "auto", "training.steps": 2}, start=slots):
        pass
    tokens = Examples(tmp_path / "more" / "training" / "train").pair(0)[0]
    assert set(Vocabularies.load(slots / "tokenizer.json").source.slots) & set(tokens.tolist())
