"""A draft's tokens as they come: ``generate`` pushes them from a thread of its own, and whoever iterates pulls."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Generator
from typing import Any

from dragin_lab.engines.writing import TokenEvent, Writing
from dragin_lab.trace.trace import Continuation


class _ClosedError(BaseException):
    """Raised in the writing thread after the stream was closed."""


def stream_draft(
    write: Callable[[Callable[[Writing], None]], Continuation],
) -> Generator[TokenEvent, None, Continuation]:
    """The events of a draft as ``write(watch)`` writes it; returns what that returns, and raises what that raises.

    Closing the stream, or an interrupt while it waits, ends the writing after the token under way.
    """
    items: queue.SimpleQueue[Any] = queue.SimpleQueue()
    closed = threading.Event()

    def watch(writing: Writing) -> None:
        if closed.is_set():
            raise _ClosedError
        items.put(writing.event())

    def work() -> None:
        try:
            items.put(write(watch))
        except BaseException as error:  # noqa: BLE001 - raised again where the stream is read
            items.put(error)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="dragin-lab-draft", daemon=True)
    thread.start()
    try:
        while isinstance(item := items.get(), TokenEvent):
            yield item
    finally:
        closed.set()
        thread.join()
    if isinstance(item, BaseException):
        raise item
    continuation: Continuation = item
    return continuation
