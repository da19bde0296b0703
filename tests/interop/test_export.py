"""Models that Regard made itself run in transformers with the same outputs; what cannot be said is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from regard.atomic_files import write_text
from regard.decoding.model_loading import load
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import ModelError
from regard.explorer.model_explorer import contents_of
from regard.interop.huggingface import export_model, import_model
from regard.interop.weight_conversion import halve_sinusoids
from regard.preparation.chosen_settings import resolve
from regard.settings import Settings
from regard.settings.option_fields import dump
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.weights import build_model, parameters, read_folder, write_tensors
from tests.interop.published import FOREIGN, LINES, TEXTS, their_tokenizer, theirs

SMALL: dict[str, Any] = {"width": 16, "heads": 4, "hidden": 24, "max_length": 128}
LAYERS = {"encoder_layers": 2, "decoder_layers": 3}


def make(folder: Path, task: str, **shape: Any) -> Path:
    """A folder with a random model of our own, and a vocabulary learnt from a few lines."""
    torch.manual_seed(2)
    layers = LAYERS if task in ("translate", "write") else {"encoder_layers": 2}
    tables: dict[str, Any] = {"task": task, "model": SMALL | layers | shape}
    if task == "classify":
        tables["data"] = {"labels": ["good", "bad"], "carrier": shape.pop("carrier", "text")}
    apart = shape.get("tie") in ("output", "none") and task == "translate"
    tables["tokenizer"] = {"vocabulary": 400, "joint": not apart}
    tables["model"].pop("carrier", None)
    settings = resolve(tables)
    pairs = [Pair(one, other, Location("corpus", 1)) for one, other in zip(LINES, FOREIGN, strict=True)]
    vocabularies = Vocabularies.train(lambda: pairs, settings.tokenizer)
    model = build_model(settings, vocabularies)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm.weight" in name else 0.0, 0.3)
    write(folder, settings, vocabularies, parameters(model))
    return folder


def write(folder: Path, settings: Settings, vocabularies: Vocabularies, weights: dict[str, torch.Tensor]) -> None:
    write_tensors(folder / "weights.safetensors", weights)
    write_text(folder / "tokenizer.json", vocabularies.to_json())
    write_text(folder / "model.toml", dump(settings))


def same_but_for_order(folder: Path, again: Path) -> None:
    """Weights that are identical."""
    ours, theirs = load_file(folder / "weights.safetensors"), load_file(again / "weights.safetensors")
    assert ours.keys() == theirs.keys()
    for name, tensor in ours.items():
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"positions": "sinusoidal-halves", "output_bias": True, "activation": "gelu"},
        {"tie": "output", "activation": "gelu-tanh"},
        {"tie": "none", "scale_embedding": False, "activation": "silu"},
    ],
)
def test_a_translator_translates_the_same_as_marian(tmp_path: Path, shape: dict[str, Any]) -> None:
    folder = make(tmp_path / "ours", "translate", **shape)
    notes = export_model(folder, tmp_path / "export")
    assert any("another length penalty" in note for note in notes)
    model, tokenizer = theirs(tmp_path / "export", "AutoModelForSeq2SeqLM"), their_tokenizer(tmp_path / "export")
    apart = (tmp_path / "export" / "target").is_dir()
    assert apart == (shape.get("tie") in ("output", "none"))
    target = their_tokenizer(tmp_path / "export" / "target") if apart else tokenizer
    translator = load(folder, "cpu")
    assert isinstance(translator, Translator)
    given = tokenizer(TEXTS, padding=True, return_tensors="pt")
    keep, written = given["attention_mask"].bool(), torch.tensor([[1, 50, 300, 7]] * len(TEXTS))
    with torch.inference_mode():
        expected = model(**given, decoder_input_ids=written).logits
        found = read_folder(folder).model(given["input_ids"], written, keep)
    torch.testing.assert_close(found, expected, atol=2e-5, rtol=1e-5)
    for text in map(str.strip, TEXTS):
        ids = tokenizer(text, return_tensors="pt")
        assert ids["input_ids"][0].tolist() == [*translator.source.encode_batch([text])[0], 2]
        for beam in (1, 5):
            with torch.inference_mode():
                (row,) = model.generate(**ids, max_new_tokens=20, max_length=None, num_beams=beam)
            (found,) = translator.translate([text], beam=beam, penalty="power", length_penalty=0.6, max_ratio=0)
            assert list(found.tokens) == translator.target.pieces(i for i in row.tolist() if i > 2)
            assert found.text == target.decode(row, skip_special_tokens=True) or "⟨" in "".join(found.tokens)


def test_positions_in_halves_compute_the_same() -> None:
    settings = resolve({"model": SMALL | LAYERS})
    halves = resolve({"model": SMALL | LAYERS | {"positions": "sinusoidal-halves"}})
    tokenizer = Tokenizer.train(LINES, resolve({"tokenizer": {"vocabulary": 330}}).tokenizer)
    vocabularies = Vocabularies(tokenizer, tokenizer)
    one, other = (build_model(each, vocabularies).eval() for each in (settings, halves))
    other.load_state_dict(halve_sinusoids(one.state_dict()))
    tokens = torch.randint(0, 330, (3, 9))
    torch.testing.assert_close(one(tokens, tokens, None), other(tokens, tokens, None), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("shape", "kind"),
    [
        ({}, "GPT2LMHeadModel"),
        ({"tie": "none", "activation": "relu"}, "GPT2LMHeadModel"),
        (
            {"positions": "rotary", "norm_kind": "rms", "activation": "swiglu", "bias": False, "key_value_heads": 2},
            "LlamaForCausalLM",
        ),
    ],
)
def test_a_writer_writes_the_same_elsewhere(tmp_path: Path, shape: dict[str, Any], kind: str) -> None:
    folder = make(tmp_path / "ours", "write", **shape)
    assert export_model(folder, tmp_path / "export") == []
    model, tokenizer = theirs(tmp_path / "export", "AutoModelForCausalLM"), their_tokenizer(tmp_path / "export")
    assert type(model).__name__ == kind
    writer = load(folder, "cpu")
    assert isinstance(writer, Writer)
    for text in TEXTS:
        given = tokenizer(text, return_tensors="pt")
        assert given["input_ids"][0].tolist() == writer.prompt(text)
        with torch.inference_mode():
            torch.testing.assert_close(
                contents_of(writer).model(given["input_ids"]), model(**given).logits, atol=2e-5, rtol=1e-5
            )
            (row,) = model.generate(**given, max_new_tokens=20, do_sample=False)
        (found,) = writer.write([text], temperature=0, max_tokens=20)
        new = row[given["input_ids"].shape[1] :].tolist()
        assert list(found.tokens) == writer.vocabulary.pieces(i for i in new if i > 2)
        whole = tokenizer.decode(row, skip_special_tokens=True)
        assert text + found.text == whole or "⟨" in "".join(found.tokens)  # broken UTF-8 is shown otherwise
    import_model(tmp_path / "export", tmp_path / "again")
    same_but_for_order(folder, tmp_path / "again")
    again = read_folder(tmp_path / "again")
    assert again.settings.decoding.temperature == 0.8
    assert [again.vocabularies.target.encode_batch([text]) for text in TEXTS] == [
        writer.vocabulary.encode_batch([text]) for text in TEXTS
    ]
    assert again.vocabularies.target.specials == writer.vocabulary.specials.__class__(mask=None)


@pytest.mark.parametrize(
    ("task", "shape", "kind"),
    [
        ("fill", {}, "BertForMaskedLM"),
        ("fill", {"next_sentence": True}, "BertForPreTraining"),
        ("fill", {"tie": "none", "pooler": "none", "segments": 0}, "BertForMaskedLM"),
        ("classify", {"pooler": "tanh"}, "BertForSequenceClassification"),
        ("classify", {"carrier": "word", "pooler": "none"}, "BertForTokenClassification"),
        ("embed", {"segments": 0}, "BertModel"),
        ("embed", {"pooler": "none"}, "BertModel"),
    ],
)
def test_an_encoder_is_a_bert(tmp_path: Path, task: str, shape: dict[str, Any], kind: str) -> None:
    folder = make(tmp_path / "ours", task, **shape)
    assert export_model(folder, tmp_path / "export") == []
    assert json.loads((tmp_path / "export" / "config.json").read_text())["architectures"] == [kind]
    model, tokenizer = theirs(tmp_path / "export", kind), their_tokenizer(tmp_path / "export")
    contents = read_folder(folder)
    vocabulary = contents.vocabularies.source
    pairs = [(LINES[0], LINES[1]), ("dog", "cat")]
    given = tokenizer([one for one, _ in pairs], [other for _, other in pairs], padding=True, return_tensors="pt")
    keep = given["attention_mask"].bool()
    rows = [vocabulary.specials.join(*vocabulary.encode_batch(list(pair))) for pair in pairs]
    assert [row[each].tolist() for row, each in zip(given["input_ids"], keep, strict=True)] == [ids for ids, _ in rows]
    segments = torch.zeros_like(given["input_ids"])
    for number, (_, numbers) in enumerate(rows):
        segments[number, : len(numbers)] = torch.tensor(numbers)
    ours: Any = contents.model
    with torch.inference_mode():
        expected = model(**given)
        states = ours(given["input_ids"], keep, segments)
        if ours.fill is not None:
            logits = expected.prediction_logits if ours.follows is not None else expected.logits
            torch.testing.assert_close(ours.fill(states)[keep], logits[keep], atol=2e-5, rtol=1e-5)
        elif ours.label is not None:
            words = kind == "BertForTokenClassification"
            found = ours.label(states if words else ours.pool(states, None))
            torch.testing.assert_close(found, expected.logits, atol=2e-5, rtol=1e-5)
        else:
            torch.testing.assert_close(states[keep], expected.last_hidden_state[keep], atol=2e-5, rtol=1e-5)
    import_model(tmp_path / "export", tmp_path / "again")
    same_but_for_order(folder, tmp_path / "again")
    again = read_folder(tmp_path / "again")
    assert again.settings.model == contents.settings.model
    assert again.vocabularies.source.specials == vocabulary.specials.__class__(prompt=True)


@pytest.mark.parametrize(
    ("task", "shape", "told"),
    [
        (
            "translate",
            {"positions": "rotary"},
            "MarianMT does not support model.positions = rotary: it needs sinusoidal or",
        ),
        ("translate", {"norm": "pre"}, "MarianMT does not support model.norm = pre: it needs post"),
        ("translate", {"norm_kind": "rms"}, "MarianMT does not support model.norm_kind = rms: it needs layer"),
        ("translate", {"norm_epsilon": 1e-6}, "MarianMT does not support model.norm_epsilon = 1e-06: it needs 1e-05"),
        (
            "translate",
            {"activation": "swiglu"},
            "MarianMT does not support model.activation = swiglu: it needs relu or",
        ),
        ("translate", {"bias": False}, "MarianMT does not support model.bias = false: it needs true"),
        (
            "translate",
            {"tie": "inputs"},
            "MarianMT does not support model.tie = inputs: it needs all or output or none",
        ),
        ("translate", {"key_width": 8}, "MarianMT needs heads whose width is model.width / model.heads"),
        (
            "translate",
            {"key_value_heads": 2},
            "MarianMT does not support model.key_value_heads = 2: it needs one for each head",
        ),
        (
            "write",
            {"positions": "sinusoidal"},
            "model.positions = sinus",
        ),
        ("write", {"norm": "post"}, "GPT-2 does not support model.norm = post: it needs pre"),
        ("write", {"output_bias": True}, "GPT-2 does not support model.output_bias = true: it needs false"),
        ("write", {"positions": "rotary"}, "Llama does not support model.norm_kind = layer: it needs rms"),
        ("fill", {"positions": "sinusoidal"}, "BERT does not support model.positions = sinusoidal: it needs learned"),
        ("fill", {"scale_embedding": True}, "BERT does not support model.scale_embedding = true: it needs false"),
        ("classify", {"pooler": "none"}, "BERT does not support model.pooler = none: it needs tanh"),
    ],
)
def test_settings_without_a_hugging_face_form_are_refused_with_the_reason(
    tmp_path: Path, task: str, shape: dict[str, Any], told: str
) -> None:
    folder = make(tmp_path / "ours", task, **shape)
    with pytest.raises(ModelError) as error:
        export_model(folder, tmp_path / "export")
    assert str(error.value).startswith(told)
    assert not (tmp_path / "export").exists()


def test_an_earlier_export_is_replaced_only_with_overwrite(tmp_path: Path) -> None:
    folder = make(tmp_path / "ours", "write")
    export_model(folder, tmp_path / "export")
    before = (tmp_path / "export" / "config.json").stat().st_ino
    with pytest.raises(ModelError, match="is not empty"):
        export_model(folder, tmp_path / "export")
    assert (tmp_path / "export" / "config.json").stat().st_ino == before
    export_model(folder, tmp_path / "export", overwrite=True)
    assert (tmp_path / "export" / "config.json").stat().st_ino != before
    import_model(tmp_path / "export", tmp_path / "again")
    with pytest.raises(ModelError, match="is not empty"):
        import_model(tmp_path / "export", tmp_path / "again")
    (tmp_path / "again" / "native").mkdir()  # as its first use leaves it
    import_model(tmp_path / "export", tmp_path / "again", overwrite=True)
    (tmp_path / "again" / "diary.txt").write_text("mine")
    with pytest.raises(ModelError, match=r"holds diary\.txt"):
        import_model(tmp_path / "export", tmp_path / "again", overwrite=True)
