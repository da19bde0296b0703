"""Each family's config with each kind of tokenizer files gives a model that works, or one line that says why not."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import HealthCheck, given, settings, strategies as st
from tokenizers import decoders, models, pre_tokenizers

from regard.decoding.fill_classify_embed import Embedder, Filler
from regard.decoding.model_loading import load
from regard.decoding.translator import Translator
from regard.decoding.writer import Writer
from regard.errors import RegardError
from regard.interop.huggingface import import_model
from regard.weights import read_folder
from tests.interop.published import save_bert, save_distilbert, save_gpt2, save_llama, save_marian, save_roberta
from tests.interop.test_damage import config

FAMILIES: dict[str, Callable[[Path], Path]] = {
    "bert": save_bert,
    "distilbert": lambda folder: save_distilbert(folder, "DistilBertForMaskedLM"),
    "roberta": lambda folder: save_roberta(folder, "RobertaForMaskedLM"),
    "gpt2": save_gpt2,
    "llama": save_llama,
    "marian": save_marian,
}
MODEL = ("config.json", "generation_config.json", "model.safetensors")
OWN = {"bert": "word", "distilbert": "word", "roberta": "pairs", "gpt2": "pairs", "llama": "pieces", "marian": "marian"}
KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "none": {},
    "word": {"bert": ("vocab.txt",)},
    "pairs": {"gpt2": ("vocab.json", "merges.txt")},
    "pairs of an encoder": {"roberta": ("vocab.json", "merges.txt", "special_tokens_map.json")},
    "pairs without merges": {"gpt2": ("vocab.json",)},
    "merges alone": {"gpt2": ("merges.txt",)},
    "pieces": {"llama": ("tokenizer.model",)},
    "marian": {"marian": ("source.spm", "target.spm", "vocab.json")},
    "marian without target": {"marian": ("source.spm", "vocab.json")},
    "json": {"json": ("tokenizer.json",)},
    "json without unknown": {"no unknown": ("tokenizer.json",)},
    "several": {"bert": ("vocab.txt",), "gpt2": ("vocab.json", "merges.txt"), "llama": ("tokenizer.model",)},
    "all": {
        "json": ("tokenizer.json",),
        "bert": ("vocab.txt",),
        "gpt2": ("vocab.json", "merges.txt"),
        "llama": ("tokenizer.model",),
        "marian": ("source.spm", "target.spm"),
    },
}
SMALL = ("special_tokens_map.json", "tokenizer_config.json", "added_tokens.json")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of every family, and two with a tokenizer.json."""
    folder = tmp_path_factory.mktemp("published")
    for name, save in FAMILIES.items():
        save(folder / name)
    words = {"[UNK]": 0, "[PAD]": 1, "[CLS]": 2, "[SEP]": 3, "[MASK]": 4, "a": 5, "b": 6, "dog": 7}
    for name, unknown in (("json", "[UNK]"), ("no unknown", "[OTHER]")):
        tokenizer = tokenizers.Tokenizer(models.WordPiece(words, unk_token=unknown))
        tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.BertPreTokenizer(), decoders.WordPiece()
        (folder / name).mkdir()
        tokenizer.save(str(folder / name / "tokenizer.json"))
    return folder


def mix(published: Path, family: str, kind: str, folder: Path) -> Path:
    """The config and weights of one family with the tokenizer files of others."""
    folder.mkdir()
    for name in MODEL:
        if (published / family / name).exists():
            shutil.copy(published / family / name, folder)
    for owner, names in KINDS[kind].items():
        for name in names:
            shutil.copy(published / owner / name, folder)
    return folder


def outcome(source: Path, output: Path) -> str:
    """What the import says, or nothing if the model that it made works."""
    told = ""
    try:
        import_model(source, output)
    except RegardError as error:
        told = str(error)
    if not told:
        use(output)
    elif "\n" in told or not told.startswith(str(source)) or output.exists():
        raise AssertionError(told)
    return told


def use(folder: Path) -> None:
    """Reads and writes texts that the vocabulary may not know."""
    match load(folder, "cpu"):
        case Writer() as writer:
            assert isinstance(writer("a 漢\u0378 dog", max_tokens=4), str)
        case Translator() as translator:
            assert isinstance(translator("a 漢\u0378 dog"), str)
        case Filler() as filler:
            assert filler.vocabulary.encode("a 漢\u0378 dog").ids
        case Embedder() as embedder:
            assert len(embedder(["a 漢\u0378 dog"])) == 1


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_mixture_works_or_is_refused(published: Path, tmp_path: Path, family: str, kind: str) -> None:
    told = outcome(mix(published, family, kind, tmp_path / "theirs"), tmp_path / "ours")
    if kind in (OWN[family], "several", "all") and family != "marian":
        assert told == ""
    if kind in ("none", "pairs without merges", "merges alone", "json without unknown"):
        assert told != ""


