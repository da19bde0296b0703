"""Subwords: nothing is lost, nothing is forged, nothing depends on chance."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
import tokenizers
from hypothesis import given, strategies as st
from tokenizers import models

from regard.errors import InputError, ModelError
from regard.settings import TokenizerSettings
from regard.tokens.text_pairs import Location, Pair
from regard.tokens.tokenizer import Tokenizer, Vocabularies
from regard.tokens.vocabulary_learning import BOS, EOS, MASK, PAD, RESERVED, SPECIALS, UNK, _alphabet
from tests.examples import examples

Kind = Literal["bpe", "unigram"]
NAMES = ["Anna", "Boris", "Chloé", "Dmitri", "Émile", "Frieda", "Günther", "Håkon", "Ivo", "Jörg", "Kamal", "Lise"]
VERBS = ["sees", "greets", "follows", "teaches", "forgets", "remembers", "invites", "surprises"]
THINGS = ["the river", "the green house", "two dogs", "an old friend", "12 letters", "3 of the 45 birds", "nobody"]
CHINESE = ["今天天气很好。", "我们今天去公园。", "他的朋友在北京工作。", "天气很冷,我们不去。", "北京的公园很好。"]
# fmt: off
NASTY = [
    "", " ", "  ", "a", " a", "a ", " a  b ", "\t", "\n", "\r\n", "\ta", " \n b", "\xa0a", "\u2028\x85", "\0", "a\0b",
    "▁", "▁the ▁river", "<s>", "</s>", "<pad>", "<unk><mask>", "<s>Anna</s>", "<0x41>", "<0xE4><0xBD><0xA0>", "<0x4",
    "😀", "👩\u200d👩\u200d👧", "❤\ufe0f", "a\u0301\u0301", "\u0301", " \u0301", "한국어", "می\u200cخواهم", "ⅧⅨ½²",
    "\U000e0fff", "\ufffd", "\ufffe", "\ufeffa", "\ud7ff\ue000", "\U0010ffff", "今天天气很好", " 今天", "  今", "\n今",
    "今 天", "สวัสดีครับ ๑๒", "བོད་སྐད་", "ភាសាខ្មែរ", "ラーメンを食べる", "Tom说3个", "don't", "l'homme", "١٢٣",
    "x" * 500, "今" * 500, "=" * 99,
]
# fmt: on


def sentences() -> list[str]:
    draw = random.Random(7)
    english = [f"{draw.choice(NAMES)} {draw.choice(VERBS)} {draw.choice(THINGS)}." for _ in range(300)]
    return [*english, *(draw.choice(CHINESE) for _ in range(100))]


def trained(kind: Kind, vocabulary: int = 600) -> Tokenizer:
    return Tokenizer.train(sentences(), TokenizerSettings(kind=kind, vocabulary=vocabulary))


TOKENIZERS: dict[str, Tokenizer] = {kind: trained(kind) for kind in get_args(Kind)}
both = pytest.mark.parametrize("kind", get_args(Kind))
anything = st.one_of(
    st.text(),
    st.text(st.sampled_from("aAe \t\n<>/s0x41▁今天é́😀")),
    st.lists(st.sampled_from([*NASTY, *SPECIALS, *THINGS, *CHINESE])).map("".join),
)


def pairs() -> list[Pair]:
    texts = sentences()
    return [Pair(text, text.upper(), Location("a", n)) for n, text in enumerate(texts, 1)]


@both
@pytest.mark.parametrize("text", NASTY)
def test_nasty_text_comes_back(kind: Kind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


@both
@examples(300)
@given(text=anything)
def test_any_text_comes_back_and_never_as_a_special_token(kind: Kind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids) == text
    assert all(token >= len(SPECIALS) for token in ids)
    assert not set(ids) & {PAD, BOS, EOS, UNK, MASK}


@both
@examples(300)
@given(text=anything)
def test_offsets_cover_the_text_in_order(kind: Kind, text: str) -> None:
    tokenizer = TOKENIZERS[kind]
    encoding = tokenizer.encode(text)
    assert len(encoding.ids) == len(encoding.pieces) == len(encoding.offsets)
    assert {n for start, end in encoding.offsets for n in range(start, end)} == set(range(len(text)))
    for (start, end), (later, _) in pairwise(encoding.offsets):
        assert later in (start, end)  # the bytes of one character stand at the same place
    for n, (token, (start, end)) in enumerate(zip(encoding.ids, encoding.offsets, strict=True)):
        piece = tokenizer.model.id_to_token(token) or ""
        if token < len(RESERVED):
            assert end - start == 1
            assert int(piece[3:5], 16) in text[start:end].encode()
        else:
            assert text[start:end] == piece or (n == 0 and " " + text[start:end] == piece)


@both
def test_the_bytes_of_a_character_point_to_it(kind: Kind) -> None:
    encoding = TOKENIZERS[kind].encode("😀é😀")
    assert encoding.pieces[-4:] == ["⟨F0⟩", "⟨9F⟩", "⟨98⟩", "⟨80⟩"]
    assert encoding.offsets[-5:] == [(1, 2), (2, 3), (2, 3), (2, 3), (2, 3)]


@both
def test_special_tokens_have_their_places_and_are_left_out_of_text(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    assert (PAD, BOS, EOS, UNK, MASK) == (0, 1, 2, 3, 4)
    assert tokenizer.pieces(range(5)) == ["<pad>", "<s>", "</s>", "<unk>", "<mask>"]
    ids = tokenizer.encode("Anna sees nobody.").ids
    assert tokenizer.decode([BOS, *ids[:2], MASK, *ids[2:], EOS, PAD, PAD]) == "Anna sees nobody."


@both
def test_pieces_are_shown_with_visible_spaces(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    encoding = tokenizer.encode("Anna sees the river.")
    assert encoding.pieces == ["▁Anna", "▁sees", "▁the", "▁river", "."]
    assert encoding.offsets == [(0, 4), (4, 9), (9, 13), (13, 19), (19, 20)]
    assert tokenizer.pieces(encoding.ids) == encoding.pieces


@both
def test_a_word_is_the_same_at_the_start_and_in_the_middle(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    assert tokenizer.encode("the river").ids == tokenizer.encode("sees the river").ids[1:]


@both
def test_chinese_is_cut_without_a_space_in_front(kind: Kind) -> None:
    pieces = TOKENIZERS[kind].encode("今天天气很好。").pieces
    assert "".join(pieces) == "今天天气很好。"
    assert len(pieces) < 7


@both
def test_digits_stand_alone(kind: Kind) -> None:
    pieces = [piece.lstrip("▁") for piece in TOKENIZERS[kind].encode("12 letters 345").pieces]
    assert [p for p in pieces if p.isdigit()] == list("12345")


@both
def test_broken_bytes_do_not_break_decoding(kind: Kind) -> None:
    tokenizer = TOKENIZERS[kind]
    lead = RESERVED.index("<0xE4>")
    assert tokenizer.decode([lead, *tokenizer.encode("Anna").ids]) == "\ufffd Anna"


@both
@examples(50)
@given(texts=st.lists(anything, max_size=5))
def test_a_batch_is_the_same_as_one_by_one(kind: Kind, texts: list[str]) -> None:
    tokenizer = TOKENIZERS[kind]
    rows = tokenizer.encode_batch(texts)
    assert rows == [tokenizer.encode(text).ids for text in texts]
    assert list(map(tokenizer.decode, rows)) == texts


@both
def test_a_lone_surrogate_is_refused(kind: Kind) -> None:
    with pytest.raises(InputError, match=r"character 3 is a lone surrogate \(U\+D800\)"):
        TOKENIZERS[kind].encode("ab\ud800")
    with pytest.raises(InputError, match=r"character 1 is a lone surrogate \(U\+DFFF\)"):
        TOKENIZERS[kind].encode_batch(["fine", "\udfff"])
    with pytest.raises(InputError, match=r"character 2 is a lone surrogate"):
        trained(kind, 340).encode_continuation("a\ud800")


def test_the_alphabet_covers_the_characters_that_are_not_spaces() -> None:
    """Of 10,000, five may be left out: with spaces counted, it would be more or fewer."""
    texts = ["a" * 9_000, "b" * 990, "c" * 6, "d" * 4, " " * 50_000]
    assert _alphabet(texts, 40) == [" ", "a", "b", "c"]
    assert _alphabet(["a" * 9_000, "b" * 994, "c" * 6, " " * 50_000], 40) == [" ", "a", "b", "c"]
    assert _alphabet(["a" * 9_000, "b" * 995, "c" * 5, " " * 50_000], 40) == [" ", "a", "b"]
    assert _alphabet(["abcdef" * 100], 6) == [" ", "a", "b", "c"], "at most half of the room"
    assert len(_alphabet([chr(97 + i) * 10 ** (4 - i // 4) for i in range(20)], 640)) == 21, "a small one is whole"


@both
def test_the_vocabulary_is_an_upper_limit(kind: Kind) -> None:
    assert 320 < trained(kind, 340).size <= 340
    assert 340 < trained(kind, 50_000).size < 1000


@both
@pytest.mark.parametrize("texts", [[], [""], ["a"], ["\n"], ["今天"], ["One sentence, no more."], ["<s>", "\0"]])
def test_a_tiny_corpus_is_enough(kind: Kind, texts: list[str]) -> None:
    tokenizer = Tokenizer.train(texts, TokenizerSettings(kind=kind, vocabulary=300))
    assert len(RESERVED) < tokenizer.size <= 300
    for text in [*texts, *NASTY]:
        assert tokenizer.decode(tokenizer.encode(text).ids) == text


@both
def test_rare_characters_are_spelt_as_bytes_and_leave_room_for_pieces(kind: Kind) -> None:
    rare = [chr(0x4E00 + n) for n in range(400)]
    tokenizer = Tokenizer.train([*sentences(), *rare], TokenizerSettings(kind=kind, vocabulary=500))
    learnt = tokenizer.pieces(range(len(RESERVED), tokenizer.size))
    assert sum(len(piece) == 1 for piece in learnt) <= (500 - len(RESERVED)) // 2 + 1
    assert [len(tokenizer.encode(character).ids) for character in rare[-3:]] == [3, 3, 3]


def test_unigram_cuts_as_well_as_bpe() -> None:
    draw = random.Random(3)
    syllables = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(2000)]
    common = [1 / rank for rank in range(1, len(words) + 1)]
    texts = [" ".join(draw.choices(words, common, k=10)) for _ in range(1500)]
    lengths = {}
    for kind in get_args(Kind):
        tokenizer = Tokenizer.train(texts, TokenizerSettings(kind=kind, vocabulary=1000))
        lengths[kind] = sum(map(len, tokenizer.encode_batch(texts)))
    assert lengths["unigram"] < 1.01 * lengths["bpe"]


@both
def test_unigram_and_bpe_are_what_they_say(kind: Kind) -> None:
    content = json.loads(TOKENIZERS[kind].model.to_str())
    assert content["model"]["type"].lower() == kind
    assert content["added_tokens"] == []


@both
@pytest.mark.parametrize("joint", [True, False])
def test_vocabularies_survive_the_file(kind: Kind, joint: bool, tmp_path: Path) -> None:
    before = Vocabularies.train(pairs, TokenizerSettings(kind=kind, vocabulary=500, joint=joint))
    (tmp_path / "tokenizer.json").write_text(before.to_json(), encoding="utf-8")
    after = Vocabularies.load(tmp_path / "tokenizer.json")
    assert [path.name for path in tmp_path.iterdir()] == ["tokenizer.json"]
    assert after.to_json() == before.to_json()
    assert (after.source is after.target) == (before.source is before.target) == joint
    texts = [*NASTY, *sentences()[::10]]
    for one, other in ((before.source, after.source), (before.target, after.target)):
        assert one.encode_batch(texts) == other.encode_batch(texts)
    assert (before.source.encode_batch(texts) == before.target.encode_batch(texts)) == joint


@both
def test_a_joint_file_is_a_plain_tokenizer_file(kind: Kind, tmp_path: Path) -> None:
    vocabularies = Vocabularies(TOKENIZERS[kind], TOKENIZERS[kind])
    (tmp_path / "tokenizer.json").write_text(vocabularies.to_json(), encoding="utf-8")
    foreign = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in NASTY:
        assert foreign.encode(text).ids == TOKENIZERS[kind].encode(text).ids
        assert foreign.decode(foreign.encode(text).ids) == text


def wordpiece() -> Any:
    return json.loads(tokenizers.Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")).to_str())  # noqa: S106


def with_added_token() -> Any:
    tokenizer = tokenizers.Tokenizer.from_str(TOKENIZERS["bpe"].model.to_str())
    tokenizer.add_special_tokens(["</s>"])
    return json.loads(tokenizer.to_str())


def without_bytes() -> Any:
    content = json.loads(TOKENIZERS["bpe"].model.to_str())
    return {**content, "model": {**content["model"], "byte_fallback": False}}


def reordered() -> Any:
    content = json.loads(TOKENIZERS["bpe"].model.to_str())
    vocabulary = {**content["model"]["vocab"], "<s>": EOS, "</s>": BOS}
    return {**content, "model": {**content["model"], "vocab": vocabulary}}


def with_gap() -> Any:
    content = json.loads(TOKENIZERS["bpe"].model.to_str())
    vocabulary = {**content["model"]["vocab"], "zzz": 99_999}
    return {**content, "model": {**content["model"], "vocab": vocabulary}}


@pytest.mark.parametrize("foreign", [wordpiece, with_added_token, without_bytes, reordered, with_gap])
@pytest.mark.parametrize("separate", [True, False])
def test_a_foreign_tokenizer_is_refused(foreign: Any, separate: bool, tmp_path: Path) -> None:
    content = {"source": foreign(), "target": foreign()} if separate else foreign()
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ModelError, match=r"tokenizer.json: written by another program"):
        Vocabularies.load(path)


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "3", "{}", "null", "[" * 100_000, '{"source": {}, "target": {}}', '{"model": 3}', "é"]
)
def test_a_damaged_tokenizer_is_refused_in_one_line(content: str, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content.encode("latin1"))
    with pytest.raises(ModelError, match=r"tokenizer.json: damaged") as caught:
        Vocabularies.load(path)
    assert "\n" not in str(caught.value)


def test_half_a_tokenizer_file_is_refused(tmp_path: Path) -> None:
    whole = TOKENIZERS["bpe"].model.to_str()
    path = tmp_path / "tokenizer.json"
    path.write_text(whole[: len(whole) // 2], encoding="utf-8")
    with pytest.raises(ModelError, match=r"tokenizer.json: damaged"):
        Vocabularies.load(path)


def test_a_missing_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"missing.json: cannot be read \(No such file"):
        Vocabularies.load(tmp_path / "missing.json")


def test_the_sample_is_spread_evenly_and_progress_is_told() -> None:
    read: list[int] = []
    asked: list[int] = []

    def stream() -> Any:
        for n in range(2500):
            read.append(n)
            # each tenth of the corpus has a letter of its own
            yield Pair(chr(ord("a") + n // 250), "今", Location("a", n))

    few = TokenizerSettings(vocabulary=320, sample=40, joint=False)
    vocabularies = Vocabularies.train(stream, few, asked.append)
    assert len(read) == 2500
    assert asked == [1000, 2000]
    letters = set(vocabularies.source.pieces(range(len(RESERVED), vocabularies.source.size)))
    assert letters >= set("abcdefghij")
    assert "今" in vocabularies.target.pieces(range(len(RESERVED), vocabularies.target.size))
    one = Vocabularies.train(stream, TokenizerSettings(vocabulary=320, sample=1, joint=False))
    learnt = set(one.source.pieces(range(len(RESERVED), one.source.size)))
    assert "a" in learnt
    assert "j" not in learnt


def test_the_sample_is_bounded_in_characters_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("regard.tokens.tokenizer.MOST_CHARACTERS", 100)
    lengths: list[int] = []
    train = Tokenizer.train

    def measured(texts: list[str], settings: TokenizerSettings) -> Tokenizer:
        lengths.append(sum(map(len, texts)))
        return train(texts, settings)

    monkeypatch.setattr(Tokenizer, "train", measured)
    Vocabularies.train(pairs, TokenizerSettings(vocabulary=320))
    assert 20 < lengths[0] <= 100


TRAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from test_tokenizer import TOKENIZERS, digest
print(digest())
"""


