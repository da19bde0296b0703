"""Small random models in the folders that Hugging Face publishes, with vocabularies to go with them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import sentencepiece
import tokenizers
import torch
import transformers
from tokenizers import decoders, models, pre_tokenizers, trainers
from transformers import (
    BertConfig,
    DistilBertConfig,
    GPT2Config,
    LlamaConfig,
    MarianConfig,
    MarianMTModel,
    MistralConfig,
    RobertaConfig,
)

LINES = [
    "The animal didn't cross the street because it was too tired.",
    "A small dog runs over the green grass, and a big cat sleeps.",
    "Paris is the capital of France; Berlin is the capital of Germany.",
    "Two men are sitting on a bench. They are reading a book about 12 houses!",
    "Once upon a time there was a little girl named Lily.",
]
FOREIGN = [
    "Das Tier überquerte die Straße nicht, weil es zu müde war.",
    "Ein kleiner Hund läuft über das grüne Gras, und eine große Katze schläft.",
    "Paris ist die Hauptstadt von Frankreich; Berlin ist die Hauptstadt von Deutschland.",
    "Zwei Männer sitzen auf einer Bank. Sie lesen ein Buch über 12 Häuser!",
    "Es war einmal ein kleines Mädchen namens Lily.",
]
TEXTS = [*LINES, "dog", "A cat, a cat and a girl.", "Ünïcödé 漢字 😀 <b>", "the " * 30]
SHAPE: dict[str, Any] = {"hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24, "num_hidden_layers": 3}


def save(model: Any, folder: Path) -> Path:
    """Random weights that are large enough to tell models apart, norms and biases included."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            torch.nn.init.normal_(parameter, 1.0 if "norm" in name.lower() and "weight" in name else 0.0, 0.3)
    model.eval().save_pretrained(folder)
    return folder


def save_bert(folder: Path, head: str = "BertForMaskedLM", **options: Any) -> Path:
    torch.manual_seed(0)
    vocabulary = word_pieces(folder)
    config = BertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, pad_token_id=0, **SHAPE, **options)
    return save(getattr(transformers, head)(config), folder)


def save_distilbert(folder: Path, head: str, **options: Any) -> Path:
    torch.manual_seed(0)
    vocabulary = word_pieces(folder)
    shape: dict[str, Any] = {"dim": 16, "n_heads": 4, "hidden_dim": 24, "n_layers": 3}
    config = DistilBertConfig(vocab_size=len(vocabulary), max_position_embeddings=64, **shape, **options)
    return save(getattr(transformers, head)(config), folder)


