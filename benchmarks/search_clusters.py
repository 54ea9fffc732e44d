"""What Milvus finds beside BM25 in memory, and what Milvus Lite takes for it.

- agreement: of the top 3 of Almanac's questions with those of ``BM25``, by our sparse vectors in Milvus Lite, and by
  Milvus' own full-text function (analyzer, idf and all) over title and text in one field: the questions whose three are
  the same in the same order, and the mean share of the three that both find;
- rates, for so many passages of ``zipf.py``: passages a second filled, milliseconds a query one by one and many in a
  request (with ``Tantivy``, the same queries), resident memory of the process.

    python benchmarks/search_clusters.py --passages 20000 --out search_clusters.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import zipf
from pymilvus import DataType, Function, FunctionType, MilvusClient

from dragin_lab.retrieval.bm25 import BM25, Tantivy
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.milvus import Milvus, fill
from dragin_lab.run import benchmark as bench
from dragin_lab.trace.trace import Passage

K = 3
BENCHMARKS = ("2wikimultihopqa", "hotpotqa", "strategyqa", "iirc")


def questions() -> list[str]:
    return [q.text for name in BENCHMARKS for q in bench.open_benchmark(f"almanac/{name}").questions]


def by_their_own_function(file: Path, corpus: Corpus, queries: Sequence[str]) -> list[list[str]]:
    """The ids that Milvus' own BM25 finds."""
    client = MilvusClient(str(file))
    schema = MilvusClient.create_schema(auto_id=False)
    schema.add_field("row", DataType.INT64, is_primary=True)
    schema.add_field("id", DataType.VARCHAR, max_length=1000)
    schema.add_field("text", DataType.VARCHAR, max_length=65535, enable_analyzer=True)
    schema.add_field("sparse", DataType.SPARSE_FLOAT_VECTOR)
    names = {"input_field_names": ["text"], "output_field_names": ["sparse"]}
    schema.add_function(Function(name="bm25", function_type=FunctionType.BM25, **names))
    indexes = MilvusClient.prepare_index_params()
    indexes.add_index(field_name="sparse", index_type="SPARSE_INVERTED_INDEX", metric_type="BM25")
    client.create_collection("theirs", schema=schema, index_params=indexes)
    rows = [{"row": i, "id": p.id, "text": f"{p.title} {p.text}"} for i, p in enumerate(corpus)]
    for start in range(0, len(rows), 1000):
        client.insert("theirs", rows[start : start + 1000])
    client.flush("theirs")
    client.load_collection("theirs")
    found = client.search("theirs", list(queries), anns_field="sparse", limit=K, output_fields=["id"])
    return [[hit["entity"]["id"] for hit in hits] for hits in found]


def agreement(found: list[list[str]], wanted: list[list[str]]) -> dict[str, float]:
    pairs = list(zip(found, wanted, strict=True))
    return {
        "questions": len(pairs),
        "same_three_in_order": sum(ours == theirs for ours, theirs in pairs),
        "mean_share_found": statistics.mean(len({*ours} & {*theirs}) / max(len(theirs), 1) for ours, theirs in pairs),
    }


def ids(found: list[list[Passage]]) -> list[list[str]]:
    return [[passage.id for passage in passages] for passages in found]


def on_almanac(folder: Path, limit: int | None) -> dict[str, Any]:
    corpus, queries = Corpus.load(), questions()[:limit]
    wanted = ids(BM25(corpus).search_many(queries, K))
    fill(str(folder / "almanac.db"), corpus)
    with closing(Milvus(str(folder / "almanac.db"), corpus)) as retriever:
        ours = ids(retriever.search_many(queries, K))
        theirs = by_their_own_function(folder / "almanac.db", corpus, queries)
    return {"sparse_vectors": agreement(ours, wanted), "own_function": agreement(theirs, wanted)}


def rates(folder: Path, passages: int, asked: int) -> dict[str, Any]:
    corpus = Corpus.from_passages(zipf.passages(passages), name="zipf")
    step = max(1, passages // asked)
    queries = [" ".join(passage.text.split()[:8]) for passage in corpus[::step]][:asked]
    began = time.perf_counter()
    fill(str(folder / "zipf.db"), corpus)
    filled = time.perf_counter() - began
    with closing(Milvus(str(folder / "zipf.db"), corpus)) as retriever:
        found = {"milvus": timed(retriever, queries)}
        resident = psutil.Process().memory_info().rss
    rows = ({"id": p.id, "title": p.title, "text": p.text} for p in corpus)
    found["tantivy"] = timed(Tantivy(Corpus.build(rows, folder / "built", progress=False)), queries)
    return {
        "passages": passages,
        "filled_per_second": passages / filled,
        "resident_mib": resident / 2**20,
        "ms_per_query": found,
    }


def timed(retriever: Any, queries: Sequence[str]) -> dict[str, float]:
    """Milliseconds a query: the median one by one, and the mean of all in one request."""
    retriever.search(queries[0], K)
    seconds = []
    for query in queries:
        began = time.perf_counter()
        retriever.search(query, K)
        seconds.append(time.perf_counter() - began)
    began = time.perf_counter()
    retriever.search_many(queries, K)
    together = time.perf_counter() - began
    return {"one_by_one": 1000 * statistics.median(seconds), "together": 1000 * together / len(queries)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passages", type=int, nargs="*", default=[20_000])
    parser.add_argument("--queries", type=int, default=100)
    parser.add_argument("--questions", type=int, help="only so many of Almanac's")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        result = {
            "versions": {name: version(name) for name in ("pymilvus", "milvus-lite")},
            "agreement": on_almanac(Path(folder), options.questions),
            "rates": [],
        }
        for passages in options.passages:
            (inner := Path(folder) / str(passages)).mkdir()
            result["rates"].append(rates(inner, passages, options.queries))
    text = json.dumps(result, indent=1)
    print(text)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
