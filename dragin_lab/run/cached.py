"""A model with a cache before it: its drafts are served where they were written before.

A draft is cached as its tokens, what was measured on them and the attention among them. To serve
it, its ``Stop`` is asked about those tokens in order, so it ends where it would have ended. A draft
that needs more tokens than are cached is written from its beginning and replaces them. A key holds
all that can change what is written: what the model is and computes, the ids of the prompt, the bias
on its tokens and the ids it begins with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError
from dragin_lab.run.cache import Cache
from dragin_lab.trace.file import pack_record, unpack_record
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    from dragin_lab.engines.engine import Engine, OnToken


def cached(lm: Engine, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides
    its text.
    """
    return lm if cache is None or lm.sample or lm.identity() is None else CachedModel(lm, cache)


class CachedModel:
    """An ``Engine`` whose drafts are served where they are cached; all else is the model's own."""

    def __init__(self, lm: Engine, cache: Cache) -> None:
        self.lm, self.cache = lm, cache
        self._seen: Any = self  # the probe that ``_identity`` is of
        self._identity = ""

    def _identify(self) -> str:
        """What the model is now: it may have been changed since the answer before."""
        probe = self.lm.probed and self.lm.probed.probe
        if probe is not self._seen:
            self._seen, known = probe, self.lm.identity()
            self._identity = json.dumps(
                [known, self.cache.number_of(self.lm.probed)], sort_keys=True
            )
        return self._identity

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def write(
        self, request: Write, seed: int | None = None, *, watch: OnToken | None = None
    ) -> Draft:
        if (served := self.find_draft(request, watch)) is not None:
            return served
        return self.keep(request, self.lm.write(replace(request, among=True), seed, watch=watch))

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        key = self._key("attention", [int(i) for i in ids])
        served: np.ndarray | None = self.cache.get(key, lambda entry: entry["map"])
        if served is not None:
            self.cache.counts.maps_served += 1
            return served
        attention: np.ndarray = (attend or self.lm.attend)(ids)
        self.cache.counts.maps_made += 1
        self.cache.put(key, {"map": attention})
        return attention

    def batch(self, size: int) -> CachedBatch:
        return CachedBatch(self, self.lm.batch(size))

    def find_draft(self, request: Write, watch: OnToken | None = None) -> Draft | None:
        """A draft from what was cached; None: write it."""
        counts, outgrown = self.cache.counts, False
        for attention in (True,) if request.attention else (False, True):
            stored = self.cache.get(
                self._draft_key(request, attention), lambda entry: unpack_record(Draft, entry)
            )
            if stored is None:
                continue
            outgrown = True
            if (served := replay(stored, request, self.lm.tokenizer, watch)) is not None:
                counts.drafts_served += 1
                counts.tokens_served += len(served)
                return replace(served, prompt_offsets=self._encode(request)[1])
        counts.drafts_outgrown += outgrown
        counts.drafts_made += not outgrown
        return None

    def keep(self, request: Write, draft: Draft) -> Draft:
        """Cache what was written with attention among its tokens; the draft with what the
        request asks for.
        """
        self.cache.counts.tokens_made += len(draft)
        self.cache.put(self._draft_key(request, request.attention), pack_record(draft))
        return draft if request.among else replace(draft, among=None)

    def _draft_key(self, request: Write, attention: bool) -> str:
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in request.bias]
        return self._key(
            "draft", [self._encode(request)[0], bias, attention, request.hidden, request.prefix]
        )

    def _encode(self, request: Write) -> tuple[list[int], np.ndarray]:
        """A prompt's ids (p,) and spans (p, 2): its text may stand for other ids, and other
        texts for the same.
        """
        tokenizer: Any = self.lm.tokenizer
        ids, offsets = tokenizer.encode_prompt(request.prompt, self.lm.name)
        return ids, offsets

    def _key(self, kind: str, request: Any) -> str:
        return sha256(
            json.dumps([self._identify(), kind, request], sort_keys=True).encode()
        ).hexdigest()


def replay(
    stored: Draft, request: Write, tokenizer: Any, watch: OnToken | None = None
) -> Draft | None:
    """What a request's stop makes of a draft that was written after the same prompt; None where it
    needs more of it.

    It is asked after each token, as while the draft was written; ``watch`` hears of a draft that is
    served alone.
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
        self._model, self._batch = model, batch
        self._served: list[tuple[Any, Any]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def __len__(self) -> int:
        return len(self._served) + len(self._batch)

    def ask(self, key: Any, request: Write, seed: int | None = None) -> None:
        try:
            served = self._model.find_draft(request)
        except DraginLabError:  # the batch tells its episode
            served = None
        if served is None:
            self._batch.ask((key, request), replace(request, among=True), seed)
        else:
            self._served.append((key, served))

    def step(self) -> list[tuple[Any, Any]]:
        served, self._served = self._served, []
        if not served:
            for (key, request), draft in self._batch.step():
                served.append(
                    (
                        key,
                        draft if isinstance(draft, Exception) else self._model.keep(request, draft),
                    )
                )
        return served

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return self._model.attend(ids, self._batch.attend)
