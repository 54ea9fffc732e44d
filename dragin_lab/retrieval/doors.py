"""Retrievers that a user has: a function, an object, one of LangChain, LlamaIndex or Haystack, a
client of a server.

They are recognised by their methods, never imported. What they answer is read as passages in one
place.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import islice
from typing import Any

import msgspec

from dragin_lab.checks import check_text, count, is_built_in, plain
from dragin_lab.core.fingerprint import Node, describe
from dragin_lab.data import tabular
from dragin_lab.data.tabular import Filled, convert_record
from dragin_lab.errors import DataError, DraginLabError, SettingError, describe_error
from dragin_lab.retrieval.bm25 import TIE_BREAKER
from dragin_lab.text import compose, hide_secrets
from dragin_lab.trace.trace import Passage

_Search = Callable[[str, int], Any]  # a query, and how many passages


def as_retriever(given: Any) -> Any:
    """A retriever made from an object with ``search(query, k)``, or from a function of a query and
    k.

    An object of LangChain, LlamaIndex or Haystack that searches will do, and a client of
    Elasticsearch or OpenSearch with the name of its index: ``(client, "wiki")``. The package's own
    are returned unchanged. Raises ``SettingError`` for anything else.
    """
    if is_built_in(type(given)) and hasattr(given, "search"):
        return given
    if isinstance(given, type):
        raise SettingError(
            f"retriever {given.__name__} is a class; give an object of it: {given.__name__}(...)"
        )
    if isinstance(given, tuple) and len(given) == 2 and isinstance(given[1], str):
        return Elasticsearch(*given)
    library, door = _find_door(given)
    if door is not None:
        return Opened(given, door, type(given).__name__, _describe_object(library, given))
    search = getattr(given, "search", given)
    if not callable(search):
        raise SettingError(
            f"retriever {str(given)[:60]!r} is {type(given).__name__}; give an object with"
            " search(query, k) or a function, and passages as corpus=; what searches in LangChain,"
            " LlamaIndex or Haystack will do, too"
        )
    name = getattr(given, "__name__", type(given).__name__)
    if inspect.iscoroutinefunction(search):
        raise SettingError(
            f"retriever {name} is asynchronous; give a plain function, such as one that awaits it"
        )
    try:
        inspect.signature(search).bind("query", 1)
    except TypeError as error:
        raise SettingError(
            f"retriever {name} must take a query and a number, as in search(query, k): {error}; of"
            " a client of Elasticsearch or OpenSearch give (client, 'name of the index')"
        ) from None
    except ValueError:
        pass  # a C function, whose parameters are unknown
    return Opened(given, search, name, {"kind": name})


def _find_door(retriever: Any) -> tuple[str, _Search | None]:
    """The library that an object is of, and how it is asked for k passages; a retriever of
    LlamaIndex gives its own k.

    None for an object of one's own. Raises ``SettingError`` for a retriever of Haystack that takes
    no text.
    """

    def has(method: str) -> bool:
        return callable(getattr(retriever, method, None))

    if has("similarity_search"):
        return "LangChain", lambda query, k: retriever.similarity_search(query, k=k)
    if has("invoke"):
        return "LangChain", lambda query, k: retriever.invoke(query, k=k)
    if has("retrieve") and not has("search"):
        return "LlamaIndex", lambda query, k: retriever.retrieve(query)
    if has("run") and not has("search"):
        if "query" not in inspect.signature(retriever.run).parameters:
            raise SettingError(
                f"retriever {type(retriever).__name__} takes no query in its run; give a function"
                " that makes what it takes"
            )
        return "Haystack", lambda query, k: retriever.run(query=query, top_k=k)["documents"]
    return "", None


def _describe_object(library: str, retriever: Any) -> dict[str, Any]:
    """The library, the class, and the class of the store behind it, where the object says it."""
    facts = {"kind": library, "class": _name_class(retriever)}
    for name in ("document_store", "vectorstore"):
        if (store := getattr(retriever, name, None)) is not None:
            facts["store"] = _name_class(store)
    return facts


def _name_class(value: Any) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


# -- a retriever of your own -----------------------------------------------------------------------

_ACCEPTED = (
    "a list of dl.Passage, of texts, of (title, text) pairs, or of dictionaries with text and maybe"
    " id, title, score; or a DataFrame with such columns"
)


class Opened:
    """A ``Retriever`` around a user's own: its answers as passages, and what it is."""

    def __init__(self, own: Any, search: _Search, name: str, facts: dict[str, Any]) -> None:
        self.own = own
        self.name = name
        self._search = search
        self._facts = facts
        if callable(many := getattr(own, "search_many", None)):
            self.search_many = lambda queries, k: [
                as_passages(answer, k, name, query)
                for query, answer in zip(queries, many(queries, k), strict=True)
            ]

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first.

        Raises ``DataError`` naming the retriever, the query and what it answered.
        """
        try:
            answer = self._search(query, k)
        except DraginLabError:
            raise
        except Exception as error:  # a user's code may raise anything
            raise DataError(
                f"retriever {self.name} failed for {query[:80]!r}: {describe_error(error)[:200]}"
            ) from error
        return as_passages(answer, k, self.name, query)

    def provenance(self) -> dict[str, Any]:
        """Its own ``provenance``, as plain data; otherwise its name, or what its library says of
        it.
        """
        if not callable(provenance := getattr(self.own, "provenance", None)):
            return dict(self._facts)
        facts = provenance()
        try:
            written = json.dumps(facts, default=plain)
        except (TypeError, ValueError):
            written = "null"
        known = json.loads(written)
        why = ""
        if not isinstance(known, dict) or not known:
            why = f"gives {str(facts)[:60]!r}; it must be a dictionary of facts that are plain data"
        elif hide_secrets(written) != written:
            why = "names an address with a password or a key; leave them out"
        if why:
            raise DataError(f"retriever {self.name}: provenance() {why}")
        return known

    @property
    def described(self) -> Node:
        """What it is (``fingerprint.describe``); "" where its own ``provenance`` says it."""
        return "" if callable(getattr(self.own, "provenance", None)) else describe(self.own)

    def __repr__(self) -> str:
        return f"retriever {self.name}"


class _Result(msgspec.Struct):
    """A result of a user's retriever; an id is made from the passage where there is none."""

    text: Filled
    title: str | None = None
    id: Filled | int | None = None
    score: float | None = None


