"""Queries side by side in threads: tantivy over corpora of several sizes, two threads against one,
by the clock.

    python benchmarks/search.py

Passages and queries are those of ``corpus.py``. The processor time of a query is fitted by a line
in the number of passages, which says what the paper's 21 million would take. It takes minutes and
two quiet cores: a clock also counts others' work.
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

AT_MOST, MS, WIKIPEDIA = 0.65, 280.0, 21_015_324


def measure(count: int, queries: int, rounds: int) -> dict[str, Any]:
    """Milliseconds of processor time of a query by one thread and by two; both find the same."""
    with tempfile.TemporaryDirectory() as folder:
        rows = ({"id": p.id, "title": p.title, "text": p.text} for p in passages(count))
        build_corpus(rows, Path(folder) / "built")
        retriever = Tantivy(Corpus.load(Path(folder) / "built"))
        draw = random.Random(0)
        drawn = [
            retriever.corpus[row].text.split() for row in draw.choices(range(count), k=queries)
        ]
        asked = [" ".join(draw.choices(words, k=QUERY_WORDS)) for words in drawn]

        def search(threads: int) -> Any:
            retriever.threads = threads
            return retriever.search_many(asked, K)

        timed = interleaved({"one": lambda: search(1), "two": lambda: search(2)}, rounds)
        assert timed.made["one"] == timed.made["two"]
        each = {
            way: 1e3 * float(np.median(seconds)) / queries
            for way, seconds in timed.processor.items()
        }
        return {"passages": count, "ms": each, "two_over_one": timed.over("two")["one"]}


def list_budgets(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Two threads at the largest size, and the paper's corpus on the line through all sizes."""
    slope, base = np.polyfit(
        [one["passages"] for one in found], [one["ms"]["one"] for one in found], 1
    )
    curve = ", ".join(f"{one['ms']['one']:.2g} ms over {one['passages']:,}" for one in found)
    most = f"{found[-1]['passages']:,} passages"
    return [
        budget(
            f"queries of {QUERY_WORDS} words over {most}, two threads / one, by the clock",
            found[-1]["two_over_one"],
            AT_MOST,
        ),
        budget(
            f"a query over {WIKIPEDIA:,} passages in one thread, extrapolated from {curve}",
            slope * WIKIPEDIA + base,
            MS,
            "ms",
        ),
    ]


def main() -> None:
    options = parser(__doc__, "search")
    options.add_argument(
        "--passages", type=int, nargs="+", default=[30_000, 120_000, 400_000, 1_000_000]
    )
    options.add_argument("--queries", type=int, default=128)
    options.add_argument("--rounds", type=int, default=9)
    args = options.parse_args()
    begin(args)
    found = [measure(count, args.queries, args.rounds) for count in args.passages]
    write(args.out, {"budgets": list_budgets(found), "searches": found, "machine": machine()})


if __name__ == "__main__":
    main()
