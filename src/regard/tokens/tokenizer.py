"""Converts text to subword ids and back without loss.

A piece is plain text that includes its spaces (" the"), so joining pieces restores the text. Text is first split into
words, runs of scripts written without spaces, digits and punctuation. Pieces never cross these boundaries, so no text
can produce a special token. Characters without a piece are encoded as bytes.
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
from regard.tokens.tokenizer_checks import parse_tokenizer, tokenizer_errors
from regard.tokens.vocabulary_learning import BOS, EOS, LETTER, MASK, PAD, RESERVED, SPECIALS, TAG, UNK, learn
from regard.untrusted_files import LARGEST_TOKENIZER, read_json

MOST_CHARACTERS = 60_000_000
"""Maximum number of characters of the corpus to hold in memory while learning a vocabulary."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """A text as subwords; `offsets` are the start and end of each subword in the text, in characters."""

    ids: list[int]
    pieces: list[str]
    offsets: list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class Specials:
    """The ids of special tokens; an imported vocabulary may use other ids, or lack some of these tokens."""

    pad: int = PAD
    begin: int = BOS  # before an output, and before a text to classify (BERT: [CLS])
    end: int = EOS  # after a text, and between two texts (BERT: [SEP])
    unknown: int | None = UNK
    mask: int | None = MASK
    prompt: bool = True  # whether a text to continue starts with `begin`
    between: int = 1  # number of `end` tokens between two texts (RoBERTa: 2)
    tags: tuple[int, ...] = ()  # ids that mark a source, for example with its target language

    @property
    def never_generated(self) -> list[int]:
        """The ids that must not occur in outputs, because they do not represent text."""
        others = (self.pad, self.begin, self.unknown, self.mask, *self.tags)
        return sorted({i for i in others if i is not None} - {self.end})

    def join(self, first: Sequence[int], second: Sequence[int] = ()) -> tuple[list[int], list[int]]:
        """Returns the encoder input for one or two texts, and the segment (0 or 1) of each token."""
        ids, segments = [self.begin, *first, self.end], [0] * (len(first) + 2)
        if second:
            gap = self.between - 1
            ids += [*[self.end] * gap, *second, self.end]
            segments += [*[0] * gap, *[1] * (len(second) + 1)]
        return ids, segments


class Tokenizer:
    """Encodes text as subword ids and decodes ids to text; `decode(encode(text).ids)` is always equal to `text`."""

    specials = Specials()

    def __init__(self, model: tokenizers.Tokenizer) -> None:
        self.model = model
        self._inner: tokenizers.Tokenizer | None = None  # the same model, but it adds no space before a text
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
        """Learns a vocabulary from texts; the result is deterministic."""
        return cls(learn(list(texts), settings))

    def encode(self, text: str) -> Encoding:
        """Returns the subwords of a text, without begin and end tokens."""
        ids = self.encode_batch([text])[0]
        return Encoding(ids, self.pieces(ids), self._offsets(ids, text))

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each text, without begin and end tokens."""
        with tokenizer_errors():
            try:
                encodings = self.model.encode_batch_fast(list(texts), add_special_tokens=False)
            except TypeError:  # tokenizers raises it for surrogates
                reject_surrogates(texts)
                raise
        return [encoding.ids for encoding in encodings]

    def decode(self, ids: Iterable[int]) -> str:
        """Converts ids to text, without special tokens; bytes that are not valid UTF-8 become U+FFFD."""
        spelt = b"".join([self._bytes[token] for token in ids])
        return spelt.decode("utf-8", "replace").removeprefix(" ")

    def encode_slotted(self, text: Slotted) -> list[int]:
        """Returns the ids of a text with slots; the vocabulary must have slot tokens."""
        tokens = {number: token for token, number in self.slots.items()}
        ids = self.encode_batch([text.texts[0]])[0] if text.texts[0] else []
        for number, rest in zip(text.numbers, text.texts[1:], strict=True):
            ids += [tokens[number], *(self.encode_continuation(rest) if rest else [])]
        return ids

    def decode_slotted(self, ids: Iterable[int]) -> Slotted:
        """Converts ids to a text with slots."""
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
        """Returns each id in readable form, in which ▁ stands for a space and ⟨E4⟩ for a byte."""
        return [self._shown[token] for token in ids]

    def encode_continuation(self, text: str) -> list[int]:
        """Returns the ids of a text that follows other ids, without a space before it."""
        reject_surrogates([text])
        if self._inner is None:
            self._inner = tokenizers.Tokenizer.from_str(self.model.to_str())
            self._inner.normalizer = None
        with tokenizer_errors():
            return list(self._inner.encode(text, add_special_tokens=False).ids)

    def encode_words(self, words: Sequence[str]) -> list[list[int]]:
        return self.encode_batch(words)

    def continues(self) -> list[bool]:
        """Reports for each id whether it continues the word of the id before it."""
        first_letter = normalizers.Replace(Regex(rf"\A{LETTER}"), "")
        learnt = [self.model.id_to_token(token) or "" for token in range(len(RESERVED), self.size)]
        inside = [first_letter.normalize_str(piece) != piece for piece in learnt]
        return [False] * len(SPECIALS) + [0x80 <= byte < 0xC0 for byte in range(256)] + inside

    def can_continue(self) -> list[bool]:
        """Reports for each id whether the next id may continue its word, because it ends in a letter or part of one."""
        ends = [piece.decode("utf-8", "replace")[-1:] for piece in self._bytes]
        return [end.isalpha() or end == "\N{REPLACEMENT CHARACTER}" for end in ends]

    def to_json(self) -> str:
        """Returns JSON from which `Vocabularies.load` restores the tokenizer."""
        return self.model.to_str()

    def _offsets(self, ids: list[int], text: str) -> list[tuple[int, int]]:
        """Returns the span of each id in `text`, in characters; a byte token spans the whole character."""
        ends = list(accumulate(len(self._bytes[token]) for token in ids))
        owner = [number for number, character in enumerate(text) for _ in character.encode()]
        if ends and ends[-1] > len(owner):
            owner.insert(0, -1)  # for the space that encoding adds before the text
        try:
            return [(max(0, owner[start]), owner[end - 1] + 1) for start, end in zip([0, *ends], ends, strict=False)]
        except IndexError:  # the tokenizer has rules that Regard does not write
            raise InputError(
                "the tokenizer of this model changes this text: copy tokenizer.json from the original model folder"
            ) from None


