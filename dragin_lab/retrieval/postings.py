"""Postings: for each term the passages that hold it. Terms in sorted order on disk, and scores summed over them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np

TERMS, ENDS = "terms.bin", "terms.ends.npy"


class Terms:
    """Terms by number, in the order of their UTF-8 bytes; a search reads a few of them, so they may stay on disk."""

    def __init__(self, text: np.ndarray, ends: np.ndarray) -> None:
        # Views that give bytes and ints at once: a search looks up some twenty terms for each that it is asked for.
        self._text = np.asarray(text).data  # (bytes,) uint8, the terms one behind the other
        self._ends = np.asarray(ends).data  # (terms,) int64

    @classmethod
    def of(cls, terms: Iterable[str]) -> Terms:
        """Of sorted terms, in memory."""
        parts = [term.encode() for term in terms]
        return cls(np.frombuffer(b"".join(parts), np.uint8), np.cumsum([len(part) for part in parts], dtype=np.int64))

    @classmethod
    def load(cls, folder: Path) -> Terms:
        """Mapped from where ``save`` put them."""
        return cls(np.memmap(folder / TERMS, np.uint8, "r"), np.load(folder / ENDS, mmap_mode="r"))

    def save(self, folder: Path) -> None:
        (folder / TERMS).write_bytes(self._text.tobytes())
        save_array(folder / ENDS, np.asarray(self._ends))

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, number: int) -> bytes:
        start = self._ends[number - 1] if number else 0
        return self._text[start : self._ends[number]].tobytes()

    def find(self, term: str) -> int | None:
        """The number of a term; None for one that no passage holds."""
        wanted = term.encode()
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self[middle] < wanted else (low, middle)
        return low if low < len(self) and self[low] == wanted else None


def save_array(path: Path, values: np.ndarray) -> None:
    """``np.save`` of one axis, which itself takes no notice of a disk that is full at the end."""
    with path.open("wb") as file:
        write_head(file, values.dtype, len(values))
        file.write(values.tobytes())


def write_head(file: BinaryIO, dtype: np.dtype, count: int) -> None:
    """The beginning of a .npy file of one axis; its values follow."""
    np.lib.format.write_array_header_1_0(file, {"descr": dtype.str, "fortran_order": False, "shape": (count,)})


def sum_scores(
    queries: Sequence[Counter[int]],
    postings: Callable[[int], tuple[np.ndarray, np.ndarray]],
    passages: int,
    dtype: type[np.floating],
) -> np.ndarray:
    """The score of every passage for every query, (queries, passages).

    A query is how often it has each term, by number; ``postings`` gives the passages that hold a term, each once, and
    what it adds to their score. Terms are taken in order of their numbers, each read once for all queries, so a query
    scores the same to the last bit whatever is asked beside it.
    """
    scores = np.zeros((len(queries), passages), dtype)
    wanted: dict[int, list[tuple[np.ndarray, int]]] = {}
    for row, query in zip(scores, queries, strict=True):
        for number, times in query.items():
            wanted.setdefault(number, []).append((row, times))
    for number in sorted(wanted):
        holders, adds = postings(number)
        for row, times in wanted[number]:
            row[holders] += adds if times == 1 else adds * times
    return scores
