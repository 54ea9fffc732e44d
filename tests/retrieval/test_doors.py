"""Retrievers of LangChain, LlamaIndex and Haystack, by the libraries themselves; and a client
with its index.
"""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from scripted import ScriptedModel
from web import listen

import dragin_lab as dl
from dragin_lab.errors import DataError, SettingError
from dragin_lab.retrieval.doors import Elasticsearch, as_retriever

TEXTS = {"a": "Ada wrote a book.", "b": "Bo swims.", "c": "Cy sings."}


def shown(retriever: Any, k: int = 2) -> list[tuple[str, str, str]]:
    return [(p.id, p.title, p.text) for p in as_retriever(retriever).search("Who wrote a book?", k)]


@pytest.fixture
def store() -> Any:
    documents = pytest.importorskip("langchain_core.documents")
    embeddings = pytest.importorskip("langchain_core.embeddings")
    stores = pytest.importorskip("langchain_core.vectorstores")
    store = stores.InMemoryVectorStore(embeddings.DeterministicFakeEmbedding(size=8))
    store.add_documents(
        [
            documents.Document(text, id=id, metadata={"title": id.upper()})
            for id, text in TEXTS.items()
        ]
    )
    return store


@pytest.mark.slow
def test_a_vector_store_of_langchain_and_its_retriever_give_k_passages(store: Any) -> None:
    for retriever in (store, store.as_retriever(search_kwargs={"k": 1})):
        for k in (1, 3):
            passages = shown(retriever, k)
            assert len(passages) == k
            assert all((title, text) == (id.upper(), TEXTS[id]) for id, title, text in passages)


@pytest.mark.slow
def test_a_run_records_the_library_the_class_and_the_store(store: Any) -> None:
    recorded = dl.Lab(ScriptedModel([]), retriever=store.as_retriever()).retriever.provenance()
    assert recorded == {
        "kind": "LangChain",
        "class": "langchain_core.vectorstores.base.VectorStoreRetriever",
        "store": "langchain_core.vectorstores.in_memory.InMemoryVectorStore",
    }


@pytest.mark.slow
def test_a_retriever_of_langchain_may_have_documents_without_ids_and_more_than_k() -> None:
    documents = pytest.importorskip("langchain_core.documents")
    retrievers = pytest.importorskip("langchain_core.retrievers")

    class Mine(retrievers.BaseRetriever):  # type: ignore[name-defined,misc]
        def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Any]:
            return [documents.Document(text) for text in TEXTS.values()]

    passages = shown(Mine())
    assert [text for *_, text in passages] == list(TEXTS.values())[:2]
    assert len({id for id, *_ in passages}) == 2
    own = shown(lambda query, k: [documents.Document("Di dives.", metadata={"id": 7})])
    assert own == [("7", "", "Di dives.")]


@pytest.mark.slow
def test_a_retriever_of_llama_index_gives_as_many_as_it_was_made_for() -> None:
    core = pytest.importorskip("llama_index.core")
    schema = pytest.importorskip("llama_index.core.schema")
    nodes = [
        schema.TextNode(text=text, id_=id, metadata={"title": id.upper()})
        for id, text in TEXTS.items()
    ]
    index = core.VectorStoreIndex(nodes=nodes, embed_model=core.MockEmbedding(embed_dim=4))
    passages = shown(index.as_retriever(similarity_top_k=2), 3)
    assert passages == [(id, id.upper(), TEXTS[id]) for id, *_ in passages]
    assert len(passages) == 2
    assert as_retriever(index.as_retriever()).provenance()["kind"] == "LlamaIndex"


