"""A model with a cache before it: what it wrote is served wherever the same is asked for again.

With greedy decoding a prompt has one continuation, so five thresholds only pay for the drafts in which they differ.

A draft is cached as its tokens, what was measured on them and the attention among them. To serve it, its ``Stop`` is
asked about those tokens in order, so it ends where it would have ended. A draft that needs more tokens than are cached
is written from its beginning and replaces them. A key holds all that can change what is written: the model's
``identity``, the prompt, the bias on its tokens and the ids it begins with.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError
from dragin_lab.run.cache import Arrays, Cache
from dragin_lab.trace.file import pack_record, unpack_record
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    from dragin_lab.engines.engine import Engine, Watch


#: What an entry that was mutated raises where it is unpacked.
_DAMAGED = (IndexError, KeyError, TypeError, ValueError)


def cached(lm: Engine, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides its text.
    """
    return lm if cache is None or not is_cacheable(lm) else CachedModel(lm, cache)


def is_cacheable(lm: Engine) -> bool:
    """Whether a model writes the same again after the same prompt, and says what decides its text."""
    return not lm.sample and lm.identity() is not None


class CachedModel:
    """An ``Engine`` whose drafts are served where they are cached; all else is the model's own."""

    def __init__(self, lm: Engine, cache: Cache) -> None:
        self.lm = lm
        self.cache = cache
        self._identity = json.dumps(lm.identity(), sort_keys=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def write(self, request: Write, seed: int | None = None, *, watch: Watch | None = None) -> Draft:
        """As ``Engine.write``."""
        if (served := self.find_draft(request, watch)) is not None:
            return served
        return self.keep(request, self.lm.write(ask_all(request), seed, watch=watch))

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``Engine.attend``, which ``attend`` may stand in for."""
        key = self._key("map", [int(i) for i in ids])
        if (served := self._find_map(key)) is not None:
            self.cache.counts.maps_served += 1
            return served
        attention: np.ndarray = (attend or self.lm.attend)(ids)
        self.cache.counts.maps_made += 1
        self.cache.put(key, _pack_map(attention))
        return attention

    def batch(self, size: int) -> CachedBatch:
        """As ``Engine.batch``."""
        return CachedBatch(self, self.lm.batch(size))

    def find_draft(self, request: Write, watch: Watch | None = None) -> Draft | None:
        """A draft from what was cached; None: write it."""
        outgrown = False
        for stored in self._entries(request):
            outgrown = True
            if (served := replay(stored, request, self.lm.tokenizer, watch)) is not None:
                self.cache.counts.drafts_served += 1
                self.cache.counts.tokens_served += len(served)
                return served
        self.cache.counts.drafts_outgrown += outgrown
        self.cache.counts.drafts_made += not outgrown
        return None

    def keep(self, request: Write, draft: Draft) -> Draft:
        """Cache what was written for ``ask_all(request)``; the draft with what the request asks for."""
        self.cache.counts.tokens_made += len(draft)
        self.cache.put(self._draft_key(request, request.attention), pack_record(draft))
        return draft if request.among else replace(draft, among=None)

    def _entries(self, request: Write) -> Iterator[Draft]:
        for attention in (True,) if request.attention else (False, True):
            if (entry := self.cache.get(self._draft_key(request, attention))) is not None:
                with suppress(*_DAMAGED):
                    yield unpack_record(Draft, entry)

    def _find_map(self, key: str) -> np.ndarray | None:
        with suppress(*_DAMAGED):
            return None if (entry := self.cache.get(key)) is None else _unpack_map(entry)
        return None

    def _draft_key(self, request: Write, attention: bool) -> str:
        prompt = request.prompt
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in request.bias]
        return self._key("draft", [prompt.text, prompt.special, bias, attention, request.hidden, request.prefix])

    def _key(self, kind: str, request: Any) -> str:
        return sha256(json.dumps([self._identity, kind, request], sort_keys=True).encode()).hexdigest()


def ask_all(request: Write) -> Write:
    """The request for a draft that other stops can be asked about."""
    return replace(request, among=True)


def replay(stored: Draft, request: Write, tokenizer: Any, watch: Watch | None = None) -> Draft | None:
    """What a request's stop makes of a draft that was written after the same prompt; None where it needs more of it.

    It is asked after each token, as while the draft was written; ``watch`` is earlier of the tokens of a draft that is
    served, and of none that another one replaces.
    """
    earlier: list[Draft] = []
    for n in range(1, min(len(stored), request.max_new_tokens) + 1):
        early = stored[:n]
        reason = request.stop.reached(early)
        earlier.append(early)
        if n == len(stored) and stored.stopped == "eos":
            reason = "eos"
        if reason := reason or "length" * (n == request.max_new_tokens):
            break
    else:
        return None
    draft = stored.ended_at(n, reason)
    if n < len(stored) and stored.offsets[n, 0] < stored.offsets[n - 1, 1]:
        # It ends inside a character, and its own bytes spell something else.
        if not hasattr(tokenizer, "spans"):
            return None
        draft.text, spans = tokenizer.spans().all(draft.ids.tolist())
        draft.offsets = np.array(spans, np.int32).reshape(-1, 2)
    if watch is not None:
        for early in earlier:
            watch(early)
    return replace(
        draft,
        raw_text=tokenizer.decode(draft.ids.tolist(), special=True),
        stored=True,
        reused=len(draft.prompt_ids),
        among=draft.among if request.among else None,
        rows=draft.rows if request.attention else None,
    )


class CachedBatch:
    """A ``Batch`` whose drafts are served where they are cached; all else is the batch's own."""

    def __init__(self, model: CachedModel, batch: Any) -> None:
        self._model = model
        self._batch = batch
        self._served: list[tuple[Any, Draft]] = []
        self._asked: dict[int, tuple[Any, Write]] = {}  # by the number that the batch knows it under

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __len__(self) -> int:
        return len(self._served) + len(self._batch)

    def ask(self, key: Any, request: Write, seed: int | None = None) -> None:
        """As ``Batch.ask``; a draft that is served takes no place in the batch."""
        try:
            served = self._model.find_draft(request)
        except DraginLabError:  # the batch tells its episode
            served = None
        if served is not None:
            self._served.append((key, served))
            return
        self._asked[id(request)] = key, request
        self._batch.ask(id(request), ask_all(request), seed)

    def step(self) -> list[tuple[Any, Any]]:
        """What was served, else as ``Batch.step``."""
        served, self._served = self._served, []
        return served or [self._keep(number, draft) for number, draft in self._batch.step()]

    def _keep(self, number: int, draft: Any) -> tuple[Any, Any]:
        key, request = self._asked.pop(number)
        return key, draft if isinstance(draft, Exception) else self._model.keep(request, draft)

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Batch.attend``."""
        return self._model.attend(ids, self._batch.attend)

    def close(self) -> None:
        """Drop what is under way."""
        self._served, self._asked = [], {}
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
