"""Models that answer at once: they write capitals, and what they are told to."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from regard.decoding.translator import Translation
from regard.serving.scheduler import Counts
from regard.text.directions import Direction
from regard.text.slots import Cut


def loud(text: str, target: str) -> str:
    """What the fakes make of a text: HELLO@de, on each line that has words."""
    return "\n".join(f"{line.strip().upper()}@{target}" if line.strip() else "" for line in text.split("\n"))


def made(text: str, *alternatives: str) -> Translation:
    others = tuple(made(each) for each in alternatives)
    return Translation(text, -0.5, -1.0, ("a",), (-1.0,), finished=True, alternatives=others, confidence=0.75)


class FakeTranslator:
    """What is asked of a translator beside translations."""

    source = target = SimpleNamespace(slots={}, encode_batch=lambda _: [[1]], encode_rest=lambda _: [1])
    settings = SimpleNamespace()

    def direction(self, **_: Any) -> None: ...

    def decoding(self, _options: dict[str, Any]) -> None: ...


class FakeQueue:
    """A scheduler with a translator behind it that needs no time, unless it is told to wait."""

    def __init__(self, *, clumsy: bool = False) -> None:
        self.translator: Any = FakeTranslator()
        self.clumsy = clumsy  # loses everything that is protected
        self.calls: list[tuple[list[str], dict[str, Any]]] = []
        self.hold: asyncio.Event | None = None
        self.delay = 0.0
        self.cancelled = 0
        self.error: Exception | None = None
        self.waiting, self.running, self.counts = 0, 0, Counts()

    async def translate(
        self, texts: Sequence[str | Cut], *, client: str = "", deadline: float | None = None, **options: Any
    ) -> list[Translation]:
        plain = [text if isinstance(text, str) else text.text for text in texts]
        hold = self.hold  # as it was when the call is counted: who waits for that may change it at once
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

    def one(self, text: str | Cut, options: dict[str, Any]) -> Translation:
        target = options["target"]
        if isinstance(text, Cut):
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


class FakeModels:
    """Some directions, each with a queue of its own."""

    def __init__(self, *names: str, clumsy: bool = False) -> None:
        self.directions = [Direction(*name.split("-")) for name in names]
        self.queues = {direction: FakeQueue(clumsy=clumsy) for direction in self.directions}
        self.closed = False

    def queue(self, direction: Direction) -> FakeQueue:
        return self.queues[direction]

    async def watch(self) -> None:
        await asyncio.Event().wait()

    async def close(self) -> None:
        self.closed = True
