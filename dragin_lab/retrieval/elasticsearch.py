"""Retrieval from an existing Elasticsearch or OpenSearch index, such as the released code's ``wiki``.

Its documents are passages: ``_id``, and the fields ``title`` and ``txt``. The requests are those of the authors' code
(github.com/oneal2000/DRAGIN, src/retriever.py; reference-behaviour §4): ``multi_match``, ``best_fields``, tie breaker
0.5, ``dfs_query_then_fetch``. That code takes a failed search for one without hits, and a partial answer for a
complete one; both are errors here.

A handful of requests needs no client, and Elasticsearch's own refuses OpenSearch.
"""

from __future__ import annotations

import json
import os
import re
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Any, TypeVar

import msgspec
import urllib3
from msgspec import Raw, Struct, field

from dragin_lab.checks import Filled, instance
from dragin_lab.data import web
from dragin_lab.errors import SearchServerError, SettingError
from dragin_lab.retrieval.answers import TIMEOUT_VARIABLE, check_ranking, search_timeout
from dragin_lab.retrieval.bm25 import TIE_BREAKER, check_number
from dragin_lab.retrieval.corpus import Corpus
from dragin_lab.retrieval.stored import spread_rows
from dragin_lab.text import split_credentials
from dragin_lab.trace.trace import Passage

INDEX, TITLE, TEXT = "wiki", "title", "txt"
#: Most hits of one search (``index.max_result_window``), and queries per request.
MOST_HITS, TOGETHER = 10_000, 64
#: Passages of the given corpus, evenly spaced, that are compared with the index when it is opened.
GLANCES = 20
_DFS = "dfs_query_then_fetch"  # one set of statistics for all shards, so that scores do not depend on their number
T = TypeVar("T")
_CHECK = "check which server and version runs there"
_FORM = "elasticsearch:http://host:9200/wiki"
_REMEDIES = {
    401: "give a user in the address, or set ELASTICSEARCH_API_KEY",
    403: "give a user in the address, or set ELASTICSEARCH_API_KEY",
    404: "give the address of an index that is there",
}


class _Source(Struct):
    text: Filled = field(name=TEXT)
    title: str | None = None


class _Hit(Struct):
    id: Filled = field(name="_id")
    score: float = field(name="_score")
    source: _Source = field(name="_source")


class _Hits(Struct):
    hits: list[_Hit]


class _Answer(Struct):
    """What an answer may hold, whatever was asked."""

    error: Any = None
    status: int = 200
    timed_out: bool = False
    shards: dict[str, Any] = field(name="_shards", default_factory=dict)
    hits: _Hits | None = None
    responses: list[Raw] = []
    count: int = 0
    docs: list[dict[str, Any]] = []
    version: dict[str, Any] = {}


@dataclass(frozen=True)
class Address:
    """Where an index is. ``str`` leaves ``secret`` out, so it appears in no message, trace or record."""

    server: str
    index: str = INDEX
    secret: str = dataclass_field(default="", repr=False)  # the value of the header Authorization

    @classmethod
    def parse(cls, text: str) -> Address:
        """``http[s]://host:port[/path][/index]``, with ``elasticsearch:`` before.

        Credentials come from the address (``http://user:password@host``), from ``ELASTICSEARCH_API_KEY``, or from
        ``ELASTICSEARCH_USER`` and ``ELASTICSEARCH_PASSWORD``.
        """
        credentials, bare = split_credentials(instance("address", text, str, f"give {_FORM}"))
        url = web.parse_server(bare.removeprefix("elasticsearch:"), "Elasticsearch", _FORM)
        path, _, index = (url.path or "").rstrip("/").rpartition("/")
        if not re.fullmatch(r"[^A-Z\s#\\*?\"<>|,:_+-][^A-Z\s#\\*?\"<>|,:]*", index := index or INDEX):
            raise SettingError(f"{bare}: {index!r} is not the name of one index; give {_FORM}")
        return cls(f"{url.scheme}://{url.netloc}{path}", index, _read_secret(*web.parse_credentials(credentials)))

    def __str__(self) -> str:
        return f"{self.server}/{self.index}"


def _read_secret(user: str, password: str) -> str:
    if not user and (key := os.environ.get("ELASTICSEARCH_API_KEY")):
        return f"ApiKey {key}"
    if not user:
        user, password = (os.environ.get(f"ELASTICSEARCH_{name}", "") for name in ("USER", "PASSWORD"))
    return urllib3.make_headers(basic_auth=f"{user}:{password}")["authorization"] if user else ""


