"""Retrievers of LangChain, LlamaIndex and Haystack, by the libraries themselves; and a client with its index."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import ScriptedModel

import dragin_lab as dl
from dragin_lab.errors import SettingError
from dragin_lab.retrieval.choose import as_retriever

TEXTS = {"a": "Ada wrote a book.", "b": "Bo swims.", "c": "Cy sings."}


def shown(retriever: Any, k: int = 2) -> list[tuple[str, str, str]]:
    return [(p.id, p.title, p.text) for p in as_retriever(retriever).search("Who wrote a book?", k)]


@pytest.fixture
def store() -> Any:
    documents = pytest.importorskip("langchain_core.documents")
    embeddings = pytest.importorskip("langchain_core.embeddings")
    stores = pytest.importorskip("langchain_core.vectorstores")
    store = stores.InMemoryVectorStore(embeddings.DeterministicFakeEmbedding(size=8))
    store.add_documents([documents.Document(text, id=id, metadata={"title": id.upper()}) for id, text in TEXTS.items()])
    return store


def test_a_vector_store_of_langchain_and_its_retriever_give_k_passages(store: Any) -> None:
    for retriever in (store, store.as_retriever(search_kwargs={"k": 1})):
        for k in (1, 3):
            passages = shown(retriever, k)
            assert len(passages) == k
            assert all((title, text) == (id.upper(), TEXTS[id]) for id, title, text in passages)


def test_a_run_records_the_library_the_class_and_the_store(store: Any) -> None:
    recorded = dl.Lab(ScriptedModel([]), retriever=store.as_retriever()).retriever.identity()
    assert recorded.pop("answers_sha256")
    assert recorded == {
        "kind": "LangChain",
        "class": "langchain_core.vectorstores.base.VectorStoreRetriever",
        "store": "langchain_core.vectorstores.in_memory.InMemoryVectorStore",
    }


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


def test_a_retriever_of_llama_index_gives_as_many_as_it_was_made_for() -> None:
    core = pytest.importorskip("llama_index.core")
    schema = pytest.importorskip("llama_index.core.schema")
    nodes = [schema.TextNode(text=text, id_=id, metadata={"title": id.upper()}) for id, text in TEXTS.items()]
    index = core.VectorStoreIndex(nodes=nodes, embed_model=core.MockEmbedding(embed_dim=4))
    passages = shown(index.as_retriever(similarity_top_k=2), 3)
    assert passages == [(id, id.upper(), TEXTS[id]) for id, *_ in passages]
    assert len(passages) == 2
    assert as_retriever(index.as_retriever()).provenance()["kind"] == "LlamaIndex"


def test_a_retriever_of_haystack_is_asked_for_k_and_one_that_takes_vectors_is_refused() -> None:
    haystack = pytest.importorskip("haystack")
    stores = pytest.importorskip("haystack.document_stores.in_memory")
    retrievers = pytest.importorskip("haystack.components.retrievers.in_memory")
    store = stores.InMemoryDocumentStore()
    store.write_documents([haystack.Document(id=id, content=t, meta={"title": id.upper()}) for id, t in TEXTS.items()])
    found = as_retriever(retrievers.InMemoryBM25Retriever(store)).search("wrote a book", 1)
    assert [(p.id, p.title, p.text) for p in found] == [("a", "A", TEXTS["a"])]
    assert found[0].score > 0
    with pytest.raises(SettingError, match="InMemoryEmbeddingRetriever takes no query in its run"):
        as_retriever(retrievers.InMemoryEmbeddingRetriever(store))


def test_a_client_stands_with_the_name_of_its_index() -> None:
    client = pytest.importorskip("opensearchpy").OpenSearch("http://127.0.0.1:1")
    with pytest.raises(SettingError, match=r"give \(client, 'name of the index'\)"):
        as_retriever(client)
    with pytest.raises(dl.errors.DraginLabError, match="ConnectionError"):
        as_retriever((client, "wiki"))


def test_an_own_search_comes_before_other_methods() -> None:
    class Mine:
        def search(self, query: str, k: int) -> list[str]:
            return ["found"]

        def retrieve(self, query: str) -> list[str]:
            return ["not asked"]

    assert [p.text for p in as_retriever(Mine()).search("q", 1)] == ["found"]
