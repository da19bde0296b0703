"""Whatever is wrong with a folder is said in one line that names the file, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.errors import ModelError, RegardError
from regard.interop.huggingface import import_model
from regard.interop.model_families import families
from tests.interop.published import save_bert, save_gpt2, save_llama, save_marian

Damage = Callable[[Path], object]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def config(**change: Any) -> Damage:
    def damage(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text()) | change
        kept = {name: value for name, value in content.items() if value is not None}
        (folder / "config.json").write_text(json.dumps(kept))

    return damage


def tensors(change: Callable[[dict[str, torch.Tensor]], object]) -> Damage:
    def damage(folder: Path) -> None:
        content = load_file(folder / "model.safetensors")
        change(content)
        save_file(content, folder / "model.safetensors")

    return damage


def cut(name: str, size: int) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:size])

    return damage


def remove(name: str) -> Damage:
    return lambda folder: (folder / name).unlink()


def put(name: str, text: str) -> Damage:
    def damage(folder: Path) -> None:
        (folder / name).write_text(text, encoding="utf-8")

    return damage


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
DAMAGES: list[tuple[Damage, str, str]] = [
    (remove("config.json"), "", "not a Hugging Face model (it has no config.json)"),
    (put("config.json", "{"), "config.json", "damaged: not JSON"),
    (put("config.json", "[]"), "config.json", "damaged: not a JSON object"),
    (config(model_type="t5"), "config.json", "the model type 't5' is unknown: Regard supports bert, roberta"),
    (
        config(model_type=None, architectures=["BigBirdModel"]),
        "config.json",
        "the model_type is missing and cannot be inferred",
    ),
    (config(hidden_size=None), "config.json", "hidden_size is missing"),
    (config(hidden_size="wide"), "config.json", "hidden_size must be a whole number above 0, not 'wide'"),
    (config(num_attention_heads=3), "config.json", "model.width 16 is not divisible by model.heads 3"),
    (config(position_embedding_type="relative_key"), "config.json", "Regard has no relative positions"),
    (config(hidden_act="quick_gelu"), "config.json", "hidden_act is 'quick_gelu', which Regard does not support"),
    (config(num_hidden_layers=2), "model.safetensors", "contains the tensor encoder.layer.2."),
    (
        config(num_hidden_layers=4),
        "model.safetensors",
        "the tensor encoder.layer.3.attention.self.query.weight is missing",
    ),
    (config(vocab_size=90), "model.safetensors", "the tensor embeddings.word_embeddings.weight has the shape"),
    (remove("model.safetensors"), "", "there are no weights: neither model.safetensors nor pytorch_model.bin"),
    (cut("model.safetensors", 1000), "model.safetensors", "damaged or unreadable"),
    (put("model.safetensors.index.json", "{}"), "", ""),
    (tensors(lambda t: t.pop(QUERY)), "model.safetensors", "self.query.weight is missing"),
    (
        tensors(lambda t: t.update(strange=torch.ones(1))),
        "model.safetensors",
        "contains the tensor strange, which this type",
    ),
    (
        tensors(lambda t: t.update({QUERY: torch.ones(16, 15)})),
        "model.safetensors",
        "self.query.weight has the shape (16, 15) instead of (16, 16)",
    ),
    (tensors(lambda t: t[QUERY].fill_(torch.nan)), "model.safetensors", "contains values that are not finite"),
    (remove("vocab.txt"), "", "there is no vocabulary: none of tokenizer.json, vocab.txt"),
    (put("vocab.txt", "a\nb\n"), "vocab.txt", "there is no line [UNK]: this is not a vocabulary of BERT"),
    (put("vocab.txt", "[UNK]\nb\n"), "vocab.txt", "the vocabulary has no sep token: specify sep_token in"),
    (
        put("added_tokens.json", '{"<new>": 7}'),
        "added_tokens.json",
        "the id of <new> is 7, but the next id after the vocabulary",
    ),
    (
        put("tokenizer_config.json", '{"tokenizer_class": "BertJapaneseTokenizer"}'),
        "",
        "the tokenizer BertJapaneseTokenizer only from",
    ),
    (put("tokenizer.json", "{}"), "tokenizer.json", "damaged tokenizer"),
    (put("tokenizer_config.json", "no"), "tokenizer_config.json", "damaged: not JSON"),
]


@pytest.mark.parametrize(("damage", "name", "told"), DAMAGES, ids=[told[:40] for _, _, told in DAMAGES])
def test_a_damaged_folder(tmp_path: Path, damage: Damage, name: str, told: str) -> None:
    source = save_bert(tmp_path / "theirs")
    damage(source)
    if not told:  # an index beside whole weights does no harm
        assert import_model(source, tmp_path / "ours") == []
        return
    with pytest.raises(RegardError) as error:
        import_model(source, tmp_path / "ours")
    assert str(error.value).startswith(f"{source / name}: "), str(error.value)
    assert told in str(error.value)
    assert "\n" not in str(error.value)
    assert names(tmp_path) == ["theirs"]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"weight_map": {"a": "../other.safetensors"}}, "lists the file ../other.safetensors, which is not in this"),
        ({"weight_map": {"a": "gone.safetensors"}}, "gone.safetensors: cannot be read (No such file"),
        ({"weight_map": {"a": "part.safetensors"}}, "lists the tensor a, which part.safetensors does not have"),
        ({"weight_map": 3}, "damaged: it does not list the file of each tensor"),
    ],
)
def test_a_damaged_index(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    source = save_bert(tmp_path / "theirs")
    (source / "model.safetensors").rename(source / "part.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps(change))
    with pytest.raises(ModelError) as error:
        import_model(source, tmp_path / "ours")
    assert told in str(error.value)


class Malicious:
    """Unpickled, it would make a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused_and_not_run(tmp_path: Path, zipped: bool) -> None:
    source = save_bert(tmp_path / "theirs")
    content = {**load_file(source / "model.safetensors"), "x": Malicious(tmp_path / "pwned")}
    (source / "model.safetensors").unlink()
    path = source / "pytorch_model.bin"
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    with pytest.raises(ModelError) as error:
        import_model(source, tmp_path / "ours")
    told = "the file contains more than tensors and could run code, or is damaged: convert it to model.safetensors"
    assert str(error.value) == f"{path}: {told}"
    assert names(tmp_path) == ["theirs"]


