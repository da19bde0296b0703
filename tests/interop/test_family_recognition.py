"""Files and folders of other programs are named, and a config.json that names no family is read if it is plain."""

from __future__ import annotations

import gzip
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from safetensors.torch import save_file

from regard.cli import main
from regard.errors import ModelError
from regard.files_of_other_programs import identify
from regard.interop.huggingface import import_model
from regard.interop.llama2c import import_model as import_file
from regard.weights import parameters, read_folder
from tests.interop.published import save_bert, save_distilbert, save_gpt2, save_llama, save_marian, save_roberta
from tests.interop.test_damage import config, tensors
from tests.interop.toys import settings_of, write_model

SAVERS: dict[str, Callable[[Path], Path]] = {
    "bert": save_bert,
    "distilbert": lambda folder: save_distilbert(folder, "DistilBertForMaskedLM"),
    "roberta": lambda folder: save_roberta(folder, "RobertaForMaskedLM"),
    "gpt2": save_gpt2,
    "llama": save_llama,
    "marian": save_marian,
}


@pytest.mark.parametrize("family", SAVERS)
@pytest.mark.parametrize("classes", [True, False])
def test_a_config_without_model_type(tmp_path: Path, family: str, classes: bool) -> None:
    source = SAVERS[family](tmp_path / "theirs")
    before = import_model(source, tmp_path / "whole")
    config(model_type=None, **({} if classes else {"architectures": None}))(source)
    if not classes and family in ("llama", "marian"):  # which never came without
        with pytest.raises(ModelError, match="the model_type is missing and cannot be inferred: Regard supports"):
            import_model(source, tmp_path / "ours")
        return
    by = "architectures" if classes else "its keys and the names of its weights"
    note = f"config.json has no model_type: inferred {family} from {by}"
    assert import_model(source, tmp_path / "ours") == [note, *before]
    ours, whole = (parameters(read_folder(tmp_path / name).model) for name in ("ours", "whole"))
    assert all(torch.equal(ours[name], tensor) for name, tensor in whole.items())


def test_the_names_of_a_bare_encoder_are_plain_with_two_segments_alone(tmp_path: Path) -> None:
    for name, told in (("bert", "inferred bert from"), ("roberta", "cannot be inferred")):
        source = SAVERS[name](tmp_path / name) if name == "roberta" else save_bert(tmp_path / name, "BertModel")
        tensors(lambda t: [t.update({key.partition("roberta.")[2]: t.pop(key)}) for key in list(t) if "rta." in key])(
            source
        )
        config(model_type=None, architectures=None)(source)
        try:
            said = str(import_model(source, tmp_path / "ours"))
        except ModelError as error:
            said = str(error)
        assert told in said


def file_of(folder: Path, kind: str) -> Path:
    """A file as another program writes it."""
    path = folder / "model.file"
    state = {"weight": torch.ones(2, 3)}
    match kind:
        case "gguf":
            path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 2, 5) + bytes(100))
        case "safetensors":
            save_file(state, path)
        case "torch":
            torch.save(state, path)
        case "old torch":
            torch.save(state, path, _use_new_zipfile_serialization=False)
        case "onnx":
            graph = onnx.helper.make_graph([], "main", [], [])
            onnx.save(onnx.helper.make_model(graph, producer_name="pytorch"), path)
        case "marian":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("special:model.yml.npy", b"")
                archive.writestr("encoder_l1.npy", b"")
        case "npz":
            with path.open("wb") as file:
                np.savez(file, weight=np.ones(3))
        case "sentencepiece":
            save_llama(folder / "llama")
            path = folder / "llama" / "tokenizer.model"
            (path.parent / "config.json").unlink()
        case "pointer":
            path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
        case "v1":
            path.write_bytes(struct.pack("<Ii7i", 0x616B3432, 1, 16, 24, 2, 4, 2, 300, 32) + bytes(300))
        case "gzip":
            path.write_bytes(gzip.compress(b"x"))
        case "zip":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("a/config.json", "{}")
        case "half a zip":
            path.write_bytes(b"PK\x03\x04")
        case "h5":
            path.write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(20))
        case "json":
            path.write_text('{"hidden_size": 3}')
        case "html":
            path.write_text("<!DOCTYPE html><html>")
        case "text":
            path.write_text("Ein Satz, ü" * 100, encoding="utf-8")
        case "empty":
            path.write_bytes(b"")
        case "noise":
            path.write_bytes(bytes(range(255, 0, -1)) * 3)
    return path


