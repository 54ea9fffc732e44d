"""A model with a cache before it: what it wrote is served wherever the same is asked for again.

With greedy decoding a prompt has one continuation, so five thresholds only pay for the drafts in which they differ.

A draft is cached as its tokens, what was measured on them and the attention among them. To serve it, its ``Stop`` is
asked about those tokens in order, so it ends where it would have ended. A draft that needs more tokens than are cached
is written from its beginning and replaces them. A key holds all that can change what is written: the model's
``identity``, the prompt, the bias on its tokens and the ids it begins with.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError
from dragin_lab.run.cache import Arrays, Cache
from dragin_lab.trace.trace import Continuation

if TYPE_CHECKING:
    from dragin_lab.engines.engine import Engine


def cached(lm: Engine, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides its text.
    """
    return lm if cache is None or not is_cacheable(lm) else CachedModel(lm, cache)


def is_cacheable(lm: Any) -> bool:
    """Whether a model writes the same again after the same prompt, and says what decides its text."""
    return not getattr(lm, "sample", True) and hasattr(lm, "identity")


class CachedModel:
    """Has what drivers use of a ``Engine``; all else is the model's own."""

    def __init__(self, lm: Engine, cache: Cache) -> None:
        self.lm = lm
        self.cache = cache
        self._identity = json.dumps(lm.identity(), sort_keys=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        """As ``Engine.stream``."""
        served = self.find_draft(draft)
        if served is None:
            return (yield from self.lm.stream(draft, seed, keep=self.keeper(draft)))
        yield from served[0]
        return served[1]

    def generate(self, draft: Write, seed: int | None = None) -> Continuation:
        """As ``Engine.generate``."""
        served = self.find_draft(draft)
        return self.lm.generate(draft, seed, keep=self.keeper(draft)) if served is None else served[1]

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``Engine.attend``, which ``attend`` may stand in for."""
        key = self._map_key(ids)
        if (entry := self.cache.get(key)) is not None:
            self.cache.counts.maps_served += 1
            return _unpack_map(entry)
        attention: np.ndarray = (attend or self.lm.attend)(ids)
        self.cache.counts.maps_made += 1
        self.cache.put(key, _pack_map(attention))
        return attention

    def batch(self, size: int) -> CachedBatch:
        """As ``Engine.batch``."""
        return CachedBatch(self, self.lm.batch(size))

    def find_draft(self, draft: Write) -> tuple[list[Any], Continuation] | None:
        """A draft's events and its continuation from what was cached; None: write it."""
        outgrown = False
        for arrays in self._entries(draft):
            outgrown = True
            if (served := self.lm.replay(draft, arrays)) is not None:
                self.cache.counts.drafts_served += 1
                self.cache.counts.tokens_served += len(served[1])
                return served
        self.cache.counts.drafts_outgrown += outgrown
        self.cache.counts.drafts_made += not outgrown
        return None

    def keeper(self, draft: Write) -> Any:
        """What the model calls at a draft's end with the arrays to cache."""

        def keep(arrays: Arrays) -> None:
            self.cache.counts.tokens_made += len(arrays["ids"])
            self.cache.put(self._draft_key(draft, draft.attention), arrays)

        return keep

    def _entries(self, draft: Write) -> Iterator[Arrays]:
        for attention in (True,) if draft.attention else (False, True):
            if (entry := self.cache.get(self._draft_key(draft, attention))) is not None:
                yield entry

    def _draft_key(self, draft: Write, attention: bool) -> bytes:
        prompt = draft.prompt
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in draft.bias]
        request = [prompt.text, prompt.special, bias, attention, draft.hidden, draft.prefix]
        return self._key("draft", request)

    def _map_key(self, ids: Sequence[int]) -> bytes:
        return self._key("map", [int(i) for i in ids])

    def _key(self, kind: str, request: Any) -> bytes:
        return sha256(json.dumps([self._identity, kind, request], sort_keys=True).encode()).digest()


class NotCachedError(DraginLabError):
    """What an episode asks for is not cached, so that only the model could answer."""


class CacheAlone(CachedModel):
    """A model's cache in its place: what is not cached raises ``NotCachedError``. Counts nothing."""

    sample = True  # so that no cache is put before it

    def generate(self, draft: Write, seed: int | None = None) -> Continuation:
        """As ``Engine.generate``."""
        return self._serve(draft)[1]

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        """As ``Engine.stream``."""
        served = self._serve(draft)
        yield from served[0]
        return served[1]

    def _serve(self, draft: Write) -> tuple[list[Any], Continuation]:
        replays = (self.lm.replay(draft, arrays) for arrays in self._entries(draft))
        served = next((one for one in replays if one is not None), None)
        if served is None:
            raise NotCachedError("the cache does not hold this draft")
        return served

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``Engine.attend``."""
        entry = self.cache.get(self._map_key(ids))
        if entry is None:
            raise NotCachedError("the cache does not hold this attention map")
        return _unpack_map(entry)


class CachedBatch:
    """A ``Batch`` whose drafts are served where they are cached; all else is the batch's own."""

    def __init__(self, model: CachedModel, batch: Any) -> None:
        self._model = model
        self._batch = batch
        self._served: list[tuple[Any, Continuation]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __len__(self) -> int:
        return len(self._served) + len(self._batch)

    def ask(self, key: Any, draft: Write, seed: int | None = None) -> None:
        """As ``Batch.ask``; a draft that is served takes no place in the batch."""
        try:
            served = self._model.find_draft(draft)
        except DraginLabError:  # a draft that cannot be written; the batch tells its episode
            served = None
        if served is None:
            self._batch.ask(key, draft, seed, keep=self._model.keeper(draft))
        else:
            self._served.append((key, served[1]))

    def step(self) -> list[tuple[Any, Any]]:
        """What was served, else as ``Batch.step``."""
        served, self._served = self._served, []
        return served or self._batch.step()

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Batch.attend``."""
        return self._model.attend(ids, self._batch.attend)

    def close(self) -> None:
        """Drop what is under way."""
        self._served = []
        self._batch.close()


def _pack_map(attention: np.ndarray) -> Arrays:
    """An attention map (h, n, n) by its lower triangle, where the rest is 0."""
    n = attention.shape[-1]
    if np.triu(attention, 1).any():
        return {"whole": attention}
    return {"lower": attention[:, *np.tril_indices(n)], "n": np.array([n], np.int32)}


def _unpack_map(entry: Arrays) -> np.ndarray:
    if "whole" in entry:
        return entry["whole"]
    lower, n = entry["lower"], int(entry["n"][0])
    attention = np.zeros((lower.shape[0], n, n), lower.dtype)
    attention[:, *np.tril_indices(n)] = lower
    return attention