@pytest.mark.parametrize("content", [b"", b"PK", b"not a pickle at all", b"\x80\x02}q\x00."])
def test_a_broken_pickle_is_refused(tmp_path: Path, content: bytes) -> None:
    source = save_bert(tmp_path / "theirs")
    (source / "model.safetensors").unlink()
    (source / "pytorch_model.bin").write_bytes(content)
    with pytest.raises(ModelError) as error:
        import_model(source, tmp_path / "ours")
    assert str(error.value).startswith(str(source / "pytorch_model.bin"))
    assert "\n" not in str(error.value)


def test_a_pickle_of_other_things_than_tensors_is_refused(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs")
    tensors = load_file(source / "model.safetensors")
    (source / "model.safetensors").unlink()
    torch.save({"state": tensors, "epoch": 3}, source / "pytorch_model.bin")
    with pytest.raises(ModelError, match="does not contain a plain dictionary of tensors"):
        import_model(source, tmp_path / "ours")


def test_damaged_vocabularies_of_other_families(tmp_path: Path) -> None:
    marian = save_marian(tmp_path / "marian")
    (marian / "vocab.json").write_text('{"a": 0}')
    with pytest.raises(ModelError, match=r"vocab\.json: there is no piece <unk>"):
        import_model(marian, tmp_path / "ours")
    (marian / "source.spm").write_bytes(b"\x0a\xff\xff")
    with pytest.raises(ModelError, match=r"source\.spm: damaged: not a SentencePiece model"):
        import_model(marian, tmp_path / "ours")
    gpt2 = save_gpt2(tmp_path / "gpt2")
    (gpt2 / "merges.txt").write_text("#version: 0.2\nxx yy\n")
    with pytest.raises(ModelError, match=r"merges\.txt: damaged, or does not belong to vocab\.json"):
        import_model(gpt2, tmp_path / "ours")
    (gpt2 / "vocab.json").write_text('{"a": "b"}')
    with pytest.raises(ModelError, match=r"vocab\.json: damaged: not a table of pieces"):
        import_model(gpt2, tmp_path / "ours")
    llama = save_llama(tmp_path / "llama")
    (llama / "tokenizer.model").write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    with pytest.raises(ModelError, match=r"tokenizer\.model: a Git LFS pointer, not the file itself: run git lfs pull"):
        import_model(llama, tmp_path / "ours")
    assert names(tmp_path) == ["gpt2", "llama", "marian"]


def test_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="no such file or folder"):
        import_model(tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize("model_type", families())
def test_every_foreign_name_is_listed_once(model_type: str) -> None:
    names = [name.foreign for name in families()[model_type].names]
    assert sorted(names) == sorted(set(names))
