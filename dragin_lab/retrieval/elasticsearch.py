"""Retrieval from an Elasticsearch or OpenSearch index that is there already, such as the released code's ``wiki``.

Its documents are passages: ``_id``, and the fields ``title`` and ``txt``. What is sent is what the authors' code sends
(github.com/oneal2000/DRAGIN, src/retriever.py; reference-behaviour §4): ``multi_match``, ``best_fields``, tie breaker
0.5, ``dfs_query_then_fetch``. Where that code takes a failed search for one that found nothing, and a partial answer
for a whole one, both are errors here.

Plain HTTP by the standard library: three requests need no client, and the one of Elasticsearch refuses OpenSearch.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dragin_lab.core.trace import Passage
from dragin_lab.errors import ClusterError, SettingError
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.elasticsearch_server import PASSING, Address, Server

TITLE, TEXT = "title", "txt"
TIE_BREAKER = 0.5
#: What one search may ask for (``index.max_result_window``), and queries a request.
MOST_HITS, TOGETHER = 10_000, 64
#: Passages of the given corpus, spread evenly, that are compared with those of the index when it is opened.
GLANCES = 20
_DFS = "dfs_query_then_fetch"  # statistics of all shards together, so that their number changes no score


class Elasticsearch:
    """A ``Retriever`` over an index of passages.

    Args:
        address: ``http[s]://host:9200[/index]``; the index is ``wiki`` if none is given.
        corpus: what the index must hold: as many passages, and ``GLANCES`` of them the same; None takes any.

    Raises:
        ClusterError: a server that cannot be reached, an index that is not there, lacks the fields or is of another
            corpus.
    """

    kind = "elasticsearch-bm25"

    def __init__(self, address: str | Address, corpus: Corpus | None = None) -> None:
        self.address = address if isinstance(address, Address) else Address.parse(address)
        self._server = Server(self.address)
        self._about = self._describe()
        self._passages = int(self._ask("GET", "_count")["count"])
        self._corpus = corpus
        if not self._passages:
            raise ClusterError(f"{self.address}: the index is empty; fill it, or give another address")
        if corpus is not None:
            self._compare(corpus)

    def _ask(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        answer = self._server.ask(method, f"{self.address.index}/{path}".rstrip("/"), body)
        _check_shards(self.address, answer)
        return answer

    def _describe(self) -> dict[str, Any]:
        """What the index says of itself; it must have the fields."""
        found = self._ask("GET", "")
        indexes = [each for each in found.values() if isinstance(each, dict) and "mappings" in each]
        if len(indexes) != 1:
            raise ClusterError(f"{self.address}: stands for {len(indexes)} indexes; give the name of one")
        fields = indexes[0]["mappings"].get("properties", {})
        if missing := [name for name in (TITLE, TEXT) if name not in fields]:
            raise ClusterError(
                f"{self.address}: the index has no field {' and no field '.join(missing)}, only {', '.join(fields)}; "
                f"the released code's has {TITLE} and {TEXT}"
            )
        analyzers = {name: fields[name].get("analyzer", "standard") for name in (TITLE, TEXT)}
        if set(analyzers.values()) != {"english"}:
            warnings.warn(
                f"{self.address}: the fields are analysed by {analyzers}, the authors' by 'english': scores differ",
                stacklevel=4,
            )
        settings = indexes[0].get("settings", {}).get("index", {})
        return {
            "analysis": analyzers[TEXT] if len(set(analyzers.values())) == 1 else analyzers,
            "similarity": settings.get("similarity", "default (BM25, k1 1.2, b 0.75)"),
            "index_uuid": settings.get("uuid"),
            "shards": settings.get("number_of_shards"),
        }

    def _compare(self, corpus: Corpus) -> None:
        if self._passages != len(corpus):
            raise ClusterError(
                f"{self.address}: holds {self._passages:,} passages, and {corpus.name} has {len(corpus):,}; "
                "give the corpus that was indexed, or index this one"
            )
        rows = np.unique(np.linspace(0, len(corpus) - 1, min(len(corpus), GLANCES)).astype(int)).tolist()
        some = [corpus[row] for row in rows]
        found = self._ask("POST", "_mget", json.dumps({"ids": [p.id for p in some]}).encode())["docs"]
        for passage, document in zip(some, found, strict=True):
            if not document.get("found") or self._passage(document) != replace(passage, score=0.0):
                raise ClusterError(
                    f"{self.address}: passage {passage.id!r} of {corpus.name} is not there or has another text; "
                    "give the corpus that was indexed, or index this one"
                )

    def __len__(self) -> int:
        return self._passages

    # -- searching ----------------------------------------------------------------------------------------------------

    def search(self, query: str, k: int) -> list[Passage]:
        """The at most k best passages, best first, with their scores."""
        body = json.dumps(_query(query, _checked(k))).encode()
        return self._hits(self._ask("POST", f"_search?search_type={_DFS}", body))

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, many in one request."""
        size = _checked(k)
        found: list[list[Passage]] = []
        for start in range(0, len(queries), TOGETHER):
            found += self._together(list(queries[start : start + TOGETHER]), size)
        return found

    def _together(self, queries: list[str], size: int) -> list[list[Passage]]:
        found: list[list[Passage]] = [[] for _ in queries]
        left = list(range(len(queries)))

        def busy(answer: dict[str, Any]) -> bool:
            """Keep what was found; whether some searches of the request were refused for the moment."""
            nonlocal left
            answers = answer.get("responses", [])
            if len(answers) != len(left):
                raise ClusterError(f"{self.address}: answers {len(answers)} of {len(left)} searches")
            refused = [number for number, each in zip(left, answers, strict=True) if each.get("status") in PASSING]
            for number, each in zip(left, answers, strict=True):
                if number not in refused:
                    _check_shards(self.address, each)
                    found[number] = self._hits(each)
            left = refused
            return bool(left)

        def body() -> bytes:
            lines = [part for number in left for part in ({"search_type": _DFS}, _query(queries[number], size))]
            return "".join(json.dumps(line) + "\n" for line in lines).encode()

        self._server.ask("POST", f"{self.address.index}/_msearch", body, again=busy)
        return found

    def _hits(self, answer: dict[str, Any]) -> list[Passage]:
        return [replace(self._passage(hit), score=float(hit["_score"])) for hit in answer["hits"]["hits"]]

    def _passage(self, document: dict[str, Any]) -> Passage:
        try:
            source = document["_source"]
            return Passage(str(document["_id"]), str(source.get(TITLE) or ""), str(source[TEXT]), 0.0)
        except (KeyError, TypeError, AttributeError):
            raise ClusterError(
                f"{self.address}: document {document.get('_id')!r} has no {TEXT}, so this is no index of passages"
            ) from None

    def provenance(self) -> dict[str, Any]:
        """Everything that a repetition of these searches needs, as plain data; no secrets."""
        return self._about | {
            "kind": self.kind,
            "server": self._server.version,
            "address": str(self.address),
            "tie_breaker": TIE_BREAKER,
            "corpus": self.address.index if self._corpus is None else self._corpus.name,
            "passages": self._passages,
        }

    def __repr__(self) -> str:
        return f"Elasticsearch({str(self.address)!r}, {self._passages:,} passages)"