@pytest.mark.slow
def test_a_retriever_of_haystack_is_asked_for_k_and_one_that_takes_vectors_is_refused() -> None:
    haystack = pytest.importorskip("haystack")
    stores = pytest.importorskip("haystack.document_stores.in_memory")
    retrievers = pytest.importorskip("haystack.components.retrievers.in_memory")
    store = stores.InMemoryDocumentStore()
    store.write_documents(
        [haystack.Document(id=id, content=t, meta={"title": id.upper()}) for id, t in TEXTS.items()]
    )
    found = as_retriever(retrievers.InMemoryBM25Retriever(store)).search("wrote a book", 1)
    assert [(p.id, p.title, p.text) for p in found] == [("a", "A", TEXTS["a"])]
    assert found[0].score > 0
    with pytest.raises(SettingError, match="InMemoryEmbeddingRetriever takes no query in its run"):
        as_retriever(retrievers.InMemoryEmbeddingRetriever(store))


@pytest.mark.slow
def test_a_client_stands_with_the_name_of_its_index() -> None:
    client = pytest.importorskip("opensearchpy").OpenSearch("http://127.0.0.1:1")
    with pytest.raises(SettingError, match=r"give \(client, 'name of the index'\)"):
        as_retriever(client)
    with pytest.raises(dl.errors.DraginLabError, match="ConnectionError"):
        as_retriever((client, "wiki"))


@pytest.mark.parametrize(
    ("library", "method", "parameter"),
    [
        ("LangChain", "similarity_search", "k"),
        ("LangChain", "invoke", "k"),
        ("LlamaIndex", "retrieve", None),
        ("Haystack", "run", "top_k"),
    ],
)
def test_a_library_is_known_by_how_its_retrievers_are_asked(
    library: str, method: str, parameter: str | None
) -> None:
    def answer(self: Any, query: str, **given: int) -> Any:
        asked.append((query, given))
        found = list(TEXTS.values())[:2]
        return {"documents": found} if library == "Haystack" else found

    asked: list[tuple[str, dict[str, int]]] = []
    retriever = as_retriever(type("Theirs", (), {method: answer})())
    assert [passage.text for passage in retriever.search("Who?", 2)] == [*TEXTS.values()][:2]
    assert asked == [("Who?", {parameter: 2} if parameter else {})]
    assert retriever.provenance()["kind"] == library


def test_an_own_search_comes_before_other_methods() -> None:
    class Mine:
        def search(self, query: str, k: int) -> list[str]:
            return ["found"]

        def retrieve(self, query: str) -> list[str]:
            return ["not asked"]

    assert [p.text for p in as_retriever(Mine()).search("q", 1)] == ["found"]


HITS = [
    {"_id": "7", "_score": 3.5, "_source": {"title": "Ada", "txt": "Ada wrote a book."}},
    {"_id": "9", "_score": 1.25, "_source": {"title": None, "txt": "A river."}},
]
FACTS = {
    "wiki-1": {
        "mappings": {
            "properties": {"title": {"analyzer": "english"}, "txt": {"analyzer": "english"}}
        }
    }
}


class Client:
    """Answers as both libraries' clients do."""

    def __init__(self, hits: Any = HITS, count: int = 2, facts: Any = FACTS, **answer: Any) -> None:
        self.asked: list[dict[str, Any]] = []
        self.answer = {
            "_shards": {"failed": 0},
            "timed_out": False,
            "hits": {"hits": hits},
        } | answer
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
        ("7", "Ada", "Ada wrote a book.", 3.5),
        ("9", "", "A river.", 1.25),
    ]
    match = {
        "query": "Who wrote a book?",
        "type": "best_fields",
        "fields": ["title", "txt"],
        "tie_breaker": 0.5,
    }
    body = {"_source": ["title", "txt"], "query": {"multi_match": match}, "size": 3}
    assert client.asked == [{"index": "wiki", "body": body, "search_type": "dfs_query_then_fetch"}]


@pytest.mark.parametrize(
    ("client", "says"),
    [
        (Client(hits=[{"_id": "1", "_score": 1.0, "_source": {}}]), "got `null` - at `text`"),
        (Client(hits=[HITS[0], HITS[0]]), "the id '7' twice"),
        (Client(timed_out=True), "a part of the index only"),
        (Client(_shards={"failed": 1}), "a part of the index only"),
        (Client(hits=[{"_id": "1"}]), "KeyError: '_source'"),
        (Client(hits={"total": 2}), "KeyError: 'hits'|string indices|TypeError"),
        (Client(_shards=None), "TypeError"),
    ],
)
def test_an_answer_that_is_not_the_search_is_an_error(client: Client, says: str) -> None:
    with pytest.raises(DataError, match=says):
        Elasticsearch(client).search("Who?", 3)