def word_pieces(folder: Path) -> list[str]:
    """vocab.txt and tokenizer_config.json, as bert-base-uncased has them, and the ids 0 to 4 for special tokens."""
    letters = sorted(set("".join(LINES).lower()) - {" "})
    words = ["the", "dog", "cat", "is", "capital", "of", "paris", "france", "a", "girl", "##s", "##ing"]
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, *(f"##{letter}" for letter in letters)]
    pieces = list(dict.fromkeys([*pieces, *words]))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "vocab.txt").write_text("\n".join(pieces) + "\n", encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": True, "model_max_length": 64}))
    return pieces


def save_roberta(folder: Path, head: str, **options: Any) -> Path:
    torch.manual_seed(0)
    specials = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    size = byte_level(folder, specials)
    names = ("cls", "pad", "sep", "unk", "mask")
    spelt = {f"{name}_token": text for name, text in zip(names, specials, strict=True)}
    (folder / "special_tokens_map.json").write_text(
        json.dumps(spelt | {"mask_token": {"content": "<mask>", "lstrip": True}})
    )
    config = RobertaConfig(
        vocab_size=size, max_position_embeddings=66, type_vocab_size=1, layer_norm_eps=1e-5, **SHAPE, **options
    )
    return save(getattr(transformers, head)(config), folder)


def byte_level(folder: Path, specials: list[str], size: int = 330) -> int:
    """vocab.json and merges.txt, as GPT-2 and RoBERTa have them."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, special_tokens=specials, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.model.save(str(folder))
    return tokenizer.get_vocab_size()


def save_gpt2(folder: Path, head: str = "GPT2LMHeadModel", **options: Any) -> Path:
    torch.manual_seed(0)
    size = byte_level(folder, ["<|endoftext|>"])
    end: dict[str, Any] = {"bos_token_id": 0, "eos_token_id": 0}
    config = GPT2Config(vocab_size=size, n_embd=16, n_head=4, n_layer=3, n_positions=64, **end, **options)
    return save(getattr(transformers, head)(config), folder)


def save_llama(folder: Path, *, mistral: bool = False, **options: Any) -> Path:
    torch.manual_seed(0)
    folder.mkdir(parents=True, exist_ok=True)
    size = train_pieces(folder / "tokenizer.model", LINES, 420, model_type="bpe", byte_fallback=True, **LLAMA)
    about = {"tokenizer_class": "LlamaTokenizer", "add_bos_token": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    kind = MistralConfig if mistral else LlamaConfig
    options = {"num_key_value_heads": 2, "max_position_embeddings": 64} | options
    config = kind(vocab_size=size, bos_token_id=1, eos_token_id=2, **(SHAPE | options))
    name = "MistralForCausalLM" if mistral else "LlamaForCausalLM"
    return save(getattr(transformers, name)(config), folder)


LLAMA = {
    "normalization_rule_name": "identity",
    "remove_extra_whitespaces": False,
    "unk_id": 0,
    "bos_id": 1,
    "eos_id": 2,
}


def train_pieces(path: Path, lines: list[str], size: int, **options: Any) -> int:
    """A SentencePiece model; returns how many pieces it has."""
    with path.open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=file,
            vocab_size=size,
            hard_vocab_limit=False,
            minloglevel=2,
            **options,
        )
    return int(sentencepiece.SentencePieceProcessor(model_file=str(path)).vocab_size())


def save_marian(folder: Path, **options: Any) -> Path:
    """source.spm, target.spm and vocab.json as the OPUS-MT models have them: </s> first, <pad> last."""
    torch.manual_seed(1)
    folder.mkdir(parents=True, exist_ok=True)
    pieces: list[str] = []
    for name, lines in (("source", LINES), ("target", FOREIGN)):
        train_pieces(folder / f"{name}.spm", lines, 150, model_type="unigram")
        known = sentencepiece.SentencePieceProcessor(model_file=str(folder / f"{name}.spm"))
        pieces += [known.id_to_piece(i) for i in range(known.vocab_size()) if not known.is_control(i)]
    names = ["</s>", "<unk>", *(piece for piece in dict.fromkeys(pieces) if piece != "<unk>" and piece != "▁dog")]
    names += [">>de<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)}), encoding="utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"source_lang": "en", "target_lang": "de"}))
    pad = len(names) - 1
    model = MarianMTModel(marian_config(len(names), pad, **options))
    with torch.no_grad():
        torch.nn.init.normal_(model.final_logits_bias)
        model.final_logits_bias[0, 0] += 4
    model.generation_config.num_beams = 4
    model.generation_config.bad_words_ids = [[pad]]
    return save(model, folder)


def marian_config(size: int, pad: int, **options: Any) -> Any:
    shape = {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24}
    return MarianConfig(
        **{
            "vocab_size": size,
            "d_model": 16,
            "encoder_layers": 2,
            "decoder_layers": 3,
            **shape,
            "max_position_embeddings": 64,
            "activation_function": "swish",
            "scale_embedding": True,
            "pad_token_id": pad,
            "eos_token_id": 0,
            "bos_token_id": 0,
            "forced_eos_token_id": None,
            "decoder_start_token_id": pad,
            **options,
        }
    )


def theirs(folder: Path, kind: str) -> Any:
    """A model of transformers, ready to use."""
    return getattr(transformers, kind).from_pretrained(folder).eval()


def their_tokenizer(folder: Path, kind: str = "AutoTokenizer") -> Any:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Recommended: pip install sacremoses")
        return getattr(transformers, kind).from_pretrained(folder)
