"""Objects of LangChain, LlamaIndex and Haystack as retrievers: recognised by their methods, never imported."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from dragin_lab.errors import SettingError


class Door(NamedTuple):
    """How another library's object is searched, and what a run records of it."""

    search: Callable[[str, int], Any]
    facts: dict[str, Any]


def find_door(thing: Any) -> Door | None:
    """The door of an object that another library searches with; None for any other object.

    LangChain's vector stores and retrievers and Haystack's retrievers are asked for k passages; a retriever of
    LlamaIndex gives as many as it was made for. Raises ``SettingError`` for one of Haystack that takes no text.
    """
    if _has(thing, "similarity_search"):
        return Door(lambda query, k: thing.similarity_search(query, k=k), _describe("LangChain", thing))
    if _has(thing, "invoke"):
        return Door(lambda query, k: thing.invoke(query, k=k), _describe("LangChain", thing))
    if _has(thing, "search"):
        return None
    if _has(thing, "retrieve"):
        return Door(lambda query, k: thing.retrieve(query), _describe("LlamaIndex", thing))
    if _has(thing, "run"):
        if "query" not in inspect.signature(thing.run).parameters:
            raise SettingError(
                f"retriever {type(thing).__name__} takes no query in its run; give a function that makes what it takes"
            )
        return Door(lambda query, k: thing.run(query=query, top_k=k)["documents"], _describe("Haystack", thing))
    return None


def read_document(result: Any) -> dict[str, Any] | None:
    """The id, title, text and score of a document of one of these libraries; None for anything else."""
    if hasattr(result, "page_content"):  # LangChain's Document
        about, text, id, score = result.metadata, result.page_content, getattr(result, "id", None), None
    elif hasattr(result, "node") and hasattr(result.node, "get_content"):  # LlamaIndex's NodeWithScore
        about, text, id, score = result.node.metadata, result.node.get_content(), result.node.node_id, result.score
    elif hasattr(result, "content") and hasattr(result, "meta"):  # Haystack's Document
        about, text, id, score = result.meta, result.content, result.id, result.score
    else:
        return None
    return {"id": about.get("id") if id is None else id, "title": about.get("title"), "text": text, "score": score}


def _has(thing: Any, method: str) -> bool:
    return callable(getattr(thing, method, None))


def _describe(library: str, thing: Any) -> dict[str, Any]:
    """The library, the class, and the class of the store behind it, where the object says it."""
    stores = (getattr(thing, name, None) for name in ("vectorstore", "document_store"))
    store = next((store for store in stores if store is not None), None)
    return {"kind": library, "class": _name(thing)} | ({} if store is None else {"store": _name(store)})


def _name(thing: Any) -> str:
    return f"{type(thing).__module__}.{type(thing).__qualname__}"
