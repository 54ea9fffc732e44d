"""Building a BM25S index of a corpus on disk: analysed in shares by all cores, merged in bounded memory.

A share is a run of passages. A process analyses it and leaves, for each field, its terms in sorted order with the
passages that hold them. When all shares are there, they are merged term by term: the terms of all shares stand in one
order, so a range of terms is a range of every share. Each step writes one after the other and keeps no more than a
share, or ``_POSTINGS_AT_ONCE`` postings, in memory. Shares that a killed build left are not analysed again, and nothing
in the result depends on them. What comes out are bm25s's own files, and the same scores as bm25s makes.
"""

from __future__ import annotations

import heapq
import json
import os
import shutil
from array import array
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.errors import BrokenOffError, CorpusError
from dragin_lab.files import write_whole
from dragin_lab.retrieval import analysis
from dragin_lab.retrieval.corpora.pool import cores, process_pool
from dragin_lab.retrieval.corpora.store import Records
from dragin_lab.retrieval.postings import ENDS, TERMS, save_array, write_head

FIELDS = ("title", "text")
SHARES, PROGRESS = "shares", "index.partial.json"
#: The files of a field, as bm25s names them.
DATA, INDICES, INDPTR = "data.csc.index.npy", "indices.csc.index.npy", "indptr.csc.index.npy"
PARAMETERS = "params.index.json"
#: Passages of a share.
SHARE = 1 << 16
_SMALL = 2 * SHARE  # below, starting processes takes longer than they save
_PASSAGES_AT_ONCE = 1 << 12
_POSTINGS_AT_ONCE = 1 << 22
_TERMS_AT_ONCE = 1 << 12


def build_fields(
    corpus: Path, passages: int, folder: Path, facts: dict[str, Any], *, workers: int | None, progress: bool | None
) -> dict[str, int | None]:
    """Write the fields' files below ``folder``; returns the postings of each, None where no passage has the field.

    ``facts`` say what the index is of; shares in the folder must be of the same. Raises ``BrokenOffError`` where a
    process ended, ``OSError`` where the disk did.
    """
    shares = _shares(folder, facts, passages)
    disable = None if progress is None else not progress
    with tqdm(total=passages, desc="analyse", unit=" passages", disable=disable, leave=False) as bar:
        _analyse_all(corpus, shares, workers or (1 if passages < _SMALL else cores()), bar.update)
    made: dict[str, int | None] = {}
    with tqdm(desc="merge", unit=" postings", unit_scale=True, disable=disable, leave=False) as bar:
        for name in FIELDS:
            field = folder / name
            shutil.rmtree(field, ignore_errors=True)
            made[name] = _merge([_Share(path, name) for _, _, path in shares], field, facts, bar.update)
    return made


def clear(folder: Path) -> None:
    """Remove what is left of a build under way."""
    (folder / PROGRESS).unlink(missing_ok=True)
    shutil.rmtree(folder / SHARES, ignore_errors=True)


def _shares(folder: Path, facts: dict[str, Any], passages: int) -> list[tuple[int, int, Path]]:
    """(first, behind the last, folder) of each share; notes in the index's folder what they are of."""
    about = {"of": json.loads(json.dumps(facts)), "share": SHARE}
    path = folder / PROGRESS
    if path.exists():
        try:
            there = json.loads(path.read_bytes())
        except ValueError as error:
            raise CorpusError(f"{path}: is damaged ({error}); start over with --force") from None
        if there != about:
            raise CorpusError(f"{folder}: holds an unfinished index of something else; start over with --force")
    else:
        shutil.rmtree(folder / SHARES, ignore_errors=True)
        write_whole(path, json.dumps(about).encode())
    (folder / SHARES).mkdir(exist_ok=True)
    starts = range(0, passages, SHARE)
    return [(at, min(at + SHARE, passages), folder / SHARES / f"{i:05d}") for i, at in enumerate(starts)]


# -- analysis ---------------------------------------------------------------------------------------------------------


