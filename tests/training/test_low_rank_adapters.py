"""Adapters are zero at first, are trained alone, and are merged at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from regard.errors import SettingsError
from regard.model.transformer import Decoder
from regard.preparation.train_and_resume import resume, train
from regard.settings import ModelSettings
from regard.training.low_rank_adapters import add_adapters, merge_adapters, merged_weights
from regard.training.run import open_run
from regard.weights import parameters, read_folder, read_tensors

SHAPE = ModelSettings(width=16, heads=2, hidden=24, decoder_layers=2, max_length=16, positions="rotary", dropout=0.0)
TEXT = "the cat sat on the mat\nand the dog sat on the cat.\n" * 40
SMALL = {
    "task": "write",
    "preset": "tiny",
    "tokenizer.vocabulary": 300,
    "model.width": 16,
    "model.hidden": 24,
    "model.heads": 2,
    "model.key_value_heads": 1,
    "model.decoder_layers": 2,
    "model.max_length": 32,
    "training.steps": 12,
    "training.batch_tokens": 128,
    "training.evaluate_every": 6,
    "training.device": "cpu",
}


def test_an_adapter_is_zero_at_first_and_is_merged_exactly() -> None:
    torch.manual_seed(0)
    model, tokens = Decoder(SHAPE, 30).eval(), torch.arange(12)[None]
    before, names = model(tokens), set(parameters(model))
    add_adapters(model, 3, new=["logits.weight"])
    torch.testing.assert_close(model(tokens), before)
    learning = {name for name, p in model.named_parameters() if p.requires_grad}
    assert all(name == "embedding.tokens.weight" or ".parametrizations.weight.0." in name for name in learning)
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.data += 0.3 * torch.randn_like(parameter)
    changed, weights = model(tokens), merged_weights(model)
    assert (changed - before).abs().max() > 0.1
    assert set(weights) == names
    merge_adapters(model)
    assert set(parameters(model)) == names
    torch.testing.assert_close(model(tokens), changed)
    for name, tensor in parameters(model).items():
        torch.testing.assert_close(tensor, weights[name])


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("adapters")
    (folder / "text.txt").write_text(TEXT)
    list(train([folder / "text.txt"], folder / "first", overrides=SMALL))
    return folder / "text.txt", folder / "first"


def test_a_run_with_adapters_changes_the_layers_alone_and_its_folder_is_plain(
    trained: tuple[Path, Path], tmp_path: Path
) -> None:
    text, first = trained
    overrides = {"training.adapters": 2, "training.learning_rate": 1e-2, "training.steps": 6}
    list(train([text], tmp_path / "run", start=first, overrides=overrides))
    before, after = (read_tensors(folder / "weights.safetensors")[0] for folder in (first, tmp_path / "run"))
    assert before.keys() == after.keys()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed
    maps = ("query.weight", "key.weight", "value.weight", "output.weight", "rise.weight", "gate.weight", "fall.weight")
    assert all(".layers." in name and name.endswith(maps) for name in changed)
    read_folder(tmp_path / "run")


def test_a_run_with_adapters_resumes_exactly(trained: tuple[Path, Path], tmp_path: Path) -> None:
    text, first = trained
    overrides = {
        "training.adapters": 2,
        "training.learning_rate": 1e-2,
        "training.steps": 6,
        "training.evaluate_every": 2,
    }
    whole, halves = tmp_path / "whole", tmp_path / "halves"
    list(train([text], whole, start=first, overrides=overrides))
    events = train([text], halves, start=first, overrides=overrides)
    for event in events:
        if getattr(event, "step", 0) == 4 and type(event).__name__ == "Evaluation":
            break
    events.close()
    assert open_run(halves).state.step == 4
    list(resume(halves))
    one, other = (read_tensors(folder / "weights.safetensors")[0] for folder in (whole, halves))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_adapters_need_a_model_to_start_from(trained: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="--from"):
        list(train([trained[0]], tmp_path / "run", overrides={**SMALL, "training.adapters": 2}))