def test_a_writer_with_the_vocabulary_of_bert(published: Path, tmp_path: Path) -> None:
    """As Chinese GPT-2 models have it: [CLS] begins a text, and [SEP] ends it."""
    import_model(mix(published, "gpt2", "word", tmp_path / "theirs"), tmp_path / "ours")
    vocabulary = read_folder(tmp_path / "ours").vocabularies.target
    specials = vocabulary.specials
    assert [vocabulary.model.id_to_token(number) for number in (specials.begin, specials.end)] == ["[CLS]", "[SEP]"]
    assert specials.prompt


@pytest.mark.parametrize(("family", "stated", "own"), [("gpt2", None, "pairs"), ("gpt2", "BertTokenizer", "word")])
def test_of_several_vocabularies_the_own_one_is_read(
    published: Path, tmp_path: Path, family: str, stated: str | None, own: str
) -> None:
    for kind in ("several", own):
        source = mix(published, family, kind, tmp_path / kind)
        config(tokenizer_class=stated)(source)
        import_model(source, tmp_path / f"{kind}.ours")
    first, second = (read_folder(tmp_path / f"{kind}.ours").vocabularies.target for kind in ("several", own))
    assert first.model.get_vocab() == second.model.get_vocab()


VALUES: list[Any] = [
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        3,
        2**31 - 1,
        2**70,
        0.0,
        1.5,
        -2.5,
        1e308,
        "",
        "x",
        "gelu",
        "null",
        [],
        [None],
        ["x"],
    ),
    *([7], {}, {"0": None}, {"rope_type": 3}, {"rope_type": "default", "rope_theta": "x"}, {"content": 3}),
]
GONE = object()
JSONS: dict[str, list[str]] = {
    "config.json": [
        *("tokenizer_class", "problem_type", "id2label", "rope_parameters", "rope_scaling", "rope_theta", "head_dim"),
        *("sliding_window", "n_inner", "tie_word_embeddings", "is_decoder", "share_encoder_decoder_embeddings"),
    ],
    "generation_config.json": [
        *("do_sample", "temperature", "top_k", "top_p", "min_p", "repetition_penalty", "num_beams", "length_penalty"),
    ],
    "tokenizer_config.json": [
        *("tokenizer_class", "do_lower_case", "strip_accents", "tokenize_chinese_chars", "add_prefix_space"),
        *("add_bos_token", "eos_token", "bos_token", "sep_token", "cls_token", "unk_token", "pad_token", "mask_token"),
        *("source_lang", "target_lang"),
    ],
    "special_tokens_map.json": ["eos_token", "bos_token", "sep_token", "cls_token", "unk_token", "pad_token"],
    "added_tokens.json": ["<new>", "[PAD]"],
}


@pytest.fixture(scope="module")
def names(published: Path) -> list[tuple[str, str, str]]:
    """Every value that stands or may stand in the JSON files of a family."""
    found = []
    for family in FAMILIES:
        for name, keys in JSONS.items():
            path = published / family / name
            known = json.loads(path.read_text()) if path.exists() else {}
            found += [(family, name, key) for key in dict.fromkeys([*known, *keys])]
    return found


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(data=st.data())
def test_damaged_values_are_refused_in_a_line(
    published: Path, names: list[tuple[str, str, str]], tmp_path: Path, data: st.DataObject
) -> None:
    family, name, key = data.draw(st.sampled_from(names))
    value = data.draw(st.sampled_from([GONE, *VALUES]))
    change_and_import(published / family, {name: {key: value}}, tmp_path)


def change_and_import(source: Path, changes: dict[str, dict[str, Any]], folder: Path) -> None:
    """Imports a copy of a folder with other values in its JSON files."""
    theirs, ours = folder / "theirs", folder / "ours"
    for place in (theirs, ours):
        shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(source, theirs)
    for name, change in changes.items():
        content = json.loads((theirs / name).read_text()) if (theirs / name).exists() else {}
        kept = {key: value for key, value in (content | change).items() if value is not GONE}
        (theirs / name).write_text(json.dumps(kept))
    outcome(theirs, ours)
