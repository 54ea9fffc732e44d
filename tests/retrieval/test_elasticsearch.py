"""An index of Elasticsearch or OpenSearch, searched by the user's own client."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import dragin_lab as dl
from dragin_lab.errors import SearchServerError, SettingError
from dragin_lab.retrieval.doors import Elasticsearch, RetrieverError

HITS = [
    {"_id": "7", "_score": 3.5, "_source": {"title": "Ada", "txt": "Ada wrote a book."}},
    {"_id": "9", "_score": 1.25, "_source": {"title": None, "txt": "A river."}},
]
FACTS = {"wiki-1": {"mappings": {"properties": {"title": {"analyzer": "english"}, "txt": {"analyzer": "english"}}}}}


class Client:
    """Answers as both libraries' clients do."""

    def __init__(self, hits: Any = HITS, count: int = 2, facts: Any = FACTS, **answer: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer = {"_shards": {"failed": 0}, "timed_out": False, "hits": {"hits": hits}} | answer
        self.indices = SimpleNamespace(get=lambda index: facts)
        self._count = count

    def search(self, **request: Any) -> Any:
        self.asked.append(request)
        return self.answer

    def count(self, index: str) -> Any:
        return {"count": self._count}

    def info(self) -> Any:
        return {"version": {"number": "8.15.0"}}


def test_the_query_is_that_of_the_authors_code() -> None:
    client = Client()
    found = Elasticsearch(client).search("Who wrote a book?", 3)
    assert [(p.id, p.title, p.text, p.score) for p in found] == [
        ("7", "Ada", "Ada wrote a book.", 3.5), ("9", "", "A river.", 1.25),
    ]  # fmt: skip
    match = {"query": "Who wrote a book?", "type": "best_fields", "fields": ["title", "txt"], "tie_breaker": 0.5}
    body = {"_source": ["title", "txt"], "query": {"multi_match": match}, "size": 3}
    assert client.asked == [{"index": "wiki", "body": body, "search_type": "dfs_query_then_fetch"}]


def test_a_run_records_what_was_searched() -> None:
    facts = dl.Lab("almanac", retriever=Elasticsearch(Client())).retriever.provenance()
    assert (facts["kind"], facts["corpus"], facts["passages"]) == ("elasticsearch-bm25", "wiki", 2)
    assert facts["server"] == "elasticsearch 8.15.0"
    assert facts["analysis"] == {"title": "english", "txt": "english"}


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (Client(hits=[{"_id": "1", "_score": 1.0, "_source": {}}]), "got `null` - at `text`"),
        (Client(hits=[HITS[0], HITS[0]]), "the id '7' twice"),
        (Client(timed_out=True), "a part of the index only"),
        (Client(_shards={"failed": 1}), "a part of the index only"),
    ],
)
def test_an_answer_that_is_not_the_search_is_an_error(client: Client, says: str) -> None:
    with pytest.raises((SearchServerError, RetrieverError), match=says):
        Elasticsearch(client).search("Who?", 3)


def test_an_index_without_passages_or_fields_is_refused() -> None:
    with pytest.raises(SearchServerError, match="is empty"):
        Elasticsearch(Client(count=0))
    with pytest.raises(SearchServerError, match="has no field 'body', only title, txt"):
        Elasticsearch(Client(), text="body")
    with pytest.raises(SettingError, match="client is str; give a client"):
        Elasticsearch("http://localhost:9200")


def test_a_client_that_fails_says_why() -> None:
    client = Client()
    retriever = Elasticsearch(client)
    client.search = lambda **_: {}["connection refused"]  # type: ignore[assignment]
    with pytest.raises(SearchServerError, match="KeyError: 'connection refused'"):
        retriever.search("Who?", 3)
