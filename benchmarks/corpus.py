"""Corpora on disk and bare tantivy with the same fields: building, memory and searching, each in
its own process.

    python benchmarks/corpus.py --passages 100000 1000000 --rounds 3

Passages of 60 invented words in a table like DPR's. Bare tantivy is what its documentation shows:
rows read by the csv module, title and text stored and analysed in the same way, a disjunction of
both fields with the same tie breaker, and the stored fields of the hits. Builds alternate, and so
do searches. Figures are medians, and their ratios are compared with the budgets of the design.
Builds are compared by processor time of all threads, which depends little on the machine's other
work; clock times are given too.
"""

from __future__ import annotations

import csv
import itertools
import json
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from common import MIB, budget, child, machine, parser, write

from dragin_lab.trace.trace import Passage

K, QUERY_WORDS = 3, 25
#: Passages of invented words: frequencies follow Zipf's law in two regimes (Ferrer i Cancho and
#: Solé, 2001), 1 / rank up to the 5,000th word, steeper for the rest, so that the vocabulary goes
#: on growing with the text. The commonest are English function words. An article has one to nine
#: passages and a few words of its own, which gather in them as names do.
VOCABULARY = 2_000_000
WORDS = 60
SHIFT, FIRST, BEND, SECOND = 0.5, 1.0, 5000, 1.7
TOPIC_WORDS, TOPIC_SHARE, TOPIC_FROM = 4, 0.12, 500
_ARTICLES_AT_ONCE = 2000
_FUNCTION_WORDS = (
    "the of and in to a is was for as on by with at from he it that his an are be which this were"
    " also has or had first one its their after new not who they two her but she have been other"
    " when during all time into may some more there between school can only most over city made up"
    " states about known used year then while years later part where such him under three no will"
    " would both these became many people until team including since"
)
_COMMON = _FUNCTION_WORDS.split()
_ONSETS, _VOWELS = (
    "b br c ch d dr f fl g gr h j k kl l m n p pr r s sh st t th tr v w z",
    "a e i o u ai ea ou",
)
_CODAS = ("", "n", "r", "s", "l", "m", "nd")
SYLLABLES = [
    "".join(parts) for parts in itertools.product(_ONSETS.split(), _VOWELS.split(), _CODAS)
]


def word(rank: int) -> str:
    """The word of a frequency rank, from 0; the rarer, the longer."""
    if rank < len(_COMMON):
        return _COMMON[rank]
    parts = []
    rest = rank - len(_COMMON)
    while True:
        rest, syllable = divmod(rest, len(SYLLABLES))
        parts.append(SYLLABLES[(syllable * 577) % len(SYLLABLES)])
        if not rest:
            return "".join(parts)
        rest -= 1


def passages(count: int) -> Iterator[Passage]:
    """``count`` passages, ids 1, 2, ...; more of them begin with the same ones."""
    ranks = np.arange(VOCABULARY)
    weights = 1 / (ranks + SHIFT) ** FIRST
    weights[BEND:] *= ((BEND + SHIFT) / (ranks[BEND:] + SHIFT)) ** (SECOND - FIRST)
    limits = np.cumsum(weights / weights.sum())  # (vocabulary,)
    spelled: dict[int, str] = {}

    def text(ranks: np.ndarray) -> str:
        return " ".join(spelled.get(r) or spelled.setdefault(r, word(r)) for r in ranks.tolist())

    made = 0
    for chunk in itertools.count():
        draw = np.random.default_rng([0, chunk])
        sizes = np.minimum(draw.geometric(0.3, _ARTICLES_AT_ONCE), 9)
        total = int(sizes.sum())
        topics = np.exp(
            draw.uniform(
                np.log(TOPIC_FROM), np.log(VOCABULARY - 1), (_ARTICLES_AT_ONCE, TOPIC_WORDS)
            )
        ).astype(int)
        article = np.repeat(np.arange(_ARTICLES_AT_ONCE), sizes)  # (total,)
        common = np.searchsorted(limits, draw.random((total, WORDS)))  # (total, WORDS)
        own = topics[article[:, None], draw.integers(0, TOPIC_WORDS, (total, WORDS))]
        ranks = np.minimum(
            np.where(draw.random((total, WORDS)) < TOPIC_SHARE, own, common), VOCABULARY - 1
        )
        for row in range(total):
            made += 1
            title = text(topics[article[row], : 1 + article[row] % 3]).title()
            body = text(ranks[row])
            yield Passage(str(made), title, f"{body[0].upper()}{body[1:]}.")
            if made == count:
                return


