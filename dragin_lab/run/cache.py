"""A cache of what a model wrote, served wherever the same is asked for again.

With greedy decoding a prompt has one continuation, so five thresholds need only be paid for where their episodes part.

A draft is cached as its tokens, what was measured on them and the attention among them. To serve it, its ``Stop`` is
asked about those tokens in order by the code that generates (``model.replay``), so it ends where it would have ended
and is the same to the bit. A draft that needs more tokens than are cached is generated from its beginning and replaces
them: going on after them would read them in one forward instead of one by one, which sums in another order.

A key holds all that can change what is written: the model's ``identity``, the prompt with the parts it is read in, the
bias on its tokens, and how its attention rows are computed. Rows that a ``Stop`` looks at after every token are
computed one by one, others together, which can differ in the last bit; the two have keys of their own, and so has what
was written side by side with other drafts.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.checks import count, shown
from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.files import as_path
from dragin_lab.run.cache_disk import CacheError, Disk
from dragin_lab.trace.trace import Continuation

if TYPE_CHECKING:
    from dragin_lab.model.load import LanguageModel

__all__ = ["Cache", "CacheError", "Counts", "as_cache", "cached"]

LIMIT = 2**30  # bytes in memory
DISK_LIMIT = 8 * 2**30  # bytes on disk
_ENTRY = 300  # bytes, about, that an entry takes beside its arrays

#: How rows were computed: after every token, several at once, side by side with other drafts.
ALONE, BESIDE = ("looked", "together"), ("looked", "together", "beside")

Arrays = Mapping[str, np.ndarray]


@dataclass
class Counts:
    """What was served and what had to be made; tokens are generated ones, maps are answers to ``Attend``."""

    drafts_served: int = 0
    drafts_outgrown: int = 0  # generated again, because what was cached of them ends too early
    drafts_made: int = 0  # nothing of them was cached
    tokens_served: int = 0
    tokens_made: int = 0
    maps_served: int = 0
    maps_made: int = 0

    @property
    def drafts(self) -> int:
        """All that were asked for."""
        return self.drafts_served + self.drafts_outgrown + self.drafts_made

    def since(self, before: Counts) -> Counts:
        """What was counted after ``before``, a copy made earlier."""
        return Counts(**{f.name: getattr(self, f.name) - getattr(before, f.name) for f in fields(self)})

    def __str__(self) -> str:
        outgrown = f"; {self.drafts_outgrown:,} were cached too short and generated again" * (self.drafts_outgrown > 0)
        return (
            f"{self.drafts_served:,} of {self.drafts:,} drafts and {self.tokens_served:,} of "
            f"{self.tokens_served + self.tokens_made:,} tokens were served from the cache{outgrown}"
        )


class Cache:
    """Arrays under keys, bounded in bytes; the least recently used go first.

    Threads may share a cache, and processes its folder. ``counts`` says what was served.

    Args:
        folder: write every entry to a file there too, for later processes; None caches in memory alone.
        limit: bytes in memory.
        disk_limit: bytes on disk.

    Raises:
        CacheError: a folder that cannot be written, or that holds a cache of another format.
        SettingError: a limit below 0.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int = LIMIT, disk_limit: int = DISK_LIMIT) -> None:
        self.limit, disk_limit = count("limit", limit, 0), count("disk_limit", disk_limit, 0)  # bytes
        self.folder = None if folder is None else as_path(folder)
        self.counts = Counts()
        self.nbytes = 0  # in memory
        self._entries: OrderedDict[bytes, dict[str, np.ndarray]] = OrderedDict()
        self._disk = None if self.folder is None else Disk(self.folder, disk_limit)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        """Entries in memory."""
        return len(self._entries)

    def get(self, key: bytes) -> Arrays | None:
        """The arrays under a key, not to be written to; None where there are none."""
        with self._lock:
            found = self._entries.get(key)
            if found is not None:
                self._entries.move_to_end(key)
                return found
            data = None if self._disk is None else self._disk.get(key)
            if data is None:
                return None
            try:
                found = safetensors.numpy.load(data)
            except safetensors.SafetensorError:  # its checksum is right, so another program wrote it
                return None
            self._insert(key, found)
            return found

    def put(self, key: bytes, arrays: Arrays) -> None:
        """Cache arrays under a key, in place of what was there."""
        entry = {name: np.ascontiguousarray(array) for name, array in arrays.items()}
        with self._lock:
            self._insert(key, entry)
            if self._disk is not None:
                self._disk.put(key, safetensors.numpy.save(entry))

    def clear(self) -> None:
        """Drop what is in memory."""
        with self._lock:
            self._entries.clear()
            self.nbytes = 0

    def close(self) -> None:
        """Drop what is in memory and close the file."""
        self.clear()
        if self._disk is not None:
            self._disk.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"Cache({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"

    def _insert(self, key: bytes, arrays: dict[str, np.ndarray]) -> None:
        self._drop(key)
        self._entries[key] = arrays
        self.nbytes += _size(arrays)
        while self.nbytes > self.limit:
            self._drop(next(iter(self._entries)))

    def _drop(self, key: bytes) -> None:
        if (arrays := self._entries.pop(key, None)) is not None:
            self.nbytes -= _size(arrays)


