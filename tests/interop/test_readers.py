"""Imported encoders (BERT, RoBERTa, DistilBERT) compute what they compute in transformers, and come back whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from regard.decoding.fill_classify_embed import Classifier, Embedder, Filler
from regard.decoding.model_loading import load
from regard.errors import ModelError
from regard.interop.huggingface import export_model, import_model
from regard.model.observe import observe
from regard.weights import Contents, read_folder
from tests.interop.published import TEXTS, save_bert, save_distilbert, save_roberta, their_tokenizer, theirs

PAIRS = [("the dog", "a cat is a girl"), ("Paris is the capital of France", "the street")]
SAVERS = {"Bert": save_bert, "Roberta": save_roberta, "DistilBert": save_distilbert}
HEADS = [
    "BertModel",
    "BertForMaskedLM",
    "BertForPreTraining",
    "BertForSequenceClassification",
    "BertForTokenClassification",
    "RobertaModel",
    "RobertaForMaskedLM",
    "RobertaForSequenceClassification",
    "RobertaForTokenClassification",
    "DistilBertModel",
    "DistilBertForMaskedLM",
    "DistilBertForSequenceClassification",
    "DistilBertForTokenClassification",
]
TASKS = {"Model": "embed", "LM": "fill", "Training": "fill", "Classification": "classify"}


def save(folder: Path, head: str, **options: Any) -> Path:
    saver = next(saver for name, saver in SAVERS.items() if head.startswith(name))
    return saver(folder, head, **options)


def batch(contents: Contents, texts: list[Any]) -> tuple[list[list[int]], torch.Tensor, torch.Tensor, torch.Tensor]:
    """The texts as ids, and padded: tokens, keep, segments."""
    vocabulary = contents.vocabularies.source
    pairs = [(text, "") if isinstance(text, str) else text for text in texts]
    encoded = [[vocabulary.encode_batch([part])[0] for part in pair] for pair in pairs]
    rows = [vocabulary.specials.join(*parts) for parts in encoded]
    longest = max(len(ids) for ids, _ in rows)
    pad = vocabulary.specials.pad
    tokens = torch.tensor([ids + [pad] * (longest - len(ids)) for ids, _ in rows])
    segments = torch.tensor([numbers + [0] * (longest - len(numbers)) for _, numbers in rows])
    keep = torch.tensor([[True] * len(ids) + [False] * (longest - len(ids)) for ids, _ in rows])
    return [ids for ids, _ in rows], tokens, keep, segments


def compare(contents: Contents, model: Any, tokenizer: Any, texts: list[Any]) -> None:
    """The same ids, states after every layer, and logits."""
    ids, tokens, keep, segments = batch(contents, texts)
    firsts, seconds = zip(*(text if isinstance(text, tuple) else (text, None) for text in texts), strict=True)
    given = tokenizer(list(firsts), list(seconds) if seconds[0] else None, padding=True, return_tensors="pt")
    assert [row[row_keep].tolist() for row, row_keep in zip(given["input_ids"], keep, strict=True)] == ids
    with torch.inference_mode():
        expected = model(**given, output_hidden_states=True)
        with observe(contents.model) as trace:
            states = contents.model(tokens, keep, segments)
        for layer, hidden in enumerate(expected.hidden_states[1:]):
            found = trace[f"encoder.layers.{layer}.feed_forward_residual.norm"].tensor
            torch.testing.assert_close(found[keep], hidden[keep], atol=1e-5, rtol=1e-5)
        ours: Any = contents.model
        if ours.fill is not None:
            logits = expected.get("logits", expected.get("prediction_logits"))
            torch.testing.assert_close(ours.fill(states)[keep], logits[keep], atol=1e-5, rtol=1e-5)
        if ours.follows is not None:
            judged = ours.follows(ours.pool(states, None))
            torch.testing.assert_close(judged, expected.seq_relationship_logits, atol=1e-5, rtol=1e-5)
        if ours.label is not None and contents.settings.data.carrier == "text":
            torch.testing.assert_close(ours.label(ours.pool(states, None)), expected.logits, atol=1e-5, rtol=1e-5)
        elif ours.label is not None:
            torch.testing.assert_close(ours.label(states)[keep], expected.logits[keep], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_an_encoder_computes_the_same_here_and_comes_back_whole(tmp_path: Path, head: str) -> None:
    labels = {"id2label": {0: "bad", 1: "so-so", 2: "good"}, "label2id": {"bad": 0, "so-so": 1, "good": 2}}
    source = save(tmp_path / "theirs", head, **(labels if "Classification" in head else {}))
    assert import_model(source, tmp_path / "ours") == []
    contents = read_folder(tmp_path / "ours")
    assert contents.settings.task == next(task for end, task in TASKS.items() if head.endswith(end))
    assert contents.settings.data.carrier == ("word" if "TokenC" in head else "text")
    assert contents.settings.data.labels == (("bad", "so-so", "good") if "Classification" in head else ())
    model, tokenizer = theirs(source, head), their_tokenizer(source)
    compare(contents, model, tokenizer, TEXTS)
    compare(contents, model, tokenizer, PAIRS)
    if head == "DistilBertForSequenceClassification":
        with pytest.raises(ModelError, match=r"BERT does not support model\.pooler = relu: it needs tanh"):
            export_model(tmp_path / "ours", tmp_path / "export")
        return
    assert export_model(tmp_path / "ours", tmp_path / "export") == []
    assert import_model(tmp_path / "export", tmp_path / "again") == []
    for name in ("model.toml", "tokenizer.json", "weights.safetensors"):
        assert (tmp_path / "ours" / name).read_bytes() == (tmp_path / "again" / name).read_bytes(), name
    (name,) = json.loads((tmp_path / "export" / "config.json").read_text())["architectures"]
    back, tokenizer = theirs(tmp_path / "export", name), their_tokenizer(tmp_path / "export")
    compare(contents, back, tokenizer, TEXTS)
    compare(contents, back, tokenizer, PAIRS)


def test_a_gap_is_filled_with_the_same_words(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs", "BertForMaskedLM")
    import_model(source, tmp_path / "ours")
    filler, model, tokenizer = (
        load(tmp_path / "ours", "cpu"),
        theirs(source, "BertForMaskedLM"),
        their_tokenizer(source),
    )
    assert isinstance(filler, Filler)
    given = tokenizer("paris is the [MASK] of france", return_tensors="pt")
    with torch.inference_mode():
        logits = model(**given).logits.clone()[0, given["input_ids"][0].tolist().index(tokenizer.mask_token_id)]
        logits[tokenizer.all_special_ids] = -torch.inf
    expected = tokenizer.convert_ids_to_tokens(logits.topk(3).indices)
    (found,) = filler.fill("paris is the [MASK] of france", 3)
    assert [filling.token for filling in found] == [token.removeprefix("##") for token in expected]


def test_texts_and_words_get_the_same_labels(tmp_path: Path) -> None:
    for head in ("BertForSequenceClassification", "BertForTokenClassification"):
        source = save_bert(tmp_path / head, head, id2label={0: "x", 1: "y"})
        import_model(source, tmp_path / f"{head}-ours")
        classifier, tokenizer = load(tmp_path / f"{head}-ours", "cpu"), their_tokenizer(source)
        assert isinstance(classifier, Classifier)
        given = tokenizer(["the", "dogs", "capital"], is_split_into_words=True, return_tensors="pt")
        with torch.inference_mode():
            logits = theirs(source, head)(**given).logits
        if "Token" in head:
            starts = [given.word_ids().index(number) for number in range(3)]
            found = [label.probabilities["y"] for label in classifier.label_words([["the", "dogs", "capital"]])[0]]
            assert found == pytest.approx(logits[0, starts].softmax(-1)[:, 1].tolist(), abs=1e-5)
        else:
            (label,) = classifier.classify(["the dogs capital"])
            assert label.probabilities["y"] == pytest.approx(logits[0].softmax(-1)[1].item(), abs=1e-5)


def test_names_and_files_of_the_first_bert_are_read(tmp_path: Path) -> None:
    """pytorch_model.bin with gamma and beta, cls.* beside bert.*, buffers, and a config without labels."""
    source = save_bert(tmp_path / "theirs", "BertForPreTraining")
    import_model(source, tmp_path / "plain")
    tensors = load_file(source / "model.safetensors")
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in tensors.items()
    }
    old["cls.predictions.decoder.weight"] = old["bert.embeddings.word_embeddings.weight"]
    old["bert.embeddings.position_ids"] = torch.arange(64)[None]
    (source / "model.safetensors").unlink()
    torch.save(old, source / "pytorch_model.bin")
    config = json.loads((source / "config.json").read_text())
    kept = ("model_type", "vocab_size", "hidden_act", "max_position_embeddings", "type_vocab_size", "pad_token_id")
    shape = ("hidden_size", "num_attention_heads", "intermediate_size", "num_hidden_layers", "layer_norm_eps")
    small = {name: config[name] for name in (*kept, *shape)} | {"architectures": ["BertForMaskedLM"]}
    (source / "config.json").write_text(json.dumps(small))
    import_model(source, tmp_path / "old")
    for name in ("model.toml", "weights.safetensors"):
        assert (tmp_path / "plain" / name).read_bytes() == (tmp_path / "old" / name).read_bytes()
    torch.save(old, source / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    import_model(source, tmp_path / "older")
    assert read_folder(tmp_path / "older").settings.model.next_sentence


def test_shards_and_half_precision_are_read(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs")
    import_model(source, tmp_path / "plain")
    tensors = load_file(source / "model.safetensors")
    names = sorted(tensors)
    places = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for place in set(places.values()):
        save_file({name: tensors[name] for name in names if places[name] == place}, source / place)
    (source / "model.safetensors").unlink()
    (source / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": places}))
    import_model(source, tmp_path / "sharded")
    weights = [tmp_path / folder / "weights.safetensors" for folder in ("plain", "sharded")]
    assert weights[0].read_bytes() == weights[1].read_bytes()
    save_file({name: tensor.bfloat16() for name, tensor in tensors.items()}, source / "model.safetensors")
    assert import_model(source, tmp_path / "half") == ["the weights were bfloat16, and are stored as float32"]
    half = load_file(tmp_path / "half" / "weights.safetensors")
    for name, tensor in load_file(weights[0]).items():
        torch.testing.assert_close(half[name], tensor.bfloat16().float(), atol=0, rtol=0)


def test_two_output_tables_that_differ_are_kept_apart(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs", tie_word_embeddings=False)
    assert "cls.predictions.decoder.weight" in load_file(source / "model.safetensors")
    assert import_model(source, tmp_path / "ours") == []
    contents = read_folder(tmp_path / "ours")
    assert contents.settings.model.tie == "none"
    compare(contents, theirs(source, "BertForMaskedLM"), their_tokenizer(source), TEXTS)
    export_model(tmp_path / "ours", tmp_path / "export")
    compare(contents, theirs(tmp_path / "export", "BertForMaskedLM"), their_tokenizer(tmp_path / "export"), TEXTS)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": True}))
    (note,) = import_model(source, tmp_path / "noted")
    assert note.endswith("although they should be tied: both are kept")


# sentence-transformers


def sentences(folder: Path, pooling: dict[str, bool], *, normalize: bool = True) -> Path:
    save_bert(folder, "BertModel")
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [
        {
            "idx": i,
            "name": str(i),
            "path": "" if i == 0 else f"{i}_{kind}",
            "type": f"sentence_transformers.models.{kind}",
        }
        for i, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 16, **pooling}))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 32, "do_lower_case": False}))
    return folder


@pytest.mark.parametrize("mean", [True, False])
def test_sentence_models_pool_as_their_files_say(tmp_path: Path, mean: bool) -> None:
    pooling = {"pooling_mode_cls_token": not mean, "pooling_mode_mean_tokens": mean, "pooling_mode_max_tokens": False}
    source = sentences(tmp_path / "theirs", pooling, normalize=mean)
    (note,) = import_model(source, tmp_path / "ours")
    assert note == "sentence-transformers truncates texts to 32 tokens, but Regard to the maximum length of the model"
    embedder, tokenizer = load(tmp_path / "ours", "cpu"), their_tokenizer(source)
    assert isinstance(embedder, Embedder)
    given = tokenizer(TEXTS, padding=True, return_tensors="pt")
    with torch.inference_mode():
        states, keep = theirs(source, "BertModel")(**given).last_hidden_state, given["attention_mask"][..., None]
    expected = (states * keep).sum(1) / keep.sum(1) if mean else states[:, 0]
    expected = torch.nn.functional.normalize(expected, dim=-1) if mean else expected
    np.testing.assert_allclose(embedder(TEXTS), expected.numpy(), atol=1e-5)
    export_model(tmp_path / "ours", tmp_path / "export")
    import_model(tmp_path / "export", tmp_path / "again")
    assert read_folder(tmp_path / "again").settings == read_folder(tmp_path / "ours").settings


def test_sentence_models_with_other_steps_are_refused(tmp_path: Path) -> None:
    source = sentences(tmp_path / "theirs", {"pooling_mode_max_tokens": True})
    with pytest.raises(ModelError, match="the pooling is max_tokens, but Regard supports only the mean and"):
        import_model(source, tmp_path / "ours")
    modules = json.loads((source / "modules.json").read_text())
    (source / "modules.json").write_text(json.dumps([*modules, {"type": "x.Dense", "path": "3_Dense"}]))
    with pytest.raises(ModelError, match="Regard does not support the module Dense"):
        import_model(source, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_regression_models_are_refused(tmp_path: Path) -> None:
    source = save_bert(tmp_path / "theirs", "BertForSequenceClassification", num_labels=1)
    with pytest.raises(ModelError, match="predicts a score instead of labels"):
        import_model(source, tmp_path / "ours")