def _analyse_all(
    corpus: Path, shares: list[tuple[int, int, Path]], workers: int, advance: Callable[[int], Any]
) -> None:
    todo = []
    for start, stop, path in shares:
        if path.exists():
            advance(stop - start)
        else:
            todo.append((start, stop, path))
    if workers == 1 or len(todo) < 2:
        for start, stop, path in todo:
            _analyse(corpus, start, stop, path)
            advance(stop - start)
        return
    pool = process_pool(min(workers, len(todo)))
    try:
        waiting: dict[Future[None], int] = {}
        for start, stop, path in todo:
            waiting[pool.submit(_analyse, corpus, start, stop, path)] = stop - start
        while waiting:
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                future.result()
                advance(waiting.pop(future))
    except BrokenProcessPool:
        raise BrokenOffError(
            "a process that analyses was ended, perhaps for want of memory (it takes some 500 MiB); run it again to go "
            "on, with fewer --workers"
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


def _analyse(corpus: Path, start: int, stop: int, target: Path) -> None:
    """Analyse the passages from ``start`` to ``stop`` into a folder, which is there when it is whole."""
    records = Records(corpus)
    found = {name: _Analysed() for name in FIELDS}
    for first in range(start, stop, _PASSAGES_AT_ONCE):
        for passage in records.passages(first, min(first + _PASSAGES_AT_ONCE, stop)):
            for name, field in found.items():
                field.add(getattr(passage, name))
    draft = target.with_suffix(".partial")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir()
    for name, field in found.items():
        field.save(draft / name, start)
    os.replace(draft, target)


class _Analysed:
    """One field of the passages of a share, as terms numbered in the order of their first place."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}
        self._terms = array("i")  # of all passages, one behind the other
        self._lengths = array("i")  # of each passage, in terms

    def add(self, text: str) -> None:
        numbers = self._numbers
        found = [numbers.setdefault(term, len(numbers)) for term in analysis.terms(text)]
        self._terms.extend(found)
        self._lengths.append(len(found))

    def save(self, folder: Path, first: int) -> None:
        """Terms in the order of their bytes, how many passages hold each, which these are, and how often."""
        folder.mkdir()
        order = sorted((term.encode(), number) for term, number in self._numbers.items())
        rank = np.empty(len(order), np.int64)  # (terms,)
        rank[[number for _, number in order]] = np.arange(len(order))
        lengths = np.asarray(self._lengths, np.int32)  # (passages,)
        holders = np.repeat(np.arange(len(lengths)), lengths)  # (words,)
        keys, counts = np.unique(
            rank[np.asarray(self._terms, np.int32)] * len(lengths) + holders, return_counts=True
        )  # (postings,) by term, then by passage
        terms, passages = np.divmod(keys, len(lengths))
        (folder / "terms").write_bytes(b"".join(term for term, _ in order))
        sizes = np.array([len(term) for term, _ in order], np.int32)
        held = np.bincount(terms, minlength=len(order)).astype(np.int32)
        arrays = {"sizes": sizes, "held": held, "holders": (passages + first), "counts": counts, "lengths": lengths}
        for name, values in arrays.items():
            (folder / name).write_bytes(values.astype("<i4").tobytes())  # `tofile` overlooks a disk that is full


# -- merging ----------------------------------------------------------------------------------------------------------


class _Share:
    """One field of a share, read from the front."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder / name
        self.numbers = array("i")  # of each of its terms among all terms
        self._term = self._posting = 0  # how far ``take`` has read

    def read(self, name: str, start: int = 0, count: int = -1) -> np.ndarray:
        return np.fromfile(self._folder / name, "<i4", count, offset=4 * start)

    def terms(self) -> Iterator[bytes]:
        with (self._folder / "terms").open("rb") as file:
            sizes = self.read("sizes").tolist()
            for start in range(0, len(sizes), _TERMS_AT_ONCE):
                part = sizes[start : start + _TERMS_AT_ONCE]
                data, at = file.read(sum(part)), 0
                for size in part:
                    yield data[at : at + size]
                    at += size

    def take(self, numbers: np.ndarray, until: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The next postings, of terms numbered below ``until``: the term, the passage and the count of each."""
        stop = int(np.searchsorted(numbers, until))
        held = self.read("held", self._term, stop - self._term)
        terms = np.repeat(numbers[self._term : stop], held)
        holders, counts = (self.read(name, self._posting, len(terms)) for name in ("holders", "counts"))
        self._term, self._posting = stop, self._posting + len(terms)
        return terms, holders, counts


def _merge(shares: list[_Share], folder: Path, facts: dict[str, Any], advance: Callable[[int], Any]) -> int | None:
    """The files of one field from its shares; as in Lucene, only passages that have the field count."""
    lengths = np.concatenate([share.read("lengths") for share in shares])  # (passages,)
    filled = int((lengths > 0).sum())
    if not filled:
        return None
    folder.mkdir()
    mean = float(lengths.sum(dtype=np.int64)) / filled
    count = _merge_terms(shares, folder)
    numbers = [np.frombuffer(share.numbers, np.int32) for share in shares]
    held = np.zeros(count, np.int64)  # (terms,)
    for share, its in zip(shares, numbers, strict=True):
        held[its] += share.read("held")
    start = np.concatenate([[0], np.cumsum(held)])  # (terms + 1,)
    total = int(start[-1])
    idf = np.log1p((filled - held + 0.5) / (held + 0.5))  # (terms,)
    k1, b = facts["k1"], facts["b"]
    with (folder / DATA).open("wb") as data, (folder / INDICES).open("wb") as indices:
        write_head(data, np.dtype("<f4"), total)
        write_head(indices, np.dtype("<i4"), total)
        first = 0
        while first < count:
            until = max(first + 1, int(np.searchsorted(start, start[first] + _POSTINGS_AT_ONCE, "right")) - 1)
            parts = [share.take(its, until) for share, its in zip(shares, numbers, strict=True)]
            terms, holders, tf = (np.concatenate(part) for part in zip(*parts, strict=True))
            order = np.argsort(terms, kind="stable")  # shares follow one another, so passages stay in order
            terms, holders, tf = terms[order], holders[order], tf[order].astype(np.float64)
            scores = idf[terms] * tf / (tf + k1 * (1 - b + b * lengths[holders] / mean))  # (postings,)
            data.write(scores.astype("<f4").tobytes())
            indices.write(holders.tobytes())
            advance(len(terms))
            first = until
        for file in (data, indices):
            file.flush()
            os.fsync(file.fileno())
    save_array(folder / INDPTR, start)
    return total


def _merge_terms(shares: list[_Share], folder: Path) -> int:
    """Write the terms of all shares in order, each once, and tell each share their numbers; returns how many."""
    streams = [zip(share.terms(), repeat(i), strict=False) for i, share in enumerate(shares)]
    ends = array("q")
    end = 0
    with (folder / TERMS).open("wb") as file:
        for number, (term, holders) in enumerate(groupby(heapq.merge(*streams), itemgetter(0))):
            for _, i in holders:
                shares[i].numbers.append(number)
            file.write(term)
            end += len(term)
            ends.append(end)
    save_array(folder / ENDS, np.frombuffer(ends, np.int64))
    return len(ends)