def open_retriever(address: str, corpus: str | None) -> Elasticsearch:
    """The index at an address; where a corpus is given, it must be the one that the index holds."""
    return Elasticsearch(address, None if corpus is None else Corpus.load(corpus))


def _checked(k: int) -> int:
    if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= MOST_HITS:
        raise SettingError(f"k={k!r}: the number of passages must be a whole number from 1 to {MOST_HITS:,}")
    return int(k)


def _query(query: str, size: int) -> dict[str, Any]:
    match = {"query": query, "type": "best_fields", "fields": [TITLE, TEXT], "tie_breaker": TIE_BREAKER}
    return {"_source": True, "query": {"multi_match": match}, "size": size}


def _check_shards(address: Address, answer: dict[str, Any]) -> None:
    """Refuse an answer that comes from a part of the index only."""
    shards = answer.get("_shards", {})
    if answer.get("error"):
        raise ClusterError(f"{address}: refuses the search ({_reason(answer['error'])})")
    if answer.get("timed_out") or shards.get("failed"):
        raise ClusterError(
            f"{address}: answers for a part of the index only ({shards.get('failed', 0)} of {shards.get('total', '?')} "
            "shards failed, or the time was up); look after the cluster's health, and run it again"
        )


def _reason(error: Any) -> str:
    if isinstance(error, dict):
        causes = error.get("root_cause") or [error]
        return f"{causes[0].get('type')}: {causes[0].get('reason')}"[:300]
    return str(error)[:300]