def digest() -> str:
    return hashlib.sha256("".join(TOKENIZERS[kind].model.to_str() for kind in get_args(Kind)).encode()).hexdigest()


def test_other_processes_learn_the_same() -> None:
    here = str(Path(__file__).parent)
    for seed, parallel in (("1", "true"), ("2", "false"), ("3", "true")):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "TOKENIZERS_PARALLELISM": parallel}
        done = subprocess.run([sys.executable, "-c", TRAIN, here], env=environment, capture_output=True, text=True)
        assert done.stdout.strip() == digest(), done.stderr


@pytest.mark.parametrize("kind", ["bpe", "unigram"])
def test_tags_are_tokens_that_no_text_spells_and_no_text_holds(kind: Literal["bpe", "unigram"], tmp_path: Path) -> None:
    settings = TokenizerSettings(vocabulary=320, kind=kind, tags=("de", "made"))
    texts = ["<tag:de> de <de> made", "a <tag:made> b"] * 5
    made = Vocabularies(*2 * [Tokenizer.train(texts, settings)])
    (tmp_path / "tokenizer.json").write_text(made.to_json(), encoding="utf-8")
    tokenizer = Vocabularies.load(tmp_path / "tokenizer.json").source
    assert list(tokenizer.tags) == ["de", "made"]
    assert sorted(tokenizer.tags.values()) == [tokenizer.size - 2, tokenizer.size - 1]
    for text in texts:
        ids = tokenizer.encode(text).ids
        assert not set(ids) & set(tokenizer.tags.values())
        assert tokenizer.decode([tokenizer.tags["de"], *ids]) == text
    assert set(tokenizer.tags.values()) <= set(tokenizer.specials.never_generated)
    assert tokenizer.pieces([tokenizer.tags["de"]]) == ["<de>"]
