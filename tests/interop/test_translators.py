"""Imported MarianMT models translate as they do in transformers, and come back whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.decoding.model_loading import load
from regard.decoding.translator import Translator
from regard.errors import ModelError
from regard.interop.huggingface import export_model, import_model
from regard.model.positions import sinusoids
from regard.model.transformer import EncoderDecoder
from regard.weights import Contents, read_folder
from tests.interop.published import FOREIGN, LINES, save_marian, their_tokenizer, theirs

TEXTS = [*LINES, "dog", "A cat, a cat and a girl.", "the man", ">>de<< A small dog runs."]
HOSTILE = [
    "Straße",  # a letter that only the target's model knows
    "a ßü b",  # two of them are one unknown piece
    "漢字 😀 x",
    "  two   spaces ",
    "Ｆｕｌｌ ｗｉｄｔｈ ﬁ ①",
    "▁ <unk> </s> <pad>",
    "a\tb\u00a0c",
    "überquerte die Straße",
    "",
    " ",
]


def compare(contents: Contents, model: Any, tokenizer: Any, texts: list[str]) -> None:
    """The same ids, memory, states and logits, in a padded batch."""
    source, target = contents.vocabularies.source, contents.vocabularies.target
    ids = [[*row, source.specials.end] for row in source.encode_batch(texts)]
    given = tokenizer(texts, padding=True, return_tensors="pt")
    keep = given["attention_mask"].bool()
    assert [row[each].tolist() for row, each in zip(given["input_ids"], keep, strict=True)] == ids
    written = torch.tensor([[target.specials.begin, 5, 9, 2, 17, 30]] * len(texts))
    assert isinstance(contents.model, EncoderDecoder)
    with torch.inference_mode():
        expected = model(**given, decoder_input_ids=written)
        memory = contents.model.encode(given["input_ids"], keep)
        logits = contents.model(given["input_ids"], written, keep)
    torch.testing.assert_close(memory[keep], expected.encoder_last_hidden_state[keep], atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(logits, expected.logits, atol=1e-5, rtol=1e-5)


def translations(model: Any, tokenizer: Any, texts: list[str], **options: Any) -> list[str]:
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        rows = model.generate(**given, max_new_tokens=15, **options)
    return list(tokenizer.batch_decode(rows, skip_special_tokens=True))


def same(translator: Translator, model: Any, tokenizer: Any, never: list[int]) -> None:
    """Greedy and with a beam, of at most 15 tokens; their tokenizers leave other spaces at the ends."""
    for beam in (1, 4):
        options: dict[str, Any] = {"early_stopping": "never", "length_penalty": 0.8} if beam > 1 else {}
        expected = translations(model, tokenizer, TEXTS, num_beams=beam, suppress_tokens=never, **options)
        found = [t.text for t in translator.translate(TEXTS, beam=beam, length_penalty=0.8)]
        assert [" ".join(text.split()) for text in found] == [" ".join(text.split()) for text in expected]


@pytest.fixture
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine stops where `translations` does."""
    monkeypatch.setattr(Translator, "limit", lambda *_: 15)


def check(source: Path, folder: Path) -> Contents:
    assert import_model(source, folder / "ours") == []
    contents = read_folder(folder / "ours")
    model, tokenizer = theirs(source, "MarianMTModel"), their_tokenizer(source, "MarianTokenizer")
    compare(contents, model, tokenizer, TEXTS)
    translator = load(folder / "ours", "cpu")
    assert isinstance(translator, Translator)
    never = contents.vocabularies.target.specials.never_generated
    same(translator, model, tokenizer, never)
    notes = export_model(folder / "ours", folder / "export")
    assert notes == ["the target language has its own vocabulary: its tokenizer is in the folder target"]
    import_model(folder / "export", folder / "again")
    for name in ("model.toml", "tokenizer.json", "weights.safetensors"):
        assert (folder / "ours" / name).read_bytes() == (folder / "again" / name).read_bytes(), name
    back, tokenizer = theirs(folder / "export", "AutoModelForSeq2SeqLM"), their_tokenizer(folder / "export")
    compare(contents, back, tokenizer, TEXTS)
    same(translator, back, tokenizer, never)
    return contents


