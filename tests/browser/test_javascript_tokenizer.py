"""The tokenizer in JavaScript gives the same results as the one in Python."""

from __future__ import annotations

import json
import random
import unicodedata
from pathlib import Path
from typing import Any, Literal

import pytest

from regard.demo import GLASS
from regard.demo.sentence_generator import generate_splits
from regard.settings import TokenizerSettings
from regard.tokens.placeholder_slots import Slotted
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from tests.browser.node import run

FOREIGN = [
    "漢字かな交じり文、テスト。" * 3,
    "ภาษาไทยไม่มีช่องว่าง",
    "שלום עולם، مرحبا بالعالم 123",
    "བོད་ཡིག་ནི་",
    "नमस्ते दुनिया",
    "x̧ é e\u0301 & &amp; &#39; 🙂 👩‍👩‍👧",
]
CHARACTERS = (
    "ab ésßAZ漢字かー、。ภา་ᄀ\u200d\u200c\u0301\u0327\u20dd🙂👩&;"
    "#<>%{}0123²٣\n\r\t\x00\x1f\x7f\x85\xa0\ufeff\u2028\u3000שعहि.-_"
)
SCRIPT = """
import { loadVocabularies } from "./tokenizer.js";
const { source, target } = loadVocabularies(data.content);
result = {
  encoded: data.texts.map((text) => {
    const { ids, pieces, offsets } = source.encode(text);
    return [ids, pieces, offsets, source.decode(ids), source.encodeContinuation(text)];
  }),
  decoded: data.ids.map((ids) => target.decode(ids)),
  slotted: data.slotted.map((text) => {
    const ids = source.encodeSlotted(text);
    return [ids, source.decodeSlotted(ids)];
  }),
  tags: source.tags, slots: [...source.slots], size: source.size, neverGenerated: source.neverGenerated,
};
"""
SLOTTED = [
    {"texts": ["Hello ", ", you have ", " messages"], "numbers": [2, 1]},
    {"texts": ["", ""], "numbers": [1]},
    {"texts": ["漢", " "], "numbers": [2]},
]


def trained(kind: Literal["bpe", "unigram"]) -> Tokenizer:
    pairs = generate_splits(300, 5, 30).train
    texts = [text for pair in pairs for text in (pair.source, pair.target)] + FOREIGN * 3
    return Tokenizer.train(
        texts, TokenizerSettings(vocabulary=700, kind=kind, tags=("de", "fr_CA", "slot:1", "slot:2"))
    )


def texts() -> list[str]:
    known = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs", "Co")]
    rows = [known[start : start + 500] for start in range(0, len(known), 500)]
    every = ["a".join(row) for row in rows] + [" ".join(row) for row in rows[::10]]
    dice = random.Random(1)
    mixed = ["".join(dice.choices(CHARACTERS, k=dice.randrange(60))) for _ in range(1000)]
    return [*FOREIGN, *mixed, *every, "", " ", "  a  ", "x" * 20_000, "漢字" * 3000, "dogs" * 2000]


def results(tokenizer: Tokenizer, data: dict[str, Any]) -> dict[str, Any]:
    """Returns what the script returns."""
    encoded = []
    for text in data["texts"]:
        each = tokenizer.encode(text)
        rest = tokenizer.encode_continuation(text)
        encoded.append([each.ids, each.pieces, [list(o) for o in each.offsets], tokenizer.decode(each.ids), rest])
    slotted = []
    for text in data["slotted"]:
        ids = tokenizer.encode_slotted(Slotted(tuple(text["texts"]), tuple(text["numbers"])))
        back = tokenizer.decode_slotted(ids)
        slotted.append([ids, {"texts": list(back.texts), "numbers": list(back.numbers)}])
    return {
        "encoded": encoded,
        "decoded": [tokenizer.decode(ids) for ids in data["ids"]],
        "slotted": slotted,
        "tags": tokenizer.tags,
        "slots": [list(item) for item in tokenizer.slots.items()],
        "size": tokenizer.size,
        "neverGenerated": tokenizer.specials.never_generated,
    }


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_tokens_and_texts_are_those_of_python(kind: Literal["bpe", "unigram"], tmp_path: Path) -> None:
    tokenizer, dice = trained(kind), random.Random(2)
    ids = [[dice.randrange(tokenizer.size) for _ in range(dice.randrange(30))] for _ in range(500)]
    ids += [[5 + dice.randrange(256) for _ in range(dice.randrange(12))] for _ in range(500)]  # bytes, rarely UTF-8
    data = {"content": json.loads(tokenizer.to_json()), "texts": texts(), "ids": ids, "slotted": SLOTTED}
    found, expected = run(SCRIPT, data, tmp_path), results(tokenizer, data)
    for text, ours, theirs in zip(data["texts"], expected.pop("encoded"), found.pop("encoded"), strict=True):
        assert theirs == ours, text
    assert found == expected


def test_two_vocabularies_are_two_tokenizers(tmp_path: Path) -> None:
    one, other = trained("bpe"), Vocabularies.load(GLASS / "tokenizer.json").source
    both = json.loads(Vocabularies(one, other).to_json())
    script = 'import { loadVocabularies } from "./tokenizer.js";\nconst both = loadVocabularies(data);\n'
    script += 'result = [both.source, both.target].map((each) => each.encode("A dog runs.").ids);'
    expected = [each.encode("A dog runs.").ids for each in (one, other)]
    assert expected[0] != expected[1]
    assert run(script, both, tmp_path) == expected


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"specials": {}, "size": 9, "tokenizer": {}}, "imported models"),
        ({"normalizer": None}, "another program"),
        ({"model": {"type": "WordPiece", "vocab": {}}}, "neither BPE nor unigram"),
        ({"added_tokens": [{"id": 1}]}, "another program"),
    ],
)
def test_other_tokenizers_are_refused(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    content = {**json.loads((GLASS / "tokenizer.json").read_text()), **change}
    script = (
        'import { Tokenizer } from "./tokenizer.js";\ntry { new Tokenizer(data); } catch (e) { result = e.message; }'
    )
    assert message in run(script, content, tmp_path)


def test_half_a_surrogate_pair_is_refused_as_in_python(tmp_path: Path) -> None:
    script = 'import { Tokenizer } from "./tokenizer.js";\n'
    script += 'try { new Tokenizer(data).encode("a🙂\\ud800"); } catch (e) { result = e.message; }'
    found = run(script, json.loads((GLASS / "tokenizer.json").read_text()), tmp_path)
    assert found == "character 3 is a lone surrogate (U+D800): the text is not valid Unicode"
