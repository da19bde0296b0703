"""Turns text into subword ids and back without loss.

A piece is plain text with its real spaces (" the"), and joining pieces gives the text back. Text is first cut into
words, runs of scripts written without spaces, digits and punctuation; pieces never cross a cut, and therefore no text
can spell a special token. Characters without a piece are spelt as bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import Regex, normalizers

from regard.errors import InputError, ModelError
from regard.settings import TokenizerSettings
from regard.tokens.clean_text import SURROGATE
from regard.tokens.placeholder_slots import SLOTS, Slotted
from regard.tokens.text_pairs import Pair
from regard.tokens.tokenizer_checks import parse_tokenizer, refusing_panics
from regard.tokens.vocabulary_learning import BOS, EOS, LETTER, MASK, PAD, RESERVED, SPECIALS, TAG, UNK, learn
from regard.untrusted_files import LARGEST_TOKENIZER, read_json

MOST_CHARACTERS = 60_000_000
"""Characters of the corpus that are held in memory while a vocabulary is learned."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as subwords; the offsets are characters of that text."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The special ids; an imported vocabulary may have other ones, or may lack some."""

    pad: int = PAD
    begin: int = BOS  # before a text to write or to classify (BERT: [CLS])
    end: int = EOS  # after a text, and between two (BERT: [SEP])
    unknown: int | None = UNK
    mask: int | None = MASK
    prompt: bool = True  # a text to continue starts with `begin`
    between: int = 1  # number of ends between two texts (RoBERTa: 2)
    tags: tuple[int, ...] = ()  # ids that mark a source, such as the language to translate it into

    @property
    def never_generated(self) -> list[int]:
        """The ids that no output contains, because they are not part of a text."""
        others = (self.pad, self.begin, self.unknown, self.mask, *self.tags)
        return sorted({i for i in others if i is not None} - {self.end})

    def join(self, first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
        """Returns one text or two as an encoder reads them, and the segment of each token, 0 or 1."""
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
        self._inner: tokenizers.Tokenizer | None = None  # the same, without the space before a text
        self.size = model.get_vocab_size()
        learnt = [model.id_to_token(token) or "" for token in range(len(RESERVED), self.size)]
        tags = {found[1]: i for i, piece in enumerate(learnt, len(RESERVED)) if (found := TAG.fullmatch(piece))}
        self.tags = {name: token for name, token in tags.items() if name not in SLOTS}
        self.slots = {token: number for number, name in enumerate(SLOTS, 1) if (token := tags.get(name)) is not None}
        if self.tags:
            self.specials = Specials(tags=tuple(self.tags.values()))
        texts, spelt = learnt[: len(learnt) - len(tags)], range(256)  # tags come last
        no_text = [b""] * len(SPECIALS), [b""] * len(tags)
        self._bytes = [*no_text[0], *(bytes([byte]) for byte in spelt), *(p.encode() for p in texts), *no_text[1]]
        self._shown = [*SPECIALS, *(f"⟨{byte:02X}⟩" for byte in spelt), *(p.replace(" ", "▁") for p in texts)]
        self._shown += [f"<{tag}>" for tag in tags]

    @classmethod
    def train(cls, texts: Iterable[str], settings: TokenizerSettings) -> Tokenizer:
        """Learns a vocabulary from texts; the same texts always give the same vocabulary."""
        return cls(learn(list(texts), settings))

    def encode(self, text: str) -> Encoding:
        """Returns the subwords of a text, without begin and end."""
        ids = self.encode_batch([text])[0]
        return Encoding(ids, self.pieces(ids), self._offsets(ids, text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin and end."""
        with refusing_panics():
            try:
                encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
            except TypeError:  # how tokenizers refuses a surrogate
                refuse_surrogates(texts)
                raise
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Returns the text of ids; special tokens are left out, and bytes that are not UTF-8 become U+FFFD."""
        spelt = b"".join([self._bytes[token] for token in ids])
        return spelt.decode("utf-8", "replace").removeprefix(" ")

    def encode_slotted(self, text: Slotted) -> list[int]:
        """Returns the ids of a text with slots, for a vocabulary that has slots."""
        tokens = {number: token for token, number in self.slots.items()}
        ids = self.encode_batch([text.texts[0]])[0] if text.texts[0] else []
        for number, rest in zip(text.numbers, text.texts[1:], strict=True):
            ids += [tokens[number], *(self.encode_continuation(rest) if rest else [])]
        return ids

    def decode_slotted(self, ids: Iterable[int]) -> Slotted:
        """Returns the text of ids with its slots."""
        texts, numbers = [b""], []
        for token in ids:
            if token in self.slots:
                numbers.append(self.slots[token])
                texts.append(b"")
            else:
                texts[-1] += self._bytes[token]
        first, *others = (text.decode("utf-8", "replace") for text in texts)
        return Slotted((first.removeprefix(" "), *others), tuple(numbers))

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """Returns each id in readable form: ▁ is a space, ⟨E4⟩ a byte."""
        return [self._shown[token] for token in ids]

    def encode_continuation(self, text: str) -> list[int]:
        """Returns the ids of a text that continues other ids, without a space before it."""
        refuse_surrogates([text])
        if self._inner is None:
            self._inner = tokenizers.Tokenizer.from_str(self.model.to_str())
            self._inner.normalizer = None
        with refusing_panics():
            return list(self._inner.encode(text, add_special_tokens=False).ids)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each word of a text."""
        return self.encode_batch(words)

    def continues(self) -> list[bool]:
        """Reports for each id whether it continues a word that the id before it began."""
        first_letter = normalizers.Replace(Regex(rf"\A{LETTER}"), "")
        learnt = [self.model.id_to_token(token) or "" for token in range(len(RESERVED), self.size)]
        inside = [first_letter.normalize_str(piece) != piece for piece in learnt]
        return [False] * len(SPECIALS) + [0x80 <= byte < 0xC0 for byte in range(256)] + inside

    def can_continue(self) -> list[bool]:
        """Reports for each id whether the next one can continue its word: it ends in a letter, or in a byte of one."""
        ends = [piece.decode("utf-8", "replace")[-1:] for piece in self._bytes]
        return [end.isalpha() or end == "\N{REPLACEMENT CHARACTER}" for end in ends]

    def to_json(self) -> str:
        """Returns the JSON from which `Vocabularies.load` restores the tokenizer."""
        return self.model.to_str()

    def _offsets(self, ids: list[int], text: str) -> list[tuple[int, int]]:
        """Returns the characters of `text` for each id; each byte of a character points to the whole character."""
        ends = list(accumulate(len(self._bytes[token]) for token in ids))
        owner = [number for number, character in enumerate(text) for _ in character.encode()]
        if ends and ends[-1] > len(owner):
            owner.insert(0, -1)  # the space that encoding adds before the text
        try:
            return [(max(0, owner[start]), owner[end - 1] + 1) for start, end in zip([0, *ends], ends, strict=False)]
        except IndexError:  # rules that are not those of Regard
            raise InputError(
                "the tokenizer of this model changes this text: copy tokenizer.json from the original model folder"
            ) from None