def write_table(path: Path, count: int) -> None:
    """The passages as a table like DPR's."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(("id", "text", "title"))
        writer.writerows((p.id, p.text, p.title) for p in passages(count))


# -- bare tantivy ----------------------------------------------------------------------------------


def bare_index(folder: Path, *, new: bool) -> Any:
    import tantivy
    from tantivy import SchemaBuilder

    from dragin_lab.retrieval.analysis import ANALYZER

    fields = SchemaBuilder()
    fields.add_integer_field("row", indexed=True, fast=True)
    fields.add_text_field("id", stored=True, tokenizer_name="raw", index_option="basic")
    for name in ("title", "text"):
        fields.add_text_field(name, stored=True, tokenizer_name="english", index_option="freq")
    index = (
        tantivy.Index(fields.build(), path=str(folder), reuse=False)
        if new
        else tantivy.Index.open(str(folder))
    )
    index.register_tokenizer("english", ANALYZER)
    return index


def build_bare(source: Path, folder: Path) -> None:
    from tantivy import Document

    folder.mkdir()
    writer = bare_index(folder, new=True).writer(heap_size=128 * MIB, num_threads=1)
    with source.open(encoding="utf-8", newline="") as lines:
        rows = csv.reader(lines, delimiter="\t")
        next(rows)
        for number, (id, text, title) in enumerate(rows):
            writer.add_document(Document(row=number, id=id, title=title, text=text))
    writer.commit()
    writer.wait_merging_threads()


def bare_search(folder: Path) -> Callable[[str], list[Any]]:
    from tantivy import Query

    index = bare_index(folder, new=False)
    searcher = index.searcher()

    def search(query: str) -> list[Any]:
        fields = [index.parse_query(query, [name]) for name in ("title", "text")]
        hits = searcher.search(
            Query.disjunction_max_query(fields, tie_breaker=0.5), K, count=False
        ).hits
        return [searcher.doc(address).to_dict() for _, address in hits]

    return search


# -- what runs in a process of its own -------------------------------------------------------------


def build(what: str, source: Path, folder: Path) -> dict[str, Any]:
    shutil.rmtree(folder, ignore_errors=True)
    began = time.perf_counter()
    if what == "bare":
        build_bare(source, folder)
    else:
        from dragin_lab.retrieval.stored import build_corpus

        build_corpus(source, folder)
    seconds, times = time.perf_counter() - began, os.times()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "cpu_seconds": times.user + times.system, "peak_MiB": peak}


def search(ours: Path, bare: Path, count: int) -> dict[str, Any]:
    from dragin_lab.retrieval.choose import open_retriever

    began = time.perf_counter()
    retriever: Any = open_retriever(None, ours)
    opened = time.perf_counter() - began
    draw = random.Random(0)
    rows = draw.choices(range(len(retriever.corpus)), k=count)
    queries = [
        " ".join(draw.choices(retriever.corpus[row].text.split(), k=QUERY_WORDS)) for row in rows
    ]
    for query in queries:
        retriever.search(query, K)
    resident = psutil.Process().memory_info().rss / MIB
    other = bare_search(bare)
    for query in queries[: count // 4]:
        other(query)
    seconds: dict[str, list[float]] = {"ours": [], "bare": []}
    for query in queries:
        for name, ask in (("ours", lambda q: retriever.search(q, K)), ("bare", other)):
            began = time.perf_counter()
            ask(query)
            seconds[name].append(time.perf_counter() - began)
    figures = {f"{name}_ms": 1e3 * statistics.median(of) for name, of in seconds.items()}
    return figures | {"open_seconds": opened, "resident_MiB": resident, "queries": count}


# -- all of it -------------------------------------------------------------------------------------


def figures(count: int, folder: Path, rounds: int, queries: int) -> dict[str, Any]:
    source = folder / "passages.tsv"
    write_table(source, count)
    builds: dict[str, list[dict[str, Any]]] = {"ours": [], "bare": []}
    for _ in range(rounds):
        for what, made in builds.items():
            made.append(child(__file__, "--child", "build", what, source, folder / what))
    result: dict[str, Any] = {
        "passages": count,
        "rounds": rounds,
        "source_MiB": source.stat().st_size / MIB,
    }
    for what, made in builds.items():
        medians = {name: statistics.median(one[name] for one in made) for name in made[0]}
        stored = sum(path.stat().st_size for path in (folder / what).rglob("*") if path.is_file())
        result[what] = medians | {"stored_MiB": stored / MIB}
    result["search"] = child(
        __file__, "--child", "search", folder / "ours", folder / "bare", queries
    )
    result["build_ratio"] = result["ours"]["cpu_seconds"] / result["bare"]["cpu_seconds"]
    result["search_ratio"] = result["search"]["ours_ms"] / result["search"]["bare_ms"]
    return result


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        name, *arguments = sys.argv[2:]
        if name == "build":
            said = build(arguments[0], Path(arguments[1]), Path(arguments[2]))
        else:
            said = search(Path(arguments[0]), Path(arguments[1]), int(arguments[2]))
        print(json.dumps(said))
        return
    options = parser(__doc__, "corpus")
    options.add_argument("--passages", type=int, nargs="+", default=[100_000, 1_000_000])
    options.add_argument("--rounds", type=int, default=1, help="builds of each, by turns")
    options.add_argument("--queries", type=int, default=400)
    args = options.parse_args()
    results = []
    for count in args.passages:
        with tempfile.TemporaryDirectory() as folder:
            results.append(figures(count, Path(folder), args.rounds, args.queries))
    found: dict[str, Any] = {
        "corpora": results,
        "machine": machine() | {"tantivy": version("tantivy")},
    }
    million = next((one for one in results if one["passages"] == 1_000_000), None)
    if million is not None:
        found["budgets"] = judge(million)
    write(args.out, found)


def judge(million: dict[str, Any]) -> list[dict[str, Any]]:
    """The lines of a million passages in docs/performance.md."""
    ours, bare = million["ours"], million["bare"]
    more = 1e6 * (ours["cpu_seconds"] - bare["cpu_seconds"]) / million["passages"]
    note = (
        f"{more:.0f} µs of processor time more a passage, in which its row is checked, written as"
        " JSON and fingerprinted"
    )
    built = "corpus of 1 million passages, built / bare tantivy"
    query = f"a query of {QUERY_WORDS} words / bare tantivy's, median"
    resident = million["search"]["resident_MiB"]
    return [
        budget(built, million["build_ratio"], 1.3, note=note),
        budget("peak memory while building it", ours["peak_MiB"], 1024, "MiB"),
        budget("resident memory while searching it", resident, 300, "MiB"),
        budget(query, million["search_ratio"], 2.0),
    ]


if __name__ == "__main__":
    main()
