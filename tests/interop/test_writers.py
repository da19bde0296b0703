"""Imported decoders (GPT-2, Llama, Mistral) compute and write what they do in transformers, and come back whole."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.decoding.model_loading import load
from regard.decoding.writer import Writer
from regard.errors import ModelError
from regard.interop.huggingface import export_model, import_model
from regard.model.observe import observe
from regard.weights import Contents, read_folder
from tests.interop.published import TEXTS, byte_level, save_gpt2, save_llama, their_tokenizer, theirs

PROMPTS = ["The animal", "A small dog runs over", "Once upon a time", "Ünï 漢", "dog"]


def compare(contents: Contents, model: Any, tokenizer: Any) -> None:
    """The same ids, states after every layer, and logits, one text at a time."""
    for text in TEXTS:
        ids = contents.vocabularies.target.encode_batch([text])[0]
        if contents.vocabularies.target.specials.prompt:
            ids = [contents.vocabularies.target.specials.begin, *ids]
        assert tokenizer(text)["input_ids"] == ids
        tokens = torch.tensor([ids])
        with torch.inference_mode(), observe(contents.model) as trace:
            expected = model(tokens, output_hidden_states=True)
            logits = contents.model(tokens)
        for layer, hidden in enumerate(expected.hidden_states[1:-1]):
            found = trace[f"decoder.layers.{layer}.feed_forward_residual.sum"].tensor
            torch.testing.assert_close(found, hidden, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(trace["decoder.states"].tensor, expected.hidden_states[-1], atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(logits, expected.logits, atol=5e-5, rtol=1e-5)  # of size 10, on any CPU


def continuation(model: Any, tokenizer: Any, prompt: str, **options: Any) -> str:
    """What transformers writes after a prompt."""
    given = tokenizer(prompt, return_tensors="pt")
    with torch.inference_mode():
        (row,) = model.generate(**given, max_new_tokens=20, **options)
    before = tokenizer.decode(given["input_ids"][0], skip_special_tokens=True)
    return str(tokenizer.decode(row, skip_special_tokens=True))[len(before) :]


def check(source: Path, folder: Path, kind: str, never: list[int], notes: list[str] | None = None) -> Contents:
    """Imports, compares, exports, compares and imports again."""
    assert import_model(source, folder / "ours") == (notes or [])
    contents = read_folder(folder / "ours")
    pieces = (source / "tokenizer.model").is_file()
    model, tokenizer = theirs(source, kind), their_tokenizer(source, "LlamaTokenizer" if pieces else "AutoTokenizer")
    compare(contents, model, tokenizer)
    writer = load(folder / "ours", "cpu")
    assert isinstance(writer, Writer)
    suppress = {"suppress_tokens": never} if never else {}
    for prompt in PROMPTS:
        ours = writer(prompt, temperature=0, beam=1, max_tokens=20)
        assert ours == continuation(model, tokenizer, prompt, do_sample=False, **suppress)
        ours = writer(prompt, temperature=0, beam=1, max_tokens=20, repetition_penalty=1.3)
        assert ours == continuation(model, tokenizer, prompt, do_sample=False, repetition_penalty=1.3, **suppress)
    assert export_model(folder / "ours", folder / "export") == []
    assert import_model(folder / "export", folder / "again") == []
    for name in ("tokenizer.json", "weights.safetensors"):
        assert (folder / "ours" / name).read_bytes() == (folder / "again" / name).read_bytes(), name
    assert read_folder(folder / "again").settings == contents.settings
    back, tokenizer = theirs(folder / "export", "AutoModelForCausalLM"), their_tokenizer(folder / "export")
    compare(contents, back, tokenizer)
    for prompt in PROMPTS:
        assert writer(prompt, temperature=0, beam=1, max_tokens=20) == continuation(
            back, tokenizer, prompt, do_sample=False
        )
    return contents


def test_gpt2(tmp_path: Path) -> None:
    contents = check(save_gpt2(tmp_path / "theirs"), tmp_path, "GPT2LMHeadModel", [])
    assert contents.settings.model.activation == "gelu-tanh"
    assert not contents.vocabularies.target.specials.prompt


@pytest.mark.parametrize(
    "options",
    [{"n_inner": 40, "activation_function": "relu"}, {"tie_word_embeddings": False}, {"layer_norm_epsilon": 1e-3}],
)
def test_gpt2_of_other_shapes(tmp_path: Path, options: dict[str, Any]) -> None:
    check(save_gpt2(tmp_path / "theirs", **options), tmp_path, "GPT2LMHeadModel", [])


def test_gpt2_without_prefix_and_with_its_old_buffers(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "theirs", task_specific_params={"text-generation": {"do_sample": True}})
    import_model(source, tmp_path / "plain")
    tensors = {n.removeprefix("transformer."): t for n, t in load_file(source / "model.safetensors").items()}
    for layer in range(3):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(64, 64).tril()[None, None]
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, source / "model.safetensors")
    import_model(source, tmp_path / "old")
    tensors["lm_head.weight"] = tensors["wte.weight"].clone()
    save_file(tensors, source / "model.safetensors")
    import_model(source, tmp_path / "tied")
    for folder in ("old", "tied"):
        for name in ("model.toml", "weights.safetensors"):
            assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / folder / name).read_bytes()


@pytest.mark.parametrize(("name", "value"), [("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True)])
def test_gpt2_with_other_scales_is_refused(tmp_path: Path, name: str, value: bool) -> None:
    option: dict[str, Any] = {name: value}
    source = save_gpt2(tmp_path / "theirs", **option)
    with pytest.raises(ModelError, match=f"{name} is {value}: Regard scales attention"):
        import_model(source, tmp_path / "ours")


def test_samples_of_gpt2_are_distributed_as_in_transformers(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "theirs")
    import_model(source, tmp_path / "ours")
    writer, model, tokenizer = (
        load(tmp_path / "ours", "cpu"),
        theirs(source, "GPT2LMHeadModel"),
        their_tokenizer(source),
    )
    assert isinstance(writer, Writer)
    given = tokenizer("The animal", return_tensors="pt")
    options: dict[str, Any] = {"temperature": 0.7, "top_k": 6, "top_p": 0.9}
    torch.manual_seed(0)
    drawn = model.generate(
        **given, do_sample=True, num_return_sequences=4000, max_new_tokens=1, pad_token_id=0, **options
    )
    expected = Counter(drawn[:, -1].tolist())
    (found,) = writer.write(["The animal"], max_tokens=1, seed=1, alternatives=3999, **options)
    ours = Counter(writing.tokens for writing in (found, *found.alternatives))
    assert len(expected) > 2
    for token, count in expected.items():
        shown = tuple(writer.vocabulary.pieces([token])) if token else ()
        assert abs(count - ours[shown]) / 4000 < 0.04  # three and a half standard deviations at worst


# Llama


def test_llama(tmp_path: Path) -> None:
    contents = check(save_llama(tmp_path / "theirs"), tmp_path, "LlamaForCausalLM", [0, 1])
    assert contents.settings.model.key_value_heads == 2
    assert contents.settings.model.tie == "none"
    assert contents.vocabularies.target.specials.prompt


@pytest.mark.parametrize(
    "options",
    [
        {"tie_word_embeddings": True, "rms_norm_eps": 1e-3, "num_key_value_heads": 4},
        {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
        {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 1},
    ],
)
def test_llama_of_other_shapes(tmp_path: Path, options: dict[str, Any]) -> None:
    check(save_llama(tmp_path / "theirs", **options), tmp_path, "LlamaForCausalLM", [0, 1])


def test_mistral(tmp_path: Path) -> None:
    check(save_llama(tmp_path / "a", mistral=True, sliding_window=None), tmp_path / "a", "MistralForCausalLM", [0, 1])
    notes = ["the model attends to at most 32 earlier tokens (sliding_window): texts are truncated accordingly"]
    assert import_model(save_llama(tmp_path / "b", mistral=True, sliding_window=32), tmp_path / "c") == notes
    assert read_folder(tmp_path / "c").settings.model.max_length == 32


def test_llama_with_the_vocabulary_of_gpt2(tmp_path: Path) -> None:
    """As SmolLM has it: no <s> before a text, and one token for begin, end, unknown and padding."""
    source = save_llama(tmp_path / "theirs")
    (source / "tokenizer.model").unlink()
    byte_level(source, ["<|endoftext|>"], 420)
    spelt = dict.fromkeys(("bos_token", "eos_token", "unk_token"), "<|endoftext|>")
    (source / "special_tokens_map.json").write_text(json.dumps(spelt))
    import_model(source, tmp_path / "ours")
    specials = read_folder(tmp_path / "ours").vocabularies.target.specials
    assert (specials.begin, specials.end, specials.pad, specials.prompt) == (0, 0, 0, False)
    assert specials.never_generated == []


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"rope_scaling": {"rope_type": "linear", "factor": 2.0}}, r"scaled rotary positions \(linear\)"),
        ({"rope_parameters": {"rope_type": "llama3", "rope_theta": 5e5}}, r"scaled rotary positions \(llama3\)"),
        ({"attention_bias": True}, "mlp_bias is False: Regard supports a bias in all linear layers or in none"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu': Regard gates with silu alone"),
    ],
)
def test_llama_that_needs_more_than_regard_has_is_refused(tmp_path: Path, options: dict[str, Any], told: str) -> None:
    source = save_llama(tmp_path / "theirs")
    config = json.loads((source / "config.json").read_text())
    if "rope_scaling" in options:  # where it stood until transformers 5
        del config["rope_parameters"]
    (source / "config.json").write_text(json.dumps(config | options))
    with pytest.raises(ModelError, match=told):
        import_model(source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_rotary_base_of_older_configs(tmp_path: Path) -> None:
    source = save_llama(tmp_path / "theirs")
    config = json.loads((source / "config.json").read_text())
    del config["rope_parameters"]
    (source / "config.json").write_text(json.dumps(config | {"rope_theta": 5000.0, "rope_scaling": None}))
    tensors = load_file(source / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, source / "model.safetensors")
    import_model(source, tmp_path / "ours")
    assert read_folder(tmp_path / "ours").settings.model.rotary_base == 5000


def test_sampling_follows_the_generation_config(tmp_path: Path) -> None:
    source = save_gpt2(tmp_path / "theirs")
    told = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "max_length": 4096}
    (source / "generation_config.json").write_text(json.dumps(told))
    import_model(source, tmp_path / "ours")
    decoding = read_folder(tmp_path / "ours").settings.decoding
    assert (decoding.temperature, decoding.top_p, decoding.top_k) == (0.6, 0.9, 0)