@pytest.mark.usefixtures("limit")
def test_marian(tmp_path: Path) -> None:
    contents = check(save_marian(tmp_path / "theirs"), tmp_path)
    settings, specials = contents.settings, contents.vocabularies.target.specials
    assert (settings.data.source, settings.data.target) == ("en", "de")
    assert (settings.decoding.beam, settings.decoding.length_penalty, settings.decoding.penalty) == (4, 1.0, "power")
    assert (settings.model.tie, settings.model.positions) == ("all", "sinusoidal-halves")
    assert specials.begin == specials.pad == contents.vocabularies.target.size - 1
    assert (specials.end, specials.unknown) == (0, 1)


@pytest.mark.usefixtures("limit")
@pytest.mark.parametrize(
    "options",
    [
        {"activation_function": "relu", "scale_embedding": False},
        {"share_encoder_decoder_embeddings": False},
        {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False, "activation_function": "gelu"},
    ],
)
def test_marian_of_other_shapes(tmp_path: Path, options: dict[str, Any]) -> None:
    check(save_marian(tmp_path / "theirs", **options), tmp_path)


def test_text_is_cut_and_joined_as_marian_does(tmp_path: Path) -> None:
    source = save_marian(tmp_path / "theirs")
    import_model(source, tmp_path / "ours")
    ours, tokenizer = read_folder(tmp_path / "ours").vocabularies, their_tokenizer(source, "MarianTokenizer")
    for text in [*LINES, *FOREIGN, *HOSTILE]:
        assert ours.source.encode_batch([text])[0] == tokenizer(text)["input_ids"][:-1], text
        assert ours.target.encode_batch([text])[0] == tokenizer(text_target=text)["input_ids"][:-1], text
        ids = ours.target.encode_batch([text])[0]
        assert ours.target.decode(ids).strip() == tokenizer.decode(ids, skip_special_tokens=True), text
    every = list(range(ours.target.size))
    assert ours.target.pieces(every) == tokenizer.convert_ids_to_tokens(every)
    assert ours.target.decode(every).strip() == tokenizer.decode(every, skip_special_tokens=True)


def test_quirks_of_published_files(tmp_path: Path) -> None:
    """Tables of positions and copies of the embeddings in the file, and every option of an OPUS-MT config."""
    source = save_marian(tmp_path / "theirs")
    import_model(source, tmp_path / "plain")
    tensors = load_file(source / "model.safetensors")
    for side in ("encoder", "decoder"):
        tensors[f"model.{side}.embed_positions.weight"] = sinusoids(64, 16, halves=True)
        tensors[f"model.{side}.embed_tokens.weight"] = tensors["model.shared.weight"].clone()
    tensors["lm_head.weight"] = tensors["model.shared.weight"].clone()
    (source / "model.safetensors").unlink()
    torch.save(tensors, source / "pytorch_model.bin")
    config = json.loads((source / "config.json").read_text())
    quirks: dict[str, Any] = {
        "normalize_before": False,
        "static_position_embeddings": True,
        "extra_pos_embeddings": 58101,
    }
    quirks |= {"add_bias_logits": False, "num_beams": 4, "id2label": {"0": "LABEL_0"}, "classif_dropout": 0.0}
    (source / "config.json").write_text(json.dumps(config | quirks))
    import_model(source, tmp_path / "old")
    for name in ("model.toml", "weights.safetensors", "tokenizer.json"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()
    tensors["model.encoder.embed_positions.weight"] = torch.randn(64, 16)
    save_file(tensors, source / "model.safetensors")
    with pytest.raises(ModelError, match="does not contain the sinusoidal positions of Marian"):
        import_model(source, tmp_path / "odd")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"decoder_ffn_dim": 48}, "decoder_ffn_dim is 48: Regard needs the same value as in the encoder"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads is 2"),
        ({"normalize_before": True}, "normalize_before is True: Regard reads Marian models with post-norm only"),
        ({"activation_function": "mish"}, "activation_function is 'mish', which Regard does not support"),
    ],
)
def test_marian_that_needs_more_than_regard_has_is_refused(tmp_path: Path, change: dict[str, Any], told: str) -> None:
    source = save_marian(tmp_path / "theirs")
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(ModelError, match=told):
        import_model(source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