class Elasticsearch:
    """A ``Retriever`` over an index of passages.

    Args:
        address: ``http[s]://host:9200[/index]``; the index is ``wiki`` if none is given.
        corpus: what the index must hold: the same number of passages, and ``GLANCES`` of them alike; None takes any.
        timeout: seconds for each request and its repetitions; by default those of ``answers.search_timeout``.

    Raises:
        SearchServerError: a server that cannot be reached; an index that does not exist, lacks the fields or holds
            another corpus.
    """

    kind = "elasticsearch-bm25"

    def __init__(self, address: str | Address, corpus: Corpus | None = None, *, timeout: float | None = None) -> None:
        self.address = address if isinstance(address, Address) else Address.parse(address)
        self.timeout = search_timeout(timeout)
        self._about = self._describe()
        self._passages = self._ask("_count").count
        self._corpus = corpus
        if not self._passages:
            raise SearchServerError(f"{self.address}: the index is empty; fill it, or give another address")
        if corpus is not None:
            self._compare(corpus)

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first, with their scores."""
        size = check_number(k, MOST_HITS)
        answer = self._ask(f"_search?search_type={_DFS}", _build_query(query, size))
        return self._read_hits(answer, size, query)

    def search_many(self, queries: Sequence[str], k: int) -> list[list[Passage]]:
        """``search`` for each query, many in one request; those that a busy server refused go again alone."""
        size = check_number(k, MOST_HITS)
        results = []
        for start in range(0, len(queries), TOGETHER):
            some = queries[start : start + TOGETHER]
            lines = [part for query in some for part in ({"search_type": _DFS}, _build_query(query, size))]
            answers = self._ask("_msearch", *lines).responses
            if len(answers) != len(some):
                raise SearchServerError(f"{self.address}: answers {len(answers)} of {len(some)} searches")
            for query, data in zip(some, answers, strict=True):
                answer = self._decode(data, _Answer)
                busy = answer.status in web.PASSING
                results.append(self.search(query, size) if busy else self._read_hits(answer, size, query))
        return results

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data; no secrets."""
        return self._about | {
            "kind": self.kind,
            "address": str(self.address),
            "tie_breaker": TIE_BREAKER,
            "corpus": self.address.index if self._corpus is None else self._corpus.name,
            "passages": self._passages,
        }

    def __len__(self) -> int:
        return self._passages

    def __repr__(self) -> str:
        return f"Elasticsearch({str(self.address)!r}, {self._passages:,} passages)"

    # -- what the index is --------------------------------------------------------------------------------------------

    def _describe(self) -> dict[str, Any]:
        """Facts about the index, which must have the fields."""
        indexes = self._decode(self._request(str(self.address)), dict[str, dict[str, dict[str, Any]]])
        if len(indexes) != 1:
            raise SearchServerError(f"{self.address}: names {len(indexes)} indexes; give the name of one")
        (index,) = indexes.values()
        fields = index.get("mappings", {}).get("properties", {})
        if missing := [name for name in (TITLE, TEXT) if name not in fields]:
            raise SearchServerError(
                f"{self.address}: the index has no field {' and no field '.join(missing)}, only {', '.join(fields)}; "
                f"the released code's has {TITLE} and {TEXT}"
            )
        analyzers = {name: fields[name].get("analyzer", "standard") for name in (TITLE, TEXT)}
        if set(analyzers.values()) != {"english"}:
            warnings.warn(
                f"{self.address}: the fields are analysed by {analyzers}, the authors' by 'english': scores differ",
                stacklevel=4,
            )
        settings = index.get("settings", {}).get("index", {})
        return {
            "analysis": analyzers[TEXT] if len(set(analyzers.values())) == 1 else analyzers,
            "similarity": settings.get("similarity") or "default (BM25, k1 1.2, b 0.75)",
            "index_uuid": settings.get("uuid"),
            "shards": settings.get("number_of_shards"),
            "server": self._version(),
        }

    def _version(self) -> str:
        """``elasticsearch 8.15.0`` or ``opensearch 2.11.0``; "unknown" where asking is not permitted."""
        try:
            version = self._decode(self._request(self.address.server), _Answer).version
        except SearchServerError:
            return "unknown"
        return f"{version.get('distribution', 'elasticsearch')} {version.get('number', '?')}"

    def _compare(self, corpus: Corpus) -> None:
        again = "give the corpus that was indexed, or index this one"
        if self._passages != len(corpus):
            raise SearchServerError(
                f"{self.address}: holds {self._passages:,} passages, and {corpus.name} has {len(corpus):,}; {again}"
            )
        some = [corpus[row] for row in spread_rows(len(corpus), GLANCES)]
        documents = self._ask("_mget", {"ids": [p.id for p in some]}).docs
        held = {document.get("_id"): document.get("_source") or {} for document in documents}
        for passage in some:
            fields = held.get(passage.id, {})
            if (fields.get(TITLE) or "", fields.get(TEXT)) != (passage.title, passage.text):
                raise SearchServerError(
                    f"{self.address}: passage {passage.id!r} of {corpus.name} is not there or has another text; {again}"
                )

    def _read_hits(self, answer: _Answer, size: int, query: str) -> list[Passage]:
        self._check_whole(answer)
        server = f"{self.address} answered {query[:80]!r}"
        if answer.hits is None:
            raise SearchServerError(f"{server} without hits; {_CHECK}")
        hits = answer.hits.hits
        passages = [Passage(hit.id, hit.source.title or "", hit.source.text, hit.score) for hit in hits]
        return check_ranking(passages, size, server)

    # -- requests -----------------------------------------------------------------------------------------------------

    def _ask(self, path: str, *lines: dict[str, Any]) -> _Answer:
        """The answer of the index to a request with these lines of JSON, from the whole of it."""
        return self._check_whole(self._decode(self._request(f"{self.address}/{path}", *lines), _Answer))

    def _request(self, url: str, *lines: dict[str, Any]) -> bytes:
        """The JSON that a server answers; ``SearchServerError`` for no answer, or an error."""
        headers = {"Accept": "application/json"}
        headers["Content-Type"] = "application/x-ndjson" if url.endswith("/_msearch") else "application/json"
        if self.address.secret:
            headers["Authorization"] = self.address.secret
        body = "".join(f"{json.dumps(line)}\n" for line in lines)
        try:
            method = "POST" if lines else "GET"
            response = web.request(method, url, headers, seconds=self.timeout, body=body or None)
            lost = f"it answers {response.status}" if response.status in web.PASSING else ""
        except web.DeadlineError as error:
            because = f" ({web.reason(error.__cause__)})" if error.__cause__ else ""
            raise SearchServerError(
                f"{self.address}: gives no answer within {self.timeout:g} s{because}; check that it runs, or allow it "
                f"more seconds with {TIMEOUT_VARIABLE}"
            ) from None
        except urllib3.exceptions.HTTPError as error:
            lost = web.reason(error)
        if lost:
            raise SearchServerError(
                f"{self.address}: gives no answer, {web.TRIES} times ({lost}); check that it runs and try again"
            )
        if response.status >= 300:
            points = "give the address that it points to" if response.status < 400 else "see the server's log"
            remedy, cause = _REMEDIES.get(response.status, points), ""
            with suppress(SearchServerError):
                cause = _explain_error(self._decode(response.data, _Answer).error)
            raise SearchServerError(f"{self.address}: the server answers {response.status}{cause}; {remedy}")
        return response.data

    def _decode(self, data: bytes | Raw, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(data, type=kind)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise SearchServerError(
                f"{self.address}: answers otherwise than Elasticsearch ({error}); {_CHECK}"
            ) from None

    def _check_whole(self, answer: _Answer) -> _Answer:
        """Refuse an answer that covers only a part of the index."""
        if answer.error:
            raise SearchServerError(f"{self.address}: refuses the search{_explain_error(answer.error)}")
        failed = answer.shards.get("failed", 0)
        if failed or answer.timed_out:
            raise SearchServerError(
                f"{self.address}: answers for a part of the index only ({failed} of {answer.shards.get('total')} "
                "shards failed, or it timed out); check the cluster's health and run it again"
            )
        return answer


def _build_query(query: str, size: int) -> dict[str, Any]:
    match = {"query": query, "type": "best_fields", "fields": [TITLE, TEXT], "tie_breaker": TIE_BREAKER}
    return {"_source": True, "query": {"multi_match": match}, "size": size}


def _explain_error(error: Any) -> str:
    """The cause in an answer's ``error``, a mapping mostly, in brackets; empty where there is none."""
    causes = error.get("root_cause") if isinstance(error, dict) else None
    cause = causes[0] if isinstance(causes, list) and causes else error
    text = f"{cause.get('type')}: {cause.get('reason')}" if isinstance(cause, dict) else str(cause)
    return f" ({text[:300]})" if cause else ""
