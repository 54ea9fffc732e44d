"""SciFact (BEIR): how well a retriever finds the abstracts that a claim cites."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.trace.trace import Passage

#: Anserini's for BM25 (BEIR v1.0.0, flat), k1 0.9, b 0.4.
PUBLISHED_NDCG = 0.6789


def one_field(corpus: Corpus) -> BM25:
    """Title and text searched as one text, as the published figure does."""
    return BM25(
        Corpus.from_passages(Passage(p.id, "", f"{p.title} {p.text}") for p in corpus),
        k1=0.9,
        b=0.4,
    )


def mean_ndcg(folder: Path, opened: Callable[[Corpus], Any]) -> float:
    """nDCG@10 over the test claims, every cited abstract with gain 1, by the retriever that
    ``opened`` makes.
    """
    index = opened(Corpus.load(folder / "corpus.jsonl.gz"))
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query_id, passage_id, gain = line.split("\t")
        if int(gain) > 0:
            relevant[query_id].add(passage_id)
    with (folder / "queries.jsonl").open() as lines:
        queries = {str(q["_id"]): q["text"] for q in map(json.loads, lines)}
    found = index.search_many([queries[query_id] for query_id in relevant], 10)
    values = [
        ndcg([p.id in wanted for p in hits], len(wanted))
        for hits, wanted in zip(found, relevant.values(), strict=True)
    ]
    return sum(values) / len(values)


def ndcg(hits: list[bool], wanted: int) -> float:
    gained = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(hits, 1))
    return gained / sum(1 / math.log2(rank + 1) for rank in range(1, min(wanted, 10) + 1))