@dataclass(frozen=True)
class Vocabularies:
    """The tokenizers of the source and the target, which are one object if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls,
        pairs: Callable[[], Iterable[Pair]],
        settings: TokenizerSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Vocabularies:
        """Learns vocabularies from an even sample of pairs; `progress` is called with the number of pairs read."""
        sources, targets = _sample(pairs(), settings.sample, progress)
        if settings.joint:
            shared = Tokenizer.train(sources + targets, settings)
            return cls(shared, shared)
        return cls(Tokenizer.train(sources, settings), Tokenizer.train(targets, settings))

    def to_json(self) -> str:
        """Returns the JSON of the shared tokenizer, or an object with both."""
        if self.source is self.target:
            return self.source.to_json()
        return f'{{"source": {self.source.to_json()}, "target": {self.target.to_json()}}}'

    @classmethod
    def load(cls, path: Path) -> Vocabularies:
        """Reads a file that holds the result of `to_json`."""
        content = read_json(path, LARGEST_TOKENIZER, path.parent)
        if isinstance(content, dict) and content.keys() == {"source", "target"}:
            return cls(_restore(content["source"], path), _restore(content["target"], path))
        shared = _restore(content, path)
        return cls(shared, shared)


def _sample(pairs: Iterable[Pair], limit: int, progress: Callable[[int], None] | None) -> tuple[list[str], list[str]]:
    """Returns both sides of every n-th pair of each direction; n doubles until the pairs fit the limits."""
    sources: defaultdict[str, list[str]] = defaultdict(list)
    targets: defaultdict[str, list[str]] = defaultdict(list)
    seen: Counter[str] = Counter()
    step, count, held = 1, 0, 0
    for number, pair in enumerate(pairs, 1):
        if seen[pair.direction] % step == 0:
            sources[pair.direction].append(pair.source)
            targets[pair.direction].append(pair.target)
            count, held = count + 1, held + len(pair.source) + len(pair.target)
        seen[pair.direction] += 1
        if count > limit or held > MOST_CHARACTERS:
            for texts in (*sources.values(), *targets.values()):
                del texts[1::2]
            step, count = 2 * step, sum(map(len, sources.values()))
            held = sum(sum(map(len, texts)) for texts in (*sources.values(), *targets.values()))
        if progress is not None and number % 1000 == 0:
            progress(number)
    return list(chain(*sources.values())), list(chain(*targets.values()))


def _restore(content: Any, path: Path) -> Tokenizer:
    """Returns the tokenizer of a JSON object; refuses a damaged one, or one of another program."""
    if isinstance(content, dict) and content.keys() == {"specials", "size", "tokenizer"}:
        from regard.tokens.imported_vocabulary import ImportedTokenizer

        return ImportedTokenizer.restore(content, path)
    model = parse_tokenizer(content, path)
    pieces = tuple(model.id_to_token(token) for token in range(len(RESERVED)))
    size = model.get_vocab_size()
    gap = any(model.id_to_token(token) is None for token in range(size))
    if pieces != RESERVED or gap or not content["model"].get("byte_fallback") or content.get("added_tokens"):
        raise ModelError(f"{path}: written by another program: copy tokenizer.json from the original model folder")
    return Tokenizer(model)


def refuse_surrogates(texts: Iterable[str]) -> None:
    """Refuses a text with half a surrogate pair, which is not valid Unicode."""
    for text in texts:
        if found := SURROGATE.search(text):
            code, position = ord(found[0]), found.start() + 1
            raise InputError(f"character {position} is a lone surrogate (U+{code:04X}): the text is not valid Unicode")
