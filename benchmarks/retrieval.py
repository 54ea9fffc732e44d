"""How well and how fast BM25 finds passages: SciFact's nDCG@10, recall of gold passages, seconds.

    python benchmarks/retrieval.py            # data: environment variable DRAGIN_LAB_DATA, or ./data
    python benchmarks/retrieval.py --k1 0.9 --b 0.4

SciFact is the check of the implementation: Anserini's published nDCG@10 is 0.679 at k1 0.9, b 0.4 over one field that
holds title and text. The recall table says what a method can hope for on the four question sets of the paper, with the
question itself as the query.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections import defaultdict
from pathlib import Path

from dragin_lab.corpus import Corpus
from dragin_lab.retrieval.bm25 import BM25
from dragin_lab.trace import Passage

DEPTHS = (3, 10, 100)


def scifact_ndcg(folder: Path, *, k1: float, b: float, one_field: bool) -> float:
    """Mean nDCG@10 over SciFact's test claims, every cited abstract with gain 1.

    ``one_field`` searches title and text as one text, as the published figures do.
    """
    corpus = Corpus.load(folder / "corpus.jsonl.gz")
    if one_field:
        corpus = Corpus.from_passages(Passage(p.id, "", f"{p.title} {p.text}") for p in corpus)
    bm25 = BM25(corpus, k1=k1, b=b)
    relevant: dict[str, set[str]] = defaultdict(set)
    for line in (folder / "qrels" / "test.tsv").read_text().splitlines()[1:]:
        query_id, passage_id, gain = line.split("\t")
        if int(gain) > 0:
            relevant[query_id].add(passage_id)
    total = 0.0
    with (folder / "queries.jsonl").open() as lines:
        queries = {str(q["_id"]): q["text"] for q in map(json.loads, lines)}
    for query_id, wanted in relevant.items():
        found = [p.id in wanted for p in bm25.search(queries[query_id], 10)]
        gained = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(found, 1))
        best = sum(1 / math.log2(rank + 1) for rank in range(1, min(len(wanted), 10) + 1))
        total += gained / best
    return total / len(relevant)


def questions(data: Path) -> dict[str, dict[str, str]]:
    """Question texts by dataset and id."""
    hotpot = json.loads((data / "hotpotqa/hotpot_dev_distractor_v1.json").read_text())
    wiki = json.loads((data / "2wikimultihopqa/dev.json").read_text())
    strategy = json.loads((data / "strategyqa/strategyqa_train.json").read_text())
    iirc = json.loads((data / "iirc/dev.json").read_text())
    return {
        "hotpotqa": {q["_id"]: q["question"] for q in hotpot},
        "2wikimultihopqa": {q["_id"]: q["question"] for q in wiki},
        "strategyqa": {q["qid"]: q["question"] for q in strategy},
        "iirc": {q["qid"]: q["question"] for passage in iirc for q in passage["questions"]},
    }


def gold_recall(bm25: BM25, data: Path) -> tuple[dict[str, list[float]], list[float]]:
    """Mean share of a question's gold passages among the first 3, 10 and 100, by dataset; and seconds per query."""
    texts = questions(data)
    shares: dict[str, list[list[float]]] = defaultdict(list)
    seconds: list[float] = []
    with (data / "passages/gold.jsonl").open() as lines:
        golds = [json.loads(line) for line in lines]
    for gold in golds:
        wanted = set(map(str, gold["passages"]))
        if not wanted:
            continue
        start = time.perf_counter()
        found = [p.id for p in bm25.search(texts[gold["dataset"]][gold["id"]], max(DEPTHS))]
        seconds.append(time.perf_counter() - start)
        shares[gold["dataset"]].append([len(wanted.intersection(found[:k])) / len(wanted) for k in DEPTHS])
    means = {name: [statistics.fmean(k) for k in zip(*rows, strict=True)] for name, rows in shares.items()}
    return means, seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path(os.environ.get("DRAGIN_LAB_DATA", "data")))
    parser.add_argument("--k1", type=float, default=1.2)
    parser.add_argument("--b", type=float, default=0.75)
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.exit(2, f"{args.data}: no such folder; set DRAGIN_LAB_DATA to the folder with scifact/ and passages/\n")

    print("SciFact, nDCG@10")
    for k1, b in sorted({(0.9, 0.4), (args.k1, args.b)}):
        for one_field, name in ((True, "title and text as one field"), (False, "best field + 0.5 x the other")):
            value = scifact_ndcg(args.data / "scifact", k1=k1, b=b, one_field=one_field)
            print(f"  k1 {k1:g} b {b:g}  {name:30} {value:.4f}")

    start = time.perf_counter()
    corpus = Corpus.load(args.data / "passages/psgs_w100.tsv.gz")
    read = time.perf_counter()
    bm25 = BM25(corpus, k1=args.k1, b=args.b)
    built = time.perf_counter()
    recall, seconds = gold_recall(bm25, args.data)
    print(f"\n{len(corpus):,} passages: read {read - start:.2f} s, built {built - read:.2f} s, ", end="")
    print(f"a query {1e3 * statistics.median(seconds):.2f} ms (median), {1e3 * max(seconds):.2f} ms (longest)")
    print(f"\nrecall of gold passages, k1 {args.k1:g} b {args.b:g}")
    print(f"  {'':16}" + "".join(f"{f'R@{k}':>8}" for k in DEPTHS))
    for name, values in recall.items():
        print(f"  {name:16}" + "".join(f"{value:8.3f}" for value in values))


if __name__ == "__main__":
    main()
