"""A cache of what models wrote, in memory or in a folder for several processes, and a model with one before it.

A draft is cached as its tokens, what was measured on them and the attention among them. To serve it, its ``Stop`` is
asked about those tokens in order, so it ends where it would have ended. A draft that needs more tokens than are cached
is written from its beginning and replaces them. A key holds all that can change what is written: the model's
``identity``, the ids of the prompt, the bias on its tokens and the ids it begins with.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import warnings
import zlib
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, fields, replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import diskcache
import numpy as np
import safetensors
import safetensors.numpy

from dragin_lab.checks import count, shown
from dragin_lab.core.episode import Write
from dragin_lab.errors import DraginLabError, SettingError
from dragin_lab.files import as_path, remedy
from dragin_lab.trace.file import pack_record, unpack_record
from dragin_lab.trace.trace import Draft

if TYPE_CHECKING:
    from dragin_lab.engines.engine import Engine, OnToken

LIMIT, DISK_LIMIT = 2**30, 8 * 2**30  # bytes in memory, and in a folder
_DAMAGED = (
    sqlite3.Error, diskcache.Timeout, safetensors.SafetensorError, OSError, TypeError, ValueError, KeyError, IndexError,
)  # fmt: skip

Arrays = Mapping[str, np.ndarray]


class CacheError(DraginLabError):
    """A cache's folder that cannot be used."""


@dataclass
class Counts:
    """What was served and what had to be generated; maps are answers to ``Attend``."""

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


class Cache(AbstractContextManager["Cache"]):
    """Arrays under keys, bounded in bytes; the least recently used are deleted first.

    Threads may share a cache, and processes its folder. ``counts`` says what was served. A damaged entry counts as
    missing. Where a folder takes no more (a full disk), a warning says so, and nothing more is cached.

    Args:
        folder: keep the entries there (diskcache), for later processes too; None is in memory.
        limit: bytes; by default ``LIMIT`` in memory and ``DISK_LIMIT`` in a folder.

    Raises ``CacheError`` for a folder that cannot be written or holds a damaged cache.
    """

    def __init__(self, folder: str | Path | None = None, *, limit: int | None = None) -> None:
        self.folder = None if folder is None else as_path(folder)
        self.limit = count("limit", limit, 0) if limit is not None else LIMIT if folder is None else DISK_LIMIT
        self.counts = Counts()
        self._store: Any = _Memory(self.limit) if self.folder is None else _open_folder(self.folder, self.limit)
        self._failed = False  # whether it takes no more

    def __len__(self) -> int:
        return len(self._store)

    @property
    def nbytes(self) -> int:
        """Bytes of all entries; in a folder, what they take on the disk."""
        return int(self._store.volume())

    def get(self, key: str, read: Callable[[Arrays], Any] = dict) -> Any:
        """What ``read`` makes of a key's arrays; None where there are none or, with a warning, damaged ones."""
        try:
            if (data := self._store.get(key)) is None:
                return None
            if zlib.crc32(data[4:]) != int.from_bytes(data[:4]):
                raise ValueError("another checksum")
            return read(safetensors.numpy.load(data[4:]))
        except _DAMAGED as error:
            where = self.folder or "the cache"
            warnings.warn(f"{where}: an entry is damaged ({error}); it is generated again", stacklevel=3)
            return None

    def put(self, key: str, arrays: Arrays) -> None:
        """Cache arrays under a key, in place of what was there; nothing where they are larger than the limit."""
        data = safetensors.numpy.save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        if len(data) > self.limit or self._failed:
            return
        try:
            with suppress(diskcache.Timeout):  # another process holds it for long: only this one is not cached
                self._store.set(key, zlib.crc32(data).to_bytes(4) + data)
        except (sqlite3.Error, OSError) as error:
            self._failed = True
            warnings.warn(
                f"{self.folder}: {error}; nothing more is cached there, what is there stays, and the run goes on. Free "
                "some space, or give another folder",
                stacklevel=3,
            )

    def close(self) -> None:
        """Close the folder; it is then an empty cache in memory."""
        if self.folder is not None:
            self._store.close()
        self._store = _Memory(self.limit)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, and what is unpickled, shares the folder; one in memory begins empty."""
        return partial(Cache, self.folder, limit=self.limit), ()

    def __repr__(self) -> str:
        where = "in memory" if self.folder is None else str(self.folder)
        return f"Cache({where}, {len(self):,} entries, {self.nbytes / 2**20:.1f} MiB; {self.counts})"


class _Memory(OrderedDict[str, bytes]):
    """As much of ``diskcache.Cache`` as is used, in memory."""

    def __init__(self, limit: int) -> None:
        self.limit, self.bytes, self.lock = limit, 0, threading.Lock()

    def get(self, key: str, default: Any = None) -> Any:
        with self.lock:
            if key in self:
                self.move_to_end(key)
            return super().get(key, default)

    def set(self, key: str, data: bytes) -> None:
        with self.lock:
            self.bytes += len(data) - len(self.pop(key, b""))
            self[key] = data
            while self.bytes > self.limit:
                self.bytes -= len(self.popitem(last=False)[1])

    def volume(self) -> int:
        return self.bytes


class _Plain(diskcache.Disk):
    """A folder that may be someone else's: nothing in it is unpickled, no key is read, no file outside it touched."""

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Any:
        if mode not in (diskcache.core.MODE_RAW, diskcache.core.MODE_BINARY):
            raise ValueError("a value that is not bytes")
        if filename is not None and not self._is_inside(filename):
            raise ValueError("an entry that names a file outside the folder")
        return super().fetch(mode, filename, value, read)

    def remove(self, file_path: str) -> None:
        if self._is_inside(file_path):
            super().remove(file_path)

    def _is_inside(self, name: Any) -> bool:
        folder = Path(self._directory).resolve()
        return isinstance(name, str) and (folder / name).resolve().is_relative_to(folder)