def as_passages(answer: Any, k: int, name: str, query: str) -> list[Passage]:
    """The first k passages of a user's retriever's answer; ``DataError`` for an answer of
    another kind.

    A set has no order, and a Series with a text in its index is a row, not a list of passages.
    """
    where = f"retriever {name} answered {query[:80]!r}"
    if (
        isinstance(answer, str | bytes | Mapping | Passage | set | frozenset)
        or (hasattr(answer, "iloc") and "text" in answer.index)
        or not isinstance(answer, Iterable)
    ):
        raise DataError(
            f"{where} with {type(answer).__name__} {str(answer)[:60]!r}; it must be {_ACCEPTED}"
        )
    results = islice(tabular.list_records(answer) if hasattr(answer, "itertuples") else answer, k)
    passages = [
        _as_passage(result, f"{where}: result {number}") for number, result in enumerate(results, 1)
    ]
    ids = [compose(passage.id) for passage in passages]
    if twice := next((id for id in ids if ids.count(id) > 1), None):
        raise DataError(f"{where} with the id {twice!r} twice; give every passage its own")
    return passages


def _as_plain(value: Any) -> Any:
    """A number of numpy or torch as one of Python's; None for a missing one."""
    value = plain(value)
    return None if tabular.is_missing(value) else value


def _as_passage(result: Any, where: str) -> Passage:
    match result:
        case Passage():
            record: Any = asdict(result)
        case str():
            record = {"text": result}
        case [str(title), str(text)]:
            record = {"title": title, "text": text}
        case Mapping():
            record = dict(result)
        case object(page_content=text, metadata=about):  # LangChain's Document
            id = getattr(result, "id", None)
            record = {
                "id": about.get("id") if id is None else id,
                "title": about.get("title"),
                "text": text,
            }
        # LlamaIndex's NodeWithScore
        case object(node=object(metadata=about, node_id=id), score=score):
            record = {
                "id": id,
                "title": about.get("title"),
                "text": result.node.get_content(),
                "score": score,
            }
        case object(content=text, meta=about, id=id, score=score):  # Haystack's Document
            record = {"id": id, "title": about.get("title"), "text": text, "score": score}
        case _:
            raise DataError(
                f"{where} is {type(result).__name__} {str(result)[:60]!r}; it must be in"
                f" {_ACCEPTED}"
            )
    record = {key: _as_plain(value) for key, value in record.items()}
    if isinstance(record.get("id"), float) and record["id"].is_integer():
        record["id"] = int(record["id"])  # as pandas makes of whole numbers beside missing ones
    row = convert_record(
        f"{where}, {str(result)[:60]!r}", record, _Result, DataError, f"; give {_ACCEPTED}"
    )
    id = row.id
    title = row.title or ""
    try:
        for name, value in (("id", str(id)), ("title", title), ("text", row.text)):
            check_text(name, value)
    except SettingError as error:
        raise DataError(f"{where}: {error}") from None
    if id is None:
        id = hashlib.sha256(f"{title}\n{row.text}".encode()).hexdigest()[:12]
    return Passage(str(id), title, row.text, math.nan if row.score is None else row.score)


