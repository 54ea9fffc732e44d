"""A draft's tokens as they come: an engine pushes them from a thread of its own, and whoever iterates pulls."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Generator
from typing import Any

from dragin_lab.core.episode import Write
from dragin_lab.trace.trace import Draft


class _ClosedError(BaseException):
    """Raised in the writing thread after the stream was closed."""


def stream_draft(engine: Any, request: Write, seed: int | None = None) -> Generator[Draft, None, Draft]:
    """The draft so far after each token, as the engine writes it; returns the draft, and raises what ``write`` raises.

    Closing the stream, or an interrupt while it waits, ends the writing after the token under way.
    """
    items: queue.SimpleQueue[tuple[bool, Any]] = queue.SimpleQueue()
    closed = threading.Event()

    def watch(draft: Draft) -> None:
        if closed.is_set():
            raise _ClosedError
        items.put((False, draft))

    def work() -> None:
        try:
            items.put((True, engine.write(request, seed, watch=watch)))
        except BaseException as error:  # noqa: BLE001 - raised again where the stream is read
            items.put((True, error))

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="dragin-lab-draft", daemon=True)
    thread.start()
    try:
        while not (item := items.get())[0]:
            yield item[1]
    finally:
        closed.set()
        thread.join()
    if isinstance(item[1], BaseException):
        raise item[1]
    draft: Draft = item[1]
    return draft