def _open_folder(folder: Path, limit: int) -> Any:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return diskcache.Cache(folder, disk=_Plain, size_limit=limit, eviction_policy="least-recently-used")
    except OSError as error:
        why = error.strerror or error
        raise CacheError(f"{folder}: no cache can be written there ({why}); {remedy(error)}") from None
    except (sqlite3.Error, diskcache.Timeout) as error:
        advice = f"delete {folder / diskcache.core.DBNAME}, or give another folder"
        raise CacheError(f"{folder}: the cache cannot be used ({error}); {advice}") from None


def as_cache(given: Cache | str | Path | bool | None) -> Cache | None:
    """The cache that is asked for; True stands for a new one in memory, None or False for none."""
    if given is None or isinstance(given, bool):
        return Cache() if given else None
    if isinstance(given, str | Path):
        return Cache(given)
    if isinstance(given, Cache):
        return given
    raise SettingError(f"cache={shown(given)}: give a Cache, a folder, True for one in memory, or None for none")


# -- a model with a cache before it -----------------------------------------------------------------------------------


def cached(lm: Engine, cache: Cache | None) -> Any:
    """The model, with its drafts served from ``cache`` and added to it.

    It is the model itself without a cache, under sampling, and where it does not say what decides its text.
    """
    return lm if cache is None or lm.sample or lm.identity() is None else CachedModel(lm, cache)


class CachedModel:
    """An ``Engine`` whose drafts are served where they are cached; all else is the model's own."""

    def __init__(self, lm: Engine, cache: Cache) -> None:
        self.lm, self.cache = lm, cache
        self._identity = json.dumps(lm.identity(), sort_keys=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.lm, name)

    def write(self, request: Write, seed: int | None = None, *, watch: OnToken | None = None) -> Draft:
        """As ``Engine.write``."""
        if (served := self.find_draft(request, watch)) is not None:
            return served
        return self.keep(request, self.lm.write(replace(request, among=True), seed, watch=watch))

    def attend(self, ids: Sequence[int], attend: Any = None) -> np.ndarray:
        """As ``Engine.attend``, which ``attend`` may stand in for."""
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
        """As ``Engine.batch``."""
        return CachedBatch(self, self.lm.batch(size))

    def find_draft(self, request: Write, watch: OnToken | None = None) -> Draft | None:
        """A draft from what was cached; None: write it."""
        counts, outgrown = self.cache.counts, False
        for attention in (True,) if request.attention else (False, True):
            stored = self.cache.get(self._draft_key(request, attention), lambda entry: unpack_record(Draft, entry))
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
        """Cache what was written with attention among its tokens; the draft with what the request asks for."""
        self.cache.counts.tokens_made += len(draft)
        self.cache.put(self._draft_key(request, request.attention), pack_record(draft))
        return draft if request.among else replace(draft, among=None)

    def _draft_key(self, request: Write, attention: bool) -> str:
        bias = [[b.opening, repr(b.value), b.first, b.stop] for b in request.bias]
        return self._key("draft", [self._encode(request)[0], bias, attention, request.hidden, request.prefix])

    def _encode(self, request: Write) -> tuple[list[int], np.ndarray]:
        """A prompt's ids (p,) and spans (p, 2): its text may stand for other ids, and other texts for the same."""
        tokenizer: Any = self.lm.tokenizer
        ids, offsets = tokenizer.encode_prompt(request.prompt, self.lm.name)
        return ids, offsets

    def _key(self, kind: str, request: Any) -> str:
        return sha256(json.dumps([self._identity, kind, request], sort_keys=True).encode()).hexdigest()


def replay(stored: Draft, request: Write, tokenizer: Any, watch: OnToken | None = None) -> Draft | None:
    """What a request's stop makes of a draft that was written after the same prompt; None where it needs more of it.

    It is asked after each token, as while the draft was written; ``watch`` hears of a draft that is served alone.
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
        """As ``Batch.ask``; a draft that is served takes no place in the batch."""
        try:
            served = self._model.find_draft(request)
        except DraginLabError:  # the batch tells its episode
            served = None
        if served is None:
            self._batch.ask((key, request), replace(request, among=True), seed)
        else:
            self._served.append((key, served))

    def step(self) -> list[tuple[Any, Any]]:
        """What was served, else as ``Batch.step``."""
        served, self._served = self._served, []
        if not served:
            for (key, request), draft in self._batch.step():
                served.append((key, draft if isinstance(draft, Exception) else self._model.keep(request, draft)))
        return served

    def attend(self, ids: Sequence[int]) -> np.ndarray:
        """As ``Batch.attend``."""
        return self._model.attend(ids, self._batch.attend)