WHOLE = "specify the whole Hugging Face folder"
KINDS = {
    "gguf": "a GGUF file of llama.cpp, which Regard does not read",
    "safetensors": f"safetensors weights without their model: {WHOLE}",
    "torch": f"PyTorch weights without their model: {WHOLE}",
    "old torch": f"PyTorch weights without their model: {WHOLE}",
    "onnx": "an ONNX model, which Regard writes but does not read",
    "marian": "a Marian model. Convert it to a Hugging Face Transformers folder",
    "npz": "an archive of NumPy arrays",
    "sentencepiece": f"a SentencePiece vocabulary, not a model: {WHOLE}",
    "pointer": "a Git LFS pointer, not the file itself: run git lfs pull",
    "v1": "a llama2.c model in version 1 or 2",
    "gzip": "a compressed archive: unpack it",
    "zip": "a ZIP archive: unpack it",
    "half a zip": "a damaged ZIP archive",
    "h5": "TensorFlow weights",
    "json": f"a JSON file, not a model: {WHOLE}",
    "html": "a web page: the download failed",
    "text": "a text file, not a model",
    "empty": "an empty file",
    "noise": "not a model that Regard can import: pass a Hugging Face folder or a llama2.c file",
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_program_is_named(tmp_path: Path, kind: str) -> None:
    path = file_of(tmp_path, kind)
    for tokenizer in (None, path):
        with pytest.raises(ModelError) as error:
            import_file(path, tokenizer, tmp_path / "ours")
        assert str(error.value).startswith(f"{path}: {KINDS[kind]}")
        assert "\n" not in str(error.value)


def test_a_file_in_a_folder_of_hugging_face_leads_to_it(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs")
    assert identify(source / "model.safetensors").endswith(f"specify its folder, {source}")


def folder_of(place: Path, kind: str) -> Path:
    """A folder, or a file, that is no model folder of Regard."""
    folder = place / "model"
    match kind:
        case "hugging face":
            return save_gpt2(folder)
        case "empty":
            folder.mkdir()
        case "ctranslate2":
            folder.mkdir()
            (folder / "config.json").write_text('{"bos_token": "<s>"}')
            name = b"TransformerSpec\0"
            (folder / "model.bin").write_bytes(struct.pack("<IH", 6, len(name)) + name + bytes(40))
        case "onnx":
            folder.mkdir()
            (folder / "decoder.onnx").write_bytes(b"")
        case "gguf":
            folder.mkdir()
            (folder / "a.gguf").write_bytes(b"GGUF")
        case "above":
            write_model(folder / "one", settings_of("translate"))
        case "within":
            write_model(folder, settings_of("translate"))
            (folder / "history").mkdir()
            return folder / "history"
        case "file within":
            write_model(folder, settings_of("translate"))
            return folder / "weights.safetensors"
        case "no weights yet":
            write_model(folder, settings_of("translate"))
            (folder / "weights.safetensors").unlink()
            (folder / "training").mkdir()
        case "no weights":
            write_model(folder, settings_of("translate"))
            (folder / "weights.safetensors").unlink()
        case "a text":
            return Path("A dog runs over the green grass. " * 20)
    return folder


FOLDERS = {
    "hugging face": "a Hugging Face model. Run regard import {model} -o NEW, then use NEW",
    "empty": "an empty folder",
    "ctranslate2": "a CTranslate2 model, which Regard writes but does not read",
    "onnx": "an ONNX model, which Regard writes but does not read",
    "gguf": "it contains a.gguf, a GGUF file of llama.cpp",
    "above": "the model is in {model}/one: specify that folder",
    "within": "part of the model {folder}: specify that folder",
    "file within": "specify its folder, {folder}",
    "no weights yet": "wait until it is trained, or continue with regard train --resume {model}",
    "no weights": "has no weights.safetensors: copy the whole folder again",
    "a text": "(File name too long)",
}
VERBS = {
    "translate": ["MODEL", "-"],
    "write": ["MODEL", "a"],
    "fill": ["MODEL", "a"],
    "classify": ["MODEL", "a"],
    "embed": ["MODEL", "a"],
    "evaluate": ["MODEL", "a.en", "a.de"],
    "look": ["MODEL"],
    "serve": ["MODEL", "--port", "0"],
    "info": ["MODEL"],
    "verify": ["MODEL"],
    "bench": ["serve", "MODEL"],
    "export": ["MODEL", "--to", "huggingface", "-o", "OUT"],
    "quantize": ["MODEL", "-o", "OUT"],
    "shortlist": ["MODEL"],
    "train": ["a.en", "a.de", "--from", "MODEL", "-o", "OUT"],
    "distill": ["MODEL", "a.en", "-o", "OUT"],
}


@pytest.mark.parametrize("kind", FOLDERS)
def test_every_verb_says_what_a_folder_is_that_is_not_a_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a.en", "a.de"):
        Path(name).write_text("A dog.\n" * 9)
    model = folder_of(tmp_path, kind)
    told = FOLDERS[kind].format(model=model, folder=tmp_path / "model")
    for verb, arguments in VERBS.items():
        given = [str(model) if word == "MODEL" else word for word in arguments]
        if verb == "info" and kind.startswith("no weights"):
            continue  # what is known of it can be described
        capsys.readouterr()
        assert main([verb, *given]) == 2, verb
        said = capsys.readouterr().err
        assert said.startswith(f"regard: {model}".rstrip()), (verb, said)
        assert told in said, (verb, said)
        assert said.count("\n") == 1, (verb, said)
        assert not Path("OUT").exists()


@pytest.mark.parametrize("kind", ["empty", "ctranslate2", "onnx", "gguf", "above"])
def test_import_says_what_a_folder_is(tmp_path: Path, kind: str) -> None:
    model = folder_of(tmp_path, kind)
    with pytest.raises(ModelError) as error:
        import_model(model, tmp_path / "ours")
    told = FOLDERS[kind].format(model=model, folder=tmp_path / "model")
    assert f"{model}: " in str(error.value)
    assert told in str(error.value)


def test_a_model_of_regard_need_not_be_imported(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model", settings_of("write"))
    with pytest.raises(ModelError, match="is already a Regard model: use it without importing it"):
        import_model(model, tmp_path / "ours")


def test_a_large_checkpoint_that_git_did_not_fetch(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs")
    (source / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(ModelError, match=r"model\.safetensors: a Git LFS pointer, not the file itself"):
        import_model(source, tmp_path / "ours")
