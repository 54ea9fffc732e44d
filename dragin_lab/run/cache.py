"""A cache of what a model wrote, in memory for a process, and a model with a cache before it.

A draft is cached as it was written, with what was measured on its tokens and the attention among
them. To serve it, its ``Stop`` is asked about those tokens in order, so it ends where it would have
ended. A draft that needs more tokens than are cached is written from its beginning and replaces
them. A key holds all that can change what is written: what the model is and computes, the ids of
the prompt, the bias on its tokens and the ids it begins with.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dragin_lab.checks import shown
from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.trace.records import probe_distance
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    from dragin_lab.engines.engine import Engine, OnToken
    from dragin_lab.engines.identity import Probed


@dataclass
class Counts:
    """What was served and what had to be generated."""

    drafts_served: int = 0
    drafts_outgrown: int = 0  # generated again, because what was cached of them ends too early
    drafts_made: int = 0  # nothing of them was cached
    tokens_served: int = 0
    tokens_made: int = 0

    @property
    def drafts(self) -> int:
        return self.drafts_served + self.drafts_outgrown + self.drafts_made

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``, a copy made earlier."""
        was = asdict(before)
        return Counts(**{name: count - was[name] for name, count in asdict(self).items()})

    def __str__(self) -> str:
        outgrown = ""
        if self.drafts_outgrown:
            outgrown = f"; {self.drafts_outgrown:,} were cached too short and generated again"
        return (
            f"{self.drafts_served:,} of {self.drafts:,} drafts and {self.tokens_served:,} of "
            f"{self.tokens_served + self.tokens_made:,} tokens were served from the cache{outgrown}"
        )


class Cache(dict[str, Any]):
    """Drafts and maps of attention by their keys, and the models that wrote them.

    It grows with what is written; ``clear`` empties it. Threads may share it. ``counts`` says what
    was served.
    """

    def __init__(self) -> None:
        super().__init__()
        self.counts = Counts()
        self._probes: list[np.ndarray] = []  # of each model that it has met

    def number_of(self, probed: Probed | None) -> int:
        """The number of the model that computes a probe, from 1; 0 where it cannot be probed."""
        if probed is None:
            return 0
        for number, met in enumerate(self._probes, 1):
            if probe_distance(met, probed.probe) <= probed.within:
                return number
        self._probes.append(probed.probe)
        return len(self._probes)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is unpickled, begins empty."""
        return Cache, ()

    def __repr__(self) -> str:
        return f"Cache({len(self):,} entries; {self.counts})"


def as_cache(asked: Cache | bool | None) -> Cache | None:
    """The cache that is asked for; True stands for a new one, None or False for none."""
    if asked is None or isinstance(asked, bool):
        return Cache() if asked else None
    if isinstance(asked, Cache):
        return asked
    advice = "give a Cache, True for a new one, or None for none"
    if isinstance(asked, str | Path):
        advice = "a cache is of one process, in memory: give cache=True; lab.run keeps a folder"
    raise SettingError(f"cache={shown(asked)}: {advice}")


def serve_from(lm: Engine, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides
    its text.
    """
    return lm if cache is None or lm.sample or lm.identity() is None else CachedModel(lm, cache)


class CachedModel:
    """An ``Engine`` whose drafts are served where they are cached; all else is the model's own."""

    def __init__(self, lm: Engine, cache: Cache) -> None:
        self.lm = lm
        self.cache = cache
        self._seen: Any = self  # the probe that ``_identity`` is of
        self._identity = ""

    def _identify(self) -> str:
        """What the model is now: it may have been changed since the answer before."""
        probe = self.lm.probed and self.lm.probed.probe
        if probe is not self._seen:
            self._seen = probe
            known = self.lm.identity()
            number = self.cache.number_of(self.lm.probed)
            self._identity = json.dumps([known, number], sort_keys=True)
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
        key = self._key_of("attention", [int(i) for i in ids])
        if key not in self.cache:
            self.cache[key] = (attend or self.lm.attend)(ids)
        return np.array(self.cache[key])  # the taker's own

    def batch(self, size: int) -> CachedBatch:
        return CachedBatch(self, self.lm.batch(size))

    def find_draft(self, request: Write, watch: OnToken | None = None) -> Draft | None:
        """A draft from what was cached; None: write it."""
        counts = self.cache.counts
        outgrown = False
        for attention in (True,) if request.attention else (False, True):
            stored = self.cache.get(self._draft_key(request, attention))
            if stored is None:
                continue
            outgrown = True
            if (served := replay_stop(stored, request, self.lm.tokenizer, watch)) is not None:
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
        self.cache[self._draft_key(request, request.attention)] = draft
        return draft if request.among else replace(draft, among=None)

    def _draft_key(self, request: Write, attention: bool) -> str:
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in request.bias]
        ids, _ = self._encode(request)
        return self._key_of("draft", [ids, bias, attention, request.hidden, request.prefix])

    def _encode(self, request: Write) -> tuple[list[int], np.ndarray]:
        """A prompt's ids (p,) and spans (p, 2): its text may stand for other ids, and other
        texts for the same.
        """
        tokenizer: Any = self.lm.tokenizer
        ids, offsets = tokenizer.encode_prompt(request.prompt, self.lm.name)
        return ids, offsets

    def _key_of(self, kind: str, request: Any) -> str:
        key = json.dumps([self._identify(), kind, request], sort_keys=True)
        return sha256(key.encode()).hexdigest()


def replay_stop(
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
        self._model = model
        self._batch = batch
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
        served = self._served
        self._served = []
        if not served:
            for (key, request), draft in self._batch.step():
                if not isinstance(draft, Exception):
                    draft = self._model.keep(request, draft)
                served.append((key, draft))
        return served

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        return self._model.attend(ids, self._batch.attend)
