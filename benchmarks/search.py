"""Queries side by side in threads: tantivy over corpora of several sizes, two threads against one, by the clock.

    python benchmarks/search.py

Passages and queries are those of ``corpus.py``. The processor time of a query is fitted by a line in the number of
passages, which says what the paper's 21 million would take. It takes minutes and two quiet cores: a clock also counts
others' work.
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from common import begin, budget, interleaved, machine, parser, write
from corpus import QUERY_WORDS, K, passages

from dragin_lab.retrieval.bm25 import Tantivy
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import build_corpus

AT_MOST, WIKIPEDIA = 0.65, 21_015_324


def measure(count: int, queries: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of processor time of a query by one thread and by two; both find the same."""
    with tempfile.TemporaryDirectory() as folder:
        rows = ({"id": p.id, "title": p.title, "text": p.text} for p in passages(count))
        build_corpus(rows, Path(folder) / "built")
        retriever = Tantivy(Corpus.load(Path(folder) / "built"))
        draw = random.Random(0)
        drawn = [retriever.corpus[row].text.split() for row in draw.choices(range(count), k=queries)]
        asked = [" ".join(draw.choices(words, k=QUERY_WORDS)) for words in drawn]

        def search(threads: int) -> Any:
            retriever.threads = threads
            return retriever.search_many(asked, K)

        timed = interleaved({"one": lambda: search(1), "two": lambda: search(2)}, rounds)
        assert timed.made["one"] == timed.made["two"]
        each = {way: 1e3 * float(np.median(seconds)) / queries for way, seconds in timed.processor.items()}
        return {"passages": count, "ms": each, "two_over_one": timed.over("two")["one"]}


def main() -> None:
    options = parser(__doc__, "search")
    options.add_argument("--passages", type=int, nargs="+", default=[30_000, 120_000, 400_000, 1_000_000])
    options.add_argument("--queries", type=int, default=128)
    options.add_argument("--rounds", type=int, default=9)
    args = options.parse_args()
    begin(args)
    found = [measure(count, args.queries, args.rounds) for count in args.passages]
    sizes = [one["passages"] for one in found]
    lines = {way: np.polyfit(sizes, [one["ms"][way] for one in found], 1) for way in ("one", "two")}
    at = {way: float(np.polyval(line, WIKIPEDIA)) for way, line in lines.items()}
    note = f"{WIKIPEDIA:,} passages extrapolate to {at['one']:.0f} ms of processor time a query in one thread"
    what = f"queries of {QUERY_WORDS} words over {sizes[-1]:,} passages, two threads / one, by the clock"
    budgets = [budget(what, found[-1]["two_over_one"], AT_MOST, note=note)]
    write(args.out, {"budgets": budgets, "searches": found, "extrapolated_ms": at, "machine": machine()})


if __name__ == "__main__":
    main()
