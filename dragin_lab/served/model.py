"""``ServedModel``: a model behind a server, that serves drafts as ``LanguageModel`` does."""

from __future__ import annotations

import queue
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.engines.engine import Watch
from dragin_lab.errors import ModelError, SettingError
from dragin_lab.served.endpoint import ServedEndpoint
from dragin_lab.served.writing import Writing
from dragin_lab.trace.trace import Draft


class ServedModel(ServedEndpoint):
    """A model behind a server; arguments and attributes as for ``ServedEndpoint``.

    Get one with ``opening.open_model``. Drafts are greedy unless ``sample``, and then drawn at temperature 1. There
    are no hidden states and no attention.
    """

    def write(self, request: Write, seed: int | None = None, *, watch: Watch | None = None) -> Draft:
        """As ``Engine.write``.

        Raises ``ModelServerError`` where the server fails, and ``ModelError`` for a draft that it cannot write.
        """
        items: queue.SimpleQueue[Any] = queue.SimpleQueue()
        writing = Writing(self, request, seed, items.put)
        try:
            news: Iterator[Draft] = writing.start()
            while True:
                for draft in news:
                    if watch is not None:
                        watch(draft)
                if writing.stopped:
                    return writing.continuation()
                _, asked, item = items.get()
                news = writing.take(asked, item)
        finally:
            writing.close()

    def batch(self, size: int) -> ServedBatch:
        """Drafts written side by side, by at most ``size`` requests at once."""
        return ServedBatch(self, size)

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """Raise ``ModelError``: there is no attention."""
        raise ModelError(f"{self.name} has no attention: {self.no_attention}")

    def score(self, *_: Any, **__: Any) -> NoReturn:
        """Raise ``ModelError``: a server scores no text that is there already."""
        raise ModelError(f"{self.name} is behind a server, which scores no text; load it in transformers")


class ServedBatch:
    """Drafts of a served model written side by side, each by a request of its own; used as ``engine.Batch``.

    Attributes:
        size: requests at once, at most; no more than the server has slots.
    """

    def __init__(self, lm: ServedModel, size: int) -> None:
        if size < 1:
            raise SettingError(f"a batch of {size} drafts writes none; give at least 1")
        self.lm, self.asked, self.size = lm, size, min(size, lm.interface.slots or size)
        self._waiting: deque[tuple[Any, tuple[Any, ...]]] = deque()
        self._writing: dict[Writing, Any] = {}
        self._items: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def __len__(self) -> int:
        """Drafts asked for and not yet answered."""
        return len(self._waiting) + len(self._writing)

    def ask(self, key: Any, draft: Write, seed: int | None = None) -> None:
        """Ask for a draft; ``step`` answers under ``key``."""
        self._waiting.append((key, (draft, seed, self._items.put)))

    def step(self) -> list[tuple[Any, Any]]:
        """Read one more event: what ended by it, each with its key and its ``Draft`` or what it failed with."""
        while self._waiting and len(self._writing) < self.size:
            key, asked = self._waiting.popleft()
            try:
                writing = Writing(self.lm, *asked)
                for _ in writing.start():
                    pass
                if writing.stopped:
                    return [(key, writing.continuation())]
            except Exception as error:  # noqa: BLE001 - the draft's own failure
                return [(key, error)]
            self._writing[writing] = key
        if self._writing:
            writing, request, item = self._items.get()
            try:
                for _ in writing.take(request, item):
                    pass
                if writing.stopped and writing in self._writing:  # not what came after it had ended
                    return [self._ended(writing, writing.continuation())]
            except Exception as error:  # noqa: BLE001 - likewise
                return [self._ended(writing, error)]
        return []

    def _ended(self, writing: Writing, answer: Any) -> tuple[Any, Any]:
        writing.close()
        return self._writing.pop(writing), answer

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``ServedModel.attend``."""
        return self.lm.attend(ids)

    def describe(self) -> dict[str, Any]:
        """Size asked for, size now and why they differ; values fit into JSON."""
        few = [f"written {self.size} at a time: the server has {self.size} slots"] * (self.size < self.asked)
        return {"asked": self.asked, "size": self.size, "notes": few}

    def close(self) -> None:
        """Give up what is under way."""
        self._waiting.clear()
        for writing in self._writing:
            writing.close()
        self._writing.clear()
