"""Subwords: text to ids and back without loss, in one JSON file.

A piece is plain text with its real spaces (" the"), so that joining pieces gives the text back. Text is
first cut into words, runs of scripts written without spaces, digits and punctuation; pieces never cross a
cut, which is also why no text can spell a special token. Characters without a piece are spelt as bytes.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, trainers

from regard.errors import InputError, ModelError
from regard.settings import TokenizerSettings
from regard.text.doctor import SURROGATE
from regard.text.formats import Pair

PAD, BOS, EOS, UNK, MASK = range(5)  # of vocabularies that were learnt here
SPECIALS = ("<pad>", "<s>", "</s>", "<unk>", "<mask>")
RESERVED = (*SPECIALS, *(f"<0x{byte:02X}>" for byte in range(256)))

UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}ー\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}\p{Tibetan}"
SYLLABLE = rf"[\p{{L}}\p{{M}}་&&[{UNSPACED}]]"
LETTER = rf"[\p{{L}}\p{{M}}&&[^{UNSPACED}]]"
CUTS = "|".join(
    (
        rf" ?{LETTER}[{LETTER}\x{{200C}}\x{{200D}}]*",  # a word with the space before it; joiners stay inside
        rf"{SYLLABLE}[{SYLLABLE}\p{{M}}]*",  # a run of a script that is written without spaces
        r" ?\p{N}",  # each digit alone, so that numbers are copied and not learnt by heart
        r" ?[^\s\p{L}\p{M}\p{N}][^\s\p{L}\p{N}]*",  # punctuation and symbols, with the marks upon them
        r"\s+(?!\S)",  # white space but for the last space, which belongs to the next word
        r"\s+",
    )
)
LONGEST_PIECE = 20  # characters
COVERAGE = 0.9995  # share of the characters of the corpus that have pieces of their own
MOST_CHARACTERS = 60_000_000  # of the corpus, held in memory while a vocabulary is learnt


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as subwords; the offsets are characters of that text."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids that are not text; a vocabulary from elsewhere may have other ones, or may lack some."""

    pad: int = PAD
    begin: int = BOS  # before a text that is to be written or classified (BERT: [CLS])
    end: int = EOS  # after a text, and between two (BERT: [SEP])
    unknown: int | None = UNK
    mask: int | None = MASK
    prompt: bool = True  # whether a text that is to be continued starts with `begin`
    between: int = 1  # how many ends stand between two texts (RoBERTa: 2)

    @property
    def unspeakable(self) -> list[int]:
        """The ids that are never written, since they are part of no text."""
        return sorted({i for i in (self.pad, self.begin, self.unknown, self.mask) if i is not None} - {self.end})

    def join(self, first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
        """One text or two as an encoder reads them, and the segment, 0 or 1, of every token."""
        ids, segments = [self.begin, *first, self.end], [0] * (len(first) + 2)
        if second:
            gap = self.between - 1
            ids += [*[self.end] * gap, *second, self.end]
            segments += [*[0] * gap, *[1] * (len(second) + 1)]
        return ids, segments


class Tokenizer:
    """Cuts text into subword ids and joins ids into text: `decode(encode(text).ids) == text`, always."""

    specials = Specials()

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self.model = model
        self._inner: tokenizers.Tokenizer | None = None  # the same, but that nothing is put before a text
        self.size = model.get_vocab_size()
        learnt = [model.id_to_token(token) or "" for token in range(len(RESERVED), self.size)]
        self._bytes = [b""] * len(SPECIALS) + [bytes([byte]) for byte in range(256)] + [p.encode() for p in learnt]
        self._shown = [
            *SPECIALS,
            *(f"⟨{byte:02X}⟩" for byte in range(256)),
            *(p.replace(" ", "▁") for p in learnt),
        ]

    @classmethod
    def train(cls, texts: Iterable[str], settings: TokenizerSettings) -> Tokenizer:
        """The vocabulary that suits `texts`; the same texts always give the same."""
        texts = list(texts)
        room = settings.vocabulary - len(RESERVED)
        alphabet = _alphabet(texts, room)
        rare = re.compile(f"[^{re.escape(''.join(alphabet))}]+")
        common = [rare.sub("\n", text) for text in texts]
        learn = _learn_bpe if settings.kind == "bpe" else _learn_unigram
        return cls(_around(learn(common, alphabet, room)))

    def encode(self, text: str) -> Encoding:
        """The subwords of `text`, without begin and end."""
        ids = self.encode_batch([text])[0]
        return Encoding(ids, self.pieces(ids), self._offsets(ids, text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text, without begin and end."""
        try:
            encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
        except TypeError:  # what tokenizers says of a surrogate
            refuse_surrogates(texts)
            raise
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """The text of `ids`; special tokens are left out, bytes that are not UTF-8 become U+FFFD."""
        spelt = b"".join([self._bytes[token] for token in ids])
        return spelt.decode("utf-8", "replace").removeprefix(" ")

    def decode_batch(self, rows: Iterable[Iterable[int]]) -> list[str]:
        """The text of each row of ids."""
        return [self.decode(row) for row in rows]

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Each id for people to look at: ▁ is a space, ⟨E4⟩ a byte."""
        return [self._shown[token] for token in ids]

    def encode_rest(self, text: str) -> list[int]:
        """The ids of a text that goes on after other ids: nothing is put before it."""
        refuse_surrogates([text])
        if self._inner is None:
            self._inner = tokenizers.Tokenizer.from_str(self.model.to_str())
            self._inner.normalizer = None
        return list(self._inner.encode(text, add_special_tokens=False).ids)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """The ids of each word of a text."""
        return self.encode_batch(words)

    def continues(self) -> list[bool]:
        """For each id, whether it goes on with the word that the id before it began."""
        first_letter = normalizers.Replace(Regex(rf"\A{LETTER}"), "")
        learnt = [self.model.id_to_token(token) or "" for token in range(len(RESERVED), self.size)]
        inside = [first_letter.normalize_str(piece) != piece for piece in learnt]
        return [False] * len(SPECIALS) + [0x80 <= byte < 0xC0 for byte in range(256)] + inside

    def goes_on(self) -> list[bool]:
        """For each id, whether the next one can go on with its word: it ends in a letter, or in a byte of one."""
        ends = [piece.decode("utf-8", "replace")[-1:] for piece in self._bytes]
        return [end.isalpha() or end == "\N{REPLACEMENT CHARACTER}" for end in ends]

    def to_json(self) -> str:
        """All that `Vocabularies.load` needs to restore it."""
        return self.model.to_str()

    def _offsets(self, ids: list[int], text: str) -> list[tuple[int, int]]:
        """The characters of `text` under each id; all bytes of a character point to the whole of it."""
        ends = list(accumulate(len(self._bytes[token]) for token in ids))
        owner = [number for number, character in enumerate(text) for _ in character.encode()]
        if ends and ends[-1] > len(owner):
            owner.insert(0, -1)  # the space that encoding puts in front
        return [(max(0, owner[start]), owner[end - 1] + 1) for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True)
class Vocabularies:
    """The tokenizers of the two languages; one and the same object when they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls,
        pairs: Callable[[], Iterable[Pair]],
        settings: TokenizerSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Vocabularies:
        """Learnt from an even sample of `pairs`; `progress` is told how many pairs were read so far."""
        sources, targets = _sample(pairs(), settings.sample, progress)
        if settings.joint:
            shared = Tokenizer.train(sources + targets, settings)
            return cls(shared, shared)
        return cls(Tokenizer.train(sources, settings), Tokenizer.train(targets, settings))

    def to_json(self) -> str:
        """A plain tokenizer file when shared, else an object that holds two of them."""
        if self.source is self.target:
            return self.source.to_json()
        return f'{{"source": {self.source.to_json()}, "target": {self.target.to_json()}}}'

    def save(self, path: Path) -> None:
        """Write the file whole or not at all."""
        partial = path.with_name(path.name + ".partial")
        partial.write_text(self.to_json(), encoding="utf-8", newline="\n")
        partial.replace(path)

    @classmethod
    def load(cls, path: Path) -> Vocabularies:
        """Read a file that `save` wrote."""
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise ModelError(f"{path}: cannot be read ({error.strerror})") from None
        except (ValueError, RecursionError):
            raise ModelError(f"{path}: damaged: not JSON; train again or restore the file") from None
        if isinstance(content, dict) and content.keys() == {"source", "target"}:
            return cls(_restore(content["source"], path), _restore(content["target"], path))
        shared = _restore(content, path)
        return cls(shared, shared)


def _sample(pairs: Iterable[Pair], limit: int, progress: Callable[[int], None] | None) -> tuple[list[str], list[str]]:
    """Both sides of every n-th pair; n doubles when more than `limit` pairs, or too much text, is held."""
    sources: list[str] = []
    targets: list[str] = []
    step, held = 1, 0
    for number, pair in enumerate(pairs):
        if number % step == 0:
            sources.append(pair.source)
            targets.append(pair.target)
            held += len(pair.source) + len(pair.target)
        if len(sources) > limit or held > MOST_CHARACTERS:
            del sources[1::2], targets[1::2]
            step *= 2
            held = sum(map(len, sources)) + sum(map(len, targets))
        if progress is not None and (number + 1) % 1000 == 0:
            progress(number + 1)
    return sources, targets


def _alphabet(texts: Iterable[str], room: int) -> list[str]:
    """The characters that deserve pieces: those that cover the corpus, at most half of `room`."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(text)
    ranked = sorted(counts.keys() - {" "}, key=lambda character: (-counts[character], character))
    covered = accumulate(counts[character] for character in ranked)
    enough = COVERAGE * (counts.total() - counts[" "])
    needed = sum(1 for before in covered if before < enough) + 1
    # A small alphabet is kept whole: its rare capitals begin words that are not rare.
    return sorted([" ", *ranked[: min(max(needed, room // 32), room // 2)]])


def _learn_bpe(texts: list[str], alphabet: list[str], room: int) -> models.BPE:
    """Merges learnt from `texts` (Sennrich et al., 2016)."""
    learnt = _byte_pairs(texts, alphabet, room)
    pieces = [*RESERVED, *sorted(learnt["vocab"], key=learnt["vocab"].__getitem__)]
    return models.BPE(
        vocab={piece: token for token, piece in enumerate(pieces)},
        merges=[(left, right) for left, right in learnt["merges"]],
        unk_token=SPECIALS[UNK],
        byte_fallback=True,
    )


def _learn_unigram(texts: list[str], alphabet: list[str], room: int) -> models.Unigram:
    """Pieces and their log-probabilities (Kudo, 2018): of many candidates, those that would be missed most.

    The candidates are byte-pair merges, and counts are those of the best cutting, where Kudo takes all
    substrings and expected counts. The trainer of tokenizers follows Kudo, but its results vary from run
    to run, and after our cuts it does not even consider whole words.
    """
    words = _words(texts)
    scores = dict.fromkeys(_byte_pairs(texts, alphabet, 4 * room)["vocab"], -1.0)
    scores, counts = _estimate(scores, words)
    while len(scores) > room:
        missed = {p: counts[p] * (scores[p] - _respell(p, scores)) for p in scores if len(p) > 1}
        size = max(room, len(scores) * 3 // 4) - len(alphabet)
        kept = [*alphabet, *sorted(missed, key=lambda piece: (-missed[piece], piece))[:size]]
        scores, counts = _estimate({piece: scores[piece] for piece in kept}, words)
    used = {piece: score for piece, score in scores.items() if counts[piece] or len(piece) == 1}
    return _unigram(dict(sorted(used.items(), key=lambda item: (-item[1], item[0]))))


def _estimate(scores: dict[str, float], words: dict[str, int]) -> tuple[dict[str, float], Counter[str]]:
    """Log-probabilities that fit how `words` are best cut, and how often each piece is used in that."""
    for _ in range(2):
        counts = _count(_unigram(scores), words)
        total = counts.total() + len(scores)
        scores = {piece: round(math.log((counts[piece] + 1) / total), 4) for piece in scores}
    return scores, counts


def _count(model: models.Unigram, words: dict[str, int]) -> Counter[str]:
    """How often each piece is used when `words` are cut."""
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
    """The best log-probability of `piece` when it has to be spelt with shorter ones."""
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
    """The JSON of byte-pair merges: at most `size` pieces, `alphabet` included."""
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        min_frequency=2,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        max_token_length=LONGEST_PIECE,
        show_progress=False,
    )
    tokenizer = _around(models.BPE())
    tokenizer.train_from_iterator(texts, trainer)
    return json.loads(tokenizer.to_str())["model"]


def _words(texts: list[str]) -> dict[str, int]:
    """What `texts` are cut into before pieces are looked for, with counts."""
    tokenizer = _around(models.BPE())
    words: Counter[str] = Counter()
    for text in texts:
        normal = tokenizer.normalizer.normalize_str(text)
        words.update(word for word, _ in tokenizer.pre_tokenizer.pre_tokenize_str(normal))
    return words


def _around(model: models.Model) -> tokenizers.Tokenizer:
    """`model` with the steps before and after it, which are the same for every vocabulary."""
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.normalizer = normalizers.Sequence(  # "the" and " the" are the same word
        [normalizers.Prepend(" "), normalizers.Replace(Regex(rf"\A (?={SYLLABLE})"), "")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(CUTS), "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    return tokenizer


def _restore(content: Any, path: Path) -> Tokenizer:
    """The tokenizer of its JSON, refusing a damaged or foreign one."""
    if isinstance(content, dict) and content.keys() == {"specials", "size", "tokenizer"}:
        from regard.text.imported import ImportedTokenizer

        return ImportedTokenizer.restore(content, path)
    try:
        model = tokenizers.Tokenizer.from_str(json.dumps(content))
    except Exception as error:  # noqa: BLE001 (tokenizers raises nothing narrower)
        raise ModelError(f"{path}: damaged tokenizer: {' '.join(str(error).split())}") from None
    pieces = tuple(model.id_to_token(token) for token in range(len(RESERVED)))
    size = model.get_vocab_size()
    gap = any(model.id_to_token(token) is None for token in range(size))
    if pieces != RESERVED or gap or not content["model"].get("byte_fallback") or content.get("added_tokens"):
        raise ModelError(f"{path}: a tokenizer that Regard did not write; it cannot be used here")
    return Tokenizer(model)


def refuse_surrogates(texts: Iterable[str]) -> None:
    for text in texts:
        if found := SURROGATE.search(text):
            code, position = ord(found[0]), found.start() + 1
            raise InputError(f"character {position} is a lone surrogate (U+{code:04X}): the text is not valid Unicode")
