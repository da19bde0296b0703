"""Models of llama2.c: the file is taken apart exactly, and computes what the same Llama does in transformers."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from regard.decoding.model_loading import load
from regard.decoding.writer import Writer
from regard.errors import InputError, ModelError
from regard.interop.llama2c import import_model
from regard.weights import read_folder
from tests.interop.published import LINES, LLAMA, train_pieces

WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, LENGTH = 16, 24, 2, 4, 2, 32
ORDER = (
    "input_layernorm",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "post_attention_layernorm",
    "mlp.gate_proj",
    "mlp.down_proj",
    "mlp.up_proj",
)


def in_pairs(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows of a head, first half then second, as neighbours."""
    return weight.view(heads, 2, -1, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def save(folder: Path, *, shared: bool = True) -> tuple[Path, Path, Any]:
    """model.bin and tokenizer.model, and the same model of transformers."""
    torch.manual_seed(0)
    size = train_pieces(folder / "tok.model", LINES, 420, model_type="bpe", byte_fallback=True, **LLAMA)
    shape: dict[str, Any] = {"hidden_size": WIDTH, "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS}
    heads: dict[str, Any] = {
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "max_position_embeddings": LENGTH,
    }
    config = LlamaConfig(vocab_size=size, rms_norm_eps=1e-5, tie_word_embeddings=shared, **shape, **heads)
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    state = model.state_dict()
    parts = [state["model.embed_tokens.weight"]]
    for name in ORDER:
        for layer in range(LAYERS):
            weight = state[f"model.layers.{layer}.{name}.weight"]
            count = {"self_attn.q_proj": HEADS, "self_attn.k_proj": GROUPS}.get(name)
            parts.append(in_pairs(weight, count) if count else weight)
    parts += [state["model.norm.weight"], torch.zeros(2 * LENGTH * WIDTH // HEADS // 2)]
    parts += [] if shared else [state["lm_head.weight"]]
    header = struct.pack("<7i", WIDTH, HIDDEN, LAYERS, HEADS, GROUPS, size if shared else -size, LENGTH)
    (folder / "model.bin").write_bytes(header + b"".join(part.contiguous().numpy().tobytes() for part in parts))
    return folder / "model.bin", folder / "tok.model", model


def as_bin(path: Path) -> Path:
    """tok.bin as llama2.c makes it of tok.model."""
    model = sentencepiece.SentencePieceProcessor(model_file=str(path))
    names = {1: "\n<s>\n", 2: "\n</s>\n"}
    pieces = [names.get(i, model.id_to_piece(i)).replace("▁", " ").encode() for i in range(model.vocab_size())]
    rows = [struct.pack("<fi", model.get_score(i), len(piece)) + piece for i, piece in enumerate(pieces)]
    path.with_suffix(".bin").write_bytes(struct.pack("<i", max(map(len, pieces))) + b"".join(rows))
    return path.with_suffix(".bin")


@pytest.mark.parametrize("shared", [True, False])
def test_it_computes_what_llama_does(tmp_path: Path, shared: bool) -> None:
    model, tokenizer, theirs = save(tmp_path, shared=shared)
    assert import_model(model, tokenizer, tmp_path / "ours") == []
    contents = read_folder(tmp_path / "ours")
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tokenizer))
    for text in LINES:
        ids = [1, *pieces.encode(text)][:LENGTH]
        assert ids == [1, *contents.vocabularies.target.encode_batch([text])[0]][:LENGTH]
        with torch.inference_mode():
            expected = theirs(torch.tensor([ids])).logits
            torch.testing.assert_close(contents.model(torch.tensor([ids])), expected, atol=1e-5, rtol=1e-5)


def test_both_forms_of_the_vocabulary_are_the_same(tmp_path: Path) -> None:
    model, tokenizer, _ = save(tmp_path)
    import_model(model, tokenizer, tmp_path / "a")
    import_model(model, as_bin(tokenizer), tmp_path / "b")
    one, other = load(tmp_path / "a", "cpu"), load(tmp_path / "b", "cpu")
    assert isinstance(one, Writer)
    assert isinstance(other, Writer)
    for text in [*LINES, "", "漢 <0x41> é", "  two"]:
        assert one.vocabulary.encode_batch([text]) == other.vocabulary.encode_batch([text])
        assert one(text, temperature=0, max_tokens=10) == other(text, temperature=0, max_tokens=10)


def test_the_vocabulary_may_be_a_folder_or_a_tokenizer_json(tmp_path: Path) -> None:
    """As llama2.c keeps it, or as Llama does."""
    model, tokenizer, _ = save(tmp_path)
    import_model(model, tokenizer, tmp_path / "whole")
    for name, content in (("bin", as_bin(tokenizer).read_bytes()), ("model", tokenizer.read_bytes())):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"tokenizer.{name}").write_bytes(content)
    (tmp_path / "json").mkdir()
    kept = read_folder(tmp_path / "whole").vocabularies.target
    kept.model.save(str(tmp_path / "json" / "tokenizer.json"))
    for place in (tmp_path / "bin", tmp_path / "model", tmp_path / "json", tmp_path / "json" / "tokenizer.json"):
        import_model(model, place, tmp_path / "ours", overwrite=True)
        found = read_folder(tmp_path / "ours").vocabularies.target
        assert (found.specials.begin, found.specials.end, found.specials.prompt) == (1, 2, True)
        assert found.encode_batch(LINES) == kept.encode_batch(LINES)
    with pytest.raises(InputError, match="nowhere: no such file or folder"):
        import_model(model, tmp_path / "nowhere", tmp_path / "new")


def test_what_does_not_fit_is_refused(tmp_path: Path) -> None:
    model, tokenizer, _ = save(tmp_path)
    whole, output = model.read_bytes(), tmp_path / "ours"
    with pytest.raises(InputError, match="specify it with --tokenizer"):
        import_model(model, None, output)
    for content, told in (
        (b"abc", "a text file, not a model"),
        (b"", "an empty file"),
        (b"ab\0", "not a model that Regard can import: pass a Hugging Face folder or a llama2.c file"),
        (whole[:-4], "damaged: .* bytes instead of"),
        (whole + b"\0", "damaged: .* bytes instead of"),
        (struct.pack("<7i", -1, 1, 1, 1, 1, 1, 1) + whole, "not a model that Regard can import"),
        (struct.pack("<7i", 4, 4, 2**31 - 1, 2, 2, 9, 9) + whole, "not a model that Regard can import"),
        (struct.pack("<7i", 2**31 - 4, 4, 2, 2, 2, 9, 9) + whole, "damaged: .* bytes instead of"),
    ):
        model.write_bytes(content)
        with pytest.raises(ModelError, match=told):
            import_model(model, tokenizer, output)
    model.write_bytes(whole)
    train_pieces(tmp_path / "other.model", LINES, 300, model_type="bpe", byte_fallback=True, **LLAMA)
    with pytest.raises(ModelError, match="pieces, but the model's vocabulary has"):
        import_model(model, tmp_path / "other.model", output)
    shown = as_bin(tokenizer)
    for content in (shown.read_bytes()[:-3], shown.read_bytes() + b"x"):
        shown.write_bytes(content)
        with pytest.raises(ModelError, match=r"not a llama2\.c vocabulary"):
            import_model(model, shown, output)
    assert not output.exists()
