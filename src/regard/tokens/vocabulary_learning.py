"""Learns vocabularies of subword pieces from a corpus."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.settings import TokenizerSettings

PAD, BOS, EOS, UNK, MASK = range(5)  # ids of special tokens in vocabularies learned by Regard
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
RESERVED = (*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)))

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
SYLLABLE = rf"[\p{{L}}\p{{M}}་&&[{UNSPACED}]]"
LETTER = rf"[\p{{L}}\p{{M}}&&[^{UNSPACED}]]"
CUTS = "|".join(
    (
        r" ?&#?[A-Za-z0-9]{1,10};",  # an entity such as &apos; or &#39;, which stands for one character
        rf" ?{LETTER}[{LETTER}\x{{200C}}\x{{200D}}]*",  # a word with the space before it, including joiners
        rf"{SYLLABLE}[{SYLLABLE}\p{{M}}]*",  # a run of a script written without spaces
        r" ?\p{N}",  # each digit separately, so that numbers are copied instead of memorized
        r" ?[^\s\p{L}\p{M}\p{N}][^\s\p{L}\p{N}]*",  # punctuation and symbols, with combining marks
        r"\s+(?!\S)",  # white space except the last space, which belongs to the next word
        r"\s+",
    )
)
TAG = re.compile("<tag:(.+)>")
LONGEST_PIECE = 20  # maximum length of a piece in characters
COVERAGE = 0.9995  # share of the corpus that the characters with a piece of their own must cover


def learn(texts: list[str], settings: TokenizerSettings) -> tokenizers.Tokenizer:
    """Learns a vocabulary from texts; the result is deterministic."""
    room = settings.vocabulary - len(RESERVED) - len(settings.tags)
    alphabet = _alphabet(texts, room)
    rare = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
    common = [rare.sub("\n", text) for text in texts]
    model = (_learn_bpe if settings.kind == "bpe" else _learn_unigram)(common, alphabet, room)
    return _with_tags(_with_steps(model), settings.tags)


def _alphabet(texts: Iterable[str], room: int) -> list[str]:
    """Returns the most frequent characters, which become pieces; they fill at most half of `room`."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ranked = sorted(counts.keys() - {" "}, key=lambda character: (-counts[character], character))
    covered = accumulate(counts[character] for character in ranked)
    enough = COVERAGE * (counts.total() - counts[" "])
    needed = sum(1 for before in covered if before < enough) + 1
    # Keep small alphabets completely: their rare capitals begin words that are not rare.
    return sorted([" ", *ranked[: min(max(needed, room // 32), room // 2)]])


def _learn_bpe(texts: list[str], alphabet: list[str], room: int) -> models.BPE:
    learnt = _byte_pairs(texts, alphabet, room)
    pieces = [*RESERVED, *sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)]
    return models.BPE(
        vocab={piece: token for token, piece in enumerate(pieces)},
        merges=[(left, right) for left, right in learnt["merges"]],
        unk_token=SPECIALS[UNK],
        byte_fallback=True,
    )


def _learn_unigram(texts: list[str], alphabet: list[str], room: int) -> models.Unigram:
    """Learns pieces and their log-probabilities (Kudo, 2018): keeps the candidates that are most useful.

    Candidates are byte-pair merges, counted in the best segmentation, whereas Kudo uses all substrings and expected
    counts. The trainer in tokenizers follows Kudo, but its results vary from run to run, and it never proposes whole
    words of our pre-tokenization.
    """
    words = _words(texts)
    scores = dict.fromkeys(_byte_pairs(texts, alphabet, 4 * room)["vocab"], -1.0)
    scores, counts = _estimate(scores, words)
    while len(scores) > room:
        losses = {p: counts[p] * (scores[p] - _respell(p, scores)) for p in scores if len(p) > 1}
        size = max(room, len(scores) * 3 // 4) - len(alphabet)
        kept = [*alphabet, *sorted(losses, key=lambda piece: (-losses[piece], piece))[:size]]
        scores, counts = _estimate({piece: scores[piece] for piece in kept}, words)
    used = {piece: score for piece, score in scores.items() if counts[piece] or len(piece) == 1}
    return _unigram(dict(sorted(used.items(), key=lambda item: (-item[1], item[0]))))


def _estimate(scores: dict[str, float], words: dict[str, int]) -> tuple[dict[str, float], Counter[str]]:
    """Estimates log-probabilities from the best segmentation of the words; also returns its counts of pieces."""
    for _ in range(2):
        counts = _count(_unigram(scores), words)
        total = counts.total() + len(scores)
        scores = {piece: round(math.log((counts[piece] + 1) / total), 4) for piece in scores}
    return scores, counts


def _count(model: models.Unigram, words: dict[str, int]) -> Counter[str]:
    tokenizer = tokenizers.Tokenizer(model)
    counts: Counter[int] = Counter()
    texts = list(words)
    for start in range(0, len(texts), 10_000):
        batch = texts[start : start + 10_000]
        for word, encoding in zip(batch, tokenizer.encode_batch_fast(batch, add_special_tokens=False), strict=True):
            for token in encoding.ids:
                counts[token] += words[word]
    return Counter({model.id_to_token(token) or "": count for token, count in counts.items()})


def _respell(piece: str, scores: dict[str, float]) -> float:
    """Returns the best log-probability of a piece that is composed of shorter pieces."""
    best = [0.0]
    for end in range(1, len(piece) + 1):
        starts = range(end == len(piece), end)
        best.append(max((best[s] + scores.get(piece[s:end], -math.inf) for s in starts), default=-math.inf))
    return best[-1]


def _unigram(scores: dict[str, float]) -> models.Unigram:
    lowest = min(scores.values())
    reserved = [(piece, lowest) for piece in RESERVED]
    return models.Unigram([*reserved, *scores.items()], unk_id=UNK, byte_fallback=True)


def _byte_pairs(texts: list[str], alphabet: list[str], size: int) -> Any:
    """Learns byte-pair merges for at most `size` pieces, including the alphabet; returns the model's JSON."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        max_token_length=LONGEST_PIECE,
        show_progress=False,
    )
    tokenizer = _with_steps(models.BPE())
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def _words(texts: list[str]) -> dict[str, int]:
    """Counts the words that pre-tokenization splits the texts into."""
    tokenizer = _with_steps(models.BPE())
    words: Counter[str] = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text)
        words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    return words


def _with_steps(model: models.Model) -> tokenizers.Tokenizer:
    """Adds the normalizer, pre-tokenizer and decoder that all vocabularies share."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(  # makes "the" at the start of a text the same word as " the"
        [normalizers.Prepend(" "), normalizers.Replace(Regex(rf"\A (?={SYLLABLE})"), "")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(CUTS), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _with_tags(tokenizer: tokenizers.Tokenizer, tags: Sequence[str]) -> tokenizers.Tokenizer:
    """Appends a token for each tag, which no text can produce."""
    content = json.loads(tokenizer.to_str())
    vocabulary = content["model"]["vocab"]
    for tag in tags:
        if isinstance(vocabulary, dict):
            vocabulary[f"<tag:{tag}>"] = len(vocabulary)
        else:
            vocabulary.append([f"<tag:{tag}>", min(score for _, score in vocabulary)])
    return tokenizers.Tokenizer.from_str(json.dumps(content)) if tags else tokenizer
