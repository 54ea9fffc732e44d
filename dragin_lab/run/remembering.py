"""A model that writes no draft twice: what it wrote is kept in a store, and served wherever it is asked for again.

A draft is kept as its pieces, what was measured on them and the attention among them. Serving one asks its ``Stop``
about those pieces in order, with the code that generates (``lm.replay``), so it ends where it would have ended and is
the same to the bit. Where the kept pieces run out first, the draft is made anew and replaces them: going on behind them
would read them in one forward instead of one by one, which sums in another order.

A key holds all that can change what is written: the model's ``identity``, the prompt with the parts that it is read in,
the bias on its pieces, and how its attention rows are computed. Rows that a ``Stop`` looks at behind every piece are
computed one by one, others together, which can differ in the last bit; so the two are kept apart, and so is what was
written side by side with others.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.core.trace import Continuation
from dragin_lab.errors import DraginLabError
from dragin_lab.run.store import Arrays, Store

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel

#: How rows were computed: behind every piece, several at once, side by side with other drafts.
ALONE, BESIDE = ("looked", "together"), ("looked", "together", "beside")


def remembering(lm: LanguageModel, store: Store | None) -> Any:
    """The model, serving and keeping its drafts in ``store``.

    It is the model itself without a store, under sampling, and where it does not say what decides its text.
    """
    if store is None or getattr(lm, "sample", True) or not hasattr(lm, "identity"):
        return lm
    return Remembering(lm, store)


class Remembering:
    """Has what drivers use of a ``LanguageModel``; all else is the model's own."""

    def __init__(self, lm: LanguageModel, store: Store) -> None:
        self.lm = lm
        self.store = store
        self._identity = json.dumps(lm.identity(), sort_keys=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        """As ``LanguageModel.stream``."""
        found = self.find(draft, ALONE)
        if found is None:
            return (yield from self.lm.stream(draft, seed, keep=self.keeper(draft)))
        events, made = found
        yield from events
        return made

    def generate(self, draft: Write, seed: int | None = None) -> Continuation:
        """As ``LanguageModel.generate``."""
        found = self.find(draft, ALONE)
        return self.lm.generate(draft, seed, keep=self.keeper(draft)) if found is None else found[1]

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``LanguageModel.attend``, which ``attend`` may stand in for."""
        key = self._key("map", [int(i) for i in ids])
        if (found := self.store.get(key)) is not None:
            self.store.counts.maps_served += 1
            return _unpacked(found)
        made: np.ndarray = (attend or self.lm.attend)(ids)
        self.store.counts.maps_made += 1
        self.store.put(key, _packed(made))
        return made

    def batch(self, size: int) -> Beside:
        """As ``LanguageModel.batch``."""
        return Beside(self, self.lm.batch(size))

    # -- drafts -------------------------------------------------------------------------------------------------------

    def find(self, draft: Write, ways: Sequence[str]) -> tuple[list[Any], Continuation] | None:
        """A draft's events and its continuation from what is kept, made in one of some ways; None: make it."""
        there = False
        for way, kept in self._kept(draft, ways):
            there = True
            if (found := self.lm.replay(draft, kept, way)) is not None:
                self.store.counts.drafts_served += 1
                self.store.counts.pieces_served += len(found[1])
                return found
        self.store.counts.drafts_outgrown += there
        self.store.counts.drafts_made += not there
        return None

    def keeper(self, draft: Write) -> Any:
        """What is told how a draft was made and what is to be kept of it."""

        def keep(way: str, arrays: Arrays) -> None:
            self.store.counts.pieces_made += len(arrays["ids"])
            if way:
                self.store.put(self._draft_key(draft, way, draft.attention), arrays)

        return keep

    def _kept(self, draft: Write, ways: Sequence[str]) -> Iterator[tuple[str, Arrays]]:
        for attention in (True,) if draft.attention else (False, True):
            for way in ways:
                found = self.store.get(self._draft_key(draft, way, attention))
                if found is not None:
                    yield way, found

    def _draft_key(self, draft: Write, way: str, attention: bool) -> bytes:
        prompt = draft.prompt
        parts = {name: prompt.spans.get(name) for name in self.lm.parts}
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in draft.bias]
        return self._key("draft", [prompt.text, prompt.special, parts, bias, way, attention])

    def _key(self, kind: str, what: Any) -> bytes:
        return sha256(json.dumps([self._identity, kind, what], sort_keys=True).encode()).digest()


class Beside:
    """A ``Batch`` whose drafts are served where they are kept; all else is the batch's own."""

    def __init__(self, memory: Remembering, batch: Any) -> None:
        self._memory = memory
        self._batch = batch
        self._served: list[tuple[Any, Continuation]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __len__(self) -> int:
        return len(self._served) + len(self._batch)

    def ask(self, key: Any, draft: Write, seed: int | None = None) -> None:
        """As ``Batch.ask``; what is kept takes no place in the batch."""
        try:
            found = self._memory.find(draft, BESIDE)
        except DraginLabError:  # a draft that cannot be made; the batch says so to whom it belongs
            found = None
        if found is None:
            self._batch.ask(key, draft, seed, keep=self._memory.keeper(draft))
        else:
            self._served.append((key, found[1]))

    def step(self) -> list[tuple[Any, Any]]:
        """What was served, else as ``Batch.step``."""
        served, self._served = self._served, []
        return served or self._batch.step()

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Batch.attend``."""
        return self._memory.attend(ids, self._batch.attend)

    def close(self) -> None:
        """Drop what is under way."""
        self._served = []
        self._batch.close()


def _packed(attention: np.ndarray) -> Arrays:
    """An attention map (h, n, n) by its lower triangle, where the rest is 0."""
    n = attention.shape[-1]
    if np.triu(attention, 1).any():
        return {"whole": attention}
    rows, columns = np.tril_indices(n)
    return {"lower": attention[:, rows, columns], "n": np.array([n], np.int32)}


def _unpacked(kept: Arrays) -> np.ndarray:
    if "whole" in kept:
        return kept["whole"].copy()
    lower, n = kept["lower"], int(kept["n"][0])
    made = np.zeros((lower.shape[0], n, n), lower.dtype)
    made[:, *np.tril_indices(n)] = lower
    return made