# -- an index of Elasticsearch or OpenSearch -------------------------------------------------------


class Elasticsearch:
    """A ``Retriever`` over an index whose documents have a title and a text in the fields of these
    names.

    The search is that of the authors' code (github.com/oneal2000/DRAGIN, src/retriever.py;
    reference-behaviour §4): ``multi_match``, ``best_fields``, tie breaker 0.5,
    ``dfs_query_then_fetch``. That code takes a failed search for one without hits, and a partial
    answer for a complete one; both are errors here.

    ``client`` is yours, ``elasticsearch.Elasticsearch(...)`` or ``opensearchpy.OpenSearch(...)``,
    with its own address, credentials, time limit and repetitions. Raises ``SettingError`` for what
    is no client, ``DataError`` for a server that does not answer and for an index that is
    missing, empty or lacks the fields.
    """

    kind = "elasticsearch-bm25"

    def __init__(
        self, client: Any, index: str = "wiki", *, title: str = "title", text: str = "txt"
    ) -> None:
        if not all(callable(getattr(client, name, None)) for name in ("search", "count", "info")):
            raise SettingError(
                f"client is {type(client).__name__}; give a client, such as"
                " elasticsearch.Elasticsearch('http://localhost:9200')"
            )
        self.client = client
        self.index = index
        self.title = title
        self.text = text
        self._about = self._describe()

    def search(self, query: str, k: int) -> list[Passage]:
        """At most k passages, best first, with their scores."""
        fields = [self.title, self.text]
        match = {
            "query": query,
            "type": "best_fields",
            "fields": fields,
            "tie_breaker": TIE_BREAKER,
        }
        body = {"_source": fields, "query": {"multi_match": match}, "size": count("k", k)}
        # and by a search type whose scores do not depend on the number of shards
        with self._name_failures():
            answer = self.client.search(
                index=self.index, body=body, search_type="dfs_query_then_fetch"
            )
            partial = answer["_shards"]["failed"] or answer.get("timed_out")
            records = []
            for hit in answer["hits"]["hits"]:
                title, text = map(hit["_source"].get, fields)
                ranked = {"id": hit["_id"], "score": hit["_score"]}
                records.append(ranked | {"title": title, "text": text})
        if partial:
            raise DataError(
                f"{self!r} answers for a part of the index only; check the cluster's health"
            )
        return as_passages(records, k, repr(self), query)

    def provenance(self) -> dict[str, Any]:
        """All that is needed to repeat these searches, as plain data; no secrets."""
        return self._about | {"kind": self.kind, "tie_breaker": TIE_BREAKER, "corpus": self.index}

    def __repr__(self) -> str:
        return f"Elasticsearch({self.index!r})"

    def _describe(self) -> dict[str, Any]:
        with self._name_failures():
            (facts,) = dict(self.client.indices.get(index=self.index)).values()
            fields = facts["mappings"].get("properties", {})
            settings = facts.get("settings", {}).get("index", {})
            analysis = {name: fields[name].get("analyzer", "standard") for name in fields}
            passages = self.client.count(index=self.index)["count"]
            version = self.client.info()["version"]
            server = f"{version.get('distribution', 'elasticsearch')} {version.get('number', '?')}"
        searched = (self.title, self.text)
        for name in searched:
            if name not in fields:
                raise DataError(
                    f"{self!r} has no field {name!r}, only {', '.join(fields)}; name the fields"
                )
        if not passages:
            raise DataError(f"{self!r} is empty; fill it, or give another index")
        return {
            "analysis": {name: analysis[name] for name in searched},
            "similarity": settings.get("similarity") or "default (BM25, k1 1.2, b 0.75)",
            "index_uuid": settings.get("uuid"),
            "shards": settings.get("number_of_shards"),
            "server": server,
            "passages": passages,
        }

    @contextmanager
    def _name_failures(self) -> Iterator[None]:
        """Name the index of a request that fails, and of an answer that lacks what a search
        server's has.
        """
        try:
            yield
        except Exception as error:  # of two libraries, neither of which is imported here
            raise DataError(f"{self!r}: {describe_error(error)[:300]}") from error
