"""Retrieval from an existing index of Elasticsearch or OpenSearch, by your own client.

The search is that of the authors' code (github.com/oneal2000/DRAGIN, src/retriever.py; reference-behaviour §4):
``multi_match``, ``best_fields``, tie breaker 0.5, ``dfs_query_then_fetch``. That code takes a failed search for one
without hits, and a partial answer for a complete one; both are errors here.
"""

from __future__ import annotations

from typing import Any

from dragin_lab.checks import text as check_text
from dragin_lab.errors import SearchServerError, SettingError
from dragin_lab.retrieval.answers import check_ranking
from dragin_lab.retrieval.bm25 import TIE_BREAKER, check_number
from dragin_lab.trace.trace import Passage

MOST_HITS = 10_000  # of one search (``index.max_result_window``)


class Elasticsearch:
    """A ``Retriever`` over an index of passages, whose documents have ids and the fields ``title`` and ``text``.

    Args:
        client: yours, ``elasticsearch.Elasticsearch(...)`` or ``opensearchpy.OpenSearch(...)``, with its own address,
            credentials, time limit and repetitions.
        index: its name.
        title: the name of the field with a passage's title.
        text: of the one with its text.

    Raises:
        SettingError: a client that cannot search.
        SearchServerError: a server that does not answer; an index that is missing, empty or lacks the fields.
    """

    kind = "elasticsearch-bm25"

    def __init__(self, client: Any, index: str = "wiki", *, title: str = "title", text: str = "txt") -> None:
        if not all(callable(getattr(client, name, None)) for name in ("search", "count", "info")):
            remedy = "give a client, such as elasticsearch.Elasticsearch('http://localhost:9200')"
            raise SettingError(f"client is {type(client).__name__}; {remedy}")
        self.client, self.index = client, check_text("index", index)
        self.title, self.text = check_text("title", title), check_text("text", text)
        self._about = self._describe()

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first, with their scores."""
        size, fields = check_number(k, MOST_HITS), [self.title, self.text]
        match = {"query": query, "type": "best_fields", "fields": fields, "tie_breaker": TIE_BREAKER}
        body = {"_source": fields, "query": {"multi_match": match}, "size": size}
        with_all_shards = {"search_type": "dfs_query_then_fetch"}  # scores do not depend on the number of shards
        answer = self._ask(self.client.search, index=self.index, body=body, **with_all_shards)
        try:
            failed = answer["_shards"]["failed"]
            passages = [self._read_hit(hit) for hit in answer["hits"]["hits"]]
        except (KeyError, TypeError, ValueError) as error:
            raise SearchServerError(f"{self!r} answered {query[:80]!r} without {error}; check the index") from None
        if failed or answer.get("timed_out"):
            raise SearchServerError(f"{self!r} answers for a part of the index only; check the cluster's health")
        return check_ranking(passages, size, f"{self!r} answered {query[:80]!r}")

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data; no secrets."""
        return self._about | {"kind": self.kind, "tie_breaker": TIE_BREAKER, "corpus": self.index}

    def __repr__(self) -> str:
        return f"Elasticsearch({self.index!r})"

    def _read_hit(self, hit: Any) -> Passage:
        source = hit["_source"]
        return Passage(str(hit["_id"]), source.get(self.title) or "", source[self.text], float(hit["_score"]))

    def _describe(self) -> dict[str, Any]:
        (facts,) = dict(self._ask(self.client.indices.get, index=self.index)).values()
        fields, settings = facts["mappings"].get("properties", {}), facts.get("settings", {}).get("index", {})
        if missing := [name for name in (self.title, self.text) if name not in fields]:
            raise SearchServerError(f"{self!r} has no field {missing[0]!r}, only {', '.join(fields)}; name the fields")
        if not (passages := self._ask(self.client.count, index=self.index)["count"]):
            raise SearchServerError(f"{self!r} is empty; fill it, or give another index")
        version = self._ask(self.client.info)["version"]
        return {
            "analysis": {name: fields[name].get("analyzer", "standard") for name in (self.title, self.text)},
            "similarity": settings.get("similarity") or "default (BM25, k1 1.2, b 0.75)",
            "index_uuid": settings.get("uuid"),
            "shards": settings.get("number_of_shards"),
            "server": f"{version.get('distribution', 'elasticsearch')} {version.get('number', '?')}",
            "passages": passages,
        }

    def _ask(self, call: Any, **request: Any) -> Any:
        try:
            return call(**request)
        except Exception as error:  # of two libraries, neither of which is imported here
            raise SearchServerError(f"{self!r}: {type(error).__name__}: {str(error)[:300]}") from error