def test_an_index_without_passages_or_fields_is_refused() -> None:
    with pytest.raises(DataError, match="is empty"):
        Elasticsearch(Client(count=0))
    with pytest.raises(DataError, match="has no field 'body', only title, txt"):
        Elasticsearch(Client(), text="body")
    for odd in (
        [],
        "<html>",
        {"wiki-1": {"mappings": []}},
        {"wiki-1": None},
        FACTS | {"wiki-2": FACTS["wiki-1"]},
    ):
        with pytest.raises(DataError, match=r"Elasticsearch\('wiki'\): \w+Error"):
            Elasticsearch(Client(facts=odd))
    with pytest.raises(SettingError, match="client is str; give a client"):
        Elasticsearch("http://localhost:9200")


class SmallServer(BaseHTTPRequestHandler):
    """An index of two passages, with the answers of Elasticsearch and OpenSearch."""

    protocol_version = "HTTP/1.1"
    answers: ClassVar[dict[str, Any]] = {
        "/": {"version": {"number": "9.1.0"}, "tagline": "You Know, for Search"},
        "/wiki": {
            "wiki": {
                "mappings": {"properties": {"title": {}, "txt": {}}},
                "settings": {"index": {}},
            }
        },
        "/wiki/_count": {"count": 2},
        "/wiki/_search": {
            "_shards": {"failed": 0},
            "hits": {
                "hits": [
                    {"_id": "a", "_score": 1.5, "_source": {"title": "Ada", "txt": TEXTS["a"]}}
                ]
            },
        },
    }

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        data = json.dumps(self.answers[self.path.partition("?")[0]]).encode()
        self.send_response(200)
        self.send_header("X-Elastic-Product", "Elasticsearch")
        self.send_header(
            "Content-Type", self.headers.get("Accept", "application/json").partition(",")[0]
        )
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.do_GET()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("package", "client"), [("elasticsearch", "Elasticsearch"), ("opensearchpy", "OpenSearch")]
)
def test_the_clients_of_elasticsearch_and_opensearch_search(package: str, client: str) -> None:
    with listen(SmallServer) as address:
        own = getattr(pytest.importorskip(package), client)(address)
        (passage,) = as_retriever((own, "wiki")).search("Who wrote a book?", 3)
        assert (passage.id, passage.title, passage.text, passage.score) == (
            "a",
            "Ada",
            TEXTS["a"],
            1.5,
        )
        facts = dl.Lab("almanac", retriever=(own, "wiki")).retriever.provenance()
        assert (facts["kind"], facts["corpus"], facts["passages"]) == (
            "elasticsearch-bm25",
            "wiki",
            2,
        )
        assert (facts["server"], facts["analysis"]["txt"]) == ("elasticsearch 9.1.0", "standard")
        own.close()


@pytest.mark.slow
def test_the_recipe_for_milvus_searches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    milvus = pytest.importorskip("pymilvus")
    pytest.importorskip("milvus_lite")
    monkeypatch.chdir(tmp_path)
    client = milvus.MilvusClient("passages.db")
    client.create_collection("passages", dimension=2)
    rows = [
        {"id": i, "vector": [i, 1.0], "title": id.upper(), "text": t}
        for i, (id, t) in enumerate(TEXTS.items())
    ]
    client.insert("passages", rows)
    client.close()
    page = (Path(__file__).parents[2] / "docs/how-to/search-servers.md").read_text(encoding="utf-8")
    recipe = next(
        block
        for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        if "pymilvus" in block
    )
    found: dict[str, Any] = {"dl": dl, "encode": lambda text: [2.0, 1.0]}
    exec(recipe, found)
    assert [(p.title, p.text) for p in found["lab"].retriever.search("Who sings?", 1)] == [
        ("C", TEXTS["c"])
    ]
    found["client"].close()
