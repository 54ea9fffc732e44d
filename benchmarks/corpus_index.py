"""The BM25S index of a built corpus: what ``corpus.py`` measures of it, each figure in a process of its own.

- build: from the passages to the index, analysis included, with one process and with one a core: seconds, processor
  seconds, the peak of the memory of all processes together, the size on disk;
- search: resident memory when the index is open and after all queries, and milliseconds of a query (median, 90th
  percentile) for queries of a question's length and of QFS's 25 words, the first three passages;
- together: sixteen queries by one ``search_many`` over the same one by one, the median of the ratios.
"""

from __future__ import annotations

import os
import random
import shutil
import statistics
import time
from pathlib import Path
from typing import Any

import psutil

MIB = 2**20
#: Words of a query: of a question, and of QFS by default (the paper's Table 9).
LENGTHS = {"question": 12, "qfs": 25}
K = 3
TOGETHER = 16
WIKIPEDIA = 21_015_324


def build(folder: Path, workers: int) -> dict[str, Any]:
    from dragin_lab.retrieval.bm25s_index import BM25S
    from dragin_lab.retrieval.indexes import index_folder

    from dragin_lab.retrieval.corpus import Corpus

    corpus = Corpus.load(folder)
    target = index_folder(corpus, BM25S.kind)
    shutil.rmtree(target, ignore_errors=True)
    began = time.perf_counter()
    BM25S.build(corpus, workers=workers, progress=False)
    seconds = time.perf_counter() - began
    times = os.times()
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    return {
        "build_seconds": seconds,
        "cpu_seconds": times.user + times.system + times.children_user + times.children_system,
        "index_MiB": size / MIB,
    }


def search(folder: Path, queries: int) -> dict[str, Any]:
    from dragin_lab.retrieval.choose import open_retriever

    process = psutil.Process()
    began = time.perf_counter()
    retriever = open_retriever("bm25s", str(folder))
    result: dict[str, Any] = {
        "open_seconds": time.perf_counter() - began,
        "open_MiB": process.memory_info().rss / MIB,
    }
    corpus, draw = retriever.corpus, random.Random(0)  # type: ignore[attr-defined]
    texts = [corpus[row].text.split() for row in draw.choices(range(len(corpus)), k=queries)]
    for name, words in LENGTHS.items():
        asked = [" ".join(draw.sample(text, min(words, len(text)))) for text in texts]
        took = []
        for query in asked:
            began = time.perf_counter()
            retriever.search(query, K)
            took.append(1e3 * (time.perf_counter() - began))
        result[name] = {"median_ms": statistics.median(took), "p90_ms": statistics.quantiles(took, n=10)[-1]}
    ratios = []
    for start in range(0, len(asked) - TOGETHER + 1, TOGETHER):
        some = asked[start : start + TOGETHER]
        began = time.perf_counter()
        retriever.search_many(some, K)  # type: ignore[attr-defined]
        middle = time.perf_counter()
        for query in some:
            retriever.search(query, K)
        ratios.append((middle - began) / (time.perf_counter() - middle))
    result["together_over_alone"] = statistics.median(ratios) if ratios else None
    result["resident_MiB"] = process.memory_info().rss / MIB
    return result


def extrapolated(results: list[dict[str, Any]]) -> dict[str, Any] | None:
    """The line through the two largest sizes, at the number of passages of the paper's corpus."""
    if len(results) < 2:
        return None
    small, large = sorted(results, key=lambda one: int(one["passages"]))[-2:]
    found: dict[str, Any] = {"passages": WIKIPEDIA, "from": [small["passages"], large["passages"]]}
    for name, value in _figures(large).items():
        slope = (value - _figures(small)[name]) / (large["passages"] - small["passages"])
        found[name] = value + slope * (WIKIPEDIA - large["passages"])
    return found


def budgets(result: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines that docs/performance.md holds one million passages to; the corpus and its index count together."""
    figures = _figures(result)
    lines = (
        ("1 million passages: built", "built_seconds", 240, "s"),
        ("peak memory while building", "peak_MiB", 5 * 1024, "MiB"),
        ("resident memory while searching", "resident_MiB", 1024, "MiB"),
        ("one query, median", "query_ms", 15, "ms"),
    )
    return [
        {"what": what, "measured": figures[name], "at_most": most, "unit": unit, "note": ""}
        for what, name, most, unit in lines
    ]


def _figures(result: dict[str, Any]) -> dict[str, float]:
    cores = max(result["build"], key=int)
    index, searched = result["index"][max(result["index"], key=int)], result["search"]
    return {
        "built_seconds": result["build"][cores]["seconds"] + index["seconds"],
        "index_seconds": index["seconds"],
        "peak_MiB": max(result["build"][cores]["peak_MiB"], index["peak_MiB"]),
        "index_MiB": index["index_MiB"],
        "resident_MiB": searched["resident_MiB"],
        "query_ms": searched["qfs"]["median_ms"],
    }


def show(result: dict[str, Any]) -> None:
    for workers, figure in result["index"].items():
        rate = result["passages"] / figure["seconds"]
        print(
            f"  index, {workers} processes: {figure['seconds']:.1f} s, {rate:,.0f} passages/s, "
            f"peak {figure['peak_MiB']:.0f} MiB, {figure['index_MiB']:.1f} MiB on disk"
        )
    found = result["search"]
    print(
        f"  search: resident {found['open_MiB']:.0f} MiB when open, {found['resident_MiB']:.0f} MiB after all; "
        + ", ".join(f"{name} {found[name]['median_ms']:.1f} ms" for name in LENGTHS)
        + f"; sixteen together {found['together_over_alone']:.2f} x"
    )
