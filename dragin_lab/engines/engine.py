"""What an engine is: it writes drafts, measures them, and says what decides its answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from dragin_lab.core.episode import Tokenizer, Write
from dragin_lab.trace.trace import Continuation

#: Called at a draft's end with the arrays that ``replay`` needs.
Keep = Callable[[dict[str, np.ndarray]], None]


class Batch(Protocol):
    """Drafts written side by side, at most ``size`` at once."""

    size: int

    def __len__(self) -> int:
        """Drafts asked for and not yet answered."""
        ...

    def ask(self, key: Any, draft: Write, seed: int | None = None, *, keep: Keep | None = None) -> None:
        """Ask for a draft; ``step`` answers under ``key``."""
        ...

    def step(self) -> list[tuple[Any, Continuation | Exception]]:
        """Go on; the drafts that ended, or what each failed with."""
        ...

    def attend(self, ids: Sequence[int]) -> np.ndarray: ...

    def describe(self) -> dict[str, Any]:
        """Size asked for, size now and why they differ (``notes``); values fit into JSON."""
        ...

    def close(self) -> None: ...


class Engine(Protocol):
    """A model that writes. Arrays and their shapes are those of ``Continuation``."""

    name: str
    tokenizer: Tokenizer
    context_window: int | None  # tokens
    has_attention: bool
    has_hidden: bool
    sample: bool  # whether it draws its tokens; what it writes is then never cached
    embedded: bool  # whether it is the package's own model
    parts: tuple[str, ...]  # the named spans of a prompt that are read, and kept, by themselves

    def stream(
        self, draft: Write, seed: int | None = None, *, keep: Keep | None = None
    ) -> Generator[Any, None, Continuation]:
        """The tokens of a draft as they come (``TokenEvent``); returns the ``Continuation``. Closing it stops."""
        ...

    def generate(self, draft: Write, seed: int | None = None, *, keep: Keep | None = None) -> Continuation: ...

    def batch(self, size: int) -> Batch: ...

    def replay(self, draft: Write, kept: Mapping[str, np.ndarray]) -> tuple[list[Any], Continuation] | None:
        """A draft from what ``keep`` got of one after the same prompt; None where that ends too early."""
        ...

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """The attention map of some ids by themselves: (h, n, n) float32."""
        ...

    def provenance(self) -> dict[str, Any]:
        """What decides what it writes; values fit into JSON."""
        ...

    def identity(self) -> dict[str, Any]:
        """All that can change a bit of it, beside the request; values fit into JSON."""
        ...


def finish(tokens: Generator[Any, None, Continuation]) -> Continuation:
    """What a stream returns at its end."""
    while True:
        try:
            next(tokens)
        except StopIteration as end:
            continuation: Continuation = end.value
            return continuation
