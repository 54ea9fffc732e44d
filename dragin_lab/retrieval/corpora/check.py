"""``dragin-lab corpus check``: whether a built corpus is what was built, and whether a search finds what it must."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from tqdm.auto import tqdm

from dragin_lab.core.trace import Passage
from dragin_lab.errors import CorpusError
from dragin_lab.retrieval.corpora.canaries import DEPTH
from dragin_lab.retrieval.corpora.pool import cores, process_pool
from dragin_lab.retrieval.corpora.store import ORDER, ROWS, Manifest, Records, Store, check_hashes, id_hash

#: Passages that the quick check reads, spread evenly over the corpus.
GLANCES = 1000
_ROWS_AT_ONCE = 4096
_SHARE = 1 << 16  # passages that a process looks through at a time
_NAMED = 3

Finding = tuple[str, bool]  # what was looked at, or what is wrong with it; whether it is sound


class Searches(Protocol):
    """What canary queries are put to."""

    def search(self, query: str, k: int) -> list[Passage]: ...


class Compares(Protocol):
    """An index that holds passages of its own."""

    def compare(self, corpus: Any, rows: Sequence[int]) -> Iterator[str]: ...


def check(
    folder: str | Path,
    *,
    full: bool = False,
    workers: int | None = None,
    progress: bool | None = None,
) -> Iterator[Finding]:
    """Look a built corpus over, and say of each thing whether it is sound.

    Always: the manifest, the files' lengths and counts, and ``GLANCES`` passages: checksum, id, and that none is empty.
    With ``full``: every byte of every file, and every passage. What a search finds, ``ask_canaries`` tells.
    """
    try:
        store = Store(folder)
    except CorpusError as error:
        yield str(error), False
        return
    count = f"{len(store):,} passages"
    yield f"{count} of {store.manifest.source['name']}, by the manifest, the files' lengths and their counts", True
    rows = np.unique(np.linspace(0, len(store) - 1, min(len(store), GLANCES)).astype(int)).tolist()
    wrong = [problem for row in rows for problem in _look(store.records, row, row + 1)]
    wrong += [f"{store.folder / ORDER}: does not lead to passage {row + 1}" for row in rows if not _found(store, row)]
    yield from _findings(wrong, f"{len(rows):,} passages read, spread over all: checksum, id, text")
    if full:
        try:
            check_hashes(store.folder, store.manifest)
            yield f"fingerprint {store.manifest.fingerprint}, and the checksums of all files", True
        except CorpusError as error:
            yield str(error), False
        wrong = _look_through(store, workers or cores(), progress) + _disorder(store)
        yield from _findings(wrong, f"all {count}: checksum, id, text; no id twice")


def ask_canaries(folder: str | Path, retriever: Searches) -> Iterator[Finding]:
    """Whether a retriever over this corpus finds, among the first ``DEPTH``, the passages that were chosen for that."""
    canaries = Manifest.read(Path(folder)).canaries
    wrong = [problem for canary in canaries for problem in _ask(folder, canary, retriever)]
    yield from _findings(wrong, f"{len(canaries)} canary queries, each of which found its passage")


def compare_passages(corpus: Sequence[Passage], retriever: Compares, *, full: bool = False) -> Iterator[Finding]:
    """Whether an index elsewhere holds the corpus's passages: all of them, or ``GLANCES`` spread over it."""
    count = len(corpus) if full else min(len(corpus), GLANCES)
    rows = np.unique(np.linspace(0, len(corpus) - 1, count).astype(int)).tolist()
    wrong = list(islice(retriever.compare(corpus, rows), _NAMED + 1))
    yield from _findings(wrong, f"{len(rows):,} of its passages, which are the corpus's")


def _findings(wrong: list[str], sound: str) -> Iterator[Finding]:
    """The first problems and how many more there are, or the one line that there are none."""
    if not wrong:
        yield sound, True
        return
    yield from ((problem, False) for problem in wrong[:_NAMED])
    if len(wrong) > _NAMED:
        yield f"... and {len(wrong) - _NAMED:,} more such lines", False


def _look(records: Records, start: int, stop: int) -> list[str]:
    """What is wrong with rows ``start`` to ``stop``; with one that is damaged, the rest of them is not looked at."""
    try:
        passages = records.passages(start, stop)
    except CorpusError as error:
        return [str(error)]
    hashes = records.ids(start, stop)
    wrong = []
    for row, (passage, id) in enumerate(zip(passages, hashes, strict=True), start):
        if id_hash(passage.id) != id:
            wrong.append(f"{records.folder / ROWS}: is not of passage {row + 1}")
        if not passage.text.strip():
            wrong.append(f"{records.folder}: passage {row + 1} (id {passage.id!r}) is empty")
    return wrong


def _found(store: Store, row: int) -> bool:
    try:
        return store.position[store[row].id] == row
    except (KeyError, IndexError):
        return False
    except CorpusError:
        return True  # the passage itself is damaged, which is said elsewhere


def _look_through(store: Store, workers: int, progress: bool | None) -> list[str]:
    """Every passage; in several processes where there are enough, as each share stands for itself."""
    shares = [(start, min(start + _SHARE, len(store))) for start in range(0, len(store), _SHARE)]
    disable = None if progress is None else not progress
    with tqdm(total=len(store), desc="check", unit=" passages", disable=disable, leave=False) as bar:
        wrong: list[str] = []
        if workers == 1 or len(shares) < 4:
            for start, stop in shares:
                wrong += _share(store.folder, start, stop)
                bar.update(stop - start)
            return wrong
        with process_pool(min(workers, len(shares))) as pool:
            waiting: list[Future[list[str]]] = [pool.submit(_share, store.folder, *share) for share in shares]
            for (start, stop), future in zip(shares, waiting, strict=True):
                wrong += future.result()
                bar.update(stop - start)
        return wrong


def _share(folder: Path, start: int, stop: int) -> list[str]:
    records = Records(folder)
    wrong: list[str] = []
    for begin in range(start, stop, _ROWS_AT_ONCE):
        wrong += _look(records, begin, min(begin + _ROWS_AT_ONCE, stop))
    return wrong


def _disorder(store: Store) -> list[str]:
    """What is wrong with the rows sorted by the hash of their id."""
    order = np.asarray(store.order)
    if not np.array_equal(np.sort(order), np.arange(len(store))):
        return [f"{store.folder / ORDER}: does not name every passage once"]
    ids = store.rows["id"][order]
    if (ids[1:] < ids[:-1]).any():
        return [f"{store.folder / ORDER}: is not sorted"]
    wrong = []
    for place in np.flatnonzero(ids[1:] == ids[:-1]).tolist():
        first, second = int(order[place]), int(order[place + 1])
        if store[first].id == store[second].id:
            wrong.append(f"{store.folder}: passages {first + 1} and {second + 1} have one id, {store[first].id!r}")
    return wrong


def _ask(folder: str | Path, canary: dict[str, str], retriever: Searches) -> list[str]:
    found = [passage.id for passage in retriever.search(canary["query"], DEPTH)]
    if canary["id"] in found:
        return []
    instead = ", ".join(found[:3]) or "nothing"
    return [
        f"{folder}: the query {json.dumps(canary['query'], ensure_ascii=False)} must find passage "
        f"{canary['id']!r} and finds {instead}; the index does not hold all of this corpus: build it again"
    ]