@dataclass(frozen=True)
class Vocabularies:
    """The source and target tokenizers, which are the same object if they share a vocabulary."""

    source: Tokenizer
    target: Tokenizer

    @classmethod
    def train(
        cls,
        pairs: Callable[[], Iterable[Pair]],
        settings: TokenizerSettings,
        progress: Callable[[int], None] | None = None,
    ) -> Vocabularies:
        """Learns vocabularies from an even sample of the pairs; calls `progress` with the number of pairs read."""
        sources, targets = _sample(pairs(), settings.sample, progress)
        if settings.joint:
            shared = Tokenizer.train(sources + targets, settings)
            return cls(shared, shared)
        return cls(Tokenizer.train(sources, settings), Tokenizer.train(targets, settings))

    def to_json(self) -> str:
        """Returns the JSON of the shared tokenizer, or a JSON object with both tokenizers."""
        if self.source is self.target:
            return self.source.to_json()
        return f'{{"source": {self.source.to_json()}, "target": {self.target.to_json()}}}'

    @classmethod
    def load(cls, path: Path) -> Vocabularies:
        """Reads a file that contains the result of `to_json`."""
        content = read_json(path, LARGEST_TOKENIZER, path.parent)
        if isinstance(content, dict) and content.keys() == {"source", "target"}:
            return cls(_restore(content["source"], path), _restore(content["target"], path))
        shared = _restore(content, path)
        return cls(shared, shared)


def _sample(pairs: Iterable[Pair], limit: int, progress: Callable[[int], None] | None) -> tuple[list[str], list[str]]:
    """Returns the sides of every n-th pair of each direction; n doubles whenever a limit is exceeded."""
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
    """Restores a tokenizer from its JSON; raises ModelError if it is damaged or from another program."""
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


def reject_surrogates(texts: Iterable[str]) -> None:
    """Raises InputError for a text that contains a lone surrogate and so is not valid Unicode."""
    for text in texts:
        if found := SURROGATE.search(text):
            code, position = ord(found[0]), found.start() + 1
            raise InputError(f"character {position} is a lone surrogate (U+{code:04X}): the text is not valid Unicode")