def as_cache(given: Cache | str | Path | bool | None) -> Cache | None:
    """The cache that ``cache=`` asks for: one, a folder, True for a new one in memory, None or False for none.

    Raises ``SettingError`` for anything else; otherwise as ``Cache``.
    """
    if given is None or given is False:
        return None
    if given is True:
        return Cache()
    if isinstance(given, str | Path):
        return Cache(given)
    if isinstance(given, Cache):
        return given
    raise SettingError(f"cache={shown(given)}: give a Cache, a folder, True for one in memory, or None for none")


def _size(arrays: Arrays) -> int:
    return _ENTRY + sum(array.nbytes for array in arrays.values())


# -- a model with a cache ---------------------------------------------------------------------------------------------


def cached(lm: LanguageModel, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides its text.
    """
    if cache is None or getattr(lm, "sample", True) or not hasattr(lm, "identity"):
        return lm
    return CachedModel(lm, cache)


class CachedModel:
    """Has what drivers use of a ``LanguageModel``; all else is the model's own."""

    def __init__(self, lm: LanguageModel, cache: Cache) -> None:
        self.lm = lm
        self.cache = cache
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
        if (found := self.cache.get(key)) is not None:
            self.cache.counts.maps_served += 1
            return _unpacked(found)
        made: np.ndarray = (attend or self.lm.attend)(ids)
        self.cache.counts.maps_made += 1
        self.cache.put(key, _packed(made))
        return made

    def batch(self, size: int) -> CachedBatch:
        """As ``LanguageModel.batch``."""
        return CachedBatch(self, self.lm.batch(size))

    def find(self, draft: Write, ways: Sequence[str]) -> tuple[list[Any], Continuation] | None:
        """A draft's events and its continuation from what was made in one of some ways; None: generate it."""
        there = False
        for way, arrays in self._entries(draft, ways):
            there = True
            if (found := self.lm.replay(draft, arrays, way)) is not None:
                self.cache.counts.drafts_served += 1
                self.cache.counts.tokens_served += len(found[1])
                return found
        self.cache.counts.drafts_outgrown += there
        self.cache.counts.drafts_made += not there
        return None

    def keeper(self, draft: Write) -> Any:
        """What the model calls at a draft's end with how it was made and the arrays to cache."""

        def keep(way: str, arrays: Arrays) -> None:
            self.cache.counts.tokens_made += len(arrays["ids"])
            if way:
                self.cache.put(self._draft_key(draft, way, draft.attention), arrays)

        return keep

    def _entries(self, draft: Write, ways: Sequence[str]) -> Iterator[tuple[str, Arrays]]:
        for attention in (True,) if draft.attention else (False, True):
            for way in ways:
                found = self.cache.get(self._draft_key(draft, way, attention))
                if found is not None:
                    yield way, found

    def _draft_key(self, draft: Write, way: str, attention: bool) -> bytes:
        prompt = draft.prompt
        parts = {name: prompt.spans.get(name) for name in self.lm.parts}
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in draft.bias]
        return self._key(
            "draft", [prompt.text, prompt.special, prompt.apart, parts, bias, way, attention, draft.hidden]
        )

    def _key(self, kind: str, what: Any) -> bytes:
        return sha256(json.dumps([self._identity, kind, what], sort_keys=True).encode()).digest()


class NotCachedError(DraginLabError):
    """What an episode asks for was never written, so that only the model could tell."""


class CacheAlone(CachedModel):
    """A model's cache in its place: what is not cached is an error, and nothing is counted or generated."""

    def __init__(self, lm: LanguageModel, cache: Cache) -> None:
        super().__init__(lm, cache)
        self.sample = True  # so that no cache is put before it

    def stream(self, draft: Write, seed: int | None = None) -> Generator[Any, None, Continuation]:
        """As ``LanguageModel.stream``; raises ``NotCachedError``."""
        found = (self.lm.replay(draft, arrays, way) for way, arrays in self._entries(draft, BESIDE))
        events, made = next((one for one in found if one is not None), (None, None))
        if events is None or made is None:
            raise NotCachedError("the cache does not hold this draft")
        yield from events
        return made

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``LanguageModel.attend``; raises ``NotCachedError``."""
        found = self.cache.get(self._key("map", [int(i) for i in ids]))
        if found is None:
            raise NotCachedError("the cache does not hold this attention map")
        return _unpacked(found)


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
            found = self._model.find(draft, BESIDE)
        except DraginLabError:  # a draft that cannot be made; the batch tells its episode
            found = None
        if found is None:
            self._batch.ask(key, draft, seed, keep=self._model.keeper(draft))
        else:
            self._served.append((key, found[1]))

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


def _packed(attention: np.ndarray) -> Arrays:
    """An attention map (h, n, n) by its lower triangle, where the rest is 0."""
    n = attention.shape[-1]
    if np.triu(attention, 1).any():
        return {"whole": attention}
    rows, columns = np.tril_indices(n)
    return {"lower": attention[:, rows, columns], "n": np.array([n], np.int32)}


def _unpacked(entry: Arrays) -> np.ndarray:
    if "whole" in entry:
        return entry["whole"].copy()
    lower, n = entry["lower"], int(entry["n"][0])
    made = np.zeros((lower.shape[0], n, n), lower.dtype)
    made[:, *np.tril_indices(n)] = lower
    return made
