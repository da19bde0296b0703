"""Models that read: their texts are embedded, filled or labelled in batches that all clients share."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from regard.decoding.prefetch import end_if_unwanted
from regard.serving.batchers import Item, Kind, SmallBatcher
from regard.serving.scheduler import MAX_WAITING, Scheduler

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from regard.decoding.fill_classify_embed import (
        Classifier,
        EncoderInput,
        Filler,
        GapFilling,
        Label,
        Reader,
        Text,
    )

SLICE = 64
"""Texts of a request that are tokenized at once: other requests have their turn in between."""
READ_TOGETHER = 64
"""Texts in a batch."""
READ_TOKENS = 4_096
"""Tokens that are read before the batch looks whether anybody still waits."""


class EncoderQueue(Scheduler):
    """Embeds texts, fills their gaps or labels them with one model for any number of clients."""

    def __init__(self, reader: Reader, *, max_waiting: int = MAX_WAITING) -> None:
        super().__init__(max_waiting=max_waiting)
        self.reader = reader

    async def embed(self, texts: Sequence[str], **client: Any) -> tuple[list[NDArray[np.float32]], int]:
        """Returns a vector for each text, and the number of tokens read."""
        return await self._read("embed", texts, self.reader.rows, self.reader.embed_rows, **client)

    async def fill(self, texts: Sequence[str], count: int, **client: Any) -> list[list[list[GapFilling]]]:
        """Returns for each gap of each text the most probable tokens; the model must be one that fills gaps."""
        filler = cast("Filler", self.reader)
        fill_rows = partial(filler.fill_rows, count=count)
        return (await self._read(("fill", count), texts, filler.gap_rows, fill_rows, **client))[0]

    async def label(self, texts: Sequence[Text], **client: Any) -> list[Label]:
        """Returns the label of each text or pair of texts; the model must be one that classifies them."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("label", texts, classifier.rows, classifier.label_rows, **client))[0]

    async def label_words(self, texts: Sequence[Sequence[str]], **client: Any) -> list[list[Label]]:
        """Returns the label of each word of each text; the model must be one that classifies words."""
        classifier = cast("Classifier", self.reader)
        return (await self._read("words", texts, classifier.word_rows, classifier.label_word_rows, **client))[0]

    async def _read(
        self,
        key: Hashable,
        texts: Sequence[Any],
        tokenize: Callable[[Sequence[Any]], list[EncoderInput]],
        use: Callable[[Sequence[EncoderInput]], Iterable[Any]],
        *,
        client: str = "",
        deadline: float | None = None,
    ) -> tuple[list[Any], int]:
        """Returns what `use` computes for each text, and the number of tokens read."""

        def run(items: list[Item]) -> list[Any]:
            results: list[Any] = []
            together = max(1, READ_TOKENS // max(item.tokens_read for item in items))
            for start in range(0, len(items), together):
                end_if_unwanted()
                results.extend(use([item.source for item in items[start : start + together]]))
            return results

        kind = Kind(key, lambda report: SmallBatcher(run, report, self.slots, size=READ_TOGETHER))
        async with self.admit(len(texts), client, deadline) as request:
            rows: list[EncoderInput] = []
            for start in range(0, len(texts), SLICE):
                some = await self.in_thread(tokenize, texts[start : start + SLICE])
                request.add([Item(kind, row, len(row.ids)) for row in some], len(some))
                rows += some
            return await request.results(), sum(len(row.ids) for row in rows)
