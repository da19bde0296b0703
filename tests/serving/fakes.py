"""Fake models that answer at once, in capitals."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from regard.decoding.translation_results import Translation
from regard.serving.completions import WriterQueue
from regard.serving.encoder_endpoints import EncoderQueue
from regard.serving.scheduler import Scheduler
from regard.serving.served_models import Models
from regard.serving.translation_service import TranslatorQueue
from regard.tokens.language_directions import Direction
from regard.tokens.placeholder_slots import CutText

if TYPE_CHECKING:
    from regard.decoding.fill_classify_embed import Reader
    from regard.decoding.writer import Writer


def loud(text: str, target: str) -> str:
    """Returns the fake translation of a text: HELLO@de, on each line that has words."""
    return "\n".join(f"{line.strip().upper()}@{target}" if line.strip() else "" for line in text.split("\n"))


def made(text: str, *alternatives: str) -> Translation:
    others = tuple(made(each) for each in alternatives)
    return Translation(text, -0.5, -1.0, ("a",), (-1.0,), finished=True, alternatives=others, confidence=0.75)


class FakeTranslator:
    """Has the attributes of a translator that a server uses beside its translations."""

    source = target = SimpleNamespace(slots={}, encode_batch=lambda _: [[1]], encode_continuation=lambda _: [1])
    settings = SimpleNamespace()

    def direction(self, **_: Any) -> None: ...

    def read(self, *_: Any) -> list[Any]:
        return []

    def decoding(self, _options: dict[str, Any]) -> None: ...


class FakeQueue(TranslatorQueue):
    """A queue whose translations need no time, unless a test sets a delay."""

    def __init__(self, *, clumsy: bool = False) -> None:
        fake: Any = FakeTranslator()
        super().__init__(fake)
        self.clumsy = clumsy  # loses all protected pieces
        self.calls: list[tuple[list[str], dict[str, Any]]] = []
        self.hold: asyncio.Event | None = None
        self.delay = 0.0
        self.cancelled = 0
        self.error: Exception | None = None

    async def translate(
        self, texts: Sequence[str | CutText], *, client: str = "", deadline: float | None = None, **options: Any
    ) -> list[Translation]:
        plain = [text if isinstance(text, str) else text.text for text in texts]
        hold = self.hold  # read before the call is counted: a test that waits for the count may change it at once
        self.calls.append((plain, {"client": client, **options}))
        if self.error is not None:
            raise self.error
        await asyncio.sleep(self.delay)
        if hold is not None:
            try:
                await hold.wait()
            except asyncio.CancelledError:
                self.cancelled += 1
                raise
        return [self.one(text, options) for text in texts]

    def one(self, text: str | CutText, options: dict[str, Any]) -> Translation:
        target = options["target"]
        if isinstance(text, CutText):
            pieces = [""] * len(text.pieces) if self.clumsy else text.pieces
            loudly = [each.upper() for each in text.texts]
            return made("".join(part for pair in zip(loudly, [*pieces, ""], strict=True) for part in pair))
        if options.get("alignment"):
            return replace(made(loud(text, target)), source_tokens=("x", "y"), alignment=((0.12345, 1.0),))
        if options.get("glossary"):
            said = loud(text, target) + "".join(term.targets[0] for term in options["glossary"].terms)
            return replace(made(said), glossary=tuple(options["glossary"].check(text, said)))
        others = [loud(f"{text} {number}", target) for number in range(options.get("alternatives", 0))]
        return made(loud(text, target), *others)


class FakeModels(Models):
    """Directions with a fake queue each, and models that write or read."""

    def __init__(
        self,
        *names: str,
        clumsy: bool = False,
        writers: Mapping[str, Writer] | None = None,
        encoders: Mapping[str, Reader] | None = None,
    ) -> None:
        super().__init__([])
        self.fakes = {Direction(*name.split("-")): FakeQueue(clumsy=clumsy) for name in names}
        self.writing = {name: WriterQueue(writer) for name, writer in (writers or {}).items()}
        self.embedding = {name: EncoderQueue(encoder) for name, encoder in (encoders or {}).items()}
        self.closed = False

    @property
    def directions(self) -> list[Direction]:
        return list(self.fakes)

    @property
    def writers(self) -> dict[str, WriterQueue]:
        return self.writing

    @property
    def encoders(self) -> dict[str, EncoderQueue]:
        return self.embedding

    @property
    def queues(self) -> dict[str, Scheduler]:
        return {**{str(direction): queue for direction, queue in self.fakes.items()}, **self.writing, **self.embedding}

    def queue(self, direction: Direction) -> FakeQueue:
        return self.fakes[direction]

    async def close(self, grace: float = 30.0) -> None:
        self.closed = True
        for queue in (*self.writing.values(), *self.embedding.values()):
            await queue.close(grace)
        self.reopen()

    def reopen(self) -> None:
        """Creates new queues, because an application may be started again in another event loop."""
        self.writing = {name: WriterQueue(queue.writer) for name, queue in self.writing.items()}
        self.embedding = {name: EncoderQueue(queue.reader) for name, queue in self.embedding.items()}
