"""Runs the engines that benchmarks/decoding.py compares, from text to text, all with Regard's tokenizer.

An adapter imports nothing of its engine before `prepare`, so that a process which serves one holds no other.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

LENGTH_PENALTY = 1.0  # length ^ 1 in every engine
HUGGING_FACE_BATCH = 64


@dataclass(frozen=True)
class Job:
    """The engine that a process serves, and its model."""

    engine: str  # a name in ENGINES
    folder: str  # of the model, in the form of that engine
    tokenizer: str  # Regard's tokenizer.json
    threads: int
    options: dict[str, Any] = field(default_factory=dict)  # of CTranslate2, tuned


@dataclass(frozen=True)
class Output:
    """A translation: its text, and its tokens as ids, as the vocabulary's pieces or as people see them."""

    text: str
    tokens: Sequence[int | str]


class Adapter(ABC):
    """An engine. `searched` sums up the seconds of the search alone, where they can be separated."""

    packages: tuple[str, ...] = ()

    def __init__(self, job: Job) -> None:
        self.job, self.searched = job, 0.0
        self.precision = ENGINES[job.engine].precision

    @abstractmethod
    def prepare(self) -> None:
        """Imports the engine's library."""

    @abstractmethod
    def load(self) -> None:
        """Reads the model."""

    @abstractmethod
    def translate(self, texts: Sequence[str], beam: int, **options: Any) -> list[Output]:
        """Returns the translations of some texts at once, in their order."""

    @contextmanager
    def searching(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.searched += time.perf_counter() - began

    def versions(self) -> dict[str, str]:
        return {name: version(name) for name in self.packages}


class Regard(Adapter):
    """Regard, with PyTorch or with its own engine."""

    packages = ("regard", "torch")

    def prepare(self) -> None:
        from regard.decoding import model_loading as engine  # noqa: F401 (is timed apart from the loading)

        if not self.job.engine.startswith("native"):
            import torch

            torch.set_num_threads(self.job.threads)

    def load(self) -> None:
        from regard.decoding import model_loading as engine
        from regard.decoding.translator import Translator

        load_as: Any = engine.load_as
        short = self.job.engine.endswith("-short")
        native = {"engine": "native", "precision": self.precision, "threads": self.job.threads, "shortlist": short}
        how = native if self.job.engine.startswith("native") else {"engine": "torch"}
        self.translator = load_as(Translator, self.job.folder, device="cpu", **how)
        search = self.translator.search

        def timed(*arguments: Any, **options: Any) -> Any:
            with self.searching():
                return search(*arguments, **options)

        self.translator.search = timed

    def translate(self, texts: Sequence[str], beam: int, **options: Any) -> list[Output]:
        search = {"beam": beam, "penalty": "power", "length_penalty": LENGTH_PENALTY, **options}
        return [Output(found.text, found.tokens) for found in self.translator.translate(texts, **search)]


class CTranslate2(Adapter):
    """CTranslate2, as its users run it: pieces in, pieces out, sorted by length and cut into batches by itself."""

    packages = ("ctranslate2",)

    def prepare(self) -> None:
        import ctranslate2  # noqa: F401

        from regard.tokens import tokenizer  # noqa: F401 (does not import torch)

    def load(self) -> None:
        import ctranslate2

        from regard.tokens.tokenizer import Vocabularies

        self.vocabularies = Vocabularies.load(Path(self.job.tokenizer))
        self.pieces = [str(self.vocabularies.source.model.id_to_token(i)) for i in range(self.vocabularies.source.size)]
        self.ids = self.vocabularies.target.model.get_vocab()
        self.engine = ctranslate2.Translator(
            self.job.folder,
            device="cpu",
            compute_type=self.precision,
            inter_threads=self.job.options.get("workers", 1),
            intra_threads=self.job.options.get("threads", self.job.threads),
        )

    def translate(self, texts: Sequence[str], beam: int, **options: Any) -> list[Output]:
        pieces, ids, target = self.pieces, self.ids, self.vocabularies.target
        sources = [[pieces[token] for token in row] for row in self.vocabularies.source.encode_batch(texts)]
        search = {
            "beam_size": beam,
            "length_penalty": LENGTH_PENALTY,
            "max_batch_size": self.job.options.get("batch", 64),
            "max_decoding_length": max(2 * len(row) + 20 for row in sources),  # Regard's limit, of the longest sentence
        }
        with self.searching():
            results = self.engine.translate_batch(sources, **{**search, **options})
        found = [[ids[piece] for piece in result.hypotheses[0]] for result in results]
        return [Output(target.decode(row), row) for row in found]


class HuggingFace(Adapter):
    """`generate` of transformers on batches of sentences of like length."""

    packages = ("transformers", "torch")

    def prepare(self) -> None:
        import torch
        from transformers import MarianMTModel  # noqa: F401

        from regard.tokens import tokenizer  # noqa: F401

        torch.set_num_threads(self.job.threads)

    def load(self) -> None:
        from transformers import MarianMTModel

        from regard.tokens.tokenizer import Vocabularies

        self.vocabularies = Vocabularies.load(Path(self.job.tokenizer))
        self.model = MarianMTModel.from_pretrained(self.job.folder).eval()

    def translate(self, texts: Sequence[str], beam: int, **options: Any) -> list[Output]:
        import torch
        from torch.nn.utils.rnn import pad_sequence

        end, pad = self.vocabularies.target.specials.end, self.vocabularies.target.specials.pad
        sources = [torch.tensor([*row, end]) for row in self.vocabularies.source.encode_batch(texts)]
        order = sorted(range(len(sources)), key=lambda number: -len(sources[number]))
        # As exported, `early_stopping` would search to the end: its default stops as others do.
        search = {"num_beams": beam, "length_penalty": LENGTH_PENALTY if beam > 1 else None, "early_stopping": False}
        outputs: dict[int, list[int]] = {}
        with self.searching(), torch.inference_mode():
            for start in range(0, len(order), HUGGING_FACE_BATCH):
                batch = order[start : start + HUGGING_FACE_BATCH]
                tokens = pad_sequence([sources[number] for number in batch], batch_first=True, padding_value=pad)
                found = self.model.generate(input_ids=tokens, attention_mask=tokens != pad, **{**search, **options})
                outputs.update(zip(batch, found[:, 1:].tolist(), strict=True))
        rows = [until(outputs[number], end) for number in range(len(texts))]
        return [Output(self.vocabularies.target.decode(row), row) for row in rows]


def until(tokens: Sequence[int], end: int) -> list[int]:
    """Returns the tokens before the end, without the padding after it."""
    return list(tokens[: tokens.index(end)] if end in tokens else tokens)


@dataclass(frozen=True)
class Engine:
    """An engine at a precision; `form` is the form in which it reads a model."""

    title: str
    precision: str
    form: str
    adapter: type[Adapter]
    rounds: int | None = None  # at most; None: all rounds, because a target depends on it
    every: int = 1  # it translates every n-th of the single sentences

    @property
    def rival(self) -> str:
        """Returns the engine of CTranslate2 at the same precision."""
        return f"ct2-{self.precision}"


ENGINES = {
    "native-float32": Engine("Regard, native", "float32", "regard", Regard),
    "ct2-float32": Engine("CTranslate2", "float32", "ctranslate2-float32", CTranslate2),
    "native-int8": Engine("Regard, native", "int8", "regard", Regard),
    "ct2-int8": Engine("CTranslate2", "int8", "ctranslate2-int8", CTranslate2),
    "native-float32-short": Engine("Regard, native, shortlist", "float32", "regard", Regard, rounds=1),
    "native-int8-short": Engine("Regard, native, shortlist", "int8", "regard", Regard, rounds=1),
    "torch": Engine("Regard, PyTorch", "float32", "regard", Regard, rounds=1),
    "hf": Engine("Hugging Face generate", "float32", "huggingface", HuggingFace, rounds=1, every=5),
}
REFERENCE = "torch"  # the engine whose outputs all others are compared with


def build(job: Job) -> Adapter:
    return ENGINES[job.engine].adapter(job)
